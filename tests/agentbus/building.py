"""A bus in memory for the tests of the pure rooms: commits numbered from 1 and folded as every process folds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from agentbus import events as ev
from agentbus import queries, results, wire
from agentbus.commands import Facts, Policy
from agentbus.decide import decide
from agentbus.fold import fold
from agentbus.state import State
from journal import Commit, Place, format_time, parse_time
from journal.record import ZERO_HASH, encode

if TYPE_CHECKING:
    from agentbus.commands import Command, Decision, R, ReceiveResult
    from agentbus.kinds import ChannelKind

START_MS = parse_time("2026-09-09T08:00:00.000Z")
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
MINE = "a1" * 12
THEIRS = "b2" * 12
POLICY = Policy(
    cursor_idle_ms=72 * HOUR_MS,
    receipt_retention_ms=HOUR_MS,
    event_bytes_max=32 << 10,
    result_bytes_max=24 << 10,
)


class World:
    """One bus, and the clock its commits are stamped with.

    Attributes:
        state: folded up to the last commit.
        now_ms: the next commit's time; moves by a second with each.
        lines: (time, events) of each commit, by seq. line_bytes: how long each line is.
    """

    def __init__(self) -> None:
        self.state = State()
        self.now_ms = START_MS
        self.lines: dict[int, tuple[str, list[ev.AnyEvent]]] = {}
        self.line_bytes: dict[int, int] = {}
        self._offset = 0
        self.commit(ev.SegmentOpened(format=1, journal="j", prev=ZERO_HASH))
        self.commit(*ev.DEFAULT_CHANNELS)

    def commit(self, *events: ev.AnyEvent) -> int:
        """Write a line with these events, read it back and fold it; its seq."""
        seq, time, text = self.state.last_seq + 1, format_time(self.now_ms), wire.encode(events)
        line, digest = encode(seq, time, 4711, text, ZERO_HASH)
        place = Place(1, self._offset, len(line))
        read = wire.decode(text)
        fold(self.state, Commit(seq, time, 4711, text, digest, place), read)
        self.lines[seq], self.line_bytes[seq] = (time, read), len(line)
        self._offset += len(line)
        self.now_ms += 1000
        return seq

    def decide(self, command: Command[R], owner: str = MINE, **facts: Any) -> Decision[R]:  # noqa: ANN401  # fields
        """What the rules say; nothing is written."""
        given = Facts(self.now_ms, owner, f"token{self.state.last_seq}", POLICY)
        return decide(self.state, command, msgspec.structs.replace(given, **facts))

    def run(self, command: Command[R], owner: str = MINE, **facts: Any) -> R:  # noqa: ANN401  # fields
        """Decide, and write what follows."""
        decision = self.decide(command, owner, **facts)
        if decision.events:
            self.commit(*decision.events)
        return decision.result

    def register(self, identity: str, *channels: str, owner: str = MINE) -> None:
        """A session, subscribed to these channels from now on."""
        parent, _, name = identity.rpartition("/")
        cursor = self.state.last_seq
        self.commit(
            ev.Registered(as_=identity, owner=owner, name=name, parent=parent or msgspec.UNSET, context="work"),
            *(ev.Subscribed(identity, channel, cursor) for channel in channels),
        )

    def channel(self, name: str, kind: ChannelKind = "ordinary") -> None:
        """A channel beside the two default ones."""
        self.commit(ev.ChannelCreated(channel=name, kind=kind))

    def post(self, author: str, channel: str = "general", content: str = "text", **fields: Any) -> int:  # noqa: ANN401  # fields
        """A message; its seq."""
        return self.commit(ev.Posted(as_=author, channel=channel, content=content, context="work", **fields))

    def edit(self, author: str, memory: int, content: str = "better", **fields: Any) -> int:  # noqa: ANN401  # fields
        """A new revision of a live memory; its seq."""
        revision = self.state.memories[memory].revision
        return self.commit(
            ev.MemoryEdited(as_=author, id=memory, content=content, context="work", replaces=revision, **fields)
        )

    def delete(self, author: str, memory: int, **fields: Any) -> int:  # noqa: ANN401  # fields
        """No live revision of a memory any more."""
        revision = self.state.memories[memory].revision
        return self.commit(ev.MemoryDeleted(as_=author, id=memory, replaces=revision, **fields))

    def body(self, at: queries.Located) -> queries.Body:
        """What a process reads from the journal at that place."""
        time, events = self.lines[at.seq]
        (event,) = (event for event in events if isinstance(event, ev.Posted | ev.MemoryEdited))
        return queries.Body(at, time, event)

    def shown(self, result: ReceiveResult, reader: str) -> dict[str, Any]:
        """The object that the tool answers."""
        bodies = [self.body(at) for at in queries.locate(self.state, result.messages)]
        messages = [results.message(body, self.now_ms, reader) for body in bodies]
        return results.receive(result, messages)

    def canonical(self) -> bytes:
        """The State as auditors see it."""
        return queries.encode_canonical(self.state)
