"""Segments: their names, which line may follow which, and what a bad end is. Pure: no files, no clock.

Source: FORMAT.md, sections 1 to 3.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from journal import record
from journal.errors import UnsupportedError
from journal.record import BadLineError, Commit

FORMAT: Final = 1
BLOCK_BYTES: Final = 512  # what a disk writes whole or not at all
_NAME = re.compile(r"(\d{20})\.jsonl", re.ASCII)
_OPENED: Final = b'[{"type":"segment_opened"'
_LOST: Final = b'[{"type":"lost"'
_NULS = re.compile(rb"\0+")
_HEX = re.compile(r"[0-9a-f]{64}")


class Position(msgspec.Struct, frozen=True, gc=False):
    """A place between two lines, and all that is needed to judge the next one.

    Attributes:
        segment: first seq of the segment.
        offset: bytes of it before this place.
        seq: of the last line before this place; 0 at the very beginning.
        hash: of that line, as it states it; empty where it was not read.
        next_seq: what the next line must carry.
        prev: the hash it must continue; None where that cannot be known.
        journal: the journal's uuid, None until a `segment_opened` was read.
    """

    segment: int
    offset: int
    seq: int
    hash: str
    next_seq: int
    prev: str | None
    journal: str | None


class Scan(msgspec.Struct, frozen=True, gc=False):
    """What a run of bytes holds.

    Attributes:
        commits: verified, in order.
        end: the place after the last of them; bytes after it are no whole line, or the fault.
        fault: what is wrong with the line at `end`; None if nothing is.
        unchecked: seqs of lines whose bytes could not be checked, because the hash before them is lost.
    """

    commits: list[Commit]
    end: Position
    fault: str | None
    unchecked: list[int]


class Opened(msgspec.Struct):
    """The event `segment_opened`, as far as the chain needs it; ``by`` and ``host`` are for people."""

    format: int
    journal: str
    prev: str
    by: str | None = None
    host: str | None = None


class Lost(msgspec.Struct):
    """The event `lost`, as far as the chain needs it."""

    first: int
    last: int
    next_prev: str | None = None
    reason: str = ""


class _Version(msgspec.Struct):
    format: int


_version = msgspec.json.Decoder(list[_Version]).decode
_opened = msgspec.json.Decoder(list[Opened]).decode
_lost = msgspec.json.Decoder(list[Lost]).decode


def name(first_seq: int) -> str:
    """File name of the segment that begins with ``first_seq``."""
    return f"{first_seq:020d}.jsonl"


def parse_name(text: str) -> int | None:
    """First seq of a segment's file name; None if it is no such name."""
    found = _NAME.fullmatch(text)
    return (int(found[1]) or None) if found else None  # seqs begin with 1


def start(first_seq: int) -> Position:
    """The beginning of a segment about which nothing is known but its name."""
    prev = record.ZERO_HASH if first_seq == 1 else None
    return Position(first_seq, 0, first_seq - 1, "", first_seq, prev, None)


def follow(end: Position) -> Position:
    """The beginning of the segment that continues a journal at ``end``."""
    return Position(end.next_seq, 0, end.seq, end.hash, end.next_seq, end.prev, end.journal)


def scan(data: bytes, at: Position) -> Scan:
    """Verify and split the whole lines of ``data``, which begins at ``at``; stops before the first bad one.

    Raises:
        UnsupportedError: a segment is of another format.
    """
    commits: list[Commit] = []
    keep, decode = commits.append, record.decode
    unchecked: list[int] = []
    segment, offset, seq, digest = at.segment, at.offset, at.seq, at.hash
    next_seq, prev, journal = at.next_seq, at.prev, at.journal
    fault = None
    lines = data.split(b"\n")
    lines.pop()
    try:
        for line in lines:
            base = prev if prev is not None else _prev_of_opening(line)
            commit = decode(line, base, segment, offset)
            if commit.seq != next_seq:
                fault = f"carries seq {commit.seq} where {next_seq} is next"
                break
            if offset == 0 or commit.events.startswith((_LOST, _OPENED)):
                next_seq, prev, journal = _special(commit, base, journal)
            else:
                next_seq, prev = next_seq + 1, commit.hash
            if base is None:
                unchecked.append(commit.seq)
            seq, digest = commit.seq, commit.hash
            offset += len(line) + 1
            keep(commit)
    except BadLineError as error:
        fault = str(error)
    return Scan(commits, Position(segment, offset, seq, digest, next_seq, prev, journal), fault, unchecked)


