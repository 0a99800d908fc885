"""``agentbus identity``: the session protocol for the working directory, printed for a session-start hook.

Serves the common forms without click; knows no other command. Takes no lock, opens nothing that could make it
wait, and never fails: a hook that fails or hangs takes the session with it.
"""

from __future__ import annotations

import json
import os
import stat
import time

from agentbus import repoconfig
from agentbus.protocol import render_protocol
from agentbus.visible import render_visible

_FORMATS = {
    (): "text",
    ("--format", "text"): "text",
    ("--format=text",): "text",
    ("--format", "json"): "json",
    ("--format=json",): "json",
}
# A pipe of 64 KiB holds them with room to spare: nobody may be reading stderr.
_WARNINGS_MAX = 20
# The harness writes its JSON while Python starts. A pipe still empty then is most likely nobody's.
_SILENT_STDIN_WAIT_S = 0.02
_NEXT_PIECE_WAIT_S = 0.1
_STDIN_WAIT_S = 0.7  # a hook answers in less than a second, whoever writes on


def run(arguments: list[str]) -> int | None:
    """Print the protocol; 0, or None if ``arguments`` (those after ``identity``) are for click to explain."""
    form = _FORMATS.get(tuple(arguments))
    if form is None:
        return None
    name, warnings = here()
    write_text(1, _render(name, form))
    for warning in warnings[:_WARNINGS_MAX]:
        write_text(2, f"agentbus: {render_visible(warning)}\n")
    if len(warnings) > _WARNINGS_MAX:
        write_text(2, f"agentbus: and {len(warnings) - _WARNINGS_MAX} more warnings\n")
    drain_stdin()
    return 0


def here() -> tuple[str, tuple[str, ...]]:
    """The identity of the working directory, and warnings."""
    try:
        cwd = os.getcwd()
    except OSError as error:
        default = repoconfig.DEFAULT_IDENTITY
        return default, (f'the working directory is gone ({error.strerror}): using the identity "{default}"',)
    return repoconfig.identity(cwd)


def _render(name: str, form: str) -> str:
    text = render_protocol(name)
    if form == "text":
        return text
    output = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": text}}
    return json.dumps(output, separators=(",", ":")) + "\n"


def write_text(descriptor: int, text: str) -> None:
    """Write UTF-8 whatever the locale says; a reader that is gone is no failure."""
    data = text.encode()
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return


def drain_stdin() -> None:
    """Read away what a hook was sent, so that its writer does not meet a closed pipe."""
    try:
        mode = os.fstat(0).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            _read_away(0)
    except OSError:
        return


def _read_away(descriptor: int) -> None:
    import select  # noqa: PLC0415 - only a hook's stdin needs it

    deadline = time.monotonic() + _STDIN_WAIT_S
    wait_s = _SILENT_STDIN_WAIT_S
    while time.monotonic() < deadline:
        ready, _, _ = select.select([descriptor], [], [], wait_s)
        if not ready or not os.read(descriptor, 1 << 16):
            return
        wait_s = _NEXT_PIECE_WAIT_S
