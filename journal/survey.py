"""A journal's files before they are walked: which there are, and what each says it begins with. Opens to read only."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from journal import archive, salvage, segment
from journal.record import LINE_BYTES_MAX
from journal.salvage import Raw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from journal.files import Files

_CHUNK_BYTES: Final = 1 << 20
_OPENING_LINES_MAX: Final = 16  # something may have been put in before the line that opens a segment


class Found(msgspec.Struct, frozen=True):
    """A file, and what its name or its first line says it begins with: 0 where neither does.

    ``sound`` is whether its first line verifies by itself; ``prev`` and ``journal`` are what that line says, and
    ``held`` is whether any line near its beginning is one that belongs there. ``opens`` is the seq of its first line
    where that opens another segment, and no line belongs where the name says; else 0. ``size`` is that of its lines.
    """

    path: Path
    first_seq: int
    held: bool = False
    sound: bool = False
    prev: str | None = None
    journal: str | None = None
    size: int = 0
    opens: int = 0

    @property
    def packed(self) -> bool:
        """Whether it is an archive."""
        return self.path.name.endswith(archive.SUFFIX)

    def beside(self, first_seq: int) -> Path:
        """Where another segment of the journal lies if it is not packed."""
        return (self.path.parent if self.packed else self.path).with_name(segment.name(first_seq))


def files_of(files: Files, directory: Path) -> list[Path]:
    """The segments of a journal's directory by name, each where it counts: in archive/ only if it is nowhere else."""
    found: dict[int, Path] = {}
    for place, parse in ((directory / archive.DIRECTORY, archive.parse_name), (directory, segment.parse_name)):
        try:
            names = files.listdir(str(place))
        except FileNotFoundError:
            continue
        found |= {first: place / name for name in names if (first := parse(name)) is not None}
    return [found[first] for first in sorted(found)]


def look(files: Files, path: Path) -> Found:
    """What is known of a file by its name, and by the line that opens it."""
    named = segment.parse_name(path.name.removesuffix(archive.SUFFIX)) or 0
    try:
        fd = archive.open_any(files, str(path)).fd
    except FileNotFoundError:
        return Found(path, named)
    held = False
    try:
        size = files.fstat(fd).st_size
        for number, raw in enumerate(islice(raws(files, fd, 0), _OPENING_LINES_MAX)):
            seq = salvage.stated_seq(raw.line)
            found = salvage.parse_opening(raw.line, named or seq)
            if found is not None:
                opened = segment.parse_opened(found.events)
                prev, journal = (opened.prev, opened.journal) if opened is not None else (None, None)
                return Found(path, found.seq, held=True, sound=True, prev=prev, journal=journal, size=size)
            held = held or seq == named + number
        opens = _look_for_another(files, fd, named)
    finally:
        files.close(fd)
    return Found(path, named, held, size=size, opens=opens)


def _look_for_another(files: Files, fd: int, named: int) -> int:
    """The seq with which an open file begins, if that and all others are lower than its name says."""
    first = next((raw.line for raw in raws(files, fd, 0)), b"")
    seq = salvage.stated_seq(first)
    if not 0 < seq < named or salvage.parse_opening(first, seq) is None:
        return 0
    return seq if all(salvage.stated_seq(raw.line) < named for raw in raws(files, fd, 0)) else 0


def raws(files: Files, fd: int, offset: int, end: float = float("inf")) -> Iterator[Raw]:
    """The bytes of an open file from ``offset`` to ``end``, or to the end of the file, line by line."""
    while offset < end:
        data = files.pread(fd, int(min(LINE_BYTES_MAX, end - offset)), offset)
        *lines, rest = data.split(b"\n")
        for line in lines:
            yield Raw(offset, len(line) + 1, line, ended=True)
            offset += len(line) + 1
        if lines:
            continue
        if len(rest) < LINE_BYTES_MAX:
            if rest:
                yield Raw(offset, len(rest), rest, ended=False)
            return
        raw = _long_raw(files, fd, offset)
        yield raw
        offset += raw.length


def _long_raw(files: Files, fd: int, offset: int) -> Raw:
    end = offset + LINE_BYTES_MAX
    while data := files.pread(fd, _CHUNK_BYTES, end):
        feed = data.find(b"\n")
        if feed >= 0:
            return Raw(offset, end + feed + 1 - offset, b"", ended=True)
        end += len(data)
    return Raw(offset, end - offset, b"", ended=False)
