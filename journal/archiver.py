"""Pack the segments that nobody needs any more. Does not decide which those are; only that they are finished.

What takes long is done without the writer lock: a finished segment does not change. Under it the archive only gets
its name, and the segment loses its own. Stopped or killed anywhere, it leaves a journal that reads the same: until the
archive's name is on the disk the segment is there, and as long as the segment is there it counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from journal import archive, record
from journal.clock import parse_time
from journal.errors import JournalError, UnwritableError
from journal.files import is_marked, render_place
from journal.record import LINE_BYTES_MAX, BadLineError

if TYPE_CHECKING:
    from journal.files import Files
    from journal.reader import Reader

LOCK: Final = "lock"
_LOCK_WAIT_S: Final = 5.0


class Wanted(msgspec.Struct, frozen=True):
    """What may be packed.

    Attributes:
        needed: first seqs of segments that stay as they are.
        through_seq: a segment with a line above it stays: whether it is needed nobody has said.
        before_ms: only segments whose last line was written before that time, in ms since 1970 UTC.
        segments_max: at most so many.
        stopped: asked between small pieces of work; true ends it.
    """

    needed: Collection[int]
    through_seq: int
    before_ms: int
    segments_max: int
    stopped: Callable[[], bool]


class Archiver:
    """The packing side of one journal directory.

    Args:
        reader: of that directory.
        locked: holds the writer lock until the deadline it is given; see `Journal.locked`.
        files: the system calls.
    """

    def __init__(
        self, reader: Reader, locked: Callable[[float], contextlib.AbstractContextManager[None]], files: Files
    ) -> None:
        self._reader = reader
        self._locked = locked
        self._files = files
        self._directory = f"{reader.directory}/{archive.DIRECTORY}"

    def archive(self, wanted: Wanted) -> list[int]:
        """Pack what is wanted, the oldest first; nothing while another process is at it.

        Returns:
            First seqs of the segments that were packed.

        Raises:
            UnwritableError: the disk refused; what was packed before stands.
            BusyError: the writer lock was not free. JournalError: the journal cannot be read.
        """
        packed: list[int] = []
        try:
            for first in self._candidates(wanted):
                if wanted.stopped() or len(packed) == wanted.segments_max or not self._is_old(first, wanted.before_ms):
                    break
                with self._alone() as alone:
                    if not alone:
                        break
                    if self._pack(first, wanted.stopped):
                        packed.append(first)
        except OSError as error:
            raise UnwritableError(render_place(error)) from error
        return packed

    def _candidates(self, wanted: Wanted) -> list[int]:
        """First seqs of the finished segments that nobody needs."""
        segments = self._reader.shelf.segments()
        plain = set(self._reader.shelf.plain())
        return [
            first
            for first, following in pairwise(segments)
            if first in plain and first not in wanted.needed and following <= wanted.through_seq + 1
        ]

    def _is_old(self, first: int, before_ms: int) -> bool:
        """Whether its last line is; false where that is not known."""
        with contextlib.suppress(FileNotFoundError):
            fd = self._files.open(self._reader.path(first), os.O_RDONLY)
            try:
                size = self._files.fstat(fd).st_size
                data = self._files.pread(fd, LINE_BYTES_MAX, max(0, size - LINE_BYTES_MAX))
            finally:
                self._files.close(fd)
            with contextlib.suppress(BadLineError, ValueError):
                line = data[:-1].rpartition(b"\n")[2]
                return parse_time(record.decode(line, None).time) < before_ms
        return False

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other process packs; it cannot begin meanwhile."""
        with contextlib.suppress(FileExistsError):
            self._files.mkdir(self._directory)
        self._files.fsync_directory(self._reader.directory)
        lock = self._files.open(f"{self._directory}/{LOCK}", os.O_RDWR | os.O_CREAT)
        try:
            yield self._files.try_lock(lock)
        finally:
            self._files.close(lock)

    def _pack(self, first: int, stopped: Callable[[], bool]) -> bool:
        """Pack one segment; false if it was stopped, or the segment is not the file it was."""
        new = archive.path(self._reader.directory, first) + archive.NEW
        try:
            source = self._files.open(self._reader.path(first), os.O_RDONLY)
        except FileNotFoundError:  # another process was quicker
            return False
        try:
            digest = archive.pack(self._files, source, new, stopped)
            done = digest is not None and self._unpacks_to(new, digest) and self._put_in_place(source, first, new)
        except (OSError, JournalError):
            self._drop(new)
            raise
        finally:
            self._files.close(source)
        if not done:
            self._drop(new)
        return done

    def _unpacks_to(self, path: str, digest: str) -> bool:
        """Whether an archive gives back what was packed: the segment will be gone."""
        opened, found = archive.unpack(self._files, path), hashlib.sha256()
        try:
            for data in self._files.read_all(opened.fd, 0):
                found.update(data)
        finally:
            self._files.close(opened.fd)
        return not opened.fault and found.hexdigest() == digest

    def _put_in_place(self, source: int, first: int, new: str) -> bool:
        """Under the writer lock, for a moment: the archive gets its name, durably, and the segment loses its own."""
        path = self._reader.path(first)
        with self._locked(time.monotonic() + _LOCK_WAIT_S):
            try:
                # A repair may have put another file there, and what was never flushed must not look as if it was.
                if not self._files.is_at(source, path) or is_marked(self._files.fstat(source)):
                    return False
            except FileNotFoundError:
                return False
            self._files.rename(new, archive.path(self._reader.directory, first))
            self._files.fsync_directory(self._directory)
            self._files.unlink(path)
        return True

    def _drop(self, path: str) -> None:
        with contextlib.suppress(OSError):  # another process had it, or nobody ever made it
            self._files.unlink(path)
