"""Which lines of a damaged stretch are sound, and which of them can stand in one chain. Pure: no files, no clock.

A line is sound if it verifies against a hash that some other line states, wherever that stands: lines may have been
taken out, put in or moved. Where no line that is left states that hash, it is taken as it is, as after `lost`. Of all
these the most that can follow one another are kept. The scanner of segment.py is the judge of each.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import msgspec

from journal import record, segment
from journal.errors import UnsupportedError
from journal.record import BadLineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from journal.record import Commit
    from journal.segment import Position, Scan

_HEAD: Final = re.compile(rb'\{"seq":\d+,"time":"', re.ASCII)  # no text in a line holds it: its quotes would be escaped
_SEQ: Final = re.compile(rb'\{"seq":\d+', re.ASCII)
_START: Final = -1


class Raw(msgspec.Struct, frozen=True, gc=False):
    """What should have been a line: bytes up to a line feed, or to the end of the file.

    Attributes:
        offset: byte in the file.
        length: bytes, the line feed included if there is one.
        line: without the line feed; empty where it is longer than a line may be.
        ended: whether there is a line feed.
    """

    offset: int
    length: int
    line: bytes
    ended: bool


class Kept(msgspec.Struct, frozen=True, gc=False):
    """A line that stays: where it stands, its seq, and the hash it continues; None where that is gone."""

    offset: int
    length: int
    seq: int
    base: str | None


class Next(msgspec.Struct, frozen=True, gc=False):
    """What the next segment says of itself: the seq it begins with and the hash that continues; None if unknown."""

    seq: int
    prev: str | None


class _Prev(msgspec.Struct):
    prev: str = ""


_prevs = msgspec.json.Decoder(list[_Prev]).decode


class _Line(msgspec.Struct, gc=False):
    """A well-formed line of the stretch, maybe a sound one."""

    raw: Raw  # its line is dropped once it is known to be sound
    seq: int
    next_seq: int
    next_prev: str | None
    opens: bool  # holds segment_opened: stands first in a segment or nowhere
    heads: bool  # holds that or `lost`: may stand first in a segment
    base: str | None = None
    sound: bool = False
    refused: bool = False  # not sound, and not to be taken as it is either


def judge(line: bytes, at: Position, *, first: bool) -> Scan:
    """What the scanner says of one line.

    Args:
        line: without its line feed.
        at: where it stands, and what it must continue.
        first: whether it is the first of its segment once what must go before it is gone.

    Raises:
        UnsupportedError: see segment.scan.
    """
    moved = 0 if first else max(1, at.offset)
    found = segment.scan(line + b"\n", msgspec.structs.replace(at, offset=moved))
    back = at.offset - moved
    commits = [
        msgspec.structs.replace(each, place=msgspec.structs.replace(each.place, offset=at.offset))
        for each in found.commits
    ]
    end = msgspec.structs.replace(found.end, offset=found.end.offset + back)
    return msgspec.structs.replace(found, commits=commits, end=end)


def count_lines(raw: Raw) -> int:
    """How many lines at most were damaged into this one: where a line feed is gone, two became one."""
    return max(1, len(_HEAD.findall(raw.line)))


def stated_seq(line: bytes) -> int:
    """The seq a line carries; 0 where it is none."""
    try:
        return record.decode(line, None).seq
    except BadLineError:
        return 0


def parse_opening(line: bytes, first_seq: int) -> Commit | None:
    """The first line of a segment, if this is one that verifies by itself."""
    try:
        return next(iter(segment.scan(line + b"\n", segment.start(first_seq)).commits), None)
    except UnsupportedError:  # told when the segment is walked
        return None


def is_newer(line: bytes) -> bool:
    """Whether a line that says it is of another format verifies: if not, it is damaged, and what it says is nothing."""
    try:
        record.decode(line, _prevs(record.decode(line, None).events)[0].prev)
    except (BadLineError, msgspec.MsgspecError):
        return False
    return True


def salvage(raws: Iterable[Raw], at: Position, following: Next | None) -> list[Kept]:
    """The lines to keep of a stretch, in order.

    Each either continues the one before it (the first of them: ``at``), or its seq is higher than the one that is next
    there: then a `lost` line goes between them.

    Args:
        raws: from ``at`` to the end of the segment.
        at: the end of the last sound line before the stretch.
        following: the next segment; None if there is none, or it is damaged where it begins.

    Raises:
        UnsupportedError: a line that verifies is of another format.
    """
    lines = list(_read(raws, at))
    _search(lines, at)
    limit = following.seq if following is not None else float("inf")
    usable = [line for line in lines if at.next_seq <= line.seq and line.next_seq <= limit]
    ends = {line.next_seq for line in usable if line.sound and line.next_prev is not None} | (
        {at.next_seq} if at.prev is not None else set()
    )
    usable = [line for line in usable if line.sound or _may_be_taken(line, ends, following)]
    return _longest(usable, at)


# --- what each line is


def _read(raws: Iterable[Raw], at: Position) -> Iterator[_Line]:
    """The well-formed lines; sound are those that continue the bytes right before them."""
    bases = [at.prev] if at.prev is not None else []
    next_seq, stated = at.next_seq, bool(bases)
    for raw in raws:
        line = _parse(raw, at)
        if line is None:
            bases, stated = _hashes(raw.line, bases), record.stated_hash(raw.line) is not None
            next_seq += count_lines(raw)
            continue
        for base in bases:
            _try(line, base, at)
        own = [line.next_prev] if line.next_prev is not None else []
        if not line.sound:
            renumbered = _renumbered(raw, next_seq)
            misnumbered = any(_verifies(renumbered, base, next_seq, at) for base in bases)
            line.refused = misnumbered or (stated and line.seq == next_seq)
            own += [each for each in _hashes(raw.line, bases) if each not in own]
        bases, next_seq, stated = own, line.next_seq, bool(own)
        yield line


def _parse(raw: Raw, at: Position) -> _Line | None:
    """A line that may be sound; None if it is none in any case."""
    try:
        commit = record.decode(raw.line, None)
        opened = segment.parse_opened(commit.events)
    except BadLineError:
        return None
    except UnsupportedError:
        if is_newer(raw.line):
            raise
        return None
    where = _position(at, raw.offset, commit.seq, opened.prev if opened is not None else None)
    found = judge(raw.line, where, first=opened is not None and not at.offset)
    if not found.commits:
        return None
    opens = opened is not None
    heads = opens or segment.parse_lost(commit.events) is not None
    return _Line(raw, commit.seq, found.end.next_seq, found.end.prev, opens, heads, where.prev, opens)


def _position(at: Position, offset: int, seq: int, base: str | None) -> Position:
    return msgspec.structs.replace(at, offset=offset, seq=seq - 1, next_seq=seq, prev=base)


def _try(line: _Line, base: str, at: Position) -> None:
    if not line.sound and _verifies(line.raw, base, line.seq, at):
        line.base, line.sound = base, True
        line.raw = msgspec.structs.replace(line.raw, line=b"")


def _verifies(raw: Raw, base: str, seq: int, at: Position) -> bool:
    return bool(judge(raw.line, _position(at, raw.offset, seq, base), first=False).commits)


def _renumbered(raw: Raw, seq: int) -> Raw:
    """The line as it was if nothing but its seq was changed."""
    return msgspec.structs.replace(raw, line=_SEQ.sub(b'{"seq":%d' % seq, raw.line, count=1))


def _hashes(line: bytes, bases: list[str]) -> list[str]:
    """What the line after a damaged one may continue.

    If the text was changed, the hash it states is true; if the stated hash was, the computed one is.
    """
    stated = record.stated_hash(line)
    computed = [hashlib.sha256(base.encode() + line[: -record.TAIL_BYTES]).hexdigest() for base in bases[:1]]
    return computed if stated is None else [stated, *computed]


def _search(lines: list[_Line], at: Position) -> None:
    """Sound are also those that continue a line that stands elsewhere."""
    hashes: dict[int, set[str]] = {}
    if at.prev is not None:
        hashes[at.next_seq] = {at.prev}
    for line in lines:
        if line.next_prev is not None:
            hashes.setdefault(line.next_seq, set()).add(line.next_prev)
    for line in lines:
        for base in hashes.get(line.seq, ()):
            _try(line, base, at)


def _may_be_taken(line: _Line, ends: set[int], following: Next | None) -> bool:
    """Whether a line that continues nothing may be taken as it is: the one before it is gone, nothing contradicts."""
    if line.refused or line.seq in ends:
        return False
    return following is None or following.seq != line.next_seq or following.prev in (None, line.next_prev)


# --- which of them can follow one another


def _longest(lines: list[_Line], at: Position) -> list[Kept]:
    """The longest chain through the lines, in their order: an increasing subsequence whose neighbours must fit.

    ``lowest[n]`` is the lowest next seq of a chain of n lines; ``last[n]`` is that chain's last line.
    """
    ends: dict[tuple[int, str | None], tuple[int, int]] = {(at.next_seq, at.prev): (0, _START)}
    lowest, last = [at.next_seq], [_START]
    before: list[int] = []
    for number, line in enumerate(lines):
        length, previous = _best(line, at, ends, (lowest, last))
        before.append(previous)
        if length < 0:
            continue
        length += 1
        key = (line.next_seq, line.next_prev)
        if length > ends.get(key, (-1, 0))[0]:
            ends[key] = (length, number)
        if length == len(lowest):
            lowest.append(line.next_seq)
            last.append(number)
        elif line.next_seq < lowest[length]:
            lowest[length], last[length] = line.next_seq, number
    chain, number = [], last[-1]
    while number != _START:
        line = lines[number]
        chain.append(Kept(line.raw.offset, line.raw.length, line.seq, line.base))
        number = before[number]
    return chain[::-1]


def _best(
    line: _Line,
    at: Position,
    ends: dict[tuple[int, str | None], tuple[int, int]],
    lowest: tuple[list[int], list[int]],
) -> tuple[int, int]:
    """The longest chain that a line can end: its length without the line, and its last line; -1 if there is none."""
    best = (-1, _START)
    # Right after the line before it. After `lost` without next_prev, that may be any line.
    for prev in {line.base, None} if line.base is not None else {None}:
        best = max(best, ends.get((line.seq, prev), best))
    if best[1] == _START and not at.offset and not line.heads:
        best = (-1, _START)  # the segment's first line must be what opens it, or `lost`
    gap = bisect_left(lowest[0], line.seq) - 1
    return max(best, (gap, lowest[1][gap])) if gap > best[0] and not line.opens else best
