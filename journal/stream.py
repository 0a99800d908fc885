"""Verified lines from a stream that can be read only once: segments one after another, packed or not. Opens nothing.

A stream has neither names of files nor a way back, so it is judged by its lines alone: a line that opens a segment ends
the one before it. Behind a fault it goes on at the next line that continues what the faulty one states.
"""

from __future__ import annotations

import re
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from journal import record, salvage, segment
from journal.findings import Fault, Tail, Verdict
from journal.record import LINE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from journal.record import Commit
    from journal.segment import Position, Scan

NAME: Final = "stdin"
"""Stands where a fault names a file."""

_READ_BYTES: Final = 1 << 20
_GZIP: Final = 16 + zlib.MAX_WBITS
_MAGIC: Final = b"\x1f\x8b"
# Texts cannot hold it, as their quotes are escaped.
_OPENING = re.compile(rb'^\{"seq":\d+,"time":"[^"\n]*","pid":\d+,"events":\[\{"type":"segment_opened",', re.MULTILINE)


class _PackedError(Exception):
    """What is packed cannot be unpacked any further."""


def stream(read: Callable[[int], bytes]) -> Iterator[Commit | Fault | Verdict]:
    """Commits and faults in order, then one verdict; memory does not grow with what is read.

    Faults name the line and the byte of the stream, as it is unpacked.

    Args:
        read: at most so many bytes, as soon as there are some; none at the end.

    Raises:
        UnsupportedError: a segment is of another format.
    """
    walk = _Walk()
    try:
        for data in _unpacked(read):
            yield from walk.take(data)
    except _PackedError as error:
        yield walk.fault(str(error))
    yield from walk.end()
    yield walk.verdict


