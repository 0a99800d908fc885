"""The hits of a search: candidates from the index and from what it lacks, judged by the State and by the texts.

Only what a State lets through is read, and only what holds every word literally is a hit; so whatever the index says
too much is harmless. What it says too little is made good here: texts that it does not cover are all read. Only as
many bodies are read as a page needs, in the order in which the index weighs them.
"""

from __future__ import annotations

import time
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from agentbus.errors import BUSY, BusError
from agentbus.limits import (
    NEAREST_TRIED_MAX,
    NEAREST_WORDS_MAX,
    SEARCH_BEHIND_MIN,
    SEARCH_SCANNED_MAX,
    SEARCH_TIME_S,
    VOCABULARY_MAX,
)
from agentbus.queries import Body, Located
from agentbus.search import matching, nearest
from agentbus.search.adding import whole_text
from agentbus.search.fulltext import FullTextError
from agentbus.search.index import close
from agentbus.search.matching import Corpus, Word
from agentbus.search.scope import Scope, View, key

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from agentbus.bus import Bus
    from agentbus.control import Control
    from agentbus.search.index import Reading, SearchIndex
    from agentbus.state import State

_HOPELESS_MIN = 20_000  # texts that cannot be read in the time that is left after waiting for the index
_OFFERED_MAX = 8  # words of a query for which others are offered
_OFFERING_S = 2.0  # after that no more are looked for
_BEGINNING_MIN = 3  # of a word that is offered as the beginning of others: anything begins with a shorter one
_BATCH = 500
_SPARE = 50
_SPARE_PART = 4
"""Candidates asked for at once beyond those needed: that many may turn out to be gone, or not to hold a word."""


class Query(Struct, frozen=True):
    """What is looked for: words in a scope, among what was made up to a seq (None: up to now) and was not shown yet."""

    words: tuple[Word, ...]
    scope: Scope
    upto: int | None = None
    shown: frozenset[int] = frozenset()


class Hit(Struct, frozen=True):
    """A text that holds every word, and how well."""

    body: Body
    weight: float


class Found(Struct, frozen=True):
    """What a search found.

    Attributes:
        hits: the best first, of equals the newest.
        channels: names of those looked into.
        upto: the query's, or the seq of the State at the first look.
        nearest: if there is no hit: for words that stand nowhere those that may have been meant.
        trouble: why texts had to be read that belong into the index; empty if none had.
    """

    hits: list[Hit]
    channels: list[str]
    upto: int
    nearest: dict[str, list[str]]
    trouble: str


class _Look(Struct, frozen=True):
    """What one State lets through: of the candidates, in their order, and of what stands above a seq."""

    channels: list[str]
    last_seq: int
    located: list[Located | None]
    rest: list[Located]


class _StaleError(Exception):
    """The index is not of this journal, or its bytes have changed: nothing that it said counts."""


