"""What can be found in a journal: faults, damage, lost ranges, a tail, a verdict. Pure: no files, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from journal import segment

if TYPE_CHECKING:
    from journal.segment import Scan


class Fault(msgspec.Struct, frozen=True):
    """One damaged line or missing segment: path, line from 1, byte from 0, the seq that should be there, and why."""

    file: str
    line: int
    offset: int
    seq: int
    cause: str


class LostRange(msgspec.Struct, frozen=True):
    """A `lost` line, by which it can be accepted by name: its seq and hash, and the seqs it stands for."""

    seq: int
    hash: str
    last: int
    reason: str


class Tail(msgspec.Struct, frozen=True):
    """Bytes after the last line of the last segment; never acknowledged, so no fault."""

    file: str
    offset: int
    bytes: int
    unfinished_line: bool  # a whole line that lacks only its LF; else a torn tail


class Damage(msgspec.Struct, frozen=True):
    """A stretch that holds no sound line, and what has to stand in its place for the chain to go on.

    Attributes:
        file: path of the segment; it need not exist.
        segment: first seq of that segment.
        line: number of its first line in the file, from 1.
        offset: its first byte.
        bytes: how many; 0 where lines are missing.
        first: of the seqs that are gone.
        last: of them; first - 1 where none is: the bytes hold no line at all.
        prev: hash that the line which takes its place continues.
        next_prev: hash that the line after it continues; None if that is gone.
        cause: what is wrong with its first line.
        guessed: whether nobody knows how many lines stood there: ``last`` is counted by line feeds.
        action: what repair does: ``cut`` it out of the file; ``end`` the sound line before it with the LF it lacks;
            ``take`` the whole file away; or ``make`` a file that is missing.
    """

    file: str
    segment: int
    line: int
    offset: int
    bytes: int
    first: int
    last: int
    prev: str
    next_prev: str | None
    cause: str
    action: Literal["cut", "end", "take", "make"]
    guessed: bool = False


class Verdict(msgspec.Struct):
    """What was found in all. ``last_seq:hash`` is the anchor.

    Attributes:
        unchecked: seqs of lines whose bytes cannot be checked, because the hash before them is gone.
    """

    commits: int = 0
    segments: int = 0
    first_seq: int = 0
    last_seq: int = 0
    hash: str = ""
    faults: int = 0
    lost: list[LostRange] = []
    unchecked: list[int] = []
    tail: Tail | None = None

    def take(self, found: Scan) -> None:
        """Count the sound lines of a scan in."""
        for commit in found.commits:
            lost = segment.parse_lost(commit.events)
            if lost is not None:
                self.lost.append(LostRange(commit.seq, commit.hash, lost.last, lost.reason))
        if found.commits:
            self.first_seq = self.first_seq or found.commits[0].seq
            self.last_seq, self.hash = found.end.seq, found.end.hash
        self.commits += len(found.commits)
        self.unchecked += found.unchecked
