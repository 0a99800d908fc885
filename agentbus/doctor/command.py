"""The ``agentbus`` command: whether it is found, and is this one. Runs other programs to ask for their version only."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from agentbus import __version__
from agentbus.doctor.findings import fault, note, ok

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentbus.doctor.findings import Finding
    from agentbus.doctor.visit import Visit

ABOUT: Final = "agentbus"
_VERSION_WAIT_S: Final = 10
_VERSION: Final = re.compile(r"\d+\.\d+[\w.+-]*")


def on_path(visit: Visit) -> Iterator[Finding]:
    """Whether a shell finds it, and finds this version."""
    found = shutil.which("agentbus", path=visit.environ.get("PATH"))
    own = os.path.join(os.path.dirname(sys.executable), "agentbus")
    if found is None:
        yield fault(
            ABOUT,
            "there is no agentbus on the PATH",
            "Agents are told to run it, and so is every message here; clients that name it without a path fail.",
            f"Add its directory to the PATH: export PATH={shlex.quote(os.path.dirname(own))}:$PATH"
            if os.path.exists(own)
            else "Install it where your shell looks, as pipx install and uv tool install do.",
        )
        return
    if os.path.realpath(found) in {_real(own), _real(sys.argv[0])}:
        yield ok(ABOUT, f"{__version__} on the PATH: {found}")
        return
    yield judge_other(ABOUT, f"agentbus on the PATH is {found}", version_of(found, visit.environ))


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except FileNotFoundError:  # a relative one, and the working directory is gone
        return path


def judge_other(about: str, what: str, version: str) -> Finding:
    """What it means that another agentbus than this one is run; ``version`` is "" where it does not tell."""
    if version == __version__:
        return note(about, f"{what}, another installation of this version", "Both work on one bus.")
    return fault(
        about,
        f"{what}, {f'version {version}' if version else 'which does not tell its version'}; this one is {__version__}",
        "The older one of two stops at the first line in the journal that only the newer one knows.",
        "Keep one of them, then run agentbus init --global with it.",
    )


def version_of(program: str, environ: Mapping[str, str]) -> str:
    """What a program says its version is; "" if it says none in time."""
    try:
        process = subprocess.Popen(
            [program, "--version"], env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError:
        return ""
    with process:
        try:
            said, _ = process.communicate(timeout=_VERSION_WAIT_S)
        except subprocess.TimeoutExpired:
            said = ""
        with contextlib.suppress(ProcessLookupError):  # a wrapper's child would go on without it, for ever
            os.killpg(process.pid, signal.SIGKILL)
    found = _VERSION.search(said) if process.returncode == 0 else None
    return found[0] if found else ""
