"""The JOURNAL arguments of ``agentbus replay``: which files they stand for, and one walk through them. Prints nothing.

Whether a line is sound is the journal's to say: there is no second parser here.
"""

from __future__ import annotations

import errno
import gzip
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from agentbus import replay as auditor
from agentbus import wire
from agentbus.columns import render_count
from agentbus.events import Lost, SegmentOpened
from journal import Commit, CorruptError, Fault, Verdict, stream, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentbus.events import AnyEvent
    from journal import LostRange, Tail

NEXT_STEP = "put a good copy back if you have one; else run `agentbus repair`, which shows what it will do, and asks"
MANGLED = (
    "not one line verifies: give the files as they were written; a zip, base64, or other line ends are other bytes"
)
_STDIN: Final = Path("-")
_SEGMENT: Final = re.compile(r"(\d{20})\.jsonl(\.gz)?", re.ASCII)
_JOURNAL, _ARCHIVE = "journal", "archive"
_PACKED: Final = ".jsonl.gz"
_BESIDE: Final = ("writer.lock", "set-aside")
_CHAINED: Final = {SegmentOpened: b'[{"type":"segment_opened"', Lost: b'[{"type":"lost"'}


class Sources:
    """What a command reads.

    Attributes:
        own: the user named nothing: it is his own journal, which `agentbus repair` could mend.
        named: as they were given.
        stdin: it is read from stdin, so once only.
    """

    def __init__(self, named: Sequence[Path], *, own: bool) -> None:
        self.own = own
        self.named = list(named)
        self.stdin = _STDIN in self.named
        self._lines, self._bytes = 0, 0
        if self.stdin and len(self.named) > 1:
            raise click.UsageError("- stands for stdin and is read alone.")
        if self.stdin and sys.stdin is None:
            raise click.ClickException("stdin is closed: pipe a journal in, or name a file")
        found = [] if self.stdin else [_resolve(path) for path in _parts(named) if not own or _is_there(path)]
        self._paths = _in_order(_once([each for path in found for each in path]))

    @property
    def directory(self) -> Path | None:
        """The journal directory, if one is all there is to read; it may not be there yet."""
        if self.own:
            return self.named[0] / _JOURNAL
        if len(self._paths) != 1 or not self._paths[0].is_dir():
            return None
        path = self._paths[0]
        return path if _segments(path, path / _ARCHIVE) or path.name == _JOURNAL else path / _JOURNAL

    def walk(self) -> Iterator[Commit | Fault | Verdict]:
        """Commits and faults in order, then one verdict; see `journal.walk`.

        Raises:
            UnsupportedError, click.ClickException: it cannot be read.
        """
        try:
            if self.stdin:
                yield from self._stream()
            else:
                yield from walk(self._paths, from_first=False)
        except OSError as error:
            raise _unreadable(error, "stdin" if self.stdin else "the journal") from error

    def files(self) -> list[Path]:
        """All segments there are, in order; those of stdin are none."""
        return [
            file for path in self._paths for file in (_segments(path, path / _ARCHIVE) if path.is_dir() else [path])
        ]

    def walk_file(self, file: Path) -> Iterator[Commit]:
        """The commits of one of the files, for whoever has walked through all of them before.

        Raises:
            CorruptError: it is not any more what it was then.
        """
        for found in walk([_where_it_is(file)]):
            if isinstance(found, Fault):
                raise CorruptError(found.file, found.line, found.offset, found.seq, found.cause)
            if isinstance(found, Commit):
                yield found

    def fault_at(self, commit: Commit, cause: str) -> Fault:
        """Where a commit stands that was just given. Looked for only now, as hardly any journal needs it."""
        place, ending = commit.place, b',"hash":"%b"}\n' % commit.hash.encode()
        offset, end = place.offset, place.offset + place.line_bytes
        if self.stdin:
            return Fault("stdin", self._lines, self._bytes - place.line_bytes, commit.seq, cause)
        for file in self.files():
            data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            if data.endswith(ending, offset, end):
                return Fault(str(file), data.count(b"\n", 0, offset) + 1, offset, commit.seq, cause)
        return Fault("a file that is gone", 0, offset, commit.seq, cause)

    def _stream(self) -> Iterator[Commit | Fault | Verdict]:
        for found in stream(sys.stdin.buffer.read1):  # type: ignore[union-attr]  # a buffered reader, as stdin is
            self._lines += not isinstance(found, Verdict)
            self._bytes += found.place.line_bytes if isinstance(found, Commit) else 0
            yield found