class _Walk:
    def __init__(self) -> None:
        self.verdict = Verdict()
        self._at: Position | None = None  # after the last line that was judged
        self._base = 0  # the byte of the stream at which the segment begins
        self._line = 1  # of the stream
        self._held = b""  # what no LF has ended yet
        self._long = 0  # bytes of a line that is too long to be held
        self._loose = False  # the line before was faulty
        self._stated: str | None = None  # the hash it states
        self._torn: Fault | None = None  # a torn line: a fault only if another segment follows

    def take(self, data: bytes) -> Iterator[Commit | Fault]:
        """Judge all whole lines there are by now."""
        if self._long:
            data = self._pass_long(data)
        data = self._held + data
        if len(data) >= LINE_BYTES_MAX and data.find(b"\n", 0, LINE_BYTES_MAX) < 0:
            yield self._too_long()
            data = self._pass_long(data)
        end = data.rfind(b"\n") + 1
        self._held = data[end:]
        begins = [found.start() for found in _OPENING.finditer(data, 0, end)]
        yield from self._take_part(data[: begins[0] if begins else end])
        for begin, stop in pairwise([*begins, end]):
            yield from self._open()
            yield from self._take_part(data[begin:stop])

    def end(self) -> Iterator[Fault]:
        """Judge what stands behind the last line feed, or from a torn line on."""
        if self._torn is not None:
            begin = self._torn.offset
            rest = self._offset + len(self._held) - begin
            self.verdict.tail = Tail(NAME, begin, rest, unfinished_line=False)
        elif self._held:
            line = self._held + b"\n"
            whole = bool(segment.scan(line, self._position(line)).commits)
            self.verdict.tail = Tail(NAME, self._offset, len(self._held), whole)
        yield from ()

    def fault(self, cause: str) -> Fault:
        """A fault at the place that was reached."""
        self.verdict.faults += 1
        return Fault(NAME, self._line, self._offset, self._at.next_seq if self._at else 1, cause)

    @property
    def _offset(self) -> int:
        return self._base + (self._at.offset if self._at else 0)

    def _too_long(self) -> Fault:
        self._loose, self._stated = True, None
        return self.fault(f"is longer than {LINE_BYTES_MAX} bytes")

    def _pass_long(self, data: bytes) -> bytes:
        """Leave out what belongs to a line that was too long."""
        feed = data.find(b"\n")
        self._long += len(data) if feed < 0 else feed + 1
        if feed < 0:
            return b""
        self._base, self._long, self._line = self._base + self._long, 0, self._line + 1
        return data[feed + 1 :]

    def _open(self) -> Iterator[Fault]:
        """Stand where a segment begins."""
        if self._torn is not None:
            self.verdict.faults += 1
            yield self._torn
            self._torn = None
        self.verdict.segments += 1
        if self._at is not None:
            self._base += self._at.offset
            self._at = segment.follow(self._at)

    def _take_part(self, part: bytes) -> Iterator[Commit | Fault]:
        """Judge whole lines of one segment."""
        while part:
            if self._torn is not None:
                self._pass(part)
                return
            at = self._position(part)
            found = segment.scan(part, at)
            yield from self._keep(found)
            part = part[found.end.offset - at.offset :]
            if found.fault is None:
                return
            line, _, rest = part.partition(b"\n")
            fault = self._judge(line, found.fault)
            if fault is not None:
                yield fault
            self._pass(part[: len(part) - len(rest)])
            part = rest

    def _position(self, part: bytes) -> Position:
        """Where lines begin: behind a fault wherever the first of them verifies, if it does."""
        line = part[: part.find(b"\n") + 1]
        seq = salvage.stated_seq(line[:-1])
        if self._at is None:
            self._at = segment.start(seq or 1)
            self.verdict.segments = 1
        at = self._at
        if self._loose and seq > at.seq:
            # Where nothing states what the line continues it is taken as it is, as after a `lost` line.
            for prev in (at.prev, self._stated):
                if prev is None and seq == at.next_seq and at.prev is not None:
                    break  # right behind a sound line it would have to continue that
                tried = msgspec.structs.replace(at, next_seq=seq, prev=prev)
                if segment.scan(line, tried).commits:
                    return tried
        return at

    def _keep(self, found: Scan) -> Iterator[Commit]:
        """Give sound lines, and stand after them."""
        self.verdict.take(found)
        if found.commits:
            self._at, self._loose = found.end, False
        self._line += len(found.commits)
        yield from found.commits

    def _judge(self, line: bytes, cause: str) -> Fault | None:
        """What a faulty line is; None where it may be a torn tail."""
        assert self._at is not None  # noqa: S101  # it was scanned from there
        seq, next_seq = salvage.stated_seq(line), self._at.next_seq
        if seq not in (0, next_seq):
            cause = f"carries seq {seq} where {next_seq} is next"
        fault = Fault(NAME, self._line, self._offset, next_seq, cause)
        if segment.is_torn_line(line, self._at.offset):
            self._torn = fault
            return None
        self._loose, self._stated = True, record.stated_hash(line)
        self.verdict.faults += 1
        return fault

    def _pass(self, lines: bytes) -> None:
        """Stand after lines that do not count."""
        assert self._at is not None  # noqa: S101  # something was scanned before
        self._line += lines.count(b"\n")
        self._at = msgspec.structs.replace(self._at, offset=self._at.offset + len(lines))


def _unpacked(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """The bytes of a stream; members of gzip in front of the rest unpacked."""
    data = read(_READ_BYTES)
    while len(data) < len(_MAGIC) and (more := read(_READ_BYTES)):
        data += more
    while data.startswith(_MAGIC):
        unpacker = zlib.decompressobj(_GZIP)
        while not unpacker.eof:
            if not data:
                raise _PackedError("ends too early to be unpacked any further")
            try:
                yield unpacker.decompress(data, _READ_BYTES)
            except zlib.error as error:
                raise _PackedError(f"cannot be unpacked any further: {str(error).rpartition(': ')[2]}") from error
            data = unpacker.unconsumed_tail or (b"" if unpacker.eof else read(_READ_BYTES))
        data = unpacker.unused_data
        while len(data) < len(_MAGIC) and (more := read(_READ_BYTES)):
            data += more
    while data:
        yield data
        data = read(_READ_BYTES)
