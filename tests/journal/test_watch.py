from __future__ import annotations

import ctypes
import errno
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from journal import UnusableError, watch
from journal.watch import Watch
from tests.journal.test_lock import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.journal.conftest import Kit


def start(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread


def test_a_wait_ends_at_once_when_there_is_something_or_no_time_or_an_interrupt(kit: Kit) -> None:
    journal = kit.open()
    assert journal.wait(0, 0, lambda: False) is False
    kit.commit(journal)
    assert journal.wait(2, 0, lambda: False) is True
    assert journal.wait(3, 0, lambda: False) is False
    assert journal.wait(0, 30, lambda: True) is False
    fresh = kit.open()
    assert fresh.wait(2, 0, lambda: False) is True
    assert fresh.wait(99, 30, lambda: False) is True  # it has no such seq: the caller's read will say so


def test_all_waiting_threads_wake_on_a_commit(kit: Kit) -> None:
    journal, other = kit.open(), kit.open()
    kit.commit(journal)
    woken: list[bool] = []
    threads = [start(lambda: woken.append(journal.wait(3, 30, lambda: False))) for _ in range(4)]
    until(lambda: journal._watch._leading)
    kit.commit(other)
    for thread in threads:
        thread.join(20)
    assert woken == [True] * 4


def test_an_interrupt_ends_the_waits_that_ask_for_it_and_no_others(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal)
    over = threading.Event()
    ended: list[bool] = []
    stays: list[bool] = []
    threads = [start(lambda: ended.append(journal.wait(3, 30, over.is_set))) for _ in range(3)]
    other = start(lambda: stays.append(journal.wait(3, 30, lambda: False)))
    until(lambda: journal._watch._leading)
    over.set()
    journal.interrupt()
    for thread in threads:
        thread.join(20)
    assert (ended, stays) == ([False] * 3, [])
    kit.commit(kit.open())
    other.join(20)
    assert stays == [True]


def test_waiting_works_before_there_is_a_directory_and_after_it_was_exchanged(kit: Kit) -> None:
    journal = kit.open()
    woken: list[bool] = []
    thread = start(lambda: woken.append(journal.wait(0, 30, lambda: False)))
    until(lambda: journal._watch._leading)
    kit.commit(kit.open())
    thread.join(20)
    assert woken == [True]
    list(journal.read(0))
    thread = start(lambda: woken.append(journal.wait(3, 30, lambda: False)))
    until(lambda: journal._watch._leading and journal._watch._source is not None)
    kit.directory.rename(kit.data / "away")
    kit.commit(kit.open())
    thread.join(20)
    assert woken == [True, True]


def test_closing_ends_the_waits(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal)
    ended: list[bool] = []
    thread = start(lambda: ended.append(journal.wait(3, 30, lambda: bool(ended) or journal._watch._wakes > 0)))
    until(lambda: journal._watch._leading)
    journal.close()
    thread.join(20)
    assert ended == [False]
    journal.close()


def test_a_wake_before_the_sleep_is_not_missed(tmp_path: Path) -> None:
    made = Watch(str(tmp_path))
    armed = made.arm()
    made.wake()
    made.sleep(armed, 30)
    armed = made.arm()
    (tmp_path / "x").touch()
    made.sleep(armed, 30)
    assert made._wakes == 2
    made.close()
    made.sleep(made._wakes, 30)


def test_a_pipe_full_of_wakes_takes_no_more_and_loses_none(tmp_path: Path) -> None:
    made = Watch(str(tmp_path))
    armed = made.arm()
    made._leading = True
    for _ in range(70_000):
        made.wake()
    made._leading = False
    assert made.arm() == armed + 70_000
    made.after_fork()
    made.close()
    assert made._pipe is None


def test_a_system_without_events_is_looked_at_twice_a_second(
    tmp_path: Path, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoMore:
        def __init__(self, *failing: str) -> None:
            self.failing = failing
            self.libc = ctypes.CDLL(None, use_errno=True)

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- a function of the C library
            return (lambda *_arguments: -1) if name in self.failing else getattr(self.libc, name)

    for failing in ("inotify_init1", "inotify_add_watch"):
        broken = NoMore(failing)
        monkeypatch.setattr(ctypes, "CDLL", lambda *_arguments, libc=broken, **_options: libc)
        assert watch.open_source(str(tmp_path)) is None
    before = len(os.listdir("/proc/self/fd"))
    assert watch.open_source(str(tmp_path)) is None
    assert len(os.listdir("/proc/self/fd")) == before
    journal = kit.open()
    kit.commit(journal)
    woken: list[bool] = []
    thread = start(lambda: woken.append(journal.wait(3, 30, lambda: False)))
    until(lambda: journal._watch._leading)
    kit.commit(kit.open())
    thread.join(20)
    assert woken == [True]


def test_a_wait_ends_when_the_journal_is_closed_and_opens_nothing_again(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    ended: list[bool] = []
    waiting = threading.Thread(target=lambda: ended.append(journal.wait(journal.last_seq, 60, lambda: False)))
    waiting.start()
    until(lambda: journal._watch._leading)
    journal.close()
    waiting.join(20)
    assert ended == [False]
    assert (journal._watch._pipe, journal._watch._source) == (None, None)


def test_without_a_descriptor_to_watch_with_a_wait_says_so(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    journal = kit.open()
    kit.commit(journal, "one")
    monkeypatch.setattr(os, "pipe", no_more)
    with pytest.raises(UnusableError, match="cannot watch it: Too many open files"):
        journal.wait(journal.last_seq, 60, lambda: False)