def parse_line(commit: Commit) -> list[AnyEvent]:
    """What happened in a commit. What links the chain stands alone in its line, and is spelt as the journal reads it.

    Raises:
        UnsupportedError: an event of a later version.
        MalformedError: the line verifies, and no bus wrote it.
    """
    events = auditor.parse_events(commit)
    for event in events:
        if type(event) in _CHAINED and (len(events) > 1 or not commit.events.startswith(_CHAINED[type(event)])):
            raise wire.MalformedError(f"{event.__struct_config__.tag} must stand alone in its line, its type first")
    return events


def render_lost(lost: LostRange) -> str:
    """A lost line, by the name under which it can be accepted."""
    seqs, place = auditor.render_seqs(lost.seq, lost.last), "its" if lost.seq == lost.last else "their"
    return f"LOST: {seqs} ({lost.reason}); in {place} place stands {lost.seq}:{lost.hash}"


def render_tail(tail: Tail) -> str:
    """What stands behind the last line."""
    # Whoever spoils the end of a journal leaves the same as a crash: only an anchor tells them apart.
    what, why = "a torn tail, or a line that is being written", "what a crash leaves was never acknowledged"
    if tail.unfinished_line:
        what, why = "a whole line without its line feed", "a crash can leave that, and so can a copy"
    size = render_count(tail.bytes, "byte")
    return f"{what}: {size} of {tail.file} from byte {tail.offset}; not counted: {why}"


def _parts(named: Sequence[Path]) -> Sequence[Path]:
    """What is named, without what lies beside the segments where a shell named all there is, as ``journal/*``."""
    return [path for path in named if path.name not in _BESIDE] if len(named) > 1 else named


def _once(paths: list[Path]) -> list[Path]:
    """Each directory and each file once, and no file of a directory that is read as a whole."""
    found = {path.resolve(): path for path in reversed(paths)}
    whole = {place for place, path in found.items() if path.is_dir()}
    inside = {place for place in found if place.parent in whole or place.parent.parent in whole}
    return [path for place, path in reversed(found.items()) if place not in inside]


def _resolve(path: Path) -> list[Path]:
    """The journal directory, or the segment files, that a path stands for."""
    if not _is_there(path):
        raise click.ClickException(f"{path}: there is no such file or directory")
    if not path.is_dir():
        if not path.is_file():
            raise click.ClickException(
                f"{path}: this cannot be read twice: save it to a file first, or give - and pipe it in"
            )
        return [path]
    inside = path / _JOURNAL
    if _is_there(inside) and inside.is_dir():
        return [inside]
    return _segments(path, path) if path.name == _ARCHIVE or _holds_packed(path) else [path]


def _holds_packed(directory: Path) -> bool:
    """Whether archives lie in it as they do in a mail, and not in a journal: no segment is packed twice."""
    names = {path.name for path in directory.glob(f"*{_PACKED}") if _SEGMENT.fullmatch(path.name)}
    return bool(names) and not (directory / _ARCHIVE).is_dir()


def _is_there(path: Path) -> bool:
    """Whether there is something; raises where that may not be asked: no answer must not pass for "no"."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(error, str(path)) from error
    return True


def _segments(directory: Path, packed: Path) -> list[Path]:
    """The segments of a directory in order, each where it counts: packed only if it is not there as it was written."""
    found: dict[str, Path] = {}
    for path in [*packed.glob("*.gz"), *directory.glob("*.jsonl")]:
        name = _SEGMENT.fullmatch(path.name)
        if name is not None:
            found[name[1]] = path
    return [found[name] for name in sorted(found)]


def _in_order(paths: list[Path]) -> list[Path]:
    """Segment files in the order of their names, wherever they lie; anything else as it was given."""
    names = [_SEGMENT.fullmatch(path.name) for path in paths]
    if not all(names) or any(path.is_dir() for path in paths):
        return paths
    plain = {path for path in paths if path.suffix != ".gz"}
    kept = [path for path in paths if path in plain or not plain & _unpacked(path)]
    return sorted(kept, key=lambda path: path.name)


def _where_it_is(segment: Path) -> Path:
    """A segment's path, or that of the archive that was made of it since it was found."""
    packed = segment.parent / _ARCHIVE / f"{segment.name}.gz"
    return packed if not _is_there(segment) and _is_there(packed) else segment


def _unpacked(archive: Path) -> set[Path]:
    """Where the segment lies, if it does, that an archive was made of."""
    return {directory / archive.stem for directory in (archive.parent, archive.parent.parent)}


def _unreadable(error: OSError, what: str) -> click.ClickException:
    cause = f"{error.filename or what}: cannot read it: {error.strerror}"
    step = "; remove it, it is no segment" if error.errno in (errno.EISDIR, errno.EINVAL, errno.ENXIO) else ""
    return click.ClickException(cause + step)
