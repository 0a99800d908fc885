"""``agentbus hook EVENT --for HARNESS``: what a harness runs at a session's start, at a turn's end, and to be woken.

Serves them without click. A hook never fails, waits for no lock of another process, and never holds a session up: what
it cannot find out in a few seconds, on a sick disk, it leaves. It hands no text of other agents to a model: how many
messages wait, where and from whom, and no word of them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress

from agentbus import identity, processes, repoconfig
from agentbus.harness import forms
from agentbus.protocol import render_protocol
from agentbus.visible import render_visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STDIN_BYTES_MAX = 4 << 20  # a client may hand over the last answer of its model
_STDIN_WAIT_S = 0.3
_ANSWER_S = 5.0  # it takes a quarter of a second; clients give it ten
_WOKEN = 2
_CODEX_WAIT_S = 60


def run(arguments: list[str]) -> int | None:
    """Answer a hook; the exit status, or None if ``arguments`` (those after ``hook``) are for click to explain."""
    match arguments:
        case [event, "--for", harness] if event in forms.EVENTS and harness in forms.HARNESSES:
            return answer(event, harness, None)
        case [event, "--for", harness, "--config", path] if event in forms.EVENTS and harness in forms.HARNESSES:
            return answer(event, harness, path)
    return None


def answer(event: str, harness: str, config_path: str | None) -> int:
    """What the hook prints is written; its exit status, which takes no session along whatever has happened."""
    try:
        return _answer(event, harness, config_path)
    except Exception as error:  # noqa: BLE001  # the outermost shell of a process that must not fail
        identity.write_text(2, f"agentbus: hook {event} failed: {type(error).__name__}\n")
        return 0


def _answer(event: str, harness: str, config_path: str | None) -> int:
    if event == "session-start":
        return _start_session(harness)
    given = _read_stdin()
    if event == "stop":
        return _end_turn(harness, given, config_path)
    return _wake(harness, given, config_path)


def _start_session(harness: str) -> int:
    # It runs its user's hooks in a directory of its own, and says where the session is.
    named = forms.directory_in(_read_stdin()) if harness == "cursor" else None
    name, warnings = identity.here() if named is None else repoconfig.identity(named)
    identity.write_text(1, forms.render_session_start(harness, render_protocol(name)))
    for warning in warnings[:1]:
        identity.write_text(2, f"agentbus: {render_visible(warning)}\n")
    identity.drain_stdin()
    return 0


def _read_stdin() -> dict[str, Any]:
    """The object a client sends to its hook; an empty one for whatever else there may be, or nothing in time."""
    data, deadline = b"", time.monotonic() + _STDIN_WAIT_S
    with suppress(OSError, ValueError):
        while len(data) < _STDIN_BYTES_MAX:
            ready, _, _ = select.select([0], [], [], max(0.0, deadline - time.monotonic()))
            if not ready or not (piece := os.read(0, 1 << 16)):
                break
            data += piece
        found = json.loads(data)
        if isinstance(found, dict):
            return found
    return {}


def _end_turn(harness: str, given: dict[str, Any], config_path: str | None) -> int:
    if forms.goes_on_already(harness, given):
        return 0
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, _ANSWER_S)
    from agentbus import holding  # noqa: PLC0415  # the bus and all it stands on

    caller = holding.Caller(processes.harness(), *_where(given))
    reason = holding.reason_to_go_on(config_path, caller, lambda: signal.setitimer(signal.ITIMER_REAL, 0))
    if reason is not None:
        identity.write_text(1, forms.render_stop(harness, reason))
    return 0


def _wake(harness: str, given: dict[str, Any], config_path: str | None) -> int:
    if forms.is_unattended(os.environ) or harness not in forms.WOKEN:
        return 0
    process = processes.harness()  # before this one may go on apart from it
    if harness == "codex" and not _become_apart():
        return 0
    from agentbus import holding  # noqa: PLC0415  # as above

    reason = holding.wait_for_reason(config_path, holding.Caller(process, *_where(given)))
    if reason is None:
        return 0
    if harness == "codex":
        return _queue_in_codex(process, str(given.get("session_id", "")), reason)
    identity.write_text(1 if harness == "opencode" else 2, reason + "\n")
    return _WOKEN


def _become_apart() -> bool:
    """Go on in a child that its client does not wait for; whether this is the child."""
    sys.stdout.flush()
    if os.fork():
        return False
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    return True


def _queue_in_codex(process: processes.Process | None, thread: str, reason: str) -> int:
    """Hand Codex a message for its idle session: it comes in as if its user had said it, and so says whose it is."""
    import shutil  # noqa: PLC0415  # only here
    import subprocess  # noqa: PLC0415  # as above

    if not thread or process is None:
        return 0
    program = shutil.which("codex") or f"/proc/{process.pid}/exe"
    command = [program, "queue", "--thread", thread, "--message", reason]
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, capture_output=True, timeout=_CODEX_WAIT_S, check=False)
    return 0


def _where(given: dict[str, Any]) -> tuple[str, str | None]:
    """The directory of the session, as its server names it, and the client's id of it."""
    directory, thread = forms.directory_in(given), given.get("session_id")
    if directory is None:
        try:
            directory = os.getcwd()
        except OSError:  # it is gone
            directory = "/"
    return os.path.realpath(directory), thread if isinstance(thread, str) else None
