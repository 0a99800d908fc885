"""Two processes and a clock that is moved, against lists: memories, retention, idle subscriptions, keys and rates.

The model is naive on purpose. When messages are evicted is the bus's own business: the model reads that in the journal,
checks that it was allowed, and expects of every answer what follows from it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentbus.rates import Rates
from tests.agentbus.hosts import Result, call, crash, events, live, open_at, refusal, replayed
from tools.crashes.watched import MEMORY

CHANNELS = {"general": "ordinary", "memory": "memory", "chat": "ordinary", "facts": "memory"}
DEFAULTS = ("general", "memory")
NAMES = ("sam", "tom")
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
IDLE_MS, KEPT_MS, CLEANUP_MS, RECEIPT_MS, ACTIVE_MS = 4 * HOUR_MS, 2 * HOUR_MS, HOUR_MS, HOUR_MS, HOUR_MS
RATE = 4
TOO_LONG = "x" * (1 << 10)

contents = st.sampled_from(["a", "a", "a", "b", "b", "@sam", "漢字", "漢字", TOO_LONG])
keys = st.sampled_from([None, None, None, None, "k1", "k2"])
who = st.sampled_from(NAMES)
# The newest memory most often, then older ones, then one that never was.
which = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3])
sent = st.tuples(who, st.sampled_from([*CHANNELS, *CHANNELS, *CHANNELS, "nowhere"]), contents, keys)


@dataclass(frozen=True)
class Text:
    """A message or a live revision."""

    seq: int
    channel: str
    author: str
    content: str
    time_ms: int
    memory: tuple[int, int] | None = None


@dataclass
class Batch:
    """What one identity was handed and has not acked."""

    token: str
    texts: list[Text]
    ends: dict[str, int]
    gaps: list[Result]
    expired: list[Result]


@dataclass
class Person:
    """Where one stands, and when each subscription was last used."""

    cursors: dict[str, int] = field(default_factory=dict)
    active: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, list[Result]] = field(default_factory=dict)
    batch: Batch | None = None
    token: str | None = None
    left: float = RATE
    left_at_ms: int = 0

    def drop(self, channel: str) -> None:
        """No longer subscribed."""
        del self.cursors[channel], self.active[channel]
        self.gaps.pop(channel, None)
        if self.batch is not None:
            self.batch.ends.pop(channel, None)
            self.batch.texts = [text for text in self.batch.texts if text.channel != channel]
            self.batch.gaps = [gap for gap in self.batch.gaps if gap["channel"] != channel]
            if not (self.batch.ends or self.batch.gaps or self.batch.expired):
                self.batch = None

    def miss(self, channel: str, missed: list[int], last: int) -> None:
        """A gap more, or a longer one while nobody has been told of it."""
        gaps = self.gaps.setdefault(channel, [])
        gap = {"channel": channel, "from": missed[0], "to": last, "count": len(missed), "cause": "retention"}
        if gaps and (self.batch is None or gaps[-1] not in self.batch.gaps):
            untold = gaps.pop()
            gap |= {"from": untold["from"], "count": untold["count"] + len(missed)}
        gaps.append(gap)

    def renew(self, now_ms: int) -> None:
        """Every idle clock begins anew."""
        self.active = dict.fromkeys(self.active, now_ms)


class Kept(RuleBasedStateMachine):
    """One identity on each of two hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=MEMORY))
        self.data = self.root / "data"
        self.now_ms = 1_800_000_000_000
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(time, "time_ns", lambda: self.now_ms * 1_000_000)
        self.people = {name: Person(left_at_ms=self.now_ms) for name in NAMES}
        self.hosts = {name: self._open() for name in NAMES}
        self.texts: list[Text] = []
        self.ids: list[int] = []
        self.receipts: dict[tuple[str, str], tuple[int, object, Result]] = {}
        self.read = 0
        self.evicted_ms = -(10**15)

    def teardown(self) -> None:
        for host in self.hosts.values():
            crash(host)
        self.patch.undo()
        shutil.rmtree(self.root)

    def _open(self) -> Any:  # noqa: ANN401  # a host
        host = open_at(
            self.data,
            cursor_idle_hours=IDLE_MS // HOUR_MS,
            message_retention_hours=KEPT_MS // HOUR_MS,
            cleanup_interval_seconds=CLEANUP_MS // 1000,
            receipt_retention_minutes=RECEIPT_MS // MINUTE_MS,
            max_message_kib=1,
        )
        host.rates = Rates(RATE, 64, lambda: self.now_ms / 1000)
        return host

    @initialize()
    def begin(self) -> None:
        for name in NAMES:
            self._register(name)
        for channel, kind in CHANNELS.items():
            call(self.hosts["sam"], "create_channel", as_="sam", name=channel, kind=kind)
        self._written()
        for name in NAMES:
            for channel in CHANNELS:
                self._subscribe(name, channel, "now")
        for channel in CHANNELS:
            self._post("tom", channel, "a", None)

    # --- what the journal says

    def _written(self) -> list[Result]:
        """The events since the last look, but for evictions, with which a line begins: they take effect here."""
        found = [event for event in events(self.data) if event["seq"] > self.read]
        self.read = max((event["seq"] for event in found), default=self.read)
        hidden = [text for text in self.texts if self._is_hidden(text)]
        if found and hidden and self.now_ms - self.evicted_ms >= CLEANUP_MS:
            assert found[0]["type"] == "evicted"
        for event in found:
            if event["type"] == "evicted":
                self._evict(event["channel"], event["before"])
        return [event for event in found if event["type"] != "evicted"]

    def _evict(self, channel: str, before: int) -> None:
        there = [text for text in self.texts if text.channel == channel]
        assert [text for text in there if text.seq < before] == [text for text in there if self._is_hidden(text)]
        for name, person in self.people.items():
            if channel in person.cursors:
                handed = person.batch.ends.get(channel, 0) if person.batch else 0
                after = max(person.cursors[channel], handed)
                missed = [text.seq for text in there if after < text.seq < before and text.author != name]
                if missed:
                    last = max(text.seq for text in there if text.seq < before)
                    person.miss(channel, missed, last)
        self.texts = [text for text in self.texts if text.channel != channel or text.seq >= before]
        self.evicted_ms = self.now_ms

    def _is_hidden(self, text: Text) -> bool:
        return text.memory is None and text.time_ms < self.now_ms - KEPT_MS

    def _shown(self, channel: str) -> list[Text]:
        return [text for text in self.texts if text.channel == channel and not self._is_hidden(text)]

    def _waiting(self, name: str) -> list[Text]:
        cursors = self.people[name].cursors
        return [
            text
            for text in self.texts
            if text.seq > cursors.get(text.channel, 10**9) and text.author != name and not self._is_hidden(text)
        ]

    def _unread(self, name: str, channel: str) -> int:
        return len([text for text in self._waiting(name) if text.channel == channel])

    def _missed(self, name: str, channel: str) -> int:
        """What goes unread with a subscription: what is there, over age or not, and what retention took of it."""
        person = self.people[name]
        there = [text for text in self.texts if text.channel == channel and text.author != name]
        handed = person.batch.texts if person.batch else []
        gone = [text for text in handed if text not in self.texts and text.channel == channel and text.memory is None]
        above = [text for text in there if text.seq > person.cursors[channel]]
        taken: int = sum(gap["count"] for gap in person.gaps.get(channel, []))
        return len(above) + len(gone) + taken

    # --- time

    @rule(
        ms=st.sampled_from(
            [250, 250, 500, 10 * MINUTE_MS, 61 * MINUTE_MS, 61 * MINUTE_MS, 125 * MINUTE_MS, 250 * MINUTE_MS]
        )
    )
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    # --- sending

    @rule(burst=st.lists(sent, min_size=1, max_size=4))
    def post(self, burst: list[tuple[str, str, str, str | None]]) -> None:
        for each in burst:
            self._post(*each)

    def _post(self, name: str, channel: str, content: str, key: str | None) -> None:
        code = "not_found" if channel not in CHANNELS else "validation" if content == TOO_LONG else None
        result = self._send(name, "post", key, {"channel": channel, "content": content}, code)
        if result is not None:
            seq, memory = result["seq"], CHANNELS[channel] == "memory"
            assert result.get("memory_id") == (seq if memory else None)
            self.texts.append(Text(seq, channel, name, content, self.now_ms, (seq, 1) if memory else None))
            self.ids += [seq] if memory else []

    @rule(name=who, number=which, content=contents, key=keys)
    def edit(self, name: str, number: int, content: str, key: str | None) -> None:
        live_text, id_ = self._memory(number)
        code = "not_found" if live_text is None else "validation" if content == TOO_LONG else None
        result = self._send(name, "edit_memory", key, {"id": id_, "content": content}, code)
        if result is not None and live_text is not None and live_text.memory is not None:
            revision = live_text.memory[1]
            assert result == {"seq": result["seq"], "memory_id": id_, "revision": revision + 1, "replaced": revision}
            self.texts.remove(live_text)
            moved = (id_, revision + 1)
            self.texts.append(Text(result["seq"], live_text.channel, name, content, self.now_ms, moved))

    @rule(name=who, number=which, key=keys)
    def delete(self, name: str, number: int, key: str | None) -> None:
        live_text, id_ = self._memory(number)
        result = self._send(name, "delete_memory", key, {"id": id_}, "not_found" if live_text is None else None)
        if result is not None and live_text is not None and live_text.memory is not None:
            assert result == {"deleted": id_, "revision": live_text.memory[1]}
            self.texts.remove(live_text)

    def _memory(self, number: int) -> tuple[Text | None, int]:
        """One of the newest memories, whether it lives or not, or none that ever was."""
        id_ = [*self.ids[-3:][::-1], 10**6, 10**6, 10**6][number]
        return next((text for text in self.texts if text.memory and text.memory[0] == id_), None), id_

    def _send(self, name: str, tool: str, key: str | None, asked: dict[str, Any], code: str | None) -> Result | None:
        """The answer, if something is to be done; ``code``: why it is refused, if not for its key or the rate."""
        given = {"as_": name, **asked} | ({} if key is None else {"idempotency_key": key})
        person, payload = self.people[name], (tool, asked)
        person.left = min(RATE, person.left + (self.now_ms - person.left_at_ms) / 1000 * RATE)
        person.left_at_ms = self.now_ms
        earlier = self.receipts.get((name, key or ""))
        if earlier and self.now_ms - earlier[0] <= RECEIPT_MS:
            code = None if earlier[1] == payload else "conflict"
            if code is None:
                again = call(self.hosts[name], tool, **given)
                assert again["repeated"]
                assert _numbers(again) == earlier[2]
                assert self._written() == []
                return None
        elif code is None and person.left < 1:
            code = "rate_limited"
        if code is not None:
            answer = refusal(self.hosts[name], tool, **given)
            assert (answer["code"], answer["retryable"]) == (code, code == "rate_limited")
            assert self._written() == []
            return None
        result = call(self.hosts[name], tool, **given)
        (event,) = self._written()
        person.left -= 1
        if key is not None:
            first = {"revision": 1} if tool == "post" and "memory_id" in result else {}
            self.receipts[name, key] = (self.now_ms, payload, first | _numbers(result))
        assert result.get("seq", event["seq"]) == event["seq"]
        return result

    # --- receiving

    @rule(name=who, count=st.integers(0, 4), ack=st.sampled_from(["last", "last", "last", "none", "wrong"]))
    def receive(self, name: str, count: int, ack: str) -> None:
        token = {"last": self.people[name].token, "none": None, "wrong": "0" * 12}[ack]
        self.people[name].token = self._receive(name, count, token).get("token")

    @rule(name=who)
    def receive_whose_answer_is_lost(self, name: str) -> None:
        self._receive(name, 3, self.people[name].token)

    def _receive(self, name: str, count: int, token: str | None) -> Result:
        person = self.people[name]
        given: dict[str, Any] = {"count": count} | ({} if token is None else {"ack": token})
        result = call(self.hosts[name], "receive", as_=name, **given)
        written = self._written()
        batch = person.batch
        acked = batch is not None and token == batch.token
        assert result.get("ack_ignored", False) == (token is not None and not acked)
        if batch is not None and not acked:
            assert written == []
            self._check_again(name, result, batch, count)
            return result
        if batch is not None:
            self._ack(person, batch)
        expired = self._expire(name) if batch is None and count else []
        if count == 0:
            assert (result["messages"], result["more"]) == ([], len(self._waiting(name)))
            return result
        self._check_new(name, result, count, expired)
        if not (acked or "token" in result):
            idle_ms = self.now_ms - min(person.active.values(), default=self.now_ms)
            assert [event["type"] for event in written] == (["active"] if idle_ms >= ACTIVE_MS else [])
        if written:
            person.renew(self.now_ms)
        return result

    def _ack(self, person: Person, batch: Batch) -> None:
        for channel, end in batch.ends.items():
            person.cursors[channel] = max(person.cursors[channel], end)
        for gap in batch.gaps:
            if gap in person.gaps.get(gap["channel"], []):
                person.gaps[gap["channel"]].remove(gap)
        person.batch = None
        person.renew(self.now_ms)

    def _expire(self, name: str) -> list[Result]:
        person = self.people[name]
        idle = [channel for channel, active_ms in person.active.items() if active_ms < self.now_ms - IDLE_MS]
        rows = [{"channel": channel, "unread": self._missed(name, channel)} for channel in idle]
        for channel in idle:
            person.drop(channel)
        return rows

    def _check_new(self, name: str, result: Result, count: int, expired: list[Result]) -> None:
        person = self.people[name]
        waiting = self._waiting(name)
        gaps = [gap for channel in person.cursors for gap in person.gaps.get(channel, [])]
        assert _shown(result) == [_as_shown(text) for text in waiting[:count]]
        assert (result.get("gaps", []), result.get("expired", [])) == (gaps, expired)
        assert result["more"] == len(waiting) - len(result["messages"])
        assert ("token" in result) == bool(result["messages"] or gaps or expired)
        if "token" in result:
            through = 0
            if result["messages"]:
                through = result["messages"][-1]["seq"] if result["more"] else self.read
            ends: dict[str, int] = {}
            for text in self.texts:
                if text.seq <= through and not self._is_hidden(text) and text.channel in person.cursors:
                    ends[text.channel] = max(text.seq, ends.get(text.channel, 0))
            ends = {channel: end for channel, end in ends.items() if end > person.cursors[channel]}
            person.batch = Batch(result["token"], waiting[:count], ends, gaps, expired)

    def _check_again(self, name: str, result: Result, batch: Batch, count: int) -> None:
        left = [text for text in batch.texts if text in self.texts]
        above = [
            text
            for text in self._waiting(name)
            if text.seq > max(self.people[name].cursors[text.channel], batch.ends.get(text.channel, 0))
        ]
        if count == 0:
            assert (result["messages"], result["more"]) == ([], len(above) + len(left))
            return
        assert (result["token"], result["redelivered"], result["more"]) == (batch.token, True, len(above))
        assert _shown(result) == [_as_shown(text) for text in left]
        gone = [_gap(text) for text in batch.texts if text not in self.texts]
        assert (result.get("gaps", []), result.get("expired", [])) == (batch.gaps + gone, batch.expired)

    # --- coming and going

    @rule(
        name=who,
        channel=st.sampled_from(list(CHANNELS)),
        start=st.sampled_from(["now", "oldest", "oldest", "oldest", "unsubscribe"]),
    )
    def subscribe_or_unsubscribe(self, name: str, channel: str, start: str) -> None:
        if start != "unsubscribe":
            self._subscribe(name, channel, start)
            return
        call(self.hosts[name], "unsubscribe", as_=name, channel=channel)
        self._written()
        if channel in self.people[name].cursors:
            self.people[name].drop(channel)

    def _subscribe(self, name: str, channel: str, start: str) -> None:
        person = self.people[name]
        result = call(self.hosts[name], "subscribe", as_=name, channel=channel, from_=start)
        already = channel in person.cursors
        assert result.get("already", False) == already
        before, shown = self.read, self._shown(channel)
        self._written()
        if not already:
            person.cursors[channel] = shown[0].seq - 1 if start == "oldest" and shown else before
            person.active[channel] = self.now_ms

    @rule(name=who)
    def crash_and_come_back(self, name: str) -> None:
        crash(self.hosts[name])
        self.hosts[name] = self._open()
        self.people[name].left = RATE
        self._register(name)

    def _register(self, name: str) -> None:
        person, before = self.people[name], self.read or 2
        had = bool(person.cursors)
        result = call(self.hosts[name], "register", name=name)
        self._written()
        assert (result["as"], result["resumed"]) == (name, had)
        assert result.get("expired", []) == self._expire(name)
        told = {row["channel"]: row["count"] for row in result["pending"]}
        counts = {channel: self._unread(name, channel) for channel in person.cursors}
        assert told == {channel: count for channel, count in counts.items() if count}
        person.renew(self.now_ms)
        for channel in DEFAULTS:
            person.cursors.setdefault(channel, before)
            person.active.setdefault(channel, self.now_ms)

    # --- what holds always

    @rule(name=who, channel=st.sampled_from(list(CHANNELS)))
    def look(self, name: str, channel: str) -> None:
        page = call(self.hosts[name], "history", as_=name, channel=channel, count=1000)
        assert _shown(page) == [_as_shown(text) for text in self._shown(channel)]
        rows = {
            row["channel"]: row["messages"] for row in call(self.hosts[name], "list_channels", as_=name)["channels"]
        }
        assert rows == {each: len(self._shown(each)) for each in CHANNELS}
        for number in range(4):
            text, id_ = self._memory(number)
            if text is None or text.memory is None:
                assert refusal(self.hosts[name], "get_memory", as_=name, id=id_)["code"] == "not_found"
            else:
                memory = call(self.hosts[name], "get_memory", as_=name, id=id_)
                assert (memory["seq"], memory["revision"], memory["from"]) == (text.seq, text.memory[1], text.author)
                assert (memory["id"], memory["content"]) == (id_, text.content)
        assert self._written() == []

    @invariant()
    def all_agree(self) -> None:
        if not self.read:
            return
        state = live(self.hosts["sam"])
        assert state == live(self.hosts["tom"]) == replayed(self.data)
        told = json.loads(state)
        cursors = {(row["as"], row["channel"]): row["cursor"] for row in told["subscriptions"]}
        people = self.people.items()
        assert cursors == {(name, each): cursor for name, person in people for each, cursor in person.cursors.items()}
        batches = {row["as"]: (row["token"], row["ends"]) for row in told["batches"]}
        assert batches == {name: (each.batch.token, each.batch.ends) for name, each in people if each.batch}
        memories = {(row["id"], row["revision"]): (row["seq"], row["from"]) for row in told["memories"]}
        assert memories == {text.memory: (text.seq, text.author) for text in self.texts if text.memory}


def _numbers(result: Result) -> Result:
    told = ("seq", "memory_id", "revision", "replaced", "deleted")
    return {name: result[name] for name in told if name in result}


def _shown(result: Result) -> list[tuple[object, ...]]:
    return [
        (each["seq"], each["channel"], each["from"], each["content"], each.get("memory_id"), each.get("revision"))
        for each in result["messages"]
    ]


def _as_shown(text: Text) -> tuple[object, ...]:
    return (text.seq, text.channel, text.author, text.content, *(text.memory or (None, None)))


def _gap(text: Text) -> Result:
    cause = "superseded or deleted" if text.memory else "retention"
    return {"channel": text.channel, "from": text.seq, "to": text.seq, "count": 1, "cause": cause}


TestKept = Kept.TestCase
TestKept.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
