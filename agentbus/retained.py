"""The retained messages of one channel, as columns in order of seq. Pure; bodies stay in the journal.

Columns and not rows: a million messages take about 45 MB, and everything that may be asked of them is a binary search.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from msgspec import Struct

from journal import Place

if TYPE_CHECKING:
    from collections.abc import Iterator


class Columns(Struct, array_like=True, frozen=True):
    """A `Retained` as the bytes of its arrays: what a snapshot keeps."""

    seqs: memoryview
    authors: memoryview
    times: memoryview
    segments: memoryview
    offsets: memoryview
    line_bytes: memoryview
    by_author: dict[int, memoryview]
    ascending: bool


class Retained:
    """Messages (on a memory channel: live revisions) with where each one's line lies.

    Attributes:
        seqs: ascending.
        authors: for each message its author's number in ``State.identities``.
        times: for each message its commit's time, in ms since 1970 UTC; need not ascend, clocks step back.
    """

    __slots__ = ("_ascending", "_by_author", "_line_bytes", "_offsets", "_segments", "authors", "seqs", "times")

    def __init__(self) -> None:
        self.seqs = array("Q")
        self.authors = array("I")
        self.times = array("q")
        self._ascending = True  # the times do, so far
        self._segments = array("Q")
        self._offsets = array("I")  # a segment has at most 1 GiB and one line
        self._line_bytes = array("I")
        self._by_author: dict[int, array[int]] = {}

    def __len__(self) -> int:
        return len(self.seqs)

    def append(self, seq: int, author: int, time_ms: int, place: Place) -> None:
        """Add the newest message. ``seq`` is above every other here."""
        if self.times and time_ms < self.times[-1]:
            self._ascending = False
        self.seqs.append(seq)
        self.authors.append(author)
        self.times.append(time_ms)
        self._segments.append(place.segment)
        self._offsets.append(place.offset)
        self._line_bytes.append(place.line_bytes)
        own = self._by_author.get(author)
        if own is None:
            own = self._by_author[author] = array("Q")
        own.append(seq)

    def columns(self) -> Columns:
        """All of it, without a copy: nothing may be added or removed while that is held."""
        return Columns(
            memoryview(self.seqs),
            memoryview(self.authors),
            memoryview(self.times),
            memoryview(self._segments),
            memoryview(self._offsets),
            memoryview(self._line_bytes),
            {author: memoryview(own) for author, own in self._by_author.items()},
            self._ascending,
        )

    @classmethod
    def restore(cls, columns: Columns) -> Retained:
        """What `columns` was given for, in the layout of this machine.

        Raises:
            ValueError: a column is no whole number of items.
        """
        made = cls()
        made.seqs.frombytes(columns.seqs)
        made.authors.frombytes(columns.authors)
        made.times.frombytes(columns.times)
        made._segments.frombytes(columns.segments)
        made._offsets.frombytes(columns.offsets)
        made._line_bytes.frombytes(columns.line_bytes)
        made._ascending = columns.ascending
        for author, own in columns.by_author.items():
            made._by_author[author] = array("Q")
            made._by_author[author].frombytes(own)
        return made

    def place(self, index: int) -> Place:
        """Where the line of the message at ``index`` lies."""
        return Place(self._segments[index], self._offsets[index], self._line_bytes[index])

    def line_bytes(self, index: int) -> int:
        """How long that line is, with its LF."""
        return self._line_bytes[index]

    def find(self, seq: int) -> int | None:
        """The index of the message with this seq; None if it is not retained here."""
        index = bisect_left(self.seqs, seq)
        return index if index < len(self.seqs) and self.seqs[index] == seq else None

    def first_after(self, seq: int) -> int:
        """The index of the first message above ``seq``; ``len(self)`` if there is none."""
        return bisect_right(self.seqs, seq)

    def first_since(self, time_ms: int) -> int:
        """The index of the first message that is not older than ``time_ms``; ``len(self)`` if all are.

        A message cannot be older than one before it: what a clock that was set back stamped does not count as old.
        """
        if self._ascending:
            return bisect_left(self.times, time_ms)
        return next((index for index, time in enumerate(self.times) if time >= time_ms), len(self.times))

    def segments(self) -> Iterator[int]:
        """First seq of each segment that holds one of the messages, ascending."""
        index = 0
        while index < len(self._segments):
            yield self._segments[index]
            index = bisect_right(self._segments, self._segments[index], index)

    def remove(self, seq: int) -> None:
        """Take one message out: a memory's revision that was replaced or deleted. It must be here."""
        index = self.find(seq)
        assert index is not None, seq  # noqa: S101  # the State knows every live revision's seq
        own = self._by_author[self.authors[index]]
        del own[bisect_left(own, seq)]
        self._delete(index, index + 1)

    def remove_before(self, seq: int) -> None:
        """Take out every message below ``seq``: they were evicted."""
        for own in self._by_author.values():
            del own[: bisect_left(own, seq)]
        self._delete(0, bisect_left(self.seqs, seq))

    def _delete(self, start: int, stop: int) -> None:
        for column in (self.seqs, self.authors, self.times, self._segments, self._offsets, self._line_bytes):
            del column[start:stop]

    def count_between(self, after: int, before: int, *, without: int | None = None) -> int:
        """How many messages lie above ``after`` and below ``before``, those of author ``without`` left out."""
        own = self._by_author.get(without) if without is not None else None
        count = bisect_left(self.seqs, before) - bisect_right(self.seqs, after)
        if own:
            count -= max(0, bisect_left(own, before) - bisect_right(own, after))
        return max(0, count)

    def last_before(self, before: int) -> int:
        """The highest seq below ``before``; 0 if there is none."""
        index = bisect_left(self.seqs, before)
        return self.seqs[index - 1] if index else 0

    def walk(self, after: int, *, without: int | None = None) -> Iterator[int]:
        """Indexes of the messages above ``after``, in order, those of author ``without`` stepped over.

        A run of the author's own messages costs one binary search, however long it is: an agent that only posts must
        not make its own receives slower.
        """
        index = bisect_right(self.seqs, after)
        own = self._by_author.get(without) if without is not None else None
        while index < len(self.seqs):
            if own is None or self.authors[index] != without:
                yield index
                index += 1
            else:
                index += self._run(index, own)

    def _run(self, index: int, own: array[int]) -> int:
        """How many messages from ``index`` on are all of the author whose seqs are ``own``.

        Both columns ascend and ``own`` is a part of ``seqs``: as long as they agree k places on, nothing foreign lies
        between, so the end of the run can be bisected.
        """
        start = bisect_left(own, self.seqs[index])
        low, high = 1, min(len(own) - start, len(self.seqs) - index)
        while low < high:
            middle = (low + high + 1) // 2
            if own[start + middle - 1] == self.seqs[index + middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low