def parse_opened(events: bytes) -> Opened | None:
    """The `segment_opened` a commit holds; None if it holds something else.

    Raises:
        BadLineError: it is not what FORMAT.md says.
        UnsupportedError: it is of another format.
    """
    if not events.startswith(_OPENED):
        return None
    try:
        found = _version(events)[0].format
        if found != FORMAT:
            raise UnsupportedError("the journal's format", str(found), str(FORMAT))
        opened = _opened(events)[0]
    except msgspec.MsgspecError as error:
        raise BadLineError(f"does not parse: {error}") from None
    if not _HEX.fullmatch(opened.prev):
        raise BadLineError("does not parse: prev is no hash")
    return opened


def parse_lost(events: bytes) -> Lost | None:
    """The `lost` a commit holds; None if it holds something else.

    Raises:
        BadLineError: it is not what FORMAT.md says.
    """
    if not events.startswith(_LOST):
        return None
    try:
        lost = _lost(events)[0]
    except msgspec.MsgspecError as error:
        raise BadLineError(f"does not parse: {error}") from None
    if lost.next_prev is not None and not _HEX.fullmatch(lost.next_prev):
        raise BadLineError("does not parse: next_prev is no hash")
    return lost


def is_torn_line(line: bytes, offset: int) -> bool:
    """Whether a failing line (without its LF) that begins at byte ``offset`` of its file lost blocks in a power cut.

    A cut may keep later blocks of what was written and not earlier ones: those read as NUL. Such a run fills whole
    blocks; in the block in which the line begins, only from the line's first byte on, since what stood before it may
    have been safe by then. One NUL is a changed byte.
    """
    for run in _NULS.finditer(line):
        first, end = offset + run.start(), offset + run.end()
        border = -(-first // BLOCK_BYTES) * BLOCK_BYTES
        if border + BLOCK_BYTES <= end:
            return True
        if run.start() == 0 and end == border and len(run[0]) > 1:
            return True
    return False


def _special(commit: Commit, base: str | None, journal: str | None) -> tuple[int, str | None, str | None]:
    """Next seq, the hash it continues and the journal's uuid after a line with which the chain has to do."""
    opened = parse_opened(commit.events)
    if opened is not None:
        return commit.seq + 1, commit.hash, _same_journal(opened, commit, base, journal)
    lost = parse_lost(commit.events)
    if lost is None:
        raise BadLineError("a segment must begin with segment_opened")
    if not commit.seq == lost.first <= lost.last:
        raise BadLineError(f"is lost {lost.first} to {lost.last} at seq {commit.seq}")
    return lost.last + 1, lost.next_prev, journal


def _same_journal(opened: Opened, commit: Commit, base: str | None, journal: str | None) -> str:
    if commit.place.offset:
        raise BadLineError("segment_opened inside a segment")
    if opened.prev != base:
        raise BadLineError(f"segment_opened continues {opened.prev}, the line before it is {base}")
    if journal not in (None, opened.journal):
        raise BadLineError(f"two journals mixed: {journal} and {opened.journal}")
    return opened.journal


def _prev_of_opening(line: bytes) -> str | None:
    """The hash a `segment_opened` says it continues: so a segment can be verified alone."""
    opened = parse_opened(record.decode(line, None).events)
    return opened.prev if opened is not None else None
