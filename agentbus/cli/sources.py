"""The JOURNAL arguments of ``agentbus replay``: which files they stand for, and one walk through them. Prints nothing.

Whether a line is sound is the journal's to say: there is no second parser here.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentbus import replay as auditor
from agentbus.columns import render_count
from journal import Commit, Fault, Verdict, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from journal import LostRange, Tail

NEXT_STEP = "put a good copy back if you have one; else run `agentbus repair`, which shows what it will do, and asks"


class Sources:
    """What a command reads.

    Attributes:
        own: the user named nothing: it is his own journal, which `agentbus repair` could mend.
    """

    def __init__(self, paths: Sequence[Path], *, own: bool) -> None:
        self.own = own
        self.named = list(paths)
        self._paths = [_resolve(path) for path in paths if not own or path.exists()]

    def walk(self) -> Iterator[Commit | Fault | Verdict]:
        """Commits and faults in order, then one verdict; see `journal.walk`.

        Raises:
            UnsupportedError, click.ClickException: it cannot be read.
        """
        try:
            yield from walk(self._paths)
        except OSError as error:
            raise _unreadable(error) from error

    def fault_at(self, commit: Commit, cause: str) -> Fault:
        """Where a commit stands. Looked for only now, as hardly any journal needs it."""
        begin, offset = b'{"seq":%d,' % commit.seq, commit.place.offset
        files = [file for path in self._paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
        for file in files:
            data = file.read_bytes()
            if data.startswith(begin, offset):
                return Fault(str(file), data.count(b"\n", 0, offset) + 1, offset, commit.seq, cause)
        return Fault("a file that is gone", 0, offset, commit.seq, cause)


def render_lost(lost: LostRange) -> str:
    """A lost line, by the name under which it can be accepted."""
    seqs, place = auditor.render_seqs(lost.seq, lost.last), "its" if lost.seq == lost.last else "their"
    return f"LOST: {seqs} ({lost.reason}); in {place} place stands {lost.seq}:{lost.hash}"


def render_tail(tail: Tail) -> str:
    """What stands behind the last line."""
    what = "a whole line without its end" if tail.unfinished_line else "a torn tail, or a line that is being written"
    size = render_count(tail.bytes, "byte")
    return f"{what}: {size} of {tail.file} from byte {tail.offset}; never acknowledged, so not counted"


def _resolve(path: Path) -> Path:
    """The journal directory or segment file that a path stands for."""
    if not path.exists():
        raise click.ClickException(f"{path}: there is no such file or directory")
    if not path.is_dir() and not path.is_file():
        raise click.ClickException(f"{path}: this cannot be read twice: save it to a file first")
    inside = path / "journal"
    return inside if inside.is_dir() else path


def _unreadable(error: OSError) -> click.ClickException:
    cause = f"{error.filename or 'the journal'}: cannot read it: {error.strerror}"
    step = "; remove it, it is no segment" if error.errno in (errno.EISDIR, errno.EINVAL, errno.ENXIO) else ""
    return click.ClickException(cause + step)
