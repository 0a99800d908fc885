"""The writer lock's waits at their edges: whom a wake reaches, what is left open, and what an ending process leaves."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from journal import BusyError, Files
from journal.lock import WriterLock
from tests.journal.conftest import soon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.journal.conftest import Kit


class CountedFiles(Files):
    """Knows which descriptors are open."""

    def __init__(self) -> None:
        self.fds: set[int] = set()

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self.fds.add(fd)
        return fd

    def dup(self, fd: int) -> int:
        other = super().dup(fd)
        self.fds.add(other)
        return other

    def close(self, fd: int) -> None:
        super().close(fd)
        self.fds.discard(fd)


class Taking(threading.Thread):
    """A thread that takes the lock, and keeps it until it is told to leave."""

    def __init__(self, lock: WriterLock, limit: float) -> None:
        super().__init__(daemon=True)
        self._lock, self._limit = lock, limit
        self.has, self.leave = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        self._lock.acquire(self._limit)
        self.has.set()
        self.leave.wait(30)
        self._lock.release()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[WriterLock]:
    """Another process's lock, as good as: its descriptor is its own."""
    made = WriterLock(str(tmp_path), Files())
    made.acquire(soon())
    yield made
    made.close()


def until_waits(number: int) -> None:
    """Return when so many workers stand in the kernel's queue, or soon will."""
    limit = soon(20)
    while len([thread for thread in threading.enumerate() if thread.name == "journal-lock"]) != number:
        assert time.monotonic() < limit
        threading.Event().wait(0.001)


def test_a_thread_gets_the_lock_when_another_thread_gives_it_back(tmp_path: Path) -> None:
    lock = WriterLock(str(tmp_path), Files())
    first = Taking(lock, soon(60))
    assert first.has.wait(10)
    second = Taking(lock, soon(60))
    assert not second.has.is_set()
    first.leave.set()
    assert second.has.wait(10)
    second.leave.set()
    second.join(10)


def test_a_wait_ends_when_the_lock_is_free_and_not_at_its_deadline(tmp_path: Path, holder: WriterLock) -> None:
    waiting = Taking(WriterLock(str(tmp_path), Files()), soon(60))
    until_waits(1)
    holder.release()
    assert waiting.has.wait(10)
    waiting.leave.set()
    waiting.join(10)


def test_after_closing_the_lock_is_held_by_whoever_is_told_so(tmp_path: Path, holder: WriterLock) -> None:
    lock, other = WriterLock(str(tmp_path), Files()), WriterLock(str(tmp_path), Files())
    with pytest.raises(BusyError):
        lock.acquire(soon(0))
    lock.close()
    waiting = Taking(lock, soon(60))  # its worker is not the one of the closed file, which is nobody's
    until_waits(2)
    holder.release()
    assert waiting.has.wait(10)
    with pytest.raises(BusyError):
        other.acquire(soon(0))
    waiting.leave.set()
    waiting.join(10)
    other.acquire(soon())
    other.release()


def test_neither_a_wait_nor_a_lock_that_is_closed_leaves_a_descriptor_open(tmp_path: Path, holder: WriterLock) -> None:
    files = CountedFiles()
    lock = WriterLock(str(tmp_path), files)
    waiting = Taking(lock, soon(60))
    until_waits(1)
    holder.release()
    assert waiting.has.wait(10)
    until_waits(0)
    assert len(files.fds) == 1
    waiting.leave.set()
    waiting.join(10)
    lock.close()
    assert files.fds == set()


def test_a_wait_that_gets_no_thread_leaves_no_descriptor_open(
    tmp_path: Path, holder: WriterLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    files = CountedFiles()
    lock = WriterLock(str(tmp_path), files)
    monkeypatch.setattr(threading.Thread, "start", no_more)
    for _ in range(3):
        with pytest.raises(BusyError, match="a thread to wait for the writer lock"):
            lock.acquire(soon())
    assert len(files.fds) == 1
    assert holder.held_here


def test_what_is_closed_with_the_lock_is_closed_unless_another_thread_is_at_it(tmp_path: Path) -> None:
    lock = WriterLock(str(tmp_path), Files())
    closed: list[str] = []
    other = Taking(lock, soon())
    assert other.has.wait(10)
    lock.close(lambda: closed.append("while it was held"))
    other.leave.set()
    other.join(10)
    lock.close(lambda: closed.append("after that"))
    assert closed == ["after that"]


def test_a_process_that_gave_up_waiting_can_end_while_the_lock_is_held(kit: Kit) -> None:
    kit.commit(kit.open())
    script = """
try:
    journal.commit(lambda _: b'[{"type":"never"}]', deadline=time.monotonic() + 0.02)
except BusyError:
    print("busy", flush=True)
"""
    with kit.open().locked(soon()), kit.run(script) as process:
        assert process.wait(20) == 0
        assert process.stdout is not None
        assert process.stdout.read() == "busy\n"
