"""P10: what servers do while nothing happens. Counted by the kernel, so on Linux only."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tools.figures.measuring import Bar, Figure, NotMeasuredError, Sample
from tools.figures.servers import MCP, Server

if TYPE_CHECKING:
    from tools.figures.places import Place

_WINDOW_S = 10.0
_QUICK_WINDOW_S = 2.0
_SETTLE_S = 1.0
_WAIT_S = 30


class Idle:
    """P10."""

    figures = (
        Figure("P10", "waiting in receive: voluntary switches/s", "", "/s", Bar(2)),
        Figure("P10", "idle: voluntary switches/s", "", "/s", Bar(2)),
        Figure("P10", "both: bytes to disk, files changed", "", "", Bar(0)),
    )
    rounds = 5

    def __init__(self, place: Place) -> None:
        self._window_s = _QUICK_WINDOW_S if place.quick else _WINDOW_S
        self._data = place.new("idle")
        self._waiting, self._idle = Server(MCP, place, self._data), Server(MCP, place, self._data)
        for server, name in ((self._waiting, "waiting"), (self._idle, "idle")):
            server.initialize()
            server.call("register", name=name)
            server.call("subscribe", as_=name, channel="general")

    def sample(self) -> list[Sample]:
        """Both servers in the same stretch of time."""
        if not Path("/proc/self/io").exists():
            raise NotMeasuredError("needs /proc, which counts what a process does")
        self._waiting.begin("receive", as_="waiting", wait_seconds=_WAIT_S)
        time.sleep(_SETTLE_S)
        before = [_switches(self._waiting.pid), _switches(self._idle.pid)]
        written, files = self._written(), _files(self._data)
        began = time.monotonic()
        time.sleep(self._window_s)
        seconds = time.monotonic() - began
        after = [_switches(self._waiting.pid), _switches(self._idle.pid)]
        changed = self._written() - written + len(_files(self._data) ^ files)
        self._waiting.cancel()
        waited, idled = ((late - early) / seconds for early, late in zip(before, after, strict=True))
        return [Sample(waited), Sample(idled), Sample(changed)]

    def _written(self) -> int:
        return sum(_write_bytes(server.pid) for server in (self._waiting, self._idle))

    def close(self) -> None:
        """End both."""
        self._waiting.kill()
        self._idle.kill()


def _switches(pid: int) -> int:
    """How often the threads of a process have gone to sleep by themselves so far."""
    return sum(
        int(line.split()[1])
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith("voluntary_ctxt_switches")
    )


def _write_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("write_bytes"):
            return int(line.split()[1])
    return 0


def _files(directory: Path) -> set[tuple[str, int, int]]:
    """Every file with its size and the time of its last change."""
    return {
        (str(path), facts.st_size, facts.st_mtime_ns)
        for path in directory.rglob("*")
        if (facts := path.stat()) is not None
    }
