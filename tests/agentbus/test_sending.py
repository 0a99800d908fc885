"""Posting, editing and deleting through the table: results to the key, rates, and refusals that write nothing."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agentbus.bus import FIRST_EVENTS, Bus
from agentbus.host import Host
from agentbus.owners import Owners
from agentbus.rates import Rates
from agentbus.results import encoded_bytes
from journal import Files, Journal
from tests.agentbus.hosts import Result, call, events, lines, open_at, refusal

if TYPE_CHECKING:
    from pathlib import Path

FACT = 4
"""The id of a memory on a bus where sam is alone."""


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(name="sam")
def _sam(data: Path) -> Host:
    host = open_at(data)
    call(host, "register", name="sam")
    return host


@pytest.fixture(name="tom")
def _tom(data: Path, sam: Host) -> Host:  # noqa: ARG001  # sam is there first
    host = open_at(data)
    call(host, "register", name="tom")
    return host


@pytest.fixture(name="fact")
def _fact(sam: Host) -> int:
    number: int = call(sam, "post", as_="sam", channel="memory", content="the port is 4711")["memory_id"]
    return number


# --- memories


def test_an_edit_and_a_delete_answer_with_numbers_of_revisions(sam: Host, tom: Host, fact: int) -> None:
    edited = call(tom, "edit_memory", as_="tom", id=fact, content="the port is 4712", label="l", metadata={"a": "b"})
    assert edited == {"seq": edited["seq"], "memory_id": fact, "revision": 2, "replaced": 1}
    read = call(sam, "get_memory", as_="sam", id=fact)
    assert (read["id"], read["seq"], read["revision"], read["from"]) == (fact, edited["seq"], 2, "tom")
    assert (read["content"], read["label"], read["metadata"]) == ("the port is 4712", "l", {"a": "b"})
    again = call(sam, "edit_memory", as_="sam", id=fact, content="4713")
    assert (again["revision"], again["replaced"]) == (3, 2)
    assert set(call(sam, "get_memory", as_="sam", id=fact)) == set(read) - {"label", "metadata"}
    assert call(tom, "delete_memory", as_="tom", id=fact) == {"deleted": fact, "revision": 3}
    assert refusal(sam, "get_memory", as_="sam", id=fact)["code"] == "not_found"


def test_edit_delete_and_the_edit_again_by_its_key(data: Path, sam: Host, fact: int) -> None:
    edit: dict[str, Any] = {"as_": "sam", "id": fact, "content": "new", "idempotency_key": "e"}
    delete: dict[str, Any] = {"as_": "sam", "id": fact, "idempotency_key": "d"}
    first = call(sam, "edit_memory", **edit)
    gone = call(sam, "delete_memory", **delete)
    before = lines(data)
    assert call(sam, "edit_memory", **edit) == first | {"repeated": True}
    assert call(sam, "delete_memory", **delete) == gone | {"repeated": True}
    assert lines(data) == before
    assert refusal(sam, "delete_memory", as_="sam", id=fact)["code"] == "not_found"


def test_a_subscriber_gets_the_live_revision_and_search_finds_no_other(sam: Host, tom: Host, fact: int) -> None:
    live = call(sam, "edit_memory", as_="sam", id=fact, content="@tom it is 4712")["seq"]
    (message,) = call(tom, "receive", as_="tom")["messages"]
    assert list(message)[:3] == ["memory_id", "revision", "seq"]
    assert (message["memory_id"], message["revision"], message["seq"], message["addressed"]) == (fact, 2, live, True)
    assert call(tom, "search", as_="tom", query="4711")["hits"] == []
    (hit,) = call(tom, "search", as_="tom", query="4712", kind="memory")["hits"]
    assert list(hit)[:3] == ["memory_id", "revision", "seq"]
    assert (hit["memory_id"], hit["revision"], hit["seq"]) == (fact, 2, live)
    (row,) = call(tom, "history", as_="tom", channel="memory")["messages"]
    assert (row["memory_id"], row["revision"], row["content"]) == (fact, 2, "@tom it is 4712")


def test_the_journal_holds_every_revision(data: Path, sam: Host, fact: int) -> None:
    for content in ("one", "two"):
        call(sam, "edit_memory", as_="sam", id=fact, content=content)
    call(sam, "delete_memory", as_="sam", id=fact)
    told = [(each["type"], each.get("content"), each.get("replaces")) for each in events(data)[-4:]]
    assert told == [
        ("posted", "the port is 4711", None),
        ("memory_edited", "one", 1),
        ("memory_edited", "two", 2),
        ("memory_deleted", None, 3),
    ]


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("edit_memory", {"id": "7", "content": "x"}, ("id", "7")),
        ("edit_memory", {"id": -1, "content": "x"}, ("id", "-1")),
        ("edit_memory", {"id": FACT}, ("content", "missing")),
        ("edit_memory", {"id": FACT, "content": ""}, ("content", "empty", "delete_memory")),
        ("edit_memory", {"id": FACT, "content": "\ud83d"}, ("content", "surrogate")),
        ("edit_memory", {"id": FACT, "content": "x", "reply_to": 2}, ("reply_to", "label")),
        ("edit_memory", {"id": FACT, "content": "x", "label": ""}, ("label",)),
        ("edit_memory", {"id": FACT, "content": "x", "idempotency_key": "k" * 257}, ("idempotency_key", "257", "256")),
        ("edit_memory", {"id": FACT, "content": "x", "metadata": {str(n): "" for n in range(65)}}, ("65", "64")),
        ("edit_memory", {"id": FACT, "content": "x" * (33 << 10)}, ("max_message_kib", "32 KiB")),
        ("delete_memory", {}, ("id", "missing")),
        ("delete_memory", {"id": FACT, "content": "x"}, ("content", "idempotency_key")),
        ("delete_memory", {"id": FACT, "idempotency_key": ""}, ("idempotency_key", "0")),
    ],
)
def test_a_bad_argument_is_refused_by_name_and_value_and_writes_nothing(
    data: Path, sam: Host, fact: int, tool: str, arguments: dict[str, Any], told: tuple[str, ...]
) -> None:
    assert fact == FACT
    before = lines(data)
    answer = refusal(sam, tool, as_="sam", **arguments)
    assert (answer["code"], answer["retryable"]) == ("validation", False)
    assert all(text in answer["message"] for text in told), answer["message"]
    msgspec.json.encode(answer)
    assert lines(data) == before


# --- rates


def _stopped(host: Host, messages: int = 2, kib: int = 64) -> None:
    """This host's rates, and no time passes."""
    host.rates = Rates(messages, kib, lambda: 0.0)


