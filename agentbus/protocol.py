"""The session protocol text: one constant, two callers, ``agentbus identity`` and the setup text of ``init``.

Pure. Says what an agent is to do, not what it may do; holds no text of other agents.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOCOL = """\
Agentbus: call the register tool now with the name parameter set to "NAME",
and pass the "as" value it returns on every later Agentbus call. Register
subscribes you to this repository's persistent channels (from
.local/agentbus.json; default: general for chat, memory for memories).
Then follow this protocol:
- Call receive right after registering, whenever you finish a task, and before
  you ask the user a question. Pass each batch's token as ack on your next
  receive.
- Post to your subscribed chat channel when you start, finish, or get blocked
  on a task, and when you change something other agents depend on. If you are
  subscribed to more than one chat channel, post to the one most relevant to
  the message. Reply to messages addressed to you.
- Search all your subscribed memory channels before starting unfamiliar work,
  and whenever something you believe should work is not working.
- Post to a memory channel whenever you discover a non-obvious fact that would
  save another agent time. Examples: "tool X does not honor --y; workaround is
  Z"; "the spec for feature A says B, but I verified with <test> that the
  correct behavior is C"; "to accomplish J, I tried K, L, and M, which failed;
  P worked."
- Call discover before assuming you are the only agent working.
"""
"""What a new session reads; NAME, which stands in it once, is the identity."""

_SETUP = """\
Agentbus setup. `agentbus init` makes a repository ready; steps 1 and 2 are done once for this user.

1. Connect the coding agents on this machine: Claude Code, Codex, Gemini CLI, opencode, Cursor, VS Code. In a shell:

agentbus init --global

   It adds the server and the hooks to each that it finds, and says what it did. Nothing else in their settings
   changes; --dry-run only shows, --uninstall takes everything out again.

2. Restart them. In Codex trust the new hooks in /hooks: until then it skips them. In Claude Code add "mcp__agentbus"
   to permissions.allow in settings.json if it shall not ask you before each Agentbus call.

3. Sessions in this repository register as "NAME". More channels for all of them: run
   `agentbus channel create CHANNEL` and, at the repository's root, `agentbus subscribe CHANNEL`.

By hand in place of step 1, for Claude Code and for Codex; any other MCP client: a stdio server with the command
"agentbus" and the argument "mcp".

claude mcp add -s user agentbus -- agentbus mcp
codex mcp add agentbusENV -- agentbus mcp

   A hook that begins each session with the protocol: merge the first into ~/.claude/settings.json, the second into
   ~/.codex/hooks.json.

{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "agentbus identity"}]}]}}
{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "agentbus identity --format json"}]}]}}

The protocol every session follows:

"""


_SKILL = """\
---
name: agentbus
description: Talk to the other coding agents on this machine and share what you learn with them. Use it at the start of
  a task, when you finish or get blocked, before unfamiliar work, and when something does not work as it should.
---

"""


def render_skill() -> str:
    """The protocol as a skill file for clients that read one; ends with a newline."""
    return _SKILL + render_protocol("the identity that `agentbus identity` prints here")


def render_protocol(name: str) -> str:
    """The session protocol for the identity ``name``; ends with a newline."""
    return PROTOCOL.replace("NAME", name)


def render_setup(name: str, environ: Mapping[str, str]) -> str:
    """The setup steps and then the protocol, for the command and the prompt ``init``; ends with a newline.

    Codex passes no environment on: where ``environ`` moves the bus, its server must be told, or there are two buses.
    """
    import shlex  # noqa: PLC0415  # only the setup quotes for a shell

    moved = [f"{key}={environ[key]}" for key in ("AGENTBUS_CONFIG", "AGENTBUS_DATA_DIR") if key in environ]
    told = "".join(f" --env {shlex.quote(pair)}" for pair in moved)
    return _SETUP.replace("NAME", name).replace("agentbusENV", f"agentbus{told}") + render_protocol(name)
