"""The segment that is written to: its open file, its lock, its flush, and its renewal when a flush failed.

Knows no lines. Used under the writer lock, but for `flusher`, `end_point` and `has_failed`: those any thread may ask.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING, Final

from journal.errors import UnsyncedError
from journal.files import is_marked, render_cause
from journal.flush import Flusher, FlushFailedError, Point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from journal.files import Files
    from journal.lock import WriterLock
    from journal.reader import Reader

_APPEND: Final = os.O_RDWR | os.O_APPEND


class Active:
    """The last segment of a journal as one process writes to it.

    Attributes:
        first: its first seq; 0 for none.
        fd: opened for appending; -1 for none.
        path: where it lies.
        identity: its device and inode.
    """

    def __init__(self, reader: Reader, lock: WriterLock, files: Files) -> None:
        self._reader = reader
        self._lock = lock
        self._files = files
        self.first, self.fd = 0, -1
        self.path = ""
        self.identity = (0, 0)
        self._locked: list[int] = []
        self._retired: list[int] = []
        self._flushed = -1  # the descriptor that a flush is at: it is not closed meanwhile
        self._swap = threading.Lock()  # guards first, fd and _flushed against each other
        self._named = 0  # the last segment whose name this process has made durable
        self.flusher = Flusher(self._flush)

    def hold_last(self, deadline: float) -> os.stat_result:
        """Open and lock the last segment, made if there is none; what the system says of it. `release` must follow.

        Which one is last is asked under its own lock: if the lock file was deleted, another writer may have rolled.

        Raises:
            BusyError, UnusableError: its lock was not to be had.
            UnsyncedError: a flush failed, here or in another process, and could not be made good.
            OSError
        """
        if self.flusher.failure is not None:
            self.make_good(self.flusher.failure, deadline)
        while True:
            if self.first:
                self._lock_it(deadline)
            first = self._last()
            facts = self.facts() if self.first == first else None
            if facts is None or (facts.st_dev, facts.st_ino) != self.identity:
                self._change_to(first, deadline)
            elif is_marked(facts):
                self.release()  # the copy is made under a lock of its own on the same file
                self.make_good(_failed_elsewhere(first), deadline)
            else:
                return facts

    def _last(self) -> int:
        """First seq of the last segment, 1 if there is none yet.

        Raises:
            CorruptError, ReplacedError: it is gone; only archives are left, of what came before it.
        """
        plain = self._reader.shelf.plain()
        if not plain and self._reader.shelf.segments():
            return self._reader.end().position.segment
        return plain[-1] if plain else 1

    def _change_to(self, first: int, deadline: float) -> None:
        if self.first not in (0, first):
            # Lines of ours may lie in the segment that is left; their flush must go to its descriptor.
            self.flusher.confirm(self.end_point(), deadline)
        self._use(first, self._files.open(self._reader.path(first), _APPEND | os.O_CREAT))

    def begin(self, first: int, deadline: float) -> bool:
        """Go over to a new segment, empty and locked; false if it is not empty: another writer has begun it.

        Raises:
            UnsyncedError: the one that is left is not durable.
            BusyError, UnusableError, OSError
        """
        self._change_to(first, deadline)
        self._lock_it(deadline)
        return self._files.fstat(self.fd).st_size == 0

    def facts(self) -> os.stat_result | None:
        """What is at its path now."""
        try:
            return self._files.stat(self.path)
        except FileNotFoundError:
            return None

    def leave(self) -> None:
        """Write to no segment; its file is closed when its lock has been given back."""
        with self._swap:
            old, self.first, self.fd = self.fd, 0, -1
        if old >= 0:
            self._retired.append(old)

    def release(self) -> None:
        """Unlock what was locked.

        Raises:
            UnsyncedError: it stays locked.
        """
        locked, self._locked = self._locked, []
        try:
            for fd in locked:
                self._files.unlock(fd)
        except OSError as error:
            raise UnsyncedError(f"a segment stays locked: {render_cause(error)}") from error
        finally:
            with self._swap:
                retired, self._retired = self._retired, [fd for fd in self._retired if fd == self._flushed]
            for fd in retired:
                if fd not in self._retired:
                    self._files.close(fd)

    def after_fork(self) -> None:
        """In a child: close what shares its lock with the parent, and start afresh."""
        fds = {fd for fd in (self.fd, *self._retired, *self._locked) if fd >= 0}
        self.first, self.fd, self._retired, self._locked = 0, -1, [], []
        self._flushed, self._swap = -1, threading.Lock()
        self.flusher = Flusher(self._flush)
        for fd in fds:
            os.close(fd)

    def end_point(self) -> Point:
        """The end of all that was read or written so far."""
        marks = self._reader.marks
        return marks.epoch, marks.tail.position.segment, marks.tail.position.offset

    def _lock_it(self, deadline: float) -> None:
        self._lock.acquire_file(self.fd, deadline)
        self._locked.append(self.fd)

    def _use(self, first: int, fd: int) -> None:
        """Write to a segment from now on; ``fd`` is closed if it fails."""
        try:
            facts = self._files.fstat(fd)
        except OSError:
            self._files.close(fd)
            raise
        self.leave()
        self.path = self._reader.path(first)
        self.identity = (facts.st_dev, facts.st_ino)
        with self._swap:
            self.first, self.fd = first, fd

    # --- durability

    def flush_beginning(self) -> None:
        """Make a segment that was just begun durable, and its name.

        Raises:
            UnsyncedError: for everyone who is not confirmed yet.
        """
        with self.flushing():
            self._files.fsync(self.fd)
            self._files.fsync_directory(self._reader.directory)
        self._named = self.first

    @contextlib.contextmanager
    def flushing(self) -> Iterator[None]:
        """A flush of it under the writer lock: if it fails, it has failed for everyone."""
        try:
            yield
        except OSError as error:
            raise self.flusher.fail(self._failed(self.first, error)) from error

    def _failed(self, first: int, error: OSError) -> FlushFailedError:
        """A flush of a segment failed. Other processes are told: to them its pages look perfect."""
        # A disk that refuses that takes no other line either; after a power cut no mark is needed.
        with contextlib.suppress(OSError):
            self._files.mark(self._reader.path(first))
        return FlushFailedError(first, error)

    def _flush(self, upto: Point) -> Point:
        """Flush all there is; the one thing here that runs without the writer lock, in any thread."""
        target = max(upto, self.end_point())
        last = target[1]
        with self._swap:
            # The descriptor that wrote hears of every error since.
            first, self._flushed = self.first, self.fd
        try:
            if first:
                self._files.fdatasync(self._flushed)
        except OSError as error:
            raise self._failed(first, error) from error
        finally:
            self._flushed = -1
        if target[2] and (last != first or self._named < last):  # where nothing was read nothing is to be flushed
            self._flush_unknown(first, last)
        return target

    def _flush_unknown(self, first: int, last: int) -> None:
        """Flush what was read in another segment than the one written to, and the name of one that is new here."""
        try:
            if last != first:
                self._flush_other(last)
            if self._named < last:
                self._files.fsync_directory(self._reader.directory)
        except OSError as error:
            raise self._failed(last, error) from error
        # The system tells of a lost write only those who had the file open at that time.
        if self._named < last and self.has_failed(last):
            raise _failed_elsewhere(last)
        self._named = max(self._named, last)

    def _flush_other(self, first: int) -> None:
        try:
            fd = self._files.open(self._reader.path(first), os.O_RDONLY)
        except FileNotFoundError:
            if self._reader.shelf.is_packed(first):
                return  # only what is durable is packed
            raise
        try:
            self._files.fdatasync(fd)
        finally:
            self._files.close(fd)

    def has_failed(self, first: int) -> bool:
        """Whether a flush of a segment failed in some process, and nobody has written it anew since.

        Raises:
            UnsyncedError: the system does not tell.
        """
        try:
            return is_marked(self._files.stat(self._reader.path(first)))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise UnsyncedError(render_cause(error)) from error

    def make_all_good(self, last: int, deadline: float) -> None:
        """Make good what failed here, then the last segment if that failed in another process; see `make_good`."""
        self.make_good(self.flusher.failure, deadline)
        if self.has_failed(last):
            self.make_good(_failed_elsewhere(last), deadline)

    def make_good(self, failure: FlushFailedError | None, deadline: float) -> None:
        """Put a verified copy in the place of a segment whose flush failed: its own pages prove nothing any more.

        Raises:
            UnsyncedError: that did not work.
            CorruptError, BusyError
        """
        if failure is None:
            return
        first, path = failure.segment, self._reader.path(failure.segment)
        try:
            # What is gone cannot be made good, and whoever wrote it was told "unsynced".
            with contextlib.suppress(FileNotFoundError):
                self._write_anew(first, path, deadline)
        except OSError as error:
            raise UnsyncedError(f"{failure.cause}, and then {render_cause(error)}") from error
        self.flusher.made_good(first)

    def _write_anew(self, first: int, path: str, deadline: float) -> None:
        source = self._files.open(path, os.O_RDWR)
        try:
            self._lock.acquire_file(source, deadline)
            if not self._files.is_at(source, path):
                return  # a writer with another lock file has put a copy in its place meanwhile
            self._reader.verify(source, first)
            fd = self._copy_over(source, first, path)
        finally:
            self._files.close(source)
        self._named = max(self._named, first)
        if self.first == first:
            self._use(first, fd)
        else:
            self._files.close(fd)

    def _copy_over(self, source: int, first: int, path: str) -> int:
        fd = self._files.copy(source, 0, path + ".new")
        try:
            facts = self._files.fstat(fd)
            self._files.rename(path + ".new", path)
            self._reader.marks.move(first, facts.st_dev, facts.st_ino)
            self._files.fsync_directory(self._reader.directory)
        except OSError:
            self._files.close(fd)
            raise
        return fd


def _failed_elsewhere(first: int) -> FlushFailedError:
    return FlushFailedError(first, OSError(errno.EIO, "a flush failed in another process"))
