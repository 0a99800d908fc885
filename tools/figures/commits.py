"""P1 and P2: how fast durable lines are written, by one process and by eight."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agentbus.bus import FIRST_EVENTS
from agentbus.events import Posted
from agentbus.wire import encode
from journal import Journal
from tools.figures.child import CONTENT
from tools.figures.children import Crew
from tools.figures.measuring import Bar, Figure, Sample
from tools.figures.yardsticks import GuardedLines, HashedLines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.figures.places import Place

_COMMITS = 50
_TURNS = 6
_PROCESSES = 8
_STRETCH_S = 2.0
_QUICK_STRETCH_S = 0.7
_DEADLINE_S = 60.0


class OneWriter:
    """P1."""

    figures = (
        Figure(
            "P1",
            "durable Journal.commit, 1 process",
            "dumps+sha256+write+fdatasync loop",
            "/s",
            Bar(0.75, at_least=True),
        ),
        Figure("P1", "  its system calls alone, in a loop", "dumps+sha256+write+fdatasync loop", "/s", None),
    )
    rounds = 21

    def __init__(self, place: Place) -> None:
        data = place.new("one-writer")
        self._journal = Journal(data / "journal", first_events=FIRST_EVENTS, by="bench")
        self._events = encode([Posted(as_="alice", channel="general", content=CONTENT, context="bench")])
        self._guarded = GuardedLines(data / "guarded", CONTENT)
        self._loop = HashedLines(data / "loop", CONTENT)

    def sample(self) -> list[Sample]:
        """All three in short turns: the disk's mood changes within a round."""
        figure_s = guarded_s = yardstick_s = 0.0
        for _ in range(_TURNS):
            figure_s += _seconds(_COMMITS, self._commit)
            guarded_s += _seconds(_COMMITS, self._guarded.write)
            yardstick_s += _seconds(_COMMITS, self._loop.write)
        lines = _COMMITS * _TURNS
        return [Sample(lines / each_s, lines / yardstick_s) for each_s in (figure_s, guarded_s)]

    def _commit(self) -> None:
        self._journal.commit(lambda _: self._events, deadline=time.monotonic() + _DEADLINE_S)

    def close(self) -> None:
        """Close all three."""
        self._journal.close()
        self._guarded.close()
        self._loop.close()


def _seconds(times: int, work: Callable[[], None]) -> float:
    began = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - began


class EightWriters:
    """P2."""

    figures = (
        Figure(
            "P2",
            f"durable Bus posts, {_PROCESSES} processes",
            f"SQLite WAL FULL inserts, {_PROCESSES} processes",
            "/s",
            Bar(1.5, at_least=True),
        ),
        Figure("P2", "the same: the worst wait", "the worst wait of the same", "s", Bar(0.05)),
    )
    rounds = 7

    def __init__(self, place: Place) -> None:
        self._stretch_s = _QUICK_STRETCH_S if place.quick else _STRETCH_S
        data, other = place.new("eight-writers"), place.new("sqlite")
        self._posting = Crew([("posts", data, f"writer-{number}") for number in range(_PROCESSES)])
        self._inserting = Crew([("inserts", other / "messages.db")] * _PROCESSES)

    def sample(self) -> list[Sample]:
        """One stretch of time each."""
        rate, worst_s = self._posting.work(self._stretch_s)
        sqlite_rate, sqlite_worst_s = self._inserting.work(self._stretch_s)
        return [Sample(rate, sqlite_rate), Sample(worst_s, sqlite_worst_s)]

    def close(self) -> None:
        """End all sixteen."""
        self._posting.close()
        self._inserting.close()
