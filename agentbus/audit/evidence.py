"""What a walk through a journal proves: stretches of sound lines, and whether anchors still hold. Pure; reads no file.

A stretch is a run of lines each of which continues the one before it. The hash of its last line proves all of it, and
nothing before it: where a line is damaged, or replaced by a `lost` one, no later hash tells what stood there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from agentbus.audit.anchors import Anchor
from agentbus.columns import render_count
from agentbus.events import Lost, SegmentOpened
from agentbus.replay import render_seqs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentbus.events import AnyEvent
    from journal import Commit


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
    """An anchor and what became of it, in a word and in words."""

    anchor: Anchor
    result: Literal["matches", "replaced", "differs", "unknown"]
    text: str

    @property
    def holds(self) -> bool:
        """Whether the history up to there is the same as then, save for what `lost` lines name."""
        return self.result in ("matches", "replaced")


class _Gap(Struct, frozen=True):
    """What a `lost` line says, and its own hash."""

    first: int
    last: int
    hash: str
    next_prev: str | None

    @property
    def count(self) -> int:
        return self.last - self.first + 1


class Evidence:
    """What was seen of a journal so far.

    Attributes:
        stretches: in order; the last one grows.
    """

    def __init__(self, anchors: Iterable[Anchor] = ()) -> None:
        self.stretches: list[Stretch] = []
        self._anchors = list(dict.fromkeys(anchors))
        self._wanted = {anchor.seq for anchor in self._anchors}
        self._hashes: dict[int, str] = {}  # of the lines that anchors name
        self._gaps: list[_Gap] = []
        self._next_seq = 0  # what goes on with the last stretch; 0 if nothing does
        self._prev: str | None = None  # the hash that the first line says it continues

    def take(self, commit: Commit, events: Sequence[AnyEvent]) -> None:
        """See one sound line, in order; ``events`` may be empty if they are none that a bus can have written."""
        seq, digest = commit.seq, commit.hash
        if seq == self._next_seq:
            stretch = self.stretches[-1]
            stretch.last, stretch.hash = seq, digest
        else:
            if not self.stretches and events and isinstance(events[0], SegmentOpened):
                self._prev = events[0].prev
            self.stretches.append(Stretch(seq, seq, digest))
        self._next_seq = seq + 1
        if seq in self._wanted:
            self._hashes[seq] = digest
        if events and type(events[0]) is Lost:
            self._gaps.append(_Gap(seq, events[0].last, digest, events[0].next_prev))
            self._next_seq = 0

    def judge(self) -> list[Judged]:
        """What became of each anchor, now that all was seen."""
        return [self._judge(anchor) for anchor in self._anchors]

    def _judge(self, anchor: Anchor) -> Judged:
        seq, digest = anchor
        gap = next((gap for gap in self._gaps if gap.first <= seq <= gap.last), None)
        here = self._hashes.get(seq)
        if digest == here or (gap is not None and seq == gap.last and digest == gap.next_prev):
            count = sum(gap.count for gap in self._gaps if gap.first <= seq)
            if not count:
                return Judged(anchor, "matches", "matches")
            were = "was" if count == 1 else "were"
            return Judged(anchor, "replaced", f"matches, but {render_count(count, 'earlier commit')} {were} replaced")
        if gap is not None:
            where = f"{render_seqs(gap.first, gap.last)} {'was' if gap.count == 1 else 'were'} replaced by a lost line"
            return Judged(anchor, "unknown", f"cannot be checked: {where}")
        if here is not None:
            return Judged(anchor, "differs", f"differs: seq {seq} has the hash {here} now")
        return self._judge_absent(anchor)

    def _judge_absent(self, anchor: Anchor) -> Judged:
        if not self.stretches:
            return Judged(anchor, "unknown", "cannot be checked: there is no line at all")
        first, last = self.stretches[0].first, self.stretches[-1].last
        if anchor.seq == first - 1 and self._prev not in (None, anchor.hash):
            return Judged(anchor, "differs", f"differs: seq {first} continues the hash {self._prev}")
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
