"""Every fault in a journal, with file, line, offset and cause; for auditors. Opens files to read, changes nothing.

The same walk by which repair finds its damage, without a `Journal` and without a lock.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from journal.errors import CorruptError
from journal.files import Files
from journal.findings import Fault, Verdict
from journal.record import Commit
from journal.walker import Walker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class _Copies(Files):
    """An auditor's files: they may be links, and may belong to anybody."""

    def open(self, path: str, flags: int) -> int:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return fd
        os.close(fd)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise OSError(errno.EINVAL, "it is no regular file", path)


def walk(paths: Iterable[Path], *, from_first: bool = True) -> Iterator[Commit | Fault | Verdict]:
    """Commits and faults in order, then one verdict.

    Args:
        paths: journal directories and segment files. A file is verified alone, or as the continuation of the one
            before it.
        from_first: a directory must begin with seq 1; else the verdict's ``first_seq`` says where it does.

    Raises:
        UnsupportedError: a segment is of another format.
        OSError: a file cannot be read.
    """
    walker = Walker(_Copies())
    yield from walker.walk(paths, from_first=from_first)
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
