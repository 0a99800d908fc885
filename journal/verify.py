"""Every fault in a journal, with file, line, offset and cause; for auditors. Opens files to read, changes nothing.

Goes on after each fault, at the next line that continues the damaged one or the line before it. Uses the one scanner
there is, so it cannot disagree with the reader about what a sound line is.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from journal import record, segment
from journal.errors import CorruptError
from journal.record import LINE_BYTES_MAX, BadLineError, Commit

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

    from journal.segment import Position, Scan

_CHUNK_BYTES: Final = 1 << 20
_NOWHERE: Final = msgspec.structs.replace(segment.start(1), next_seq=0)


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


def walk(paths: Iterable[Path]) -> Iterator[Commit | Fault | Verdict]:
    """Commits and faults in order, then one verdict.

    Args:
        paths: journal directories and segment files. A directory must begin with seq 1; a file is verified alone, or
            as the continuation of the one before it.

    Raises:
        UnsupportedError: a segment is of another format.
        OSError: a file cannot be read.
    """
    walker = _Walker()
    files = list(_segment_files(paths))
    for number, (path, first_seq) in enumerate(files):
        yield from walker.walk_segment(path, first_seq, last=number == len(files) - 1)
    yield walker.verdict


def verify(paths: Iterable[Path]) -> Iterator[Fault | Verdict]:
    """Faults in order, then one verdict; see `walk`."""
    return (found for found in walk(paths) if not isinstance(found, Commit))


def audit(paths: Iterable[Path]) -> Iterator[Commit]:
    """Verified commits in order, without a `Journal`; see `walk`.

    Raises:
        CorruptError: at the first fault.
    """
    for found in walk(paths):
        if isinstance(found, Commit):
            yield found
        elif isinstance(found, Fault):
            raise CorruptError(found.file, found.line, found.offset, found.seq, found.cause)


def _segment_files(paths: Iterable[Path]) -> Iterator[tuple[Path, int | None]]:
    """Each segment with the seq its name or place says it begins with; None where only its first line can tell."""
    for path in paths:
        if not path.is_dir():
            yield path, segment.parse_name(path.name)
            continue
        names = sorted(each.name for each in path.iterdir() if segment.parse_name(each.name))
        if names and names[0] != segment.name(1):
            yield path / segment.name(1), 1
        for name in names:
            yield path / name, segment.parse_name(name)


class _Walker:
    """The state of a walk: where it stands, and the verdict so far."""

    def __init__(self) -> None:
        self.verdict = Verdict()
        self._at = _NOWHERE
        self._line = 1

    def walk_segment(self, path: Path, first_seq: int | None, *, last: bool) -> Iterator[Commit | Fault]:
        """Walk one file."""
        if not path.exists():
            yield self._fault(path, segment.start(first_seq or 1), "the segment that begins with it is missing")
            return
        self.verdict.segments += 1
        self._line = 1
        with path.open("rb") as file:
            at = self._beginning(file, first_seq)
            if self._at.next_seq and at.segment != self._at.next_seq:
                gap = segment.follow(self._at)
                yield self._fault(path.with_name(segment.name(gap.segment)), gap, "the segment is missing")
            self._at = at
            yield from self._lines(path, file, last=last)

    def _beginning(self, file: BinaryIO, first_seq: int | None) -> Position:
        if first_seq is None:
            line = file.readline(LINE_BYTES_MAX).rstrip(b"\n")
            try:
                first_seq = record.decode(line, None).seq
            except BadLineError:
                first_seq = self._at.next_seq or 1
        if first_seq == self._at.next_seq:
            return segment.follow(self._at)
        return segment.start(first_seq)

    def _lines(self, path: Path, file: BinaryIO, *, last: bool) -> Iterator[Commit | Fault]:
        want = _CHUNK_BYTES
        while True:
            data = _read(file, want, self._at.offset)
            found = segment.scan(data, self._at)
            self._advance(found)
            yield from found.commits
            if found.fault is not None:
                line = data[found.end.offset - self._at.offset :].partition(b"\n")[0]
                if last and segment.is_torn_line(line, found.end.offset):
                    self.verdict.tail = _tail(path, file, found.end)
                    return
                yield from self._resume(path, file, line, found)
            elif found.commits:
                self._at = found.end
            elif len(data) < want:
                yield from self._finish(path, file, found.end, last=last)
                return
            elif want < LINE_BYTES_MAX:
                want = LINE_BYTES_MAX
            elif last and segment.is_torn_line(data, found.end.offset):
                self.verdict.tail = _tail(path, file, found.end)
                return
            elif not (yield from self._long_line(path, file, found.end)):
                yield from self._finish(path, file, found.end, last=last)
                return

    def _advance(self, found: Scan) -> None:
        verdict = self.verdict
        for commit in found.commits:
            lost = segment.parse_lost(commit.events)
            if lost is not None:
                verdict.lost.append(LostRange(commit.seq, commit.hash, lost.last, lost.reason))
        if found.commits:
            verdict.first_seq = verdict.first_seq or found.commits[0].seq
            verdict.last_seq, verdict.hash = found.end.seq, found.end.hash
        verdict.commits += len(found.commits)
        verdict.unchecked += found.unchecked
        self._line += len(found.commits)

    def _resume(self, path: Path, file: BinaryIO, bad: bytes, found: Scan) -> Iterator[Fault]:
        """Report a bad line and those after it that continue nothing; stand before the first one that does."""
        cause, at = found.fault or "", found.end
        bases = [at.prev]
        while True:
            yield self._fault(path, at, cause)
            self._line += 1
            bases = _bases(bad, bases[0], found.end.prev)
            at = msgspec.structs.replace(at, offset=at.offset + len(bad) + 1, next_seq=at.next_seq + 1)
            file.seek(at.offset)
            line = file.readline(LINE_BYTES_MAX)
            if not line.endswith(b"\n"):
                self._at = msgspec.structs.replace(at, next_seq=0)  # nobody knows what the next segment continues
                return
            bad = line[:-1]
            resumed = _continuation(bad, bases)
            if resumed is not None and resumed[0] > at.seq:
                self._at = msgspec.structs.replace(at, next_seq=resumed[0], prev=resumed[1])
                return
            cause = "continues neither the damaged line before it nor the last sound one"

    def _long_line(self, path: Path, file: BinaryIO, at: Position) -> Generator[Fault, None, bool]:
        """Pass over a line that does not end where a line must; false if it does not end at all."""
        offset = at.offset + LINE_BYTES_MAX
        while data := _read(file, _CHUNK_BYTES, offset):
            feed = data.find(b"\n")
            if feed >= 0:
                yield self._fault(path, at, f"is longer than {LINE_BYTES_MAX} bytes")
                self._line += 1
                self._at = msgspec.structs.replace(at, offset=offset + feed + 1, next_seq=at.next_seq + 1, prev=None)
                return True
            offset += len(data)
        return False

    def _finish(self, path: Path, file: BinaryIO, end: Position, *, last: bool) -> Iterator[Fault]:
        """Judge what follows the last line of a file."""
        self._at = end
        tail = _tail(path, file, end)
        if not last and not end.offset and not tail.bytes:
            yield self._fault(path, end, "the segment is empty and is not the last")
        elif tail.bytes and last:
            self.verdict.tail = tail
        elif tail.bytes:
            yield self._fault(path, end, "bytes after the last line of a segment that is not the last")

    def _fault(self, path: Path, at: Position, cause: str) -> Fault:
        self.verdict.faults += 1
        line = self._line if at.offset else 1
        return Fault(str(path), line, at.offset, at.next_seq, cause)


def _read(file: BinaryIO, length: int, offset: int) -> bytes:
    file.seek(offset)
    return file.read(length)


def _tail(path: Path, file: BinaryIO, end: Position) -> Tail:
    data = _read(file, LINE_BYTES_MAX, end.offset)
    whole = b"\n" not in data and len(data) < LINE_BYTES_MAX and bool(segment.scan(data + b"\n", end).commits)
    return Tail(str(path), end.offset, path.stat().st_size - end.offset, whole)


def _bases(bad: bytes, base: str | None, sound: str | None) -> list[str | None]:
    """The hashes that the line after a bad one may continue, the likeliest first; None for any.

    If the bad line's text was changed, its stated hash is true; if the stated hash was, the computed one is; if the
    line was put in, the next one continues the last sound line. If it states none, nothing is known.
    """
    stated = record.stated_hash(bad)
    computed = None if base is None else hashlib.sha256(base.encode() + bad[: -record.TAIL_BYTES]).hexdigest()
    known: list[str | None] = [each for each in (stated, computed, sound) if each is not None]
    return known if stated is not None else [*known, None]


def _continuation(line: bytes, bases: list[str | None]) -> tuple[int, str | None] | None:
    """A line's seq and the first of the hashes that it continues; None if it continues none of them."""
    for base in bases:
        try:
            return record.decode(line, base).seq, base
        except BadLineError:
            continue
    return None
