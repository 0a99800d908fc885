"""Which harness a process belongs to: its first ancestor that is neither a shell nor a launcher. Starts nothing.

A harness starts its server and its hooks itself, mostly through a shell, sometimes through ``uvx`` and its like: the
server and the hook that have the same harness process speak for the same session. Imports only what starts fast.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Look = Callable[[int], "Process | None"]

_SHELLS = "sh bash dash ash zsh ksh mksh fish tcsh csh busybox nu pwsh"
_LAUNCHERS = "env nice timeout time nohup setsid stdbuf sudo doas xargs script uv uvx pipx mise direnv agentbus"
PASSED_OVER = frozenset(f"{_SHELLS} {_LAUNCHERS}".split())
_ANCESTORS_MAX = 32


class Process:
    """One process, as its kernel tells of it.

    Attributes:
        pid: its number, which may be used again.
        started: when it began, as its kernel counts: with the pid it names a process for good.
        name: of its program, without the directory; not what it calls itself in a listing.
        parent: the number of the process it is a child of; 0 if none can be named.
    """

    __slots__ = ("name", "parent", "pid", "started")

    def __init__(self, pid: int, started: str, name: str, parent: int) -> None:
        self.pid = pid
        self.started = started
        self.name = name
        self.parent = parent

    def named(self) -> dict[str, object]:
        """What names it for good, as JSON."""
        return {"pid": self.pid, "started": self.started}


def harness(pid: int | None = None, look: Look | None = None) -> Process | None:
    """The harness of a process, itself left out; of this one unless told. None where no ancestor can be seen.

    Args:
        pid: whose.
        look: what tells of a process; the system unless told.
    """
    look = look or system_look()
    found = look(os.getpid() if pid is None else pid)
    for _ in range(_ANCESTORS_MAX):
        found = look(found.parent) if found is not None and found.parent > 0 else None
        if found is None or found.name.removeprefix("-") not in PASSED_OVER:
            return found
    return None


def lives(pid: int, started: str, look: Look | None = None) -> bool:
    """Whether a process named so is there. A number that another process has by now does not count."""
    found = (look or system_look())(pid)
    return found is not None and found.started == started


def system_look(proc: str = "/proc") -> Look:
    """What tells of processes here: Linux's /proc, else psutil, else nothing: then a parent's pid is all there is."""
    if os.path.exists(f"{proc}/self/stat"):
        return look_in_proc
    look = psutil_look()
    return no_look if look is None or look(os.getpid()) is None else look  # without /proc it may be there, and blind


def look_in_proc(pid: int) -> Process | None:
    """A process as Linux tells of it; None if there is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    # The name stands in brackets and may hold any characters, brackets too.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Process(pid, fields[19], head.partition("(")[2], int(fields[1]))


def psutil_look() -> Look | None:
    """What tells of processes by psutil; None if that is not installed."""
    try:
        import psutil  # noqa: PLC0415  # only where there is no /proc
    except ImportError:
        return None

    def look(pid: int) -> Process | None:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                return Process(pid, f"{process.create_time():.3f}", process.name(), process.ppid())
        except (psutil.Error, ValueError):
            return None

    return look


def no_look(pid: int) -> Process | None:
    """Nothing is told of others; of this process, who its parent is, which counts as the harness."""
    if pid == os.getpid():
        return Process(pid, "", "", os.getppid())
    return Process(pid, "", "?", 0) if pid == os.getppid() else None
