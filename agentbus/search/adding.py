"""Adds texts to a search index until it covers a State. Decides neither when, nor which file a search uses."""

from __future__ import annotations

import time
from bisect import bisect_right
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, UnsetType

from agentbus.limits import SEARCH_PART_TEXTS
from agentbus.queries import Located, located
from agentbus.search import matching
from agentbus.search.fulltext import FullText
from journal import Bookmark

if TYPE_CHECKING:
    import weakref
    from array import array
    from collections.abc import Callable, Iterable, Iterator

    from agentbus.bus import Bus
    from agentbus.queries import Body
    from agentbus.state import State
    from journal import Journal


class Covers(Struct, frozen=True):
    """What an index file covers.

    Attributes:
        seq: every text up to here that a State at or after ``state_seq`` retains is in it.
        bookmark: where the journal stood at ``state_seq``. lost: the lost lines that were in it.
        texts: how many are in it, those that are gone since included, and how many ``tokens`` they have.
    """

    seq: int
    state_seq: int
    bookmark: Bookmark
    lost: list[int]
    texts: int
    tokens: int


class _Part(Struct, frozen=True):
    """Texts to be added next, and what the State they are of says of itself; ``last``: it has no more."""

    wanted: list[Located]
    last: bool
    seq: int
    bookmark: Bookmark
    lost: list[int]


def lost_lines(state: State, upto: int) -> list[int]:
    """The lost lines up to a seq: what they took may have been a deletion, so that a text is there again."""
    return [first for first in state.lost if first <= upto]


class Indexing:
    """One file on its way.

    Args:
        bus: whose texts they are.
        journal: that bus's.
        until: of time.monotonic(); then it covers what it covers.
        check: asked at each text; what it raises ends the work.
    """

    def __init__(self, bus: Bus, journal: Journal, until: float, check: Callable[[], None]) -> None:
        self._bus = bus
        self._journal = journal
        self._until = until
        self._check = check
        self._seq = self._texts = self._tokens = 0
        self._is_late = False

    def fill(self, path: str, base: Covers | None, state: weakref.ref[State]) -> Covers | None:
        """Add what a file does not have yet; what it covers then, or None if that is nothing new.

        Args:
            path: of an empty file, or of a copy of a finished one.
            base: what that one covers.
            state: the State that agreed with it; with another one nothing is done.
        """
        begin = 0
        if base is not None:
            begin, self._texts, self._tokens = base.seq, base.texts, base.tokens
        self._seq = begin
        text = FullText(path, writable=True, check=self._check)
        try:
            part = self._add_parts(text, state)
            if part is None or self._seq == begin:
                return None
            covers = Covers(self._seq, part.seq, part.bookmark, part.lost, self._texts, self._tokens)
            text.finish(msgspec.json.encode(covers))
            return covers
        finally:
            text.close()

    def _add_parts(self, text: FullText, state: weakref.ref[State]) -> _Part | None:
        """The last part that was added, as far as there was time."""
        while True:
            part = self._bus.ask(lambda now: self._part(now) if now is state() else None)
            if part is None:
                return None
            text.add(self._prepared(self._bus.bodies(part.wanted)))
            if self._is_late:
                return part
            if part.last:
                self._seq = part.seq
                return part

    def _part(self, state: State) -> _Part | None:
        """The next texts; None if the journal has no bookmark to give."""
        bookmark = self._journal.bookmark(state.last_seq)
        if bookmark is None:
            return None
        channels = list(state.channels.values())
        ascending = merge(
            *(_above(self._seq, number, channel.retained.seqs) for number, channel in enumerate(channels))
        )
        found = list(islice(ascending, SEARCH_PART_TEXTS + 1))
        wanted = [located(state, channels[number], index) for _, number, index in found[:SEARCH_PART_TEXTS]]
        last = len(found) == len(wanted)
        return _Part(wanted, last, state.last_seq, bookmark, lost_lines(state, state.last_seq))

    def _prepared(self, bodies: Iterable[Body]) -> Iterator[tuple[int, str]]:
        for body in bodies:
            self._check()
            if time.monotonic() > self._until:
                self._is_late = True
                return
            folded = whole_text(body)
            yield body.at.seq, matching.render_tokens(folded)
            self._seq = body.at.seq
            self._texts += 1
            self._tokens += len(matching.tokens(folded))


def whole_text(body: Body) -> str:
    """All of a message or memory that is searched."""
    return matching.whole(body.event.content, label_of(body))


def label_of(body: Body) -> str | None:
    """Its label, if it has one."""
    return None if isinstance(body.event.label, UnsetType) else body.event.label


def _above(after: int, number: int, seqs: array[int]) -> Iterator[tuple[int, int, int]]:
    """(seq, number of the channel, index) of a channel's messages above a seq."""
    for index in range(bisect_right(seqs, after), len(seqs)):
        yield seqs[index], number, index
