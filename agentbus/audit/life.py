"""The life of one message: who was there when it was posted, who was handed it when, who acknowledged it when. Pure.

What is told of a delivery is a `delivered` event. A batch that is handed out again before it was acknowledged is not
journaled, so nobody can tell how often that was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from agentbus import events as ev
from agentbus.kinds import MEMORY
from agentbus.queries import subscribers
from journal import parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbus.audit.selection import Selection
    from agentbus.events import AnyEvent
    from agentbus.state import State
    from journal import Commit

    Record = dict[str, Any]


class _Reader(Struct):
    """One identity and the message.

    Attributes:
        subscribed: when it was posted. live: whether it had a session then.
        token: of the pending batch it is in.
        outcome: what became of it; None while it waits.
    """

    subscribed: bool
    live: bool
    deliveries: list[Record]
    token: str | None = None
    outcome: Record | None = None


class Life:
    """Follows one message, or one revision of a memory, through the journal.

    Args:
        seq: of a `posted` or `memory_edited` event.
        selection: whose readers are wanted.
    """

    def __init__(self, seq: int, selection: Selection) -> None:
        self.seq = seq
        self.found: Record | None = None
        self._selection = selection
        self._readers: dict[str, _Reader] = {}
        self._event: ev.Posted | ev.MemoryEdited | None = None
        self._channel = ""
        self._memory: int | None = None
        self._ms = 0
        self._replies: list[Record] = []
        self._edits: list[Record] = []
        self._names = {seq}  # by which replies refer to it: a memory's id and each of its revisions
        self._end: Record | None = None

    def before(self, state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:
        """A commit is about to be folded: what it does to what is there now."""
        if commit.seq == self.seq:
            self._begin(state, commit, events)
        elif self._event is not None:
            for event in events:
                self._watch(state, commit, event)

    def after(self, state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:
        """A commit was folded: what was handed out."""
        if self._event is None:
            return
        if commit.seq == self.seq:
            self._settle(state)
        for event in events:
            if isinstance(event, ev.Delivered) and self._is_in_batch(state, event):
                self._deliver(commit, event)

    def end(self, state: State) -> None:
        """The journal ends."""
        if self._event is None or self.found is None:
            return
        readers = [_row(name, self._readers[name]) for name in sorted(self._readers) if self._selection.is_of(name)]
        if self._selection.identities:
            self.found["only"] = sorted(self._selection.identities)
        self.found |= {"readers": readers, "replies": self._replies, "edits": self._edits}
        if self._end is not None:
            self.found["end"] = self._end
        self.found["upto"] = state.last_seq

    def is_done(self, seq: int) -> bool:
        """Whether it is no message: to one, anything may still happen."""
        return self.found is None and seq >= self.seq

    # --- the message

    def _begin(self, state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:
        event = next((each for each in events if isinstance(each, ev.Posted | ev.MemoryEdited)), None)
        if event is None:
            return
        self._event, self._ms = event, parse_time(commit.time)
        self.found = {"seq": commit.seq, "time": commit.time, "pid": commit.pid, **to_builtins(event)}
        if isinstance(event, ev.Posted):
            self._channel = event.channel
        elif event.id in state.memories:
            self._channel = state.memories[event.id].channel
        for identity in subscribers(state, self._channel, event.as_):
            self._readers[identity] = _Reader(subscribed=True, live=identity in state.sessions, deliveries=[])

    def _settle(self, state: State) -> None:
        """What the bus knew of it when it was posted."""
        assert self.found is not None  # noqa: S101  # made a moment ago
        memory = state.memory_at(self.seq)
        kind = state.channels[self._channel].kind if self._channel in state.channels else None
        self.found |= {"channel": self._channel, "addressed": list(state.addressed.get(self.seq, ()))}
        if memory is not None and kind == MEMORY:
            self._memory = memory.id
            self._names.add(memory.id)
            self.found |= {"memory_id": memory.id, "revision": memory.revision}

    # --- what comes after

    def _watch(self, state: State, commit: Commit, event: AnyEvent) -> None:
        at = {"seq": commit.seq, "time": commit.time}
        match event:
            case ev.Posted() if event.reply_to in self._names:
                self._replies.append(at | {"as": event.as_, "channel": event.channel, "content": event.content})
            case ev.MemoryEdited() if event.id == self._memory:
                self._edits.append(at | {"as": event.as_, "revision": event.replaces + 1, "content": event.content})
                self._names.add(commit.seq)
                self._finish(at | {"what": "replaced", "as": event.as_})
            case ev.MemoryDeleted() if event.id == self._memory:
                self._edits.append(at | {"as": event.as_, "deleted": True})
                self._finish(at | {"what": "deleted", "as": event.as_})
            case ev.Evicted() if event.channel == self._channel and event.before > self.seq:
                self._finish(at | {"what": "evicted"})
            case ev.Reset():
                self._reset(at | {"what": "reset", "as": event.by})
            case ev.Subscribed() if event.channel == self._channel and event.cursor < self.seq and self._end is None:
                if event.channel not in state.subscriptions.get(event.as_, {}):
                    self._readers.setdefault(
                        event.as_, _Reader(subscribed=False, live=False, deliveries=[])
                    ).outcome = None
            case ev.Acked() | ev.AckedAll() | ev.Unsubscribed():
                self._watch_reader(state, at, event)

    def _watch_reader(self, state: State, at: Record, event: ev.Acked | ev.AckedAll | ev.Unsubscribed) -> None:
        reader = self._readers.get(event.as_)
        if reader is None or self._channel not in state.subscriptions.get(event.as_, {}):
            return
        match event:
            case ev.Acked() if event.token == reader.token:
                since_ms = parse_time(reader.deliveries[-1]["time"])
                _close(reader, at | {"what": "acked", "after_ms": max(0, parse_time(at["time"]) - since_ms)})
            case ev.AckedAll() if event.before > self.seq:
                _close(reader, at | {"what": "acked_all", "by": event.by})
            case ev.AckedAll() if reader.token is not None:  # the batch is gone: it is handed out anew, or never
                reader.token, reader.outcome = None, self._end
            case ev.Unsubscribed() if event.channel == self._channel:
                _close(reader, at | {"what": "unsubscribed", "reason": event.reason})

    def _finish(self, end: Record) -> None:
        """Nobody is handed it any more; who has it may still acknowledge."""
        if self._end is None:
            self._end = end
            for reader in self._readers.values():
                if reader.outcome is None and reader.token is None:
                    reader.outcome = end

    def _reset(self, end: Record) -> None:
        self._finish(end)
        for reader in self._readers.values():
            reader.outcome = reader.outcome or end
            reader.token = None
        self._memory = None

    def _is_in_batch(self, state: State, event: ev.Delivered) -> bool:
        batch = state.batches.get(event.as_)
        channel = state.channels.get(self._channel)
        assert self._event is not None  # noqa: S101  # else nobody asks
        return (
            batch is not None
            and batch.token == event.token
            and channel is not None
            and channel.retained.find(self.seq) is not None
            and self._channel in batch.starts
            and batch.starts[self._channel] < self.seq <= batch.ends[self._channel]
            and (batch.include_own or event.as_ != self._event.as_)
        )

    def _deliver(self, commit: Commit, event: ev.Delivered) -> None:
        reader = self._readers.setdefault(event.as_, _Reader(subscribed=False, live=False, deliveries=[]))
        reader.deliveries.append(
            {
                "seq": commit.seq,
                "time": commit.time,
                "pid": commit.pid,
                "token": event.token,
                "after_ms": max(0, parse_time(commit.time) - self._ms),
            }
        )
        reader.token, reader.outcome = event.token, None


def _close(reader: _Reader, outcome: Record) -> None:
    if reader.outcome is None or reader.token is not None:
        reader.outcome = outcome
    reader.token = None


def _row(identity: str, reader: _Reader) -> Record:
    outcome = reader.outcome or {"what": "unread" if reader.token is None else "handed_out"}
    return {
        "as": identity,
        "subscribed": reader.subscribed,
        "live": reader.live,
        "delivered": reader.deliveries,
        "outcome": outcome,
    }
