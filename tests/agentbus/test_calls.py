"""Every tool through the table, on real journals: results as the design states them, to the key."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agentbus import tools
from agentbus.control import Cancelled, Control
from agentbus.errors import CODES, VALIDATION, BusError
from agentbus.results import encoded_bytes
from tests.agentbus.hosts import Background, Result, call, crash, events, lines, open_at, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from agentbus.host import Host


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


def _repository(tmp_path: Path, text: str | None) -> Path:
    root = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    if text is not None:
        (root / ".local").mkdir()
        (root / ".local" / "agentbus.json").write_text(text)
    return root


def _contents(result: Result) -> list[str]:
    return [message["content"] for message in result["messages"]]


# --- the table


def test_every_tool_has_a_call_and_every_call_but_register_takes_as(sam: Host) -> None:
    for tool in tools.TOOLS:
        schema = tool.schema
        assert schema["additionalProperties"] is False
        assert ("as" in schema["required"]) == (tool.name != "register")
        assert tool.description.startswith("Agentbus:")
        if tool.name != "register":
            answer = refusal(sam, tool.name)
            assert answer["code"] == VALIDATION
            answer = refusal(
                sam,
                tool.name,
                as_="ghost",
                **{key: "general" for key in schema["required"] if key not in {"as", "id"}},
                **({"id": 1} if "id" in schema["required"] else {}),
            )
            assert (answer["code"], answer["retryable"]) == ("not_registered", False), tool.name
            assert "register" in answer["message"]


def test_always_there_are_register_receive_and_post() -> None:
    assert {tool.name for tool in tools.TOOLS if tool.meta} == {"register", "receive", "post"}


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("post", {"as_": "sam", "chanel": "general", "content": "x"}, ("chanel", "channel")),
        ("receive", {"as_": "sam", "count": "7"}, ("count", "7")),
        ("receive", {"as_": "sam", "count": True}, ("count", "true")),
        ("receive", {"as_": "sam", "wait_seconds": 1.5}, ("wait_seconds",)),
        ("receive", {"as_": "sam", "count": 1001}, ("1001", "receive_max_count")),
        ("receive", {"as_": "sam", "wait_seconds": 51}, ("51", "receive_max_wait_seconds")),
        ("receive", {"as_": "sam", "channels": ["x"] * 1001}, ("1001",)),
        ("post", {"as_": "sam", "channel": "general", "content": ""}, ("content", "empty")),
        ("post", {"as_": "sam", "channel": "general", "content": "half \ud83d"}, ("content", "surrogate")),
        ("post", {"as_": "sam", "channel": "general", "content": "x", "metadata": {"a": 1}}, ("metadata",)),
        ("post", {"as_": "sam", "channel": "general", "content": "x", "label": "two\nlines"}, ("label", "U+000A")),
        ("post", {"as_": "sam", "channel": "general", "content": "x", "idempotency_key": ""}, ("idempotency_key",)),
        (
            "post",
            {"as_": "sam", "channel": "general", "content": "x", "metadata": {str(n): "" for n in range(65)}},
            ("metadata", "65"),
        ),
        ("post", {"as_": "sam", "channel": "general", "content": "x" * (33 << 10)}, ("max_message_kib",)),
        ("history", {"as_": "sam", "channel": "general", "count": 0}, ("count",)),
        ("history", {"as_": "sam", "channel": "general", "count": 1001}, ("count", "1001")),
        ("search", {"as_": "sam", "query": "*"}, ("query",)),
        ("search", {"as_": "sam", "query": "x" * 1001}, ("query", "1001")),
        ("subscribe", {"as_": "sam", "channel": "general", "from_": "tomorrow"}, ("from", "tomorrow")),
        ("create_channel", {"as_": "sam", "name": "a/b"}, ("a/b",)),
        ("create_channel", {"as_": "sam", "name": "x", "kind": "secret"}, ("kind", "secret")),
        ("register", {"name": " "}, ("name",)),
    ],
)
def test_a_bad_argument_is_refused_by_name_and_value_and_writes_nothing(
    data: Path, sam: Host, tool: str, arguments: dict[str, Any], told: tuple[str, ...]
) -> None:
    before = lines(data)
    answer = refusal(sam, tool, **arguments)
    assert (answer["code"], answer["retryable"]) == (VALIDATION, False)
    assert all(text in answer["message"] for text in told), answer["message"]
    msgspec.json.encode(answer)
    assert lines(data) == before


# --- register


def test_register_answers_exactly_what_a_fresh_session_needs(data: Path) -> None:
    host = open_at(data)
    assert call(host, "register", name="sam") == {
        "as": "sam",
        "resumed": False,
        "pending": [],
        "subscribed": ["general", "memory"],
    }
    (registered,) = [event for event in events(data) if event["type"] == "registered"]
    assert (registered["context"], registered["client"], registered["owner"]) == (
        "work",
        "test 1.0",
        host.bus.owners.token,
    )


def test_registering_again_is_the_same_session_and_writes_only_what_changed(data: Path, sam: Host) -> None:
    before = lines(data)
    again = call(sam, "register", name="sam")
    assert again == {"as": "sam", "resumed": True, "pending": [], "subscribed": ["general", "memory"], "already": True}
    assert lines(data) == before
    call(sam, "register", name="sam", context="elsewhere/now")
    assert len(lines(data)) == len(before) + 1
    assert call(sam, "discover", as_="sam")["sessions"][0]["context"] == "elsewhere/now"


def test_children_and_second_sessions_get_suffixes_and_are_told(data: Path, sam: Host, tom: Host) -> None:
    assert call(tom, "register", name="sam")["as"] == "sam2"
    assert call(tom, "register", name="x", parent="sam")["as"] == "sam/x"
    assert call(sam, "register", name="x", parent="sam")["as"] == "sam/x-2"
    assert call(sam, "register", name="x", parent="sam")["already"]
    answer = refusal(sam, "register", name="x", parent="nobody")
    assert answer["code"] == "not_found"
    crash(tom)
    assert call(open_at(data), "register", name="y", parent="sam/x-2")["as"] == "sam/x-2/y"
    assert refusal(sam, "register", name="y", parent="sam/x")["code"] == "not_found"


def test_resume_gives_what_waits_and_resume_false_drops_it(data: Path, sam: Host, tom: Host) -> None:
    call(sam, "post", as_="sam", channel="general", content="one")
    call(sam, "post", as_="sam", channel="memory", content="two")
    crash(tom)
    tom = open_at(data)
    result = call(tom, "register", name="tom")
    assert result["resumed"]
    assert "already" not in result
    assert result["pending"] == [{"channel": "general", "count": 1}, {"channel": "memory", "count": 1}]
    fresh = call(tom, "register", name="tom", resume=False)
    assert (fresh["resumed"], fresh["pending"], fresh["subscribed"]) == (False, [], ["general", "memory"])
    assert call(tom, "receive", as_="tom")["messages"] == []


def test_the_persistent_list_is_applied_and_what_cannot_be_is_named(tmp_path: Path, data: Path, sam: Host) -> None:
    root = _repository(tmp_path, '{"channels": ["general", "reviews", "bad/name", 7]}')
    host = open_at(data, root)
    result = call(host, "register", name="tom")
    assert result["subscribed"] == ["general"]
    assert set(result["subscribe_failed"]) == {"reviews", "bad/name", "7"}
    assert result["subscribe_failed"]["reviews"] == 'channel "reviews" does not exist'
    call(sam, "create_channel", as_="sam", name="reviews")
    assert call(host, "register", name="tom")["subscribed"] == ["general", "reviews"]
    broken = _repository(tmp_path / "other", "{")
    result = call(open_at(data, broken), "register", name="ann")
    assert result["subscribed"] == ["general", "memory"]
    assert set(result["subscribe_failed"]) == {".local/agentbus.json"}


def test_idle_subscriptions_expire_and_are_told_with_what_was_unread(data: Path, sam: Host, tom: Host) -> None:
    call(sam, "post", as_="sam", channel="general", content="one")
    crash(tom)
    tom = open_at(data)
    idle = msgspec.structs.replace(tom.bus.policy, cursor_idle_ms=-1000)
    kept, tom.bus.policy = tom.bus.policy, idle
    result = call(tom, "register", name="tom")
    assert result["expired"] == [{"channel": "general", "unread": 1}, {"channel": "memory", "unread": 0}]
    assert result["pending"] == []
    call(sam, "post", as_="sam", channel="general", content="two")
    told = call(tom, "receive", as_="tom")
    assert list(told["expired"]) == [{"channel": "general", "unread": 1}, {"channel": "memory", "unread": 0}]
    assert told["messages"] == []
    tom.bus.policy = kept
    again = call(tom, "receive", as_="tom")
    assert (again["token"], again["redelivered"], again["expired"]) == (told["token"], True, told["expired"])


# --- channels


def test_create_channel_creates_once_and_conflicts_are_named(data: Path, sam: Host) -> None:
    made = {"channel": "Reviews", "kind": "ordinary", "created": True}
    assert call(sam, "create_channel", as_="sam", name="Reviews") == made
    before = lines(data)
    assert call(sam, "create_channel", as_="sam", name="Reviews") == made | {"created": False}
    for name, kind in (("reviews", "ordinary"), ("Reviews", "memory")):
        answer = refusal(sam, "create_channel", as_="sam", name=name, kind=kind)
        assert (answer["code"], "Reviews" in answer["message"]) == ("conflict", True)
    assert lines(data) == before


def test_list_channels_says_kind_counts_and_whether_one_is_subscribed(sam: Host) -> None:
    call(sam, "create_channel", as_="sam", name="facts", kind="memory")
    seq = call(sam, "post", as_="sam", channel="facts", content="x")["seq"]
    assert call(sam, "list_channels", as_="sam") == {
        "channels": [
            {"channel": "facts", "kind": "memory", "messages": 1, "last_seq": seq, "subscribed": False},
            {"channel": "general", "kind": "ordinary", "messages": 0, "last_seq": 0, "subscribed": True},
            {"channel": "memory", "kind": "memory", "messages": 0, "last_seq": 0, "subscribed": True},
        ],
        "truncated": False,
    }


def test_an_identity_written_in_another_normal_form_is_the_same_identity(data: Path, sam: Host) -> None:
    host = open_at(data)
    assert call(host, "register", name="Jose\u0301")["as"] == "Jos\u00e9"
    assert [row["subscribed"] for row in call(host, "list_channels", as_="Jose\u0301")["channels"]] == [True, True]
    call(sam, "post", as_="sam", channel="general", content="hello @Jos\u00e9")
    assert call(host, "receive", as_="Jose\u0301")["messages"][0]["addressed"] is True
    assert call(host, "history", as_="Jose\u0301", channel="general")["messages"][0]["addressed"] is True


def test_long_lists_are_cut_to_the_result_and_say_so(data: Path) -> None:
    host = open_at(data, result_kib=2)
    call(host, "register", name="sam")
    for number in range(30):
        call(host, "create_channel", as_="sam", name=f"channel {number} " + "x" * 60)
    result = call(host, "list_channels", as_="sam")
    assert result["truncated"]
    assert len(result["channels"]) > 1
    assert encoded_bytes(result) <= 2 << 10
    for number in range(30):
        call(host, "register", name=f"agent {number}")
    result = call(host, "discover", as_="sam")
    assert result["truncated"]
    assert encoded_bytes(result) <= 2 << 10


# --- subscribe and unsubscribe


def test_subscribe_begins_at_now_or_at_the_oldest_and_again_changes_nothing(data: Path, sam: Host, tom: Host) -> None:
    call(sam, "create_channel", as_="sam", name="news")
    call(sam, "post", as_="sam", channel="news", content="old")
    assert call(tom, "subscribe", as_="tom", channel="news") == {"subscribed": "news"}
    before = lines(data)
    again = call(tom, "subscribe", as_="tom", channel="news", from_="oldest")
    assert again == {"subscribed": "news", "already": True}
    assert lines(data) == before
    assert call(tom, "receive", as_="tom")["messages"] == []
    assert call(tom, "unsubscribe", as_="tom", channel="news") == {"unsubscribed": "news"}
    call(tom, "subscribe", as_="tom", channel="news", from_="oldest")
    assert _contents(call(tom, "receive", as_="tom")) == ["old"]
    answer = refusal(tom, "subscribe", as_="tom", channel="newz")
    assert (answer["code"], "news" in answer["message"]) == ("not_found", True)


def test_unsubscribe_takes_its_share_of_the_pending_batch_and_the_token_acks_the_rest(sam: Host, tom: Host) -> None:
    call(sam, "post", as_="sam", channel="general", content="one")
    call(sam, "post", as_="sam", channel="memory", content="two")
    token = call(tom, "receive", as_="tom")["token"]
    call(tom, "unsubscribe", as_="tom", channel="general")
    again = call(tom, "receive", as_="tom")
    assert (again["token"], _contents(again)) == (token, ["two"])
    assert "ack_ignored" not in call(tom, "receive", as_="tom", ack=token)
    assert call(tom, "unsubscribe", as_="tom", channel="never there") == {"unsubscribed": "never there"}


def test_persistent_calls_edit_the_file_that_register_reads(tmp_path: Path, data: Path) -> None:
    root = _repository(tmp_path, None)
    host = open_at(data, root)
    call(host, "register", name="sam")
    call(host, "create_channel", as_="sam", name="reviews")
    result = call(host, "subscribe", as_="sam", channel="reviews", persistent=True)
    assert result == {"subscribed": "reviews", "persistent": True}
    file = root / ".local" / "agentbus.json"
    assert json.loads(file.read_text()) == {"identity": "repository", "channels": ["general", "memory", "reviews"]}
    assert call(open_at(data, root), "register", name="tom")["subscribed"] == ["general", "memory", "reviews"]
    result = call(host, "unsubscribe", as_="sam", channel="reviews", persistent=True)
    assert result == {"unsubscribed": "reviews", "persistent": True}
    assert json.loads(file.read_text())["channels"] == ["general", "memory"]


def test_a_file_that_cannot_be_edited_leaves_the_session_action_and_says_why(tmp_path: Path, data: Path) -> None:
    root = _repository(tmp_path, "[]")
    host = open_at(data, root)
    call(host, "register", name="sam")
    call(host, "create_channel", as_="sam", name="reviews")
    result = call(host, "subscribe", as_="sam", channel="reviews", persistent=True)
    assert (result["subscribed"], result["persistent"]) == ("reviews", False)
    assert result["persistent_error"]
    assert (root / ".local" / "agentbus.json").read_text() == "[]"
    assert refusal(host, "subscribe", as_="sam", channel="nowhere", persistent=True)["code"] == "not_found"
    outside = open_at(data)
    call(outside, "register", name="tom")
    result = call(outside, "unsubscribe", as_="tom", channel="general", persistent=True)
    assert (result["persistent"], bool(result["persistent_error"])) == (False, True)


# --- post


def test_post_says_its_seq_who_listens_who_lives_and_whom_it_addresses(data: Path, sam: Host, tom: Host) -> None:
    away = open_at(data)
    call(away, "register", name="ann")
    crash(away)
    result = call(sam, "post", as_="sam", channel="general", content="hello @tom and @ann, says @sam")
    assert result == {"seq": 6, "subscribers": 2, "live": 1, "addressed": ["tom", "ann"]}
    asked = call(tom, "post", as_="tom", channel="general", content="what?", label="question", metadata={"a": "b"})
    reply = call(sam, "post", as_="sam", channel="general", content="that", reply_to=asked["seq"])
    assert reply["addressed"] == ["tom"]
    shown = call(tom, "receive", as_="tom")["messages"]
    assert [message.get("addressed") for message in shown] == [True, True]
    assert shown[1]["reply_to"] == asked["seq"]
    answer = refusal(sam, "post", as_="sam", channel="general", content="x", reply_to=2)
    assert (answer["code"], "2" in answer["message"]) == ("not_found", True)


def test_a_post_on_a_memory_channel_is_a_memory_whose_id_is_its_seq(sam: Host) -> None:
    result = call(sam, "post", as_="sam", channel="memory", content="a fact", idempotency_key="k")
    assert result == {"seq": 4, "memory_id": 4, "subscribers": 0, "live": 0, "addressed": []}
    again = call(sam, "post", as_="sam", channel="memory", content="a fact", idempotency_key="k")
    assert again == result | {"revision": 1, "repeated": True}


def test_a_key_repeats_the_same_payload_and_refuses_another(data: Path, sam: Host, tom: Host) -> None:
    first = call(sam, "post", as_="sam", channel="general", content="one", idempotency_key="k")
    before = lines(data)
    again = call(sam, "post", as_="sam", channel="general", content="one", idempotency_key="k")
    assert again == first | {"repeated": True}
    answer = refusal(sam, "post", as_="sam", channel="general", content="two", idempotency_key="k")
    assert (answer["code"], str(first["seq"]) in answer["message"]) == ("conflict", True)
    assert lines(data) == before
    other = call(tom, "post", as_="tom", channel="general", content="two", idempotency_key="k")
    assert "repeated" not in other


# --- receive


def test_receive_shows_each_message_with_who_when_and_where(sam: Host, tom: Host) -> None:
    call(sam, "post", as_="sam", channel="general", content="hi @tom", label="greeting", metadata={"a": "b"})
    result = call(tom, "receive", as_="tom")
    token = result["token"]
    (message,) = result["messages"]
    time_ = message.pop("time")
    assert message == {
        "seq": 5,
        "channel": "general",
        "from": "sam",
        "context": "work",
        "age": "now",
        "content": "hi @tom",
        "addressed": True,
        "label": "greeting",
        "metadata": {"a": "b"},
    }
    assert len(time_) == 24
    assert result == {
        "messages": [message],
        "token": token,
        "more": 0,
        "instruction": f'Pass "{token}" as ack on your next receive.',
    }
    assert call(tom, "receive", as_="tom", ack=token) == {
        "messages": [],
        "more": 0,
        "instruction": "Acknowledged. Nothing new.",
    }


def test_an_unacked_batch_comes_again_whatever_the_call_asks(data: Path, sam: Host, tom: Host) -> None:
    for text in ("one", "two", "three"):
        call(sam, "post", as_="sam", channel="general", content=text)
    first = call(tom, "receive", as_="tom", count=2)
    assert (_contents(first), first["more"]) == (["one", "two"], 1)
    before = lines(data)
    again = call(tom, "receive", as_="tom", ack="nonsense", count=1, channels=["memory"], include_own=True)
    assert again["ack_ignored"] is True
    assert again["redelivered"] is True
    assert (again["token"], _contents(again)) == (first["token"], ["one", "two"])
    assert lines(data) == before
    rest = call(tom, "receive", as_="tom", ack=first["token"])
    assert (_contents(rest), rest["more"]) == (["three"], 0)
    assert call(tom, "receive", as_="tom", ack=first["token"])["ack_ignored"] is True
    done = call(tom, "receive", as_="tom", ack=rest["token"], count=0)
    assert (done["messages"], "token" in done) == ([], False)


def test_a_directory_whose_name_may_be_no_context_keeps_nobody_from_registering(tmp_path: Path, data: Path) -> None:
    host = open_at(data, tmp_path / "bad\nname")
    assert call(host, "register", name="sam")["as"] == "sam"
    assert events(data)[-3]["context"] == "sam"


def test_own_messages_are_left_out_unless_asked_for_and_channels_can_be_chosen(sam: Host, tom: Host) -> None:
    call(tom, "post", as_="tom", channel="general", content="own")
    call(sam, "post", as_="sam", channel="memory", content="fact")
    assert call(tom, "receive", as_="tom", channels=["general"])["messages"] == []
    own = call(tom, "receive", as_="tom", channels=["general"], include_own=True)
    assert _contents(own) == ["own"]
    both = call(tom, "receive", as_="tom", ack=own["token"])
    assert _contents(both) == ["fact"]
    assert (both["messages"][0]["memory_id"], both["messages"][0]["revision"]) == (6, 1)
    answer = refusal(tom, "receive", as_="tom", ack=both["token"], channels=["nowhere"])
    assert answer["code"] == "not_found"
    answer = refusal(tom, "receive", as_="tom", ack=both["token"], channels=[])
    assert (answer["code"], '"channels" has 0 entries' in answer["message"]) == (VALIDATION, True)


@pytest.mark.parametrize(("count", "text"), [(2000, "x" * 1024), (50, "漢" * 3413)])
def test_a_backlog_comes_in_pages_within_result_kib_and_nothing_left_out_is_acked(
    data: Path, sam: Host, tom: Host, count: int, text: str
) -> None:
    event = {"type": "posted", "as": "sam", "channel": "general", "content": text, "context": "work"}
    line = msgspec.json.encode([event])
    for _ in range(count):  # as posts are written, but without a flush for each
        sam.bus._journal.commit(lambda _: line, deadline=time.monotonic() + 5, flush=False)
    seen: list[int] = []
    arguments: dict[str, Any] = {}
    while True:
        page = call(tom, "receive", as_="tom", count=1000, **arguments)
        assert page["more"] == count - len(seen) - len(page["messages"])
        if not page["messages"]:
            break
        assert encoded_bytes(page) <= 24 << 10
        assert all(message["content"] == text for message in page["messages"])
        seen += [message["seq"] for message in page["messages"]]
        arguments = {"ack": page["token"]}
        if not page["more"]:
            assert page["instruction"].endswith("on your next receive.")
    assert seen == list(range(5, 5 + count))
    assert len(lines(data)) > count


def test_a_message_larger_than_a_result_is_delivered_whole_and_alone(sam: Host, data: Path) -> None:
    small = open_at(data, result_kib=1)
    call(small, "register", name="tom")
    call(sam, "post", as_="sam", channel="general", content="x" * 20_000)
    call(sam, "post", as_="sam", channel="general", content="y")
    page = call(small, "receive", as_="tom")
    assert ([len(message["content"]) for message in page["messages"]], page["more"]) == ([20_000], 1)


def test_a_waiting_receive_wakes_at_a_post_and_never_before(sam: Host, tom: Host) -> None:
    waiting = Background(lambda: call(tom, "receive", as_="tom", wait_seconds=50))
    call(tom, "post", as_="tom", channel="general", content="own: wakes nobody")
    call(sam, "post", as_="sam", channel="general", content="hello")
    assert _contents(waiting.outcome()) == ["hello"]


def test_a_wait_acks_first_and_ends_empty_at_its_time(data: Path, sam: Host, tom: Host) -> None:
    call(sam, "post", as_="sam", channel="general", content="hello")
    token = call(tom, "receive", as_="tom")["token"]
    result = call(tom, "receive", as_="tom", ack=token, wait_seconds=1)
    assert (result["messages"], "token" in result, "ack_ignored" in result) == ([], False, False)
    assert [event["type"] for event in events(data)][-2:] == ["delivered", "acked"]
    ignored = call(tom, "receive", as_="tom", ack=token, wait_seconds=1)
    assert ignored["ack_ignored"] is True


def test_a_cancelled_wait_delivers_nothing_and_ends_at_once(data: Path, sam: Host, tom: Host) -> None:
    before = lines(data)
    control = Control(tom.bus)
    waiting = Background(lambda: call(tom, "receive", control, as_="tom", wait_seconds=50))
    control.cancel()
    with pytest.raises(Cancelled):
        waiting.outcome()
    assert lines(data) == before
    call(sam, "post", as_="sam", channel="general", content="hello")
    result = call(tom, "receive", as_="tom")
    assert _contents(result) == ["hello"]
    assert "redelivered" not in result


def test_a_wait_says_how_long_it_has_waited_however_often_it_is_woken(
    sam: Host, tom: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentbus.delivering.WAIT_SLICE_S", 0.2)
    told: list[float] = []
    twice = threading.Event()

    def progress(waited_s: float) -> None:
        told.append(waited_s)
        if len(told) == 2:
            twice.set()

    control = Control(tom.bus, progress)
    waiting = Background(lambda: call(tom, "receive", control, as_="tom", channels=["memory"], wait_seconds=50))
    while not twice.is_set():
        call(sam, "post", as_="sam", channel="general", content="wakes the wait, which finds nothing for it")
    control.cancel()
    waiting.finish()
    assert told[0] >= 0.2
    assert told[1] - told[0] >= 0.2


# --- history, search, get_memory, discover


def test_history_pages_lie_next_to_their_anchor_and_nothing_counts_as_read(data: Path, sam: Host, tom: Host) -> None:
    seqs = [call(sam, "post", as_="sam", channel="general", content=str(n))["seq"] for n in range(5)]
    before = lines(data)

    def page(**arguments: Any) -> tuple[list[str], bool]:  # noqa: ANN401  # JSON
        result = call(tom, "history", as_="tom", channel="general", **arguments)
        assert list(result) == ["messages", "truncated"]
        return _contents(result), result["truncated"]

    assert page() == (["0", "1", "2", "3", "4"], False)
    assert page(count=2) == (["3", "4"], True)
    assert page(before=seqs[3], count=2) == (["1", "2"], True)
    assert page(after=seqs[1], count=2) == (["2", "3"], True)
    assert page(after=seqs[0], before=seqs[4]) == (["1", "2", "3"], False)
    assert page(after=seqs[4]) == ([], False)
    assert refusal(tom, "history", as_="tom", channel="nowhere")["code"] == "not_found"
    assert lines(data) == before
    assert len(call(tom, "receive", as_="tom")["messages"]) == 5


def test_search_finds_whole_words_ranks_them_and_says_where_it_looked(sam: Host, tom: Host) -> None:
    for text in ("POL-358 is open", "see src/a.py:12", "don't panic", "nothing here"):
        call(sam, "post", as_="sam", channel="general", content=text)
    fact = call(sam, "post", as_="sam", channel="memory", content="POL-358 was closed")["seq"]
    result = call(tom, "search", as_="tom", query="pol-358")
    assert {hit["seq"] for hit in result["hits"]} == {5, fact}
    assert result["searched"] == {"channels": ["general", "memory"], "since": None, "until": None}
    (memory,) = call(tom, "search", as_="tom", query="POL-358", kind="memory", sender="sam")["hits"]
    assert (memory["memory_id"], memory["revision"], memory["from"]) == (fact, 1, "sam")
    assert [hit["seq"] for hit in call(tom, "search", as_="tom", query="don't")["hits"]] == [7]
    assert [hit["seq"] for hit in call(tom, "search", as_="tom", query="src/a.py:12")["hits"]] == [6]
    nothing = call(tom, "search", as_="tom", query="absent", channel="general", since="2h")
    assert nothing["hits"] == []
    assert nothing["searched"]["channels"] == ["general"]
    assert nothing["searched"]["since"] is not None
    first = call(tom, "search", as_="tom", query="POL-358", count=1)
    rest = call(tom, "search", as_="tom", query="POL-358", count=1, cursor=first["next"])
    assert {first["hits"][0]["seq"], rest["hits"][0]["seq"]} == {5, fact}
    assert "next" not in rest


def test_a_search_over_more_than_it_can_read_in_time_says_how_to_narrow_it(
    sam: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(sam, "post", as_="sam", channel="general", content="word")
    monkeypatch.setattr("agentbus.search.hits.SEARCH_TIME_S", -1.0)
    answer = refusal(sam, "search", as_="sam", query="word")
    assert (answer["code"], answer["retryable"]) == ("busy", True)
    assert "narrow" in answer["message"]


def test_get_memory_gives_the_whole_text_and_what_is_none_is_not_found(sam: Host, tom: Host) -> None:
    number = call(sam, "post", as_="sam", channel="memory", content="x" * 9000, label="l", metadata={"a": "b"})["seq"]
    result = call(tom, "get_memory", as_="tom", id=number)
    assert len(result.pop("time")) == 24
    assert result == {
        "id": number,
        "channel": "memory",
        "seq": number,
        "revision": 1,
        "from": "sam",
        "age": "now",
        "content": "x" * 9000,
        "label": "l",
        "metadata": {"a": "b"},
    }
    ordinary = call(sam, "post", as_="sam", channel="general", content="x")["seq"]
    for missing in (ordinary, 0, 10**6):
        answer = refusal(tom, "get_memory", as_="tom", id=missing)
        assert (answer["code"], str(missing) in answer["message"]) == ("not_found", True)


def test_discover_lists_the_living_the_caller_included(data: Path, sam: Host, tom: Host) -> None:
    sessions = call(sam, "discover", as_="sam")["sessions"]
    assert [sorted(row) for row in sessions] == [["as", "client", "context", "registered_at"]] * 2
    assert [row["as"] for row in sessions] == ["sam", "tom"]
    crash(tom)
    assert [row["as"] for row in call(sam, "discover", as_="sam")["sessions"]] == ["sam"]
    assert call(sam, "discover", as_="sam")["truncated"] is False
    assert len(lines(data)) == 4


def test_every_envelope_has_a_known_code_one_line_and_says_whether_to_retry(sam: Host) -> None:
    for tool, arguments in (
        ("post", {"as_": "sam", "channel": "nowhere", "content": "x"}),
        ("post", {"as_": "sam\u2028", "channel": "general", "content": "x"}),
        ("receive", {"as_": "x" * 2000}),
    ):
        answer = refusal(sam, tool, **arguments)
        assert set(answer) == {"code", "message", "retryable"}
        assert answer["code"] in CODES
        assert len(answer["message"].splitlines()) == 1
        assert len(answer["message"]) < 600
    with pytest.raises(BusError):
        call(sam, "receive", as_="ghost")
