"""What a server does beside its calls: segments that nobody needs are archived, and nobody notices but the disk."""

from __future__ import annotations

import gzip
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from agentbus import queries
from agentbus.config import Settings
from agentbus.host import open_host
from agentbus.log import open_log
from agentbus.upkeep import UpkeepSettings
from journal import BusyError, Verdict, verify
from tests.agentbus.hosts import FAST, WAIT_S, call, live, open_at, replayed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentbus.host import Host

DAY_NS = 24 * 3600 * 10**9
BIG = "x" * 100_000
SETTINGS: dict[str, Any] = {
    "segment_mib": 1,
    "max_message_kib": 1024,
    "result_kib": 1024,
    "journal_keep_days": 30,
    "cursor_idle_hours": 720,
}


class Clock:
    """The wall clock of this process, set at will."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.off_ns = 0
        read = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: read() + self.off_ns)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def opened() -> Iterator[list[Host]]:
    hosts: list[Host] = []
    yield hosts
    for host in hosts:
        host.close(time.monotonic() + WAIT_S)


def filled(data: Path, opened: list[Host], **settings: Any) -> Host:  # noqa: ANN401  # any setting
    """A server on a journal of three segments: a memory in the first, none in the second."""
    host = open_at(data, **(SETTINGS | settings))
    opened.append(host)
    call(host, "register", name="sam")
    call(host, "post", as_="sam", channel="memory", content="a fact")
    for _ in range(26):
        call(host, "post", as_="sam", channel="general", content=BIG)
    assert len(segments(data)) == 3
    return host


def segments(data: Path) -> list[int]:
    return sorted(int(path.stem) for path in (data / "journal").glob("*.jsonl"))


def archives(data: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in (data / "journal" / "archive").glob("*.jsonl.gz"))


def look(host: Host) -> None:
    """As if the time had come: the next call looks, and what it begins comes to its end."""
    host.bus._upkeep._archive_at = 0.0
    call(host, "list_channels", as_="sam")
    thread = host.bus._upkeep._threads.get("agentbus-archive")
    if thread is not None:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_what_nobody_needs_any_more_is_archived_once_it_is_old_enough(
    data: Path, clock: Clock, opened: list[Host]
) -> None:
    host = filled(data, opened)
    one, two, three = segments(data)
    look(host)
    assert archives(data) == []
    clock.off_ns = 31 * DAY_NS
    look(host)
    assert archives(data) == []  # the messages are over age, but not evicted: a look writes nothing
    call(host, "post", as_="sam", channel="general", content="new")
    assert host.bus.ask(queries.needed_segments) == {one, three}
    look(host)
    assert (segments(data), archives(data)) == ([one, three], [two])
    assert live(host) == replayed(data)
    call(host, "edit_memory", as_="sam", id=host.bus.ask(lambda state: min(state.memories)), content="a better one")
    look(host)
    assert (segments(data), archives(data)) == ([three], [one, two])
    fresh = open_at(data, **SETTINGS)
    opened.append(fresh)
    call(fresh, "register", name="tom")
    assert live(host) == live(fresh) == replayed(data)
    assert [found for found in verify([data / "journal"]) if not isinstance(found, Verdict)] == []
    assert BIG.encode() in gzip.decompress((data / "journal" / "archive" / f"{two:020d}.jsonl.gz").read_bytes())


def test_without_the_setting_nothing_is_ever_archived(data: Path, clock: Clock, opened: list[Host]) -> None:
    host = filled(data, opened, journal_keep_days=0)
    clock.off_ns = 4000 * DAY_NS
    call(host, "post", as_="sam", channel="general", content="new")
    look(host)
    assert archives(data) == []


def test_it_is_looked_for_once_an_interval_and_not_at_once(data: Path, clock: Clock, opened: list[Host]) -> None:
    host = filled(data, opened)
    clock.off_ns = 31 * DAY_NS
    call(host, "post", as_="sam", channel="general", content="new")
    assert 50 < host.bus._upkeep._archive_at - time.monotonic() <= 60
    assert host.bus._upkeep._threads == {}
    look(host)
    assert 3500 < host.bus._upkeep._archive_at - time.monotonic() <= 3600
    assert len(archives(data)) == 1


def test_of_two_processes_at_once_one_archives_and_both_go_on(data: Path, clock: Clock, opened: list[Host]) -> None:
    host = filled(data, opened)
    clock.off_ns = 31 * DAY_NS
    call(host, "post", as_="sam", channel="general", content="new")
    others = [open_at(data, **SETTINGS) for _ in range(3)]
    opened += others
    for number, other in enumerate(others):
        call(other, "register", name=f"tom{number}")
    for each in (host, *others):
        each.bus._upkeep._archive_at = 0.0
    calls = [threading.Thread(target=each.bus.ask, args=(lambda _: None,)) for each in (host, *others)]
    for thread in calls:
        thread.start()
    for thread in calls:
        thread.join(WAIT_S)
    for each in (host, *others):
        for thread in list(each.bus._upkeep._threads.values()):
            thread.join(WAIT_S)
    assert len(archives(data)) == 1
    for number, other in enumerate(others):
        call(other, "post", as_=f"tom{number}", channel="general", content="and on")
    assert live(host) == live(others[0]) == replayed(data)


def test_a_server_that_closes_stops_what_it_archives(data: Path, clock: Clock, opened: list[Host]) -> None:
    host = filled(data, opened)
    clock.off_ns = 31 * DAY_NS
    call(host, "post", as_="sam", channel="general", content="new")
    host.bus._upkeep._archive_at = 0.0
    with host.bus._mutex:
        host.bus._upkeep.look(host.bus._mutex)
        host.bus._upkeep.look(host.bus._mutex)  # one at a time
        assert len(host.bus._upkeep._threads) == 1
        host.bus._upkeep._closing = True
    host.close(time.monotonic() + WAIT_S)
    opened.remove(host)
    assert archives(data) == []
    assert not list((data / "journal").glob("archive/*.new"))


def test_where_there_is_no_thread_to_be_had_calls_go_on(
    data: Path, opened: list[Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = filled(data, opened)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        look(host)
    assert host.bus._upkeep._threads == {}


def test_what_was_archived_and_why_something_was_not_is_logged(
    data: Path, clock: Clock, opened: list[Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    data.mkdir(mode=0o700)
    log = open_log(data, "info")
    host = open_host(Settings(data_directory=data, **(FAST | SETTINGS)), str(data.parent), "test 1.0", log)
    opened.append(host)
    call(host, "register", name="sam")
    for _ in range(14):
        call(host, "post", as_="sam", channel="general", content=BIG)
    clock.off_ns = 31 * DAY_NS
    call(host, "post", as_="sam", channel="general", content="new")
    with monkeypatch.context() as patched:
        patched.setattr(host.bus._journal, "archive", _refuse)
        look(host)
    look(host)
    host.bus._upkeep._settings.on_no_snapshot("disk full")
    log.close()
    told = [json.loads(line) for line in (data / "agentbus.log").read_text().splitlines()]
    assert [(line["level"], line["msg"]) for line in told] == [
        ("WARN", "segments could not be archived: they stay as they are"),
        ("INFO", "archived what nobody needs"),
        ("WARN", "no snapshot was kept: the next start takes longer"),
    ]
    assert (told[1]["segments"], told[1]["first"], told[1]["last"]) == (1, 1, 1)


def _refuse(_: object) -> list[int]:
    raise BusyError("the writer lock")


def test_nobody_needs_to_be_told() -> None:
    silent = UpkeepSettings()
    silent.on_no_snapshot("disk full")
    silent.on_archived([1])
    silent.on_not_archived("disk full")
    assert silent.keep_ms == 0
