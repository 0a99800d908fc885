"""Verified lines from a stream that can be read only once: segments one after another, packed or not. Opens nothing.

A stream has neither names of files nor a way back, so it is judged by its lines alone: a line that opens a segment ends
the one before it. Behind a fault it goes on at the next line that continues what the faulty one states.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from journal import record, salvage, segment
from journal.findings import Fault, LostRange, Tail, Verdict
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


def stream(read: Callable[[int], bytes]) -> Iterator[Commit | Fault | Verdict]:
    """Commits and faults in order, then one verdict; memory does not grow with what is read.

    Faults name the line and the byte of the stream.

    Args:
        read: at most so many bytes, as soon as there are some; none at the end.

    Raises:
        UnsupportedError: a segment is of another format.
    """
    walk = _Walk()
    for data in _unpacked(read):
        yield from walk.take(data)
    yield from walk.end()
    yield walk.verdict


class _Walk:
    def __init__(self) -> None:
        self.verdict = Verdict()
        self._at: Position | None = None  # after the last sound line
        self._line = 1  # of the stream, as the byte at which the segment begins is
        self._base = 0
        self._held = b""  # what no LF has ended yet
        self._stated: str | None = None  # the hash that a faulty line just before states
        self._loose = False  # there was one
        self._torn: Fault | None = None  # a torn line: a fault only if another segment follows

    def take(self, data: bytes) -> Iterator[Commit | Fault]:
        """Judge all whole lines there are by now."""
        data = self._held + data
        end = data.rfind(b"\n") + 1
        self._held = data[end:]
        begins = [found.start() for found in _OPENING.finditer(data, 0, end)]
        for begin, stop in zip([0, *begins], [*begins, end], strict=True):
            if begin in begins:
                yield from self._open()
            yield from self._take_part(data[begin:stop])
        if len(self._held) > LINE_BYTES_MAX:
            yield self._fault(f"is longer than {LINE_BYTES_MAX} bytes")
            self._held = self._held[-1:]

    def end(self) -> Iterator[Fault]:
        """What stands behind the last line feed, or from a torn line on."""
        self.verdict.tail = None
        return iter(())
