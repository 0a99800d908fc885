"""Threads that share flushes: who leads, who waits, and what each of them is told."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

import pytest

from journal import UnsyncedError
from journal.flush import Flusher, FlushFailedError
from tests.journal.conftest import soon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from journal.flush import Point

GONE = FlushFailedError(1, OSError(errno.EIO, "gone"))


class Disk:
    """A flush that takes until it is let go."""

    def __init__(self) -> None:
        self.asked: list[Point] = []
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()
        self.end: Point = (0, 1, 0)  # how far a flush reaches that begins now
        self.failure: FlushFailedError | None = None
        self.leader: Waiting | None = None

    def flush(self, point: Point) -> Point:
        end = max(self.end, point)
        self.asked.append(point)
        self.entered.release()
        assert self.go.wait(30)
        if self.failure is not None:
            raise self.failure
        return end


class Waiting(threading.Thread):
    """One caller of confirm, and what became of it."""

    def __init__(self, flusher: Flusher, point: Point, limit: float) -> None:
        super().__init__(daemon=True)
        self._work: Callable[[], None] = lambda: flusher.confirm(point, limit)
        self.told = "nothing yet"
        self.start()

    def run(self) -> None:
        try:
            self._work()
            self.told = "durable"
        except UnsyncedError as error:
            self.told = error.cause

    def answer(self) -> str:
        self.join(10)
        return self.told


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.go.set()


@pytest.fixture
def busy(disk: Disk) -> Iterator[Flusher]:
    """A flusher with everything up to (0, 1, 5) durable and a flush up to (0, 1, 9) under way."""
    flusher = Flusher(disk.flush)
    disk.go.set()
    flusher.confirm((0, 1, 5), soon())
    disk.go.clear()
    disk.leader = Waiting(flusher, (0, 1, 9), soon(30))
    assert disk.entered.acquire(timeout=10)
    assert disk.entered.acquire(timeout=10)
    yield flusher
    disk.go.set()
    assert disk.leader.answer() != "nothing yet"


def until_waits(flusher: Flusher, number: int) -> None:
    """Return when so many threads wait for the flush that is under way."""
    limit = soon(20)
    while len(flusher._turn._waiters) < number:  # type: ignore[attr-defined]  # the only sign of a thread that sleeps
        assert soon(0) < limit
        threading.Event().wait(0.001)


def test_nothing_is_durable_before_the_first_flush(disk: Disk) -> None:
    disk.go.set()
    Flusher(disk.flush).confirm((0, 0, 1), soon())
    assert disk.asked == [(0, 0, 1)]


def test_those_who_come_during_a_flush_share_the_next_one_and_no_two_are_under_way(disk: Disk, busy: Flusher) -> None:
    disk.end = (0, 1, 30)
    waiting = [Waiting(busy, (0, 1, end), soon(30)) for end in (10, 20, 30)]
    until_waits(busy, 3)
    disk.go.set()
    assert [each.answer() for each in waiting] == ["durable"] * 3
    assert len(disk.asked) == 3


def test_only_one_flush_is_under_way_at_a_time(disk: Disk, busy: Flusher) -> None:
    other = Waiting(busy, (0, 1, 10), soon(30))
    until_waits(busy, 1)
    assert not disk.entered.acquire(blocking=False)
    disk.go.set()
    assert other.answer() == "durable"


@pytest.mark.parametrize("point", [(0, 1, 4), (0, 1, 5)])
def test_what_is_durable_is_confirmed_at_once_though_a_flush_is_under_way(busy: Flusher, point: Point) -> None:
    busy.confirm(point, soon(0))


def test_a_flush_that_takes_too_long_is_told_to_those_who_wait_for_it(busy: Flusher) -> None:
    with pytest.raises(UnsyncedError, match="the flush took too long"):
        busy.confirm((0, 1, 6), soon(0))


def test_a_failure_told_from_elsewhere_ends_a_wait_at_once_and_is_that_of_the_flush_under_way(
    disk: Disk, busy: Flusher
) -> None:
    """The system tells of an error once: whoever flushed the same file meanwhile hears of none."""
    waiting = Waiting(busy, (0, 1, 6), soon(60))
    until_waits(busy, 1)
    assert busy.fail(GONE).cause == "gone"
    assert waiting.answer() == "gone"
    disk.go.set()
    assert disk.leader is not None
    assert disk.leader.answer() == "gone"
    for end in (9, 50):
        with pytest.raises(UnsyncedError, match="gone"):
            busy.confirm((0, 1, end), soon())


def test_a_flush_that_fails_fails_everyone_who_is_not_confirmed_and_is_not_tried_again(
    disk: Disk, busy: Flusher
) -> None:
    waiting = [Waiting(busy, (0, 1, end), soon(30)) for end in (6, 20)]
    until_waits(busy, 2)
    disk.failure = GONE
    disk.go.set()
    assert disk.leader is not None
    assert [each.answer() for each in (disk.leader, *waiting)] == ["gone"] * 3
    with pytest.raises(UnsyncedError, match="gone"):
        busy.confirm((0, 1, 6), soon())
    busy.confirm((0, 1, 5), soon())
    assert len(disk.asked) == 2


def test_waits_one_after_the_other_are_all_ended(disk: Disk, busy: Flusher) -> None:
    for end in (10, 100, 200):
        waiting = Waiting(busy, (0, 1, end), soon(60))
        until_waits(busy, 1)
        disk.go.set()
        assert waiting.answer() == "durable"
        disk.go.clear()
        disk.leader = Waiting(busy, (0, 1, end + 20), soon(30))
        while disk.asked[-1] != (0, 1, end + 20):
            assert disk.entered.acquire(timeout=10)


def test_a_failure_is_over_when_its_own_segment_has_been_written_anew(disk: Disk) -> None:
    disk.go.set()
    flusher = Flusher(disk.flush)
    flusher.made_good(1)
    flusher.fail(GONE)
    flusher.made_good(2)
    with pytest.raises(UnsyncedError, match="gone"):
        flusher.confirm((0, 1, 5), soon())
    flusher.made_good(1)
    flusher.confirm((0, 1, 5), soon())


def test_a_failed_flush_says_why_in_its_text() -> None:
    assert (str(GONE), GONE.segment, GONE.cause) == ("gone", 1, "gone")
