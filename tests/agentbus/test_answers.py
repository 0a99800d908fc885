"""What an answer rests on: the flush, the ack, the budget and the owner it was given under."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from agentbus import bus as bus_module
from agentbus import jsonrpc, results
from agentbus.bus import FIRST_EVENTS, Bus
from agentbus.commands import Post, Receive, Register
from agentbus.config import Settings
from agentbus.host import open_host
from agentbus.methods import render_tool_result
from agentbus.names import AgentName, ChannelName
from agentbus.owners import Owners
from journal import Files, Journal, UnreadableError
from tests.agentbus.hosts import WAIT_S, Background, call, events, open_at, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOUR_NS = 3600 * 10**9


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> Path:
    return tmp_path / "data"


class Counting(Files):
    """Counts flushes, and lets time pass while the lock is taken."""

    def __init__(self) -> None:
        self.flushes = 0
        self.when_locking: Callable[[], None] = lambda: None

    def fdatasync(self, fd: int) -> None:
        self.flushes += 1
        super().fdatasync(fd)

    def try_lock(self, fd: int) -> bool:
        self.when_locking()
        return super().try_lock(fd)


def test_the_flush_an_answer_needs_is_that_of_the_line_which_was_written(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Counting()
    journal = Journal(data / "journal", first_events=FIRST_EVENTS, files=files)
    bus = Bus(journal, Owners(data / "owners"), open_at(data).bus.policy)
    sam, general = AgentName("sam"), ChannelName("general")
    bus.execute(Register(name=sam, context="x", channels=(general,)))
    bus.execute(Register(name=AgentName("tom"), context="x"))
    bus.execute(Post(as_=AgentName("tom"), channel=general, content="hello"))
    later = time.time_ns() + 100 * HOUR_NS
    # Looked at before the lock, this receive would write a batch alone; by the time it has the lock sam is idle.
    files.when_locking = lambda: monkeypatch.setattr(time, "time_ns", lambda: later)
    files.flushes = 0
    bus.execute(Receive(as_=sam, count=10))
    assert [event["type"] for event in events(data)][-2:] == ["unsubscribed", "delivered"]
    assert files.flushes == 1


def test_a_receive_that_has_acked_never_answers_that_nothing_was_written(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "COMMAND_DEADLINE_S", 0.5)
    sam, tom, other = open_at(data), open_at(data), open_at(data)
    call(sam, "register", name="sam")
    call(tom, "register", name="tom")
    call(tom, "post", as_="tom", channel="general", content="one")
    token = call(sam, "receive", as_="sam")["token"]
    waiting = Background(lambda: call(sam, "receive", as_="sam", ack=token, wait_seconds=40))
    limit = time.monotonic() + WAIT_S
    while events(data)[-1]["type"] != "acked":
        assert time.monotonic() < limit
    journal = other.bus._journal
    other.bus.warm()
    line = msgspec.json.encode(
        [{"type": "posted", "as": "tom", "channel": "general", "content": "two", "context": "x"}]
    )
    with journal.locked(time.monotonic() + 5):
        journal._writer.open(time.monotonic() + 5)
        journal._writer.append("2026-09-09T08:00:00.000Z", line, time.monotonic() + 5)
        journal._writer.release()
        answer = waiting.outcome()
    assert answer == {"messages": [], "more": 0, "instruction": "Acknowledged. Nothing new."}
    assert [message["content"] for message in call(sam, "receive", as_="sam")["messages"]] == ["two"]


@pytest.mark.parametrize("char", ["\u2028", "\x85", "\u2029", "漢", "\x01", '"'])
def test_what_a_client_decodes_is_no_longer_than_result_kib(data: Path, char: str) -> None:
    sam, tom = open_at(data), open_at(data)
    call(sam, "register", name="sam")
    call(tom, "register", name="tom")
    for _ in range(12):
        call(tom, "post", as_="tom", channel="general", content=char * 400)
    page = call(sam, "receive", as_="sam")
    line = render_tool_result(page)
    text = msgspec.json.decode(line)["content"][0]["text"]
    assert len(text.encode()) <= Settings(data_directory=data).result_kib * 1024
    assert len(text.encode()) == results.encoded_bytes(page)
    assert msgspec.json.decode(line)["structuredContent"] == msgspec.json.decode(text) == page
    assert len(jsonrpc.escape_breaks(line.decode()).splitlines()) == 1


def test_an_owner_file_that_cannot_be_read_counts_as_living_and_stops_nobody(data: Path) -> None:
    sam, tom = open_at(data), open_at(data)
    call(sam, "register", name="sam")
    call(tom, "register", name="tom")
    strange = data / "owners" / f"{sam.bus.owners.token}.lock"
    strange.unlink()
    strange.symlink_to(strange)
    assert call(tom, "post", as_="tom", channel="general", content="hello")["live"] == 1
    assert call(tom, "discover", as_="tom")["sessions"][0]["as"] == "sam"
    other = open_at(data)
    assert call(other, "register", name="sam")["as"] == "sam2"


def test_a_fresh_start_leaves_nothing_to_be_told_of_what_was_dropped(data: Path) -> None:
    host = open_host(Settings(data_directory=data), str(data.parent), None)
    call(host, "register", name="sam")
    journal = host.bus._journal
    for line in (
        [{"type": "unsubscribed", "as": "sam", "channel": "memory", "reason": "expired"}],
        [
            {"type": "delivered", "as": "sam", "token": "t", "ends": {}, "include_own": False}
            | {"expired": [{"channel": "memory", "unread": 3}]}
        ],
    ):
        encoded = msgspec.json.encode(line)
        journal.commit(lambda _, encoded=encoded: encoded, deadline=time.monotonic() + 5)  # type: ignore[misc]  # a default
    assert call(host, "receive", as_="sam")["expired"] == [{"channel": "memory", "unread": 3}]
    assert call(host, "register", name="sam", resume=False)["resumed"] is False
    assert call(host, "receive", as_="sam") == {"messages": [], "more": 0, "instruction": "Nothing new."}


def test_a_time_that_only_looks_like_one_is_corrupt(data: Path) -> None:
    host = open_at(data)
    call(host, "register", name="sam")
    line = msgspec.json.encode([{"type": "active", "as": "sam"}])
    journal = host.bus._journal
    with journal.locked(time.monotonic() + 5):
        journal._writer.open(time.monotonic() + 5)
        journal._writer.append("2026-09-09T08:00:07.049+02:00", line, time.monotonic() + 5)
        journal._writer.release()
    answer = refusal(host, "discover", as_="sam")
    assert (answer["code"], "is none" in answer["message"]) == ("corrupt", True)


def test_a_receive_whose_texts_cannot_be_read_never_says_that_nothing_was_written(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sam, tom = open_at(data), open_at(data)
    call(sam, "register", name="sam")
    call(tom, "register", name="tom")
    call(tom, "post", as_="tom", channel="general", content="hello")

    def refuse(_: object) -> Iterator[object]:
        raise UnreadableError(str(data), "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(sam.bus, "bodies", refuse)
        answer = refusal(sam, "receive", as_="sam")
        again = refusal(sam, "receive", as_="sam")
    assert (answer["code"], answer["retryable"]) == ("unsynced", True)
    assert answer["message"].endswith("call receive again, the same messages come again")
    assert again["code"] == "capacity_exhausted"  # handed out before: this call has written nothing
    received = call(sam, "receive", as_="sam")
    assert (received["redelivered"], [message["content"] for message in received["messages"]]) == (True, ["hello"])
