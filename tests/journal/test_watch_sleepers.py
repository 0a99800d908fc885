"""Who sleeps, who wakes and by what, and that a watch keeps no descriptor it does not need."""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from journal.watch import Watch, open_source
from tests.journal.test_lock import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify and /proc are Linux's")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Watch]:
    watch = Watch(str(tmp_path))
    yield watch
    watch.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look that makes good what a wake missed."""
    monkeypatch.setattr("journal.watch._SAFETY_S", 60.0)
    monkeypatch.setattr("journal.watch._POLL_S", 60.0)


class Sleeper(threading.Thread):
    def __init__(self, watch: Watch) -> None:
        super().__init__(daemon=True)
        self._watch = watch
        self._armed = watch.arm()
        self.ended: list[bool] = []
        self.start()

    def run(self) -> None:
        self.ended.append(self._watch.sleep(self._armed, 50))

    def end(self) -> list[bool]:
        self.join(10)
        return self.ended


def two_asleep(watch: Watch) -> list[Sleeper]:
    """One in the kernel, one that waits for it."""
    sleepers = [Sleeper(watch)]
    until(lambda: watch._leading)
    sleepers.append(Sleeper(watch))
    until(lambda: len(watch._turn._waiters) == 1)  # type: ignore[attr-defined]  # the only sign of a thread that waits
    return sleepers


@pytest.mark.usefixtures("patient")
def test_an_event_ends_every_sleep_and_each_is_told_so(made: Watch, tmp_path: Path) -> None:
    sleepers = two_asleep(made)
    (tmp_path / "x").touch()
    assert [each.end() for each in sleepers] == [[True], [True]]


@pytest.mark.usefixtures("patient")
def test_a_wake_ends_every_sleep_and_is_no_event(made: Watch) -> None:
    sleepers = two_asleep(made)
    made.wake()
    assert [each.end() for each in sleepers] == [[False], [False]]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("there", [True, False])
def test_closing_ends_every_sleep_and_leaves_nothing_open(there: bool, tmp_path: Path) -> None:  # noqa: FBT001  # a parameter
    before = descriptors()
    watch = Watch(str(tmp_path if there else tmp_path / "missing"))
    sleepers = two_asleep(watch)
    closing = threading.Thread(target=watch.close, daemon=True)
    closing.start()
    assert [each.end() for each in sleepers] == [[False], [False]]
    closing.join(10)
    assert descriptors() == before


def test_a_wake_that_nobody_sleeps_through_leaves_no_trace(made: Watch) -> None:
    made.arm()
    made.wake()
    armed = made.arm()
    made.sleep(armed, 0)
    assert made.arm() == armed


@pytest.mark.usefixtures("patient")
def test_a_wake_ends_one_sleep_and_not_the_next(made: Watch) -> None:
    sleeper = Sleeper(made)
    until(lambda: made._leading)
    made.wake()
    assert sleeper.end() == [False]
    armed = made.arm()
    made.sleep(armed, 0)
    assert made.arm() == armed


def test_what_happens_between_two_sleeps_ends_the_second(made: Watch, tmp_path: Path) -> None:
    armed = made.arm()
    (tmp_path / "x").touch()
    assert made.sleep(armed, 30)
    (tmp_path / "y").touch()
    assert made.sleep(made.arm(), 0)
    assert not made.sleep(made.arm(), 0)


def test_after_a_directory_was_exchanged_the_new_one_is_watched(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    place.mkdir()
    watch = Watch(str(place))
    armed = watch.arm()
    place.rename(tmp_path / "away")
    place.mkdir()
    assert watch.sleep(armed, 30)
    armed = watch.arm()
    (place / "x").touch()
    assert watch.sleep(armed, 0)
    watch.close()


def test_who_was_woken_since_or_comes_after_the_end_does_not_go_to_sleep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never() -> None:
        raise AssertionError("it went to sleep")

    watch = Watch(str(tmp_path))
    armed = watch.arm()
    watch.wake()
    monkeypatch.setattr(select, "poll", never)
    assert not watch.sleep(armed, 30)
    watch.close()
    assert not watch.sleep(watch.arm(), 30)


def test_a_watch_opens_what_it_needs_once_and_nothing_after_its_end(tmp_path: Path) -> None:
    before = descriptors()
    watch = Watch(str(tmp_path))
    watch.arm()
    assert descriptors() == before + 3
    watch.arm()
    assert descriptors() == before + 3
    watch.close()
    assert descriptors() == before
    watch.arm()
    assert descriptors() == before


def test_a_forked_child_gives_back_what_it_shares_and_begins_afresh_whoever_held_the_lock(tmp_path: Path) -> None:
    before = descriptors()
    watch = Watch(str(tmp_path))
    watch.arm()
    watch._turn.acquire()  # as a thread of the parent's may have at the fork
    watch.after_fork()
    assert descriptors() == before
    sleeper = threading.Thread(target=lambda: watch.sleep(watch.arm(), 0), daemon=True)
    sleeper.start()
    sleeper.join(10)
    assert not sleeper.is_alive()
    watch.close()
    assert descriptors() == before


@pytest.mark.parametrize(
    ("there", "timeout_s", "asked_ms"), [(True, 30, 1000), (True, 0.25, 250), (False, 30, 500), (False, 0.25, 250)]
)
def test_a_sleep_ends_for_a_look_once_a_second_or_twice_where_nothing_tells(
    there: bool,  # noqa: FBT001  # a parameter
    timeout_s: float,
    asked_ms: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    class Poll:
        def register(self, *_: Any) -> None:  # noqa: ANN401  # stands for select.poll
            pass

        def poll(self, ms: float) -> list[tuple[int, int]]:
            asked.append(ms)
            return []

    watch = Watch(str(tmp_path if there else tmp_path / "missing"))
    armed = watch.arm()
    monkeypatch.setattr(select, "poll", Poll)
    assert not watch.sleep(armed, timeout_s)
    assert asked == [asked_ms]
    watch.close()


def test_a_source_is_not_inherited_and_never_blocks(tmp_path: Path) -> None:
    source = open_source(str(tmp_path))
    assert source is not None
    assert not os.get_inheritable(source.fd)
    assert not os.get_blocking(source.fd)
    source.close()


def test_a_directory_that_is_missing_costs_no_descriptor(tmp_path: Path) -> None:
    before = descriptors()
    assert open_source(str(tmp_path / "missing")) is None
    assert descriptors() == before
