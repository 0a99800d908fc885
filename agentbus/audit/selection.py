"""Which events an auditor wants to see. Pure: reads events in their order, and keeps only what later ones refer to.

An event says less than what it belongs to: `acked` names a token, `memory_edited` an id. So a sieve must be given every
commit, those outside the wanted range too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec
from msgspec import UNSET

from agentbus import events as ev

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from agentbus.audit.threads import Threads
    from agentbus.events import AnyEvent
    from journal import Commit

TYPES: Final = {str(kind.__struct_config__.tag): kind for kind in get_args(ev.AnyEvent)}
"""The event types by the names they have in a journal."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted: all filters must let an event through; an empty one does. Both ends of a range are inside.

    Attributes:
        identities: whose acts; with ``children`` also those of their subagents.
        since: in the journal's form, in which times compare as texts; so is ``until``.
        patterns: one of them must be found in one of the event's texts.
        threads: the seqs of messages; the whole thread of each is wanted.
    """

    channels: frozenset[str] = frozenset()
    identities: frozenset[str] = frozenset()
    children: bool = False
    types: frozenset[str] = frozenset()
    since: str | None = None
    until: str | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    patterns: tuple[re.Pattern[str], ...] = ()
    threads: frozenset[int] = frozenset()

    def is_of(self, identity: str) -> bool:
        """Whether the acts of an identity are wanted."""
        if not self.identities or identity in self.identities:
            return True
        return self.children and any(identity.startswith(f"{parent}/") for parent in self.identities)


class Batches:
    """Who was handed what last, as far as the events so far tell: the channels of each pending batch."""

    def __init__(self) -> None:
        self._pending: dict[str, tuple[str, frozenset[str]]] = {}
        self._subscribed: dict[str, set[str]] = {}

    def copy(self) -> Batches:
        """The same knowledge, to go on from twice."""
        made = Batches()
        made._pending = dict(self._pending)
        made._subscribed = {identity: set(channels) for identity, channels in self._subscribed.items()}
        return made

    def channels(self, event: AnyEvent) -> Collection[str]:
        """The channels that an event belongs to, but for edits of memories. Learns from it."""
        match event:
            case ev.Delivered():
                self._pending[event.as_] = event.token, channels_of_batch(event)
                return self._pending[event.as_][1]
            case ev.Acked() | ev.AckedAll():
                return self._acknowledge(event)
            case ev.Subscribed():
                self._subscribed.setdefault(event.as_, set()).add(event.channel)
            case ev.Unsubscribed():
                self._subscribed.get(event.as_, set()).discard(event.channel)
            case ev.Reset():
                self._pending, self._subscribed = {}, {}
        channel = getattr(event, "channel", None)
        return () if channel is None else (channel,)

    def _acknowledge(self, event: ev.Acked | ev.AckedAll) -> Collection[str]:
        token, channels = self._pending.pop(event.as_, ("", frozenset()))
        if isinstance(event, ev.AckedAll):
            return self._subscribed.get(event.as_, ())
        return channels if token == event.token else ()


def channels_of_batch(event: ev.Delivered) -> frozenset[str]:
    """The channels that something in a batch is about."""
    gaps = () if event.gaps is UNSET else event.gaps
    expired = () if event.expired is UNSET else event.expired
    return frozenset({*event.ends, *(gap.channel for gap in gaps), *(gone.channel for gone in expired)})


class Sieve:
    """A selection at work on a journal, from its beginning on.

    Args:
        selection: what is wanted.
        threads: the wanted threads, where some are.
    """

    def __init__(self, selection: Selection, threads: Threads | None = None) -> None:
        self.selection = selection
        self._threads = threads
        self._batches = Batches()
        self._memories: set[int] = set()  # ids of messages on the wanted channels: edits name no channel
        self._is_plain = selection == Selection()

    def branch(self) -> Sieve:
        """A sieve that can be given the commits from here on once more."""
        made = Sieve(self.selection, self._threads)
        made._batches, made._memories = self._batches.copy(), self._memories
        return made

    def wanted(self, commit: Commit, events: Sequence[AnyEvent]) -> Sequence[int]:
        """Which of a commit's events are wanted, by index. The commits must come in order, without gaps."""
        if self._is_plain:
            return range(len(events))
        found = [index for index, event in enumerate(events) if self._is_wanted(commit.seq, event)]
        return found if found and self._is_in_range(commit, events) else ()

    def _is_wanted(self, seq: int, event: AnyEvent) -> bool:
        selection = self.selection
        here = not selection.channels or self._is_in_channels(seq, event)  # always asked: it learns
        there = self._threads is None or self._threads.holds(seq, event)
        return (
            here
            and there
            and (not selection.types or event.__struct_config__.tag in selection.types)
            and (not selection.identities or any(map(selection.is_of, actors(event))))
            and (not selection.patterns or is_found(selection.patterns, event))
        )

    def _is_in_channels(self, seq: int, event: AnyEvent) -> bool:
        if isinstance(event, ev.MemoryEdited | ev.MemoryDeleted):
            return event.id in self._memories
        found = not self.selection.channels.isdisjoint(self._batches.channels(event))
        if found and isinstance(event, ev.Posted):
            self._memories.add(seq)
        return found

    def _is_in_range(self, commit: Commit, events: Sequence[AnyEvent]) -> bool:
        selection, first = self.selection, events[0]
        last = first.last if isinstance(first, ev.Lost) else commit.seq
        return (
            (selection.from_seq is None or last >= selection.from_seq)
            and (selection.to_seq is None or commit.seq <= selection.to_seq)
            and (selection.since is None or commit.time >= selection.since)
            and (selection.until is None or commit.time <= selection.until)
        )


def actors(event: AnyEvent) -> list[str]:
    """Whose act an event is; of `acked_all` also whose messages."""
    names = [getattr(event, "as_", UNSET), getattr(event, "by", UNSET)]
    return [] if isinstance(event, ev.SegmentOpened) else [name for name in names if name is not UNSET]


def is_found(patterns: tuple[re.Pattern[str], ...], event: AnyEvent) -> bool:
    """Whether one of the patterns is found in one of the event's texts: names, content, label, metadata and so on."""
    fields = msgspec.to_builtins(event)
    texts = [text for name, value in fields.items() if name != "type" for text in _texts(value)]
    return any(pattern.search(text) for pattern in patterns for text in texts)


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401  # what a field of an event holds
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):  # metadata, and the ends of a batch: what is named is a text, too
        yield from (text for pair in value.items() for text in pair if isinstance(text, str))
    elif isinstance(value, list):
        yield from (text for row in value for text in row.values() if isinstance(text, str))