def test_who_sends_too_fast_is_told_the_limit_and_when_to_try_again_and_nothing_is_written(
    data: Path, sam: Host, fact: int
) -> None:
    _stopped(sam)
    for content in ("one", "two"):
        call(sam, "post", as_="sam", channel="general", content=content)
    before = lines(data)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("post", {"channel": "general", "content": "three"}),
        ("edit_memory", {"id": fact, "content": "three"}),
        ("delete_memory", {"id": fact, "idempotency_key": "new"}),
    ]
    for tool, arguments in asked:
        assert refusal(sam, tool, as_="sam", **arguments) == {
            "code": "rate_limited",
            "message": '"sam" may send 2 messages a second (send_messages_per_second): try again in 0.5 s',
            "retryable": True,
        }
    assert lines(data) == before
    call(sam, "receive", as_="sam")
    call(sam, "create_channel", as_="sam", name="x")
    call(sam, "register", name="kid", parent="sam")
    call(sam, "post", as_="sam/kid", channel="general", content="a rate of its own")


def test_edits_and_deletes_are_sent_too(sam: Host, fact: int) -> None:
    _stopped(sam)
    call(sam, "edit_memory", as_="sam", id=fact, content="x")
    call(sam, "delete_memory", as_="sam", id=fact)
    assert refusal(sam, "post", as_="sam", channel="general", content="x")["code"] == "rate_limited"


def test_a_repeat_by_key_costs_nothing_and_is_answered_when_nothing_else_is(sam: Host) -> None:
    _stopped(sam, 1)
    keyed: dict[str, Any] = {"as_": "sam", "channel": "general", "content": "x", "idempotency_key": "k"}
    first = call(sam, "post", **keyed)
    for _ in range(3):
        again = call(sam, "post", **keyed)
        assert (again["seq"], again["repeated"]) == (first["seq"], True)
    assert refusal(sam, "post", **keyed | {"content": "other"})["code"] == "conflict"
    assert refusal(sam, "post", **keyed | {"idempotency_key": "new"})["code"] == "rate_limited"


def test_what_is_refused_for_another_reason_costs_nothing(sam: Host) -> None:
    _stopped(sam, 1)
    for _ in range(3):
        assert refusal(sam, "post", as_="sam", channel="generel", content="x")["code"] == "not_found"
        assert refusal(sam, "edit_memory", as_="sam", id=9, content="x")["code"] == "not_found"
        assert refusal(sam, "post", as_="sam", channel="general", content="x" * (33 << 10))["code"] == "validation"
        assert refusal(sam, "post", as_="ghost", channel="general", content="x")["code"] == "not_registered"
    call(sam, "post", as_="sam", channel="general", content="x")


