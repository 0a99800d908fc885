"""What each harness's hooks send and want back: the same few facts in each client's own form. Pure.

The text a hook hands to a model is the bus's own. Names of other agents and of channels stand in it as JSON strings,
cut to a few words; never what a message says.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HARNESSES = ("claude", "codex", "gemini", "opencode", "cursor")
"""Those whose hooks are known; VS Code has none for a user."""
EVENTS = ("session-start", "stop", "wake")
WOKEN = ("claude", "codex", "opencode")
"""Those that can be woken while they are idle."""
_NAMED_MAX = 3
_NAME_CHARS_MAX = 40
_FEW_WORDS = re.compile(r"[^\s:;<>{}\[\]`]+(?: [^\s:;<>{}\[\]`]+){0,2}")


def render_session_start(harness: str, protocol: str) -> str:
    """The session protocol as the harness's hook hands it to the model; ends with a newline."""
    if harness in {"claude", "opencode"}:
        return protocol
    if harness == "cursor":
        return json.dumps({"additional_context": protocol}) + "\n"
    output = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": protocol}}
    return json.dumps(output) + "\n"


def directory_in(given: dict[str, Any]) -> str | None:
    """Where the client says that its session works; None if it does not."""
    roots = given.get("workspace_roots")
    named = [given.get("cwd"), *(roots if isinstance(roots, list) else ())]
    return next((each for each in named if isinstance(each, str) and each), None)


def goes_on_already(harness: str, given: dict[str, Any]) -> bool:
    """Whether the client says that its turn goes on because of a stop hook: it is never held twice in a row."""
    if harness == "cursor":
        return bool(given.get("loop_count"))
    return bool(given.get("stop_hook_active"))


def render_stop(harness: str, reason: str) -> str:
    """What holds the turn, with the reason that the model reads; ends with a newline."""
    match harness:
        case "cursor":
            answer = {"followup_message": reason}
        case "gemini":
            answer = {"decision": "deny", "reason": reason}
        case "opencode":
            return reason + "\n"
        case _:
            answer = {"decision": "block", "reason": reason}
    return json.dumps(answer) + "\n"


def is_unattended(environ: dict[str, str] | Any) -> bool:  # noqa: ANN401  # os.environ
    """Whether nobody would come back to this session: a run that waits for a message would never end."""
    return environ.get("CLAUDE_CODE_SESSION_ATTENDED") == "0"


def render_reason(identity: str, rows: list[tuple[str, int, list[str]]], *, addressed: bool = False) -> str:
    """One sentence on what waits, and the next step.

    Args:
        identity: for whom.
        rows: (channel, how many, from whom), as unseen.by_channel gives them.
        addressed: all of it is addressed to the identity.
    """
    count = sum(many for _, many, _ in rows)
    what = f"{count} new message{'' if count == 1 else 's'}{' addressed to you' if addressed else ''}"
    where = ", ".join(
        f"{many} in {_shown(channel)} from {_render_names(senders)}" for channel, many, senders in rows[:_NAMED_MAX]
    )
    others = len(rows) - _NAMED_MAX
    more = f", and more in {others} other channel{'' if others == 1 else 's'}" if others > 0 else ""
    wait = "waits" if count == 1 else "wait"
    return f'Agentbus: {what} {wait}: {where}{more}. Call the Agentbus tool receive with "as" {_quoted(identity)}.'


def _render_names(names: list[str]) -> str:
    shown = ", ".join(map(_shown, names[:_NAMED_MAX]))
    return shown + (f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else "")


def _shown(name: str) -> str:
    """A name that others chose, quoted: as much of it as cannot be taken for somebody's words."""
    found = _FEW_WORDS.match(name)
    shown = found[0][:_NAME_CHARS_MAX] if found else ""
    return _quoted(name if shown == name else f"{shown}...")


def _quoted(name: str) -> str:
    """Exactly that name, as JSON; what moves a cursor is escaped."""
    return json.dumps(name, ensure_ascii=not name.isprintable())
