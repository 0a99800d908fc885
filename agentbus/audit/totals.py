"""Numbers about a journal: how much, of whom, where, when, how fast it was read, what is left over. Pure."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from agentbus import events as ev
from agentbus.audit.points import Point, Shot
from agentbus.audit.selection import Batches, actors
from agentbus.state import handed_out, unread_messages
from journal import parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbus.audit.selection import Selection, Sieve
    from agentbus.events import AnyEvent
    from agentbus.state import State
    from journal import Commit

    Record = dict[str, Any]

_HOUR_TEXT = 13  # 2026-09-09T08


class Totals:
    """Counts the wanted events of a journal, from its beginning on.

    A latency counts where the event that ends it is wanted, and of messages on wanted channels only.

    Attributes:
        found: there at the end.
    """

    def __init__(self, sieve: Sieve) -> None:
        self.found: Record = {}
        self._sieve = sieve
        self._selection: Selection = sieve.selection
        self._wanted: Sequence[int] = ()
        self._batches = Batches()
        self._ends: list[Commit] = []
        self._commits = 0
        self._types: Counter[str] = Counter()
        self._identities: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._channels: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._hours: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._pending: dict[str, int] = {}  # when each pending batch was handed out
        self._delivery_ms, self._ack_ms = array("q"), array("q")
        self._gaps: Counter[str] = Counter()
        self._lost: list[Record] = []
        self._backlog = Shot(_end_of(sieve.selection), self._unread)

    def before(self, state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:
        """A commit is about to be folded."""
        self._backlog.before(state, commit, events)
        self._wanted = self._sieve.wanted(commit, events)
        now_ms = parse_time(commit.time)
        for index, event in enumerate(events):
            if isinstance(event, ev.Lost):
                self._lost.append({"first": event.first, "last": event.last, "reason": event.reason})
            elif isinstance(event, ev.Acked):
                began_ms = self._pending.pop(event.as_, None)
                if began_ms is not None and index in self._wanted:
                    self._ack_ms.append(max(0, now_ms - began_ms))
        channels = [self._channels_of(state, event) for event in events]
        if self._wanted:
            self._count_commit(commit)
        for index in self._wanted:
            self._count(commit, events[index], channels[index])

    def after(self, state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:
        """A commit was folded: what was handed out."""
        for index, event in enumerate(events):
            if isinstance(event, ev.Delivered):
                now_ms = parse_time(commit.time)
                self._pending[event.as_] = now_ms
                if index in self._wanted:
                    self._count_delivered(state, event, now_ms)
            elif isinstance(event, ev.Reset):
                self._pending = {}

    def end(self, state: State) -> None:
        """The journal ends."""
        self._backlog.end(state)
        self.found = {
            "commits": self._commits,
            "events": self._types.total(),
            **self._extent(),
            "types": [{"type": name, "events": count} for name, count in sorted(self._types.items())],
            "identities": _rows("as", self._identities, ("events", "messages", "handed_out", "acks")),
            "channels": _rows("channel", self._channels, ("events", "messages", "handed_out")),
            "hours": _rows("hour", self._hours, ("events", "messages")),
            "delivery_ms": _spread(self._delivery_ms),
            "ack_ms": _spread(self._ack_ms),
            "backlog": self._backlog.taken.answer if self._backlog.taken else [],
            "backlog_seq": self._backlog.taken.seq if self._backlog.taken else None,
            "gaps": {name: self._gaps[name] for name in ("told", "messages")},
            "lost": self._lost,
        }

    def is_done(self, seq: int) -> bool:
        """Whether what comes after a seq cannot matter."""
        return self._backlog.is_done(seq)

    def _extent(self) -> Record:
        return {
            "first_seq": self._ends[0].seq if self._ends else None,
            "first_time": self._ends[0].time if self._ends else None,
            "last_seq": self._ends[-1].seq if self._ends else None,
            "last_time": self._ends[-1].time if self._ends else None,
        }

    def _count_commit(self, commit: Commit) -> None:
        self._commits += 1
        self._ends = [self._ends[0] if self._ends else commit, commit]

    def _channels_of(self, state: State, event: AnyEvent) -> set[str]:
        """The wanted channels that an event belongs to, as the filter has it."""
        if isinstance(event, ev.MemoryEdited | ev.MemoryDeleted):
            memory = state.memories.get(event.id)
            found = set() if memory is None else {memory.channel}
        else:
            found = set(self._batches.channels(event))
        return found & self._selection.channels if self._selection.channels else found

    def _count(self, commit: Commit, event: AnyEvent, channels: set[str]) -> None:
        hour = f"{commit.time[:_HOUR_TEXT]}:00:00.000Z"
        names = [name for name in actors(event) if self._selection.is_of(name)]
        self._types[str(event.__struct_config__.tag)] += 1
        counters = [self._hours[hour], *(self._identities[name] for name in names[:1])]
        counters += [self._channels[name] for name in channels]
        is_message, is_ack = isinstance(event, (ev.Posted, ev.MemoryEdited)), isinstance(event, ev.Acked)
        for counter in counters:
            counter["events"] += 1
            counter["messages"] += is_message
            counter["acks"] += is_ack
        if isinstance(event, ev.Delivered) and event.gaps is not UNSET:
            for gap in event.gaps:
                self._gaps["told"] += 1
                self._gaps["messages"] += 0 if gap.count is UNSET else gap.count

    def _count_delivered(self, state: State, event: ev.Delivered, now_ms: int) -> None:
        for name in event.ends:
            if name not in state.channels or (self._selection.channels and name not in self._selection.channels):
                continue
            channel = state.channels[name]
            for index in handed_out(state, event.as_, channel):
                self._delivery_ms.append(max(0, now_ms - channel.retained.times[index]))
                self._identities[event.as_]["handed_out"] += 1
                self._channels[name]["handed_out"] += 1

    def _unread(self, state: State) -> list[Record]:
        wanted = self._selection.channels
        rows = [
            {"as": identity, "channel": channel, "unread": unread_messages(state, identity, channel)}
            for identity in sorted(state.subscriptions)
            if self._selection.is_of(identity)
            for channel in sorted(state.subscriptions[identity])
            if not wanted or channel in wanted
        ]
        return [row for row in rows if row["unread"]]


def _end_of(selection: Selection) -> Point:
    """Where a range ends: what is left over is counted there."""
    return Point(seq=selection.to_seq, time=selection.until if selection.to_seq is None else None)


def _rows(key: str, counters: dict[str, Counter[str]], columns: tuple[str, ...]) -> list[Record]:
    return [{key: name, **{column: counters[name][column] for column in columns}} for name in sorted(counters)]


def _spread(values: array[int]) -> Record:
    """How many, and the values that half, 95 in 100 and all of them do not exceed; None where there are none."""
    ordered = sorted(values)

    def share(part: float) -> int | None:
        return ordered[math.ceil(part * len(ordered)) - 1] if ordered else None

    return {"count": len(ordered), "p50": share(0.5), "p95": share(0.95), "max": share(1)}
