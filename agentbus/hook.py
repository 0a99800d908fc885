"""``agentbus hook EVENT --for HARNESS``: what a harness runs at a session's start, at a turn's end, and to be woken.

Serves them without click. A hook never fails, waits for no lock of another process, and never holds a session up: what
it cannot find out in half a second it leaves to the next one. It hands no text of other agents to a model: how many
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

from agentbus import identity, processes, whereabouts
from agentbus.harness import forms
from agentbus.protocol import render_protocol
from agentbus.visible import render_visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STDIN_BYTES_MAX = 4 << 20  # a client may hand over the last answer of its model
_STDIN_WAIT_S = 0.3
# A hook answers in less than a second; half of it goes to its start and to the client's words.
_READING_S = 0.5  # of its processor's time: what else the machine has to do is no reason to say nothing
_ANSWER_S = 0.8  # for what only waits: a sick disk, or a damaged line while a stopped process holds the lock
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
    except KeyboardInterrupt:  # meant for its client, in whose terminal it runs
        return 0
    except Exception as error:  # noqa: BLE001  # the outermost shell of a process that must not fail
        identity.write_text(2, f"agentbus: hook {event} failed: {type(error).__name__}\n")
        return 0


def _answer(event: str, harness: str, config_path: str | None) -> int:
    if event == "session-start":
        return _start_session(harness)
    given = _read_stdin()
    if event == "stop":
        return _end_turn(harness, given, config_path)
    return _wake(harness, given or {}, config_path)


def _start_session(harness: str) -> int:
    # It runs its user's hooks in a directory of its own, and says where the session is.
    named = _directory_in(_read_stdin() or {}) if harness == "cursor" else None
    with suppress(OSError):
        whereabouts.settle(named, os.environ)  # as its server does: both are to tell one identity
    name, warnings = identity.here()
    identity.write_text(1, forms.render_session_start(harness, render_protocol(name)))
    for warning in warnings[:1]:
        identity.write_text(2, f"agentbus: {render_visible(warning)}\n")
    identity.drain_stdin()
    return 0


def _read_stdin() -> dict[str, Any] | None:
    """The object a client sends to its hook; an empty one for whatever else there may be, and for silence.

    None if it was not heard out, in time or at all: nobody knows what it would have said.
    """
    data, deadline, at_end = b"", time.monotonic() + _STDIN_WAIT_S, False
    with suppress(OSError):
        while not at_end and len(data) < _STDIN_BYTES_MAX:
            ready, _, _ = select.select([0], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            piece = os.read(0, 1 << 16)
            data, at_end = data + piece, not piece
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {} if at_end or not data else None
    return found if isinstance(found, dict) else {}


def _end_turn(harness: str, given: dict[str, Any] | None, config_path: str | None) -> int:
    if given is None or forms.goes_on_already(harness, given):
        return 0
    from agentbus import holding  # noqa: PLC0415  # the bus and all it stands on

    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, lambda *_: os._exit(0))
    _set_timers(_READING_S, _ANSWER_S)
    caller = holding.Caller(processes.harness(), *_where(given))
    reason = holding.reason_to_go_on(config_path, caller, lambda: _set_timers(0, 0))
    if reason is not None:
        identity.write_text(1, forms.render_stop(harness, reason))
    return 0


def _set_timers(reading_s: float, answer_s: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, reading_s)
    signal.setitimer(signal.ITIMER_REAL, answer_s)


def _wake(harness: str, given: dict[str, Any], config_path: str | None) -> int:
    if forms.is_unattended(os.environ) or harness not in forms.WOKEN:
        return 0
    process = processes.harness()  # before this one may go on apart from it
    if harness == "codex" and (process is None or not given.get("session_id") or not _become_apart()):
        return 0
    from agentbus import holding  # noqa: PLC0415  # as above

    def tell(reason: str) -> bool:
        if harness == "codex":
            return _queue_in_codex(process, str(given["session_id"]), reason)
        identity.write_text(1 if harness == "opencode" else 2, reason + "\n")
        return True

    return _WOKEN if holding.wait_and_tell(config_path, holding.Caller(process, *_where(given)), tell) else 0


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


def _queue_in_codex(process: processes.Process | None, thread: str, reason: str) -> bool:
    """Hand Codex a message for its idle session; whether it took it.

    It comes in as if its user had said it, and so says whose it is.
    """
    import shutil  # noqa: PLC0415  # only here
    import subprocess  # noqa: PLC0415  # as above

    program = shutil.which("codex") or (f"/proc/{process.pid}/exe" if process else "codex")
    command = [program, "queue", "--thread", thread, "--message", reason]
    with suppress(OSError, ValueError, subprocess.SubprocessError):  # no such program; an id that is no argument
        return subprocess.run(command, capture_output=True, timeout=_CODEX_WAIT_S, check=False).returncode == 0
    return False


def _where(given: dict[str, Any]) -> tuple[str, str | None]:
    """The directory of the session, as its server names it, and the client's id of it."""
    directory, thread = _directory_in(given), given.get("session_id")
    if directory is None:
        try:
            directory = os.getcwd()
        except OSError:  # it is gone
            directory = "/"
    return os.path.realpath(directory), thread if isinstance(thread, str) else None


def _directory_in(given: dict[str, Any]) -> str | None:
    """Where the client says that its session works; None if there is no such place."""
    directory = forms.directory_in(given)
    return directory if directory is not None and os.path.isdir(directory) else None
