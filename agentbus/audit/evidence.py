"""What a walk through a journal proves: stretches of sound lines, and whether anchors still hold. Pure; reads no file.

A stretch is a run of lines each of which continues the one before it. The hash of its last line proves all of it, and
nothing before it: where a line is damaged, or replaced by a `lost` one, no later hash tells what stood there. Only the
`lost` line's own hash does, if it is known from elsewhere. A line that is taken on trust belongs to no stretch.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from agentbus.audit.anchors import Anchor
from agentbus.columns import render_count
from agentbus.events import Lost, SegmentOpened
from agentbus.replay import render_raw, render_seqs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agentbus.events import AnyEvent
    from journal import Commit

_LOST: Final = b'[{"type":"lost"'  # where the journal goes on behind a gap, whatever else the line says
_TAIL: Final = 76  # the hash that ends a line, and its line feed


class Stretch(Struct):
    """Lines that continue each other, by their seqs; ``hash`` is that of the last."""

    first: int
    last: int
    hash: str

    @property
    def anchor(self) -> Anchor:
        """What proves them."""
        return Anchor(self.last, self.hash)


class Judged(Struct, frozen=True):
    """An anchor and what became of it, in a word and in words.

    ``partly`` is: from some seq on the lines up to there are the same; what stood before, it does not show.
    """

    anchor: Anchor
    result: Literal["matches", "replaced", "partly", "differs", "unknown"]
    text: str

    @property
    def holds(self) -> bool:
        """Whether the history up to there is the same as then, save for what accepted `lost` lines name."""
        return self.result in ("matches", "replaced")

    @property
    def fails(self) -> bool:
        """Whether it shows a change or cannot be checked; where it tells of a part only, what lies before is wrong."""
        return self.result in ("differs", "unknown")


class _Gap(Struct, frozen=True):
    """What a `lost` line says, and its own hash."""

    first: int
    last: int
    hash: str
    next_prev: str | None

    @property
    def count(self) -> int:
        return self.last - self.first + 1


class _Reach(Struct, frozen=True):
    """How far back a hash proves what stands there.

    Attributes:
        before: the seq before which it tells nothing; 0 where it tells of all there is.
        trusted: how many lines on the way are taken on trust.
    """

    before: int
    trusted: int


class Evidence:
    """What was seen of a journal so far.

    Args:
        anchors: to be judged.
        accepted: more hashes that are known from elsewhere.

    Attributes:
        stretches: in order; the last one grows.
        unchecked: seqs of lines that are taken on trust; known once anchors are judged.
    """

    def __init__(self, anchors: Iterable[Anchor] = (), accepted: Iterable[Anchor] = ()) -> None:
        self.stretches: list[Stretch] = []
        self.unchecked: list[int] = []
        self._anchors = list(dict.fromkeys(anchors))
        self._known = {*self._anchors, *accepted}
        self._wanted = {anchor.seq for anchor in self._anchors}
        self._hashes: dict[int, str] = {}  # of the lines that anchors name
        self._followers: dict[int, Commit] = {}  # what begins a stretch behind a line that an anchor names
        self._gaps: list[_Gap] = []
        self._next_seq = 0  # what goes on with the last stretch; 0 if nothing does
        self._first, self._last = 0, 0
        self._prev: str | None = None  # the hash that the first line continues, as far as it is known
        self._broken = False  # a fault stands between the last line and the next
        self._is_begun = True  # nothing that should stand before the first line is missing or wrong
        # Once all was seen:
        self._firsts: list[int] = []  # of the stretches
        self._gap_before: dict[int, _Gap] = {}  # by the seq after it
        self._trusted: frozenset[int] = frozenset()

    def take(self, commit: Commit, events: Sequence[AnyEvent]) -> None:
        """See one sound line, in order; ``events`` may be empty if they are none that a bus can have written."""
        seq, digest = commit.seq, commit.hash
        if seq == self._next_seq:
            stretch = self.stretches[-1]
            stretch.last, stretch.hash = seq, digest
        else:
            self._begin(commit, events)
        self._last, self._next_seq, self._broken = seq, seq + 1, False
        if seq in self._wanted:
            self._hashes[seq] = digest
        if events and type(events[0]) is Lost:
            self._gaps.append(_Gap(seq, events[0].last, digest, events[0].next_prev))
            self._next_seq = 0
        elif not events and commit.events.startswith(_LOST):
            self._next_seq = 0

    def fault(self) -> None:
        """Something that is no sound line was met."""
        self._broken = True

    def _begin(self, commit: Commit, events: Sequence[AnyEvent]) -> None:
        if not self.stretches:
            self._first = commit.seq
            opened = events[0] if events else None
            self._prev = opened.prev if isinstance(opened, SegmentOpened) else None
            self._is_begun = commit.seq == 1 or (self._prev is not None and not self._broken)
        self.stretches.append(Stretch(commit.seq, commit.seq, commit.hash))
        if commit.seq - 1 in self._wanted:
            self._followers[commit.seq] = commit

    def judge(self, unchecked: Iterable[int] = ()) -> list[Judged]:
        """What became of each anchor, now that all was seen.

        Args:
            unchecked: seqs of lines whose hash was taken as they state it. An anchor of the line before checks it.
        """
        loose = set(unchecked)
        for anchor in self._anchors:
            follower = self._followers.get(anchor.seq + 1)
            if follower is not None and follower.seq in loose and _continues(follower, anchor.hash):
                loose.remove(follower.seq)
                if follower.seq == self._first:
                    self._prev = anchor.hash
        self.unchecked, self._trusted = sorted(loose), frozenset(loose)
        self.stretches = list(_without(self.stretches, self.unchecked))
        self._firsts = [stretch.first for stretch in self.stretches]
        self._gap_before = {gap.last + 1: gap for gap in self._gaps}
        return [self._judge(anchor) for anchor in self._anchors]

    # --- one anchor

    def _judge(self, anchor: Anchor) -> Judged:
        seq, digest = anchor
        gap = next((gap for gap in self._gaps if gap.first <= seq <= gap.last), None)
        here = self._hashes.get(seq)
        if digest == here and seq in self._trusted:
            return Judged(anchor, "unknown", f"cannot be checked: seq {seq} is taken on trust, its hash is only stated")
        if digest == here:
            return self._match(anchor, self._firsts[bisect_right(self._firsts, seq) - 1])
        if gap is not None and gap.last == seq:
            return self._judge_replaced(anchor, gap)
        if gap is not None:
            return Judged(anchor, "unknown", _replaced(gap))
        if here is not None:
            return Judged(anchor, "differs", f"differs: seq {seq} has the hash {here} now")
        return self._judge_absent(anchor)

    def _match(self, anchor: Anchor, first: int) -> Judged:
        """What an anchor shows of which the hash is that of a line, in the stretch that begins with ``first``."""
        reach = self._reach(first)
        count = sum(gap.count for gap in self._gaps if gap.first <= anchor.seq)
        text = "matches"
        if count:
            text += f", but {render_count(count, 'earlier commit')} {'was' if count == 1 else 'were'} replaced"
        if reach.trusted:
            lines = render_count(reach.trusted, "line")
            text += f", and {lines} behind them {'is' if reach.trusted == 1 else 'are'} taken on trust"
        if reach.before:
            return Judged(anchor, "partly", f"{text}; of what stood before seq {reach.before} it tells nothing")
        return Judged(anchor, "replaced" if count else "matches", text)

    def _reach(self, first: int) -> _Reach:
        """How far back the hash of a line proves, in the stretch that begins with ``first``."""
        trusted = 0
        while True:
            gap = self._gap_before.get(first)
            if gap is None and first - 1 in self._trusted:
                gap = self._gap_before.get(first - 1)
                trusted += gap is not None
            if gap is None:
                is_all = first == self._firsts[0] and self._is_begun
                return _Reach(0 if is_all else first, trusted)
            if gap.first in self._trusted or Anchor(gap.first, gap.hash) not in self._known:
                return _Reach(gap.first, trusted)
            first = self._firsts[bisect_right(self._firsts, gap.first) - 1]

    def _judge_replaced(self, anchor: Anchor, gap: _Gap) -> Judged:
        """An anchor of the last line that a `lost` one stands for: the line behind that one continues it."""
        follower = self._followers.get(anchor.seq + 1)
        if follower is None:
            return Judged(anchor, "unknown", _replaced(gap))
        if anchor.hash == gap.next_prev or (gap.next_prev is None and _continues(follower, anchor.hash)):
            return self._match(anchor, follower.seq)
        if gap.next_prev is None:
            return Judged(anchor, "differs", f"differs: seq {follower.seq} continues another line, or was changed")
        # A repair that wrote what follows itself let that continue the line before the lost one.
        return Judged(anchor, "unknown", _replaced(gap))

    def _judge_absent(self, anchor: Anchor) -> Judged:
        first, last = self._first, self._last
        if not last:
            return Judged(anchor, "unknown", "cannot be checked: there is no line at all")
        if anchor.seq == first - 1 and self._prev not in (None, anchor.hash):
            return Judged(anchor, "differs", f"differs: seq {first} continues the hash {self._prev}")
        if anchor.seq == first - 1 and first in self._trusted:
            return Judged(anchor, "differs", f"differs: seq {first} continues another line, or was changed")
        if anchor.seq < first:
            goes_on = ", which continues this very line; verify what came before on its own"
            more = goes_on if anchor.seq == first - 1 and self._prev else ""
            return Judged(anchor, "unknown", f"cannot be checked: the history begins later, with seq {first}{more}")
        if anchor.seq > last:
            return Judged(
                anchor, "unknown", f"cannot be checked: the end is missing, the last line here has seq {last}"
            )
        return Judged(anchor, "unknown", f"cannot be checked: seq {anchor.seq} is damaged or missing")


def render_change(judged: Iterable[Judged]) -> str:
    """Between which seqs something was changed, as far as anchors tell; empty if none differs."""
    each = list(judged)
    differing = min((one.anchor.seq for one in each if one.result == "differs"), default=0)
    if not differing:
        return ""
    # One behind a lost line proves nothing of what lies before that.
    before = max((one.anchor.seq for one in each if one.result == "matches" and one.anchor.seq < differing), default=0)
    if before:
        return f"the first change lies in {render_seqs(before + 1, differing)}: the anchor at seq {before} still holds"
    return f"a line at or before seq {differing} was changed, or this is another journal: try an earlier anchor"


def _replaced(gap: _Gap) -> str:
    were = "was" if gap.count == 1 else "were"
    return f"cannot be checked: {render_seqs(gap.first, gap.last)} {were} replaced by a lost line"


def _continues(commit: Commit, prev: str) -> bool:
    """Whether a line's hash was made with that of the line before it."""
    head = render_raw(commit)[:-_TAIL]
    return hashlib.sha256(prev.encode() + head).hexdigest() == commit.hash


def _without(stretches: Iterable[Stretch], unchecked: Sequence[int]) -> Iterator[Stretch]:
    """What is left of stretches, in order, when nothing is taken on trust."""
    for stretch in stretches:
        at = bisect_right(unchecked, stretch.last)
        trusted = unchecked[at - 1] if at else 0
        first = max(stretch.first, trusted + 1)
        if first <= stretch.last:
            yield Stretch(first, stretch.last, stretch.hash)
