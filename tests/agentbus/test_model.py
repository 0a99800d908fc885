"""Two processes on one journal against lists: nothing is lost, nothing is doubled, and only an ack moves a cursor.

The model is naive on purpose: a list of messages, and for each identity where it stands in each channel.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentbus.events import Evicted
from tests.agentbus.hosts import Result, call, crash, live, open_at, replayed

CHANNELS = ("general", "memory", "extra")
NAMES = ("sam", "tom")


@dataclass
class Message:
    """What was posted."""

    seq: int
    channel: str
    author: str
    content: str


@dataclass
class Batch:
    """What one identity was handed and has not acked."""

    token: str
    messages: list[Message]
    ends: dict[str, int]
    gaps: list[Result]


@dataclass
class Identity:
    """Where one stands. ``token`` is the last one whose response arrived."""

    cursors: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, list[Result]] = field(default_factory=dict)
    batch: Batch | None = None
    token: str | None = None


class TwoProcesses(RuleBasedStateMachine):
    """Calls of two hosts, one after the other, that may crash and whose answers may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="agentbus-model-"))
        self.data = self.root / "data"
        self.hosts = [open_at(self.data), open_at(self.data)]
        self.held: dict[str, tuple[int, str]] = {}  # display name -> which host, and the name it asked for
        self.identities: dict[str, Identity] = {}
        self.messages: list[Message] = []
        self.last = 0

    def teardown(self) -> None:
        for host in self.hosts:
            crash(host)
        shutil.rmtree(self.root)

    @initialize()
    def begin(self) -> None:
        self._register(0, "sam", resume=True)
        call(self.hosts[0], "create_channel", as_="sam", name="extra")
        self._register(1, "tom", resume=True)

    # --- sessions

    @rule(which=st.integers(0, 1), name=st.sampled_from(NAMES), resume=st.booleans())
    def register(self, which: int, name: str, resume: bool) -> None:  # noqa: FBT001  # hypothesis gives it by name
        self._register(which, name, resume=resume)

    def _register(self, which: int, name: str, *, resume: bool) -> None:
        own = [display for display, holder in self.held.items() if holder == (which, name)]
        free = [display for display in (name, f"{name}2", f"{name}3") if display not in self.held]
        display = (own + free)[0]
        identity = self.identities.setdefault(display, Identity())
        had = bool(identity.cursors)
        before = self._seq()
        result = call(self.hosts[which], "register", name=name, resume=resume)
        assert result["as"] == display
        assert result["resumed"] == (resume and (had or bool(own)))
        if not resume:
            for channel in list(identity.cursors):
                self._drop(identity, channel)
        for channel in ("general", "memory"):
            identity.cursors.setdefault(channel, before)
        counts = {channel: len(self._unread(display, channel)) for channel in identity.cursors}
        told = {row["channel"]: row["count"] for row in result["pending"]}
        assert told == {channel: count for channel, count in counts.items() if count}
        self.held[display] = (which, name)

    @rule(which=st.integers(0, 1), crashed=st.booleans())
    def end_and_come_back(self, which: int, crashed: bool) -> None:  # noqa: FBT001  # as above
        if crashed:
            crash(self.hosts[which])
        else:
            self.hosts[which].close(time.monotonic() + 5)
        self.hosts[which] = open_at(self.data)
        self.held = {display: holder for display, holder in self.held.items() if holder[0] != which}
        self._register(which, NAMES[which], resume=True)

    # --- channels

    @rule(draw=st.data(), channel=st.sampled_from(CHANNELS), what=st.sampled_from(["now", "oldest", "unsubscribe"]))
    def subscribe_or_unsubscribe(self, draw: st.DataObject, channel: str, what: str) -> None:
        display, which = self._someone(draw)
        cursors = self.identities[display].cursors
        before = self._seq()
        if what == "unsubscribe":
            call(self.hosts[which], "unsubscribe", as_=display, channel=channel)
            if channel in cursors:
                self._drop(self.identities[display], channel)
            return
        result = call(self.hosts[which], "subscribe", as_=display, channel=channel, from_=what)
        assert result.get("already", False) == (channel in cursors)
        if channel not in cursors:
            there = [message.seq for message in self.messages if message.channel == channel]
            cursors[channel] = there[0] - 1 if what == "oldest" and there else before

    def _drop(self, identity: Identity, channel: str) -> None:
        del identity.cursors[channel]
        identity.gaps.pop(channel, None)
        if identity.batch is not None:
            identity.batch.ends.pop(channel, None)
            identity.batch.messages = [message for message in identity.batch.messages if message.channel != channel]
            identity.batch.gaps = [gap for gap in identity.batch.gaps if gap["channel"] != channel]
            if not identity.batch.ends and not identity.batch.gaps:
                identity.batch = None

    # --- messages

    @rule(draw=st.data(), channels=st.lists(st.sampled_from(CHANNELS), min_size=1, max_size=5))
    def post(self, draw: st.DataObject, channels: list[str]) -> None:
        for channel in channels:
            display, which = self._someone(draw)
            content = f"message {len(self.messages)}"
            result = call(self.hosts[which], "post", as_=display, channel=channel, content=content)
            listening = [name for name, each in self.identities.items() if channel in each.cursors and name != display]
            assert result["subscribers"] == len(listening)
            assert result["live"] == len([name for name in listening if name in self.held])
            self.messages.append(Message(result["seq"], channel, display, content))

    @rule(half=st.booleans())
    def evict(self, half: bool) -> None:  # noqa: FBT001  # as above
        """What retention will write: a part of general is no longer there for those who have not read it."""
        there = [message for message in self.messages if message.channel == "general"]
        if not there:
            return
        before = there[len(there) // 2].seq if half else there[-1].seq + 1
        event = msgspec.json.encode([Evicted(channel="general", before=before)])
        self.hosts[0].bus._journal.commit(lambda _: event, deadline=time.monotonic() + 5, flush=False)
        for name, identity in self.identities.items():
            if "general" in identity.cursors:
                handed = identity.batch.ends.get("general", 0) if identity.batch else 0
                after = max(identity.cursors["general"], handed)
                lost = [message.seq for message in there if after < message.seq < before and message.author != name]
                if lost:
                    last = max(message.seq for message in there if message.seq < before)
                    gap = {"channel": "general", "from": lost[0], "to": last, "count": len(lost)}
                    identity.gaps.setdefault("general", []).append(gap | {"cause": "retention"})
        self.messages = [each for each in self.messages if each.channel != "general" or each.seq >= before]

    @rule(
        draw=st.data(),
        count=st.integers(0, 4),
        own=st.booleans(),
        ack=st.sampled_from(["last", "last", "last", "none", "wrong"]),
    )
    def receive(self, draw: st.DataObject, count: int, own: bool, ack: str) -> None:  # noqa: FBT001  # as above
        display, which = self._someone(draw)
        identity = self.identities[display]
        token = {"last": identity.token, "none": None, "wrong": "0" * 12}[ack]
        result = self._receive(display, which, token, count, include_own=own)
        identity.token = result.get("token")

    @rule(draw=st.data(), count=st.integers(1, 4))
    def receive_whose_answer_is_lost(self, draw: st.DataObject, count: int) -> None:
        display, which = self._someone(draw)
        self._receive(display, which, self.identities[display].token, count, include_own=False)

    def _receive(self, display: str, which: int, token: str | None, count: int, *, include_own: bool) -> Result:
        identity = self.identities[display]
        arguments: dict[str, Any] = {} if token is None else {"ack": token}
        arguments |= {"count": count, "include_own": include_own}
        result = call(self.hosts[which], "receive", as_=display, **arguments)
        acked = identity.batch is not None and token == identity.batch.token
        assert result.get("ack_ignored", False) == (token is not None and not acked)
        if acked and identity.batch is not None:
            self._ack(identity, identity.batch)
        if count:
            self._check_batch(display, result, count, include_own=include_own)
        else:
            assert result["messages"] == []
            assert "token" not in result
        return result

    def _ack(self, identity: Identity, batch: Batch) -> None:
        for channel, end in batch.ends.items():
            identity.cursors[channel] = max(identity.cursors[channel], end)
        for gap in batch.gaps:
            if gap in identity.gaps.get(gap["channel"], []):
                identity.gaps[gap["channel"]].remove(gap)
        identity.batch = None

    def _check_batch(self, display: str, result: Result, count: int, *, include_own: bool) -> None:
        identity = self.identities[display]
        shown = [(message["seq"], message["content"]) for message in result["messages"]]
        gaps = list(result.get("gaps", []))
        if identity.batch is not None:
            there = {message.seq for message in self.messages}
            assert (result["token"], result["redelivered"]) == (identity.batch.token, True)
            assert shown == [(each.seq, each.content) for each in identity.batch.messages if each.seq in there]
            lost = [each for each in identity.batch.messages if each.seq not in there]
            assert gaps == identity.batch.gaps + [_gap(each) for each in lost]
            return
        waiting = [
            message
            for message in self.messages
            if message.seq > identity.cursors.get(message.channel, 10**9) and (include_own or message.author != display)
        ]
        assert shown == [(message.seq, message.content) for message in waiting[:count]]
        assert gaps == [gap for channel in identity.cursors for gap in identity.gaps.get(channel, [])]
        assert result["more"] == len(waiting) - len(shown)
        assert ("token" in result) == bool(shown or gaps)
        if "token" in result:
            through = 0 if not shown else shown[-1][0] if result["more"] else 10**9
            passed = [each for each in self.messages if each.seq <= through and each.channel in identity.cursors]
            ends = {each.channel: each.seq for each in passed if each.seq > identity.cursors[each.channel]}
            identity.batch = Batch(result["token"], waiting[:count], ends, gaps)

    # --- what holds always

    @invariant()
    def all_agree(self) -> None:
        if not self.identities:
            return
        state = live(self.hosts[0])
        assert state == live(self.hosts[1]) == replayed(self.data)
        told = {
            (row["as"], row["channel"]): (row["cursor"], row["unread"]) for row in json.loads(state)["subscriptions"]
        }
        assert told == {
            (display, channel): (cursor, len(self._unread(display, channel)))
            for display, identity in self.identities.items()
            for channel, cursor in identity.cursors.items()
        }
        pending = {row["as"]: (row["token"], row["ends"]) for row in json.loads(state)["batches"]}
        assert pending == {
            display: (identity.batch.token, identity.batch.ends)
            for display, identity in self.identities.items()
            if identity.batch is not None
        }

    def _unread(self, display: str, channel: str) -> list[int]:
        cursor = self.identities[display].cursors[channel]
        return [
            message.seq
            for message in self.messages
            if message.channel == channel and message.seq > cursor and message.author != display
        ]

    def _someone(self, draw: st.DataObject) -> tuple[str, int]:
        display = draw.draw(st.sampled_from(sorted(self.held)))
        return display, self.held[display][0]

    def _seq(self) -> int:
        """The last seq, as subscriptions from now on begin behind it; an empty journal gets two lines first."""
        return self.hosts[0].bus.ask(lambda state: state.last_seq) or 2


def _gap(message: Message) -> Result:
    return {
        "channel": message.channel,
        "from": message.seq,
        "to": message.seq,
        "count": 1,
        "cause": "retention",
    }


TestTwoProcesses = TwoProcesses.TestCase
TestTwoProcesses.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