def test_who_sends_too_fast_waits_for_no_lock(data: Path, sam: Host) -> None:
    _stopped(sam, 1)
    call(sam, "post", as_="sam", channel="general", content="x")
    with (data / "journal" / "writer.lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert refusal(sam, "post", as_="sam", channel="general", content="y")["code"] == "rate_limited"


def test_bytes_count_as_they_stand_in_the_journal(sam: Host) -> None:
    _stopped(sam, 100)
    call(sam, "post", as_="sam", channel="general", content="\u6f22" * 10_000)
    call(sam, "post", as_="sam", channel="general", content='"' * 15_000)
    answer = refusal(sam, "post", as_="sam", channel="general", content="\x01" * 1000)
    assert answer["code"] == "rate_limited"
    assert "64 KiB a second (send_kib_per_second), and this takes 6" in answer["message"]


class _Faulty(Files):
    """Files whose writes or flushes fail on demand."""

    def __init__(self) -> None:
        self.failing = ""

    def write(self, fd: int, data: bytes) -> int:
        self._fail("write", errno.ENOSPC)
        return super().write(fd, data)

    def fdatasync(self, fd: int) -> None:
        self._fail("fdatasync", errno.EIO)
        super().fdatasync(fd)

    def _fail(self, what: str, number: int) -> None:
        if self.failing == what:
            self.failing = ""
            raise OSError(number, os.strerror(number))


@pytest.fixture(name="files")
def _files() -> _Faulty:
    return _Faulty()


@pytest.fixture(name="faulty")
def _faulty(data: Path, sam: Host, files: _Faulty) -> Host:
    journal = Journal(data / "journal", first_events=FIRST_EVENTS, files=files)
    host = Host(Bus(journal, Owners(data / "owners"), sam.bus.policy), sam.settings, sam.directory, None)
    call(host, "register", name="ann")
    return host


def test_a_full_disk_is_told_as_such_and_costs_none_of_the_rate(
    data: Path, faulty: Host, files: _Faulty, fact: int
) -> None:
    _stopped(faulty, 1)
    before = lines(data)
    files.failing = "write"
    answer = refusal(faulty, "edit_memory", as_="ann", id=fact, content="x")
    assert (answer["code"], answer["retryable"]) == ("capacity_exhausted", False)
    assert answer["message"] == (
        "not stored: disk full: see to the disk that data_directory lies on (`agentbus status` names it), then call"
        " again"
    )
    assert lines(data) == before
    assert call(faulty, "edit_memory", as_="ann", id=fact, content="x")["revision"] == 2


@pytest.mark.parametrize("keyed", [False, True])
def test_an_edit_of_unknown_outcome_may_be_repeated_with_a_key_only(
    faulty: Host, files: _Faulty, fact: int, *, keyed: bool
) -> None:
    key: dict[str, Any] = {"idempotency_key": "k"} if keyed else {}
    files.failing = "fdatasync"
    answer = refusal(faulty, "edit_memory", as_="ann", id=fact, content="x", **key)
    assert (answer["code"], answer["retryable"]) == ("unsynced", keyed)
    if keyed:
        again = call(faulty, "edit_memory", as_="ann", id=fact, content="x", **key)
        assert (again["revision"], again["repeated"]) == (2, True)
    files.failing = "fdatasync"
    assert refusal(faulty, "delete_memory", as_="ann", id=fact)["retryable"] is True


# --- who is not there, and lists without end


def test_a_post_names_those_it_mentions_whom_nobody_knows(sam: Host, tom: Host) -> None:
    posted = call(sam, "post", as_="sam", channel="general", content="@tom and @ann, see @property")
    assert (posted["addressed"], posted["unknown"]) == (["tom"], ["ann", "property"])
    assert "unknown" not in call(tom, "post", as_="tom", channel="general", content="thanks @sam")


def _post_to_many(host: Host, many: int) -> Result:
    names = [f"agent-{number:04}" for number in range(many)]
    for name in names:
        call(host, "register", name=name, resume=True)
    return call(host, "post", as_="sam", channel="general", content=" ".join(f"@{name}" for name in names))


def test_a_post_to_very_many_says_how_many_more(data: Path) -> None:
    host = open_at(data, result_kib=1)
    call(host, "register", name="sam")
    posted = _post_to_many(host, 120)
    assert encoded_bytes(posted) <= 1 << 10
    assert posted["addressed"][:2] == ["agent-0000", "agent-0001"]
    assert len(posted["addressed"]) + posted["more_addressed"] == 120


def test_register_says_how_many_more_channels_of_a_long_list_do_not_exist(tmp_path: Path, data: Path) -> None:
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / ".local").mkdir()
    wanted = ["general", "memory", *(f"channel-{number}" for number in range(3000))]
    (root / ".local" / "agentbus.json").write_bytes(msgspec.json.encode({"channels": wanted}))
    result = call(open_at(data, root), "register", name="sam")
    assert encoded_bytes(result) <= 10 << 10
    assert result["subscribed"] == ["general", "memory"]
    assert next(iter(result["subscribe_failed"])) == "channel-0"
    assert len(result["subscribe_failed"]) + result["more_subscribe_failed"] == 3000