class Finder:
    """One search.

    Args:
        bus: where.
        index: of that bus; without one all texts are read.
        permit: asked of the State first; may refuse.
        control: the caller's.
    """

    def __init__(self, bus: Bus, index: SearchIndex | None, permit: Callable[[State], None], control: Control) -> None:
        self._bus = bus
        self._index = index
        self._permit = permit
        self._control = control
        self._began = time.monotonic()
        self._reading: Reading | None = None
        self._rest: list[Located] = []
        self._texts: list[str] = []  # those of the rest, whole, if they are few

    def find(self, query: Query, many: int) -> Found:
        """The best ``many`` hits.

        Raises:
            BusError: refused; or busy: there was too much to read.
            JournalError, Cancelled
        """
        self._bus.ask(self._permit)
        if self._index is None:
            return self._find(query, many)
        ready = self._index.ready(self._bus, self._check)
        self._reading = ready.reading
        try:
            if ready.making and ready.need.behind > _HOPELESS_MIN:
                raise BusError(BUSY, self._render_busy(ready.need.behind), retryable=True)
            try:
                return self._find(query, many)
            except (FullTextError, _StaleError):  # whatever ails it: the texts themselves are there
                close(self._reading)
                self._reading = None
                return self._find(query, many)
        finally:
            close(self._reading)
            self._index.go_on(self._bus, ready.need)

    def _find(self, query: Query, many: int) -> Found:
        indexed, look = self._indexed(query, many)
        query = structs.replace(query, upto=look.last_seq if query.upto is None else query.upto)
        # A memory that was edited while this looked, perhaps twice: its last revision counts.
        later = {key(at): at for at in look.rest}
        self._rest, self._texts = list(later.values()), []
        hits = [hit for hit in indexed if key(hit.body.at) not in later] + self._read(query)
        self._check_intact()
        hits = sorted(hits, key=lambda hit: (-hit.weight, -hit.body.at.seq))[:many]
        offered = {} if hits or query.shown else self._offer(query)
        trouble = self._index.trouble if self._index is not None and len(look.rest) > SEARCH_BEHIND_MIN else ""
        assert query.upto is not None  # noqa: S101  # set above
        return Found(hits, look.channels, query.upto, offered, trouble)

    # --- from the index

    def _indexed(self, query: Query, many: int) -> tuple[list[Hit], _Look]:
        """The best hits that the index covers, and a look that has all that it does not cover."""
        covered = 0 if self._reading is None else self._reading.covers.seq
        hits: list[Hit] = []
        with closing(self._candidates(query, many)) as candidates:
            batch = list(islice(candidates, _enough(query, many)))
            whole = look = self._look(query, batch, covered)
            while batch:
                hits += islice(self._judge(query, batch, look), many - len(hits))
                if len(hits) >= many:
                    break
                batch = list(islice(candidates, _BATCH))
                if batch:
                    look = self._look(query, batch, whole.last_seq)
                    whole = structs.replace(whole, last_seq=look.last_seq, rest=whole.rest + look.rest)
        return hits, whole

    def _candidates(self, query: Query, many: int) -> Generator[tuple[int, float]]:
        """(seq, weight) of what holds every word by the index, the best first; at first as many as mostly do."""
        if self._reading is None:
            return
        phrases = [matching.phrase(word) for word in query.words]
        first = 0
        if not query.scope.is_narrow:
            first = _enough(query, many)
            found = list(self._reading.text.rank(phrases, first))
            yield from found
            if len(found) < first:
                return
        yield from islice(self._reading.text.rank(phrases, -1), first, None)

    def _look(self, query: Query, batch: list[tuple[int, float]], after: int) -> _Look:
        def look(state: State) -> _Look:
            if self._reading is not None and self._index is not None and not self._index.agrees(self._reading, state):
                raise _StaleError
            view = View(state, query.scope, self._bus.horizon_ms(), query.upto)
            located = [view.locate(seq) for seq, _ in batch]
            return _Look([channel.name for channel in view.channels], state.last_seq, located, list(view.above(after)))

        return self._bus.ask(look)

    def _judge(self, query: Query, batch: list[tuple[int, float]], look: _Look) -> Iterator[Hit]:
        """Those of the candidates that are hits, in their order."""
        for (_, weight), at in zip(batch, look.located, strict=True):
            self._check()
            if at is None or key(at) in query.shown:
                continue
            (body,) = self._bus.bodies([at])
            if all(matching.count(query.words, whole_text(body))):
                yield Hit(body, weight)

    def _check_intact(self) -> None:
        if self._reading is not None and self._index is not None and not self._index.is_intact(self._reading):
            raise _StaleError

    # --- from the texts that it does not cover

    def _read(self, query: Query) -> list[Hit]:
        """The hits among them, weighed as the index weighs."""
        found: list[tuple[Body, tuple[int, ...], int]] = []
        holding = [0] * len(query.words)
        keep = len(self._rest) <= SEARCH_SCANNED_MAX
        for body in self._bus.bodies(self._rest):
            self._check()
            text = whole_text(body)
            if keep:
                self._texts.append(text)
            counts = matching.count(query.words, text)
            holding = [many + (often > 0) for many, often in zip(holding, counts, strict=True)]
            if all(counts) and key(body.at) not in query.shown:
                found.append((body, counts, len(matching.tokens(text))))
        if not found:
            return []
        corpus = self._corpus(query, holding, [length for _, _, length in found])
        return [Hit(body, matching.weigh(corpus, counts, length)) for body, counts, length in found]

    def _corpus(self, query: Query, holding: list[int], lengths: list[int]) -> Corpus:
        reading = self._reading
        if reading is None or not reading.covers.texts:  # the hits stand for all texts
            return Corpus(len(self._rest), len(self._rest) * sum(lengths) // len(lengths), tuple(holding))
        known = tuple(reading.text.holding(matching.phrase(word)) for word in query.words)
        return Corpus(reading.covers.texts, reading.covers.tokens, known)

    # --- nothing found

    def _offer(self, query: Query) -> dict[str, list[str]]:
        """For the words that stand nowhere in the scope, those that do and look like them."""
        if len(self._rest) > SEARCH_SCANNED_MAX:
            return {}
        missing = [
            word for word in query.words[:_OFFERED_MAX] if len(query.words) == 1 or not self._stands(query, word)
        ]
        offers = {word.text: list(islice(self._offers(query, word), NEAREST_WORDS_MAX)) for word in missing}
        return {word: others for word, others in offers.items() if others}

    def _offers(self, query: Query, word: Word) -> Iterator[str]:
        if len(word.text) >= _BEGINNING_MIN and self._stands(query, Word(word.text, prefix=True)):
            yield f"{word.text}*"
        parts = matching.tokens(word.text)
        for token in parts:
            if len(parts) > 1 and self._stands(query, Word(token, prefix=False)):
                continue
            for other in nearest.nearest(token, self._vocabulary(token))[:NEAREST_TRIED_MAX]:
                meant = Word(word.text.replace(token, other), prefix=False)
                if time.monotonic() > self._began + _OFFERING_S:
                    return
                if self._stands(query, meant):
                    yield meant.text

    def _vocabulary(self, token: str) -> dict[str, int]:
        """Words that a token may stand for, each with how many texts hold it."""
        words: dict[str, int] = {}
        if self._reading is not None:
            others = nearest.with_other_beginning(token)
            words |= self._reading.text.words(token[0], others, VOCABULARY_MAX)
        for text in self._texts:
            for word in set(matching.tokens(text)):
                words[word] = words.get(word, 0) + 1
        return words

    def _stands(self, query: Query, word: Word) -> bool:
        """Whether a word stands anywhere in the scope."""
        alone = structs.replace(query, words=(word,))
        if any(all(matching.count(alone.words, text)) for text in self._texts):
            return True
        return self._reading is not None and bool(self._indexed(alone, 1)[0])

    # --- time

    def _check(self) -> None:
        """Raise what ends this search."""
        self._control.check()
        if time.monotonic() < self._began + SEARCH_TIME_S:
            return
        raise BusError(BUSY, self._render_busy(len(self._rest)), retryable=True)

    def _render_busy(self, unread: int) -> str:
        narrow = "narrow the search by channel, sender or since"
        if self._index is not None and self._index.trouble:
            return (
                f"{unread} texts are too many to read in time, and the search index cannot be kept "
                f"({self._index.trouble}): {narrow}"
            )
        if self._index is not None and unread > SEARCH_SCANNED_MAX:
            return f"{unread} texts are not in the search index yet, which is being made: search again, or {narrow}"
        return f"there were too many texts to read in time: {narrow}, or use rarer words"


def _enough(query: Query, many: int) -> int:
    """As many candidates as most often have so many hits among them that were not shown yet."""
    needed = many + len(query.shown)
    return needed + needed // _SPARE_PART + _SPARE
