"""Append lines to the active segment: mend its end, roll, flush, write it anew. All but `flush` under the writer lock.

Takes no writer lock itself and decides nothing about what is written.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from journal import clock, record, segment
from journal.errors import TooLargeError, UnsyncedError, UnwritableError
from journal.files import render_cause
from journal.flush import Flusher, FlushFailedError, Point
from journal.marks import Mark
from journal.record import LINE_BYTES_MAX, Place
from journal.segment import Position

if TYPE_CHECKING:
    from journal.files import Files
    from journal.lock import WriterLock
    from journal.reader import Reader

SET_ASIDE: Final = "set-aside"
_APPEND: Final = os.O_RDWR | os.O_APPEND


class Appended(msgspec.Struct, frozen=True, gc=False):
    """A commit that was written: its seq, its hash, where it lies, and up to where a flush must reach for it."""

    seq: int
    hash: str
    place: Place
    end: Point = (0, 0, 0)


class Settings(msgspec.Struct, frozen=True):
    """What a writer puts into new segments, when it opens one, and whom it tells of a piece set aside."""

    first_events: bytes
    by: str
    segment_bytes_max: int
    on_set_aside: Callable[[str], None]


class Writer:
    """The writing side of one journal directory in one process."""

    def __init__(self, reader: Reader, lock: WriterLock, files: Files, settings: Settings) -> None:
        self._reader = reader
        self._lock = lock
        self._files = files
        self._settings = settings
        self._active = (0, -1)  # first seq and descriptor of the segment written to; (0, -1) for none
        self._identity = (0, 0)  # its device and inode
        self._locked: list[int] = []
        self._swap = threading.Lock()  # guards _active against a flush in another thread
        self._retired: list[int] = []
        self._named = 0  # the last segment whose name this process has made durable
        self.flusher = Flusher(self._flush)

    def open(self, deadline: float) -> None:
        """Open and lock the active segment and make its end sound; makes the first segment if there is none.

        `release` must follow, whether this raised or not.

        Raises:
            BusyError, UnwritableError, UnsyncedError, CorruptError, UnsupportedError, ReplacedError
        """
        self._reader.check_replaced()
        try:
            if self.flusher.failure is not None:
                self._write_anew(self.flusher.failure, deadline)
            size = self._open_last(deadline)
            self._lock_active(deadline)
            self._mend_before_build(size)
        except OSError as error:
            raise UnwritableError(render_cause(error)) from error

    def append(self, when: str, events: bytes, deadline: float) -> Appended:
        """Write one line at the end; between `open` and `release`.

        Raises:
            TooLargeError, UnwritableError: nothing was written.
            UnsyncedError: something may have been.
            ReplacedError: the active segment is not the one that was opened; nothing was written.
        """
        try:
            position = self._exact_end()
            if position.offset >= self._settings.segment_bytes_max:
                _encode(position, when, events)  # too large is told before a roll
                position = self._roll(position, deadline)
            return self._put(position, when, events)
        except OSError as error:
            raise UnwritableError(render_cause(error)) from error

    def release(self) -> None:
        """Unlock what `open` locked.

        Raises:
            UnsyncedError: it stays locked.
        """
        self._reader.settle(None)
        locked, self._locked = self._locked, []
        try:
            for fd in locked:
                self._files.unlock(fd)
        except OSError as error:
            raise UnsyncedError(f"a segment stays locked: {render_cause(error)}") from error
        finally:
            while self._retired:
                self._files.close(self._retired.pop())

    def end_point(self) -> Point:
        """The end of all that was read or written so far."""
        memory = self._reader.memory
        return memory.epoch, memory.tail.position.segment, memory.tail.position.offset

    def make_good(self, deadline: float) -> None:
        """Write the segment whose flush failed anew, if one did; `release` must follow."""
        if self.flusher.failure is not None:
            self._write_anew(self.flusher.failure, deadline)

    def close(self) -> None:
        """Close the active segment."""
        self._leave()
        self.release()

    def after_fork(self) -> None:
        """In a child: close what shares its lock with the parent, and start afresh."""
        fds = {fd for fd in (self._active[1], *self._retired, *self._locked) if fd >= 0}
        self._active, self._retired, self._locked = (0, -1), [], []
        self._swap = threading.Lock()
        self.flusher = Flusher(self._flush)
        for fd in fds:
            os.close(fd)

    # --- the active segment

    def _open_last(self, deadline: float) -> int:
        """Make the last segment the active one; its size."""
        first = max(self._reader.segments(), default=1)
        facts = self._stat(first)
        if self._active[0] == first and facts is not None and (facts.st_dev, facts.st_ino) == self._identity:
            return facts.st_size
        if self._active[0] not in (0, first):
            # Lines of ours may lie in the segment that is left; their flush must go to its descriptor.
            self.flusher.confirm(self.end_point(), deadline)
        fd = self._files.open(self._reader.path(first), _APPEND | os.O_CREAT)
        self._use(first, fd)
        return self._files.fstat(fd).st_size

    def _stat(self, first: int) -> os.stat_result | None:
        try:
            return self._files.stat(self._reader.path(first))
        except FileNotFoundError:
            return None

    def _use(self, first: int, fd: int) -> None:
        """Write to a segment from now on; ``fd`` is closed if it fails."""
        try:
            facts = self._files.fstat(fd)
        except OSError:
            self._files.close(fd)
            raise
        self._leave()
        self._identity = (facts.st_dev, facts.st_ino)
        with self._swap:
            self._active = (first, fd)

    def _leave(self) -> None:
        """Write to no segment; its file is closed when its lock has been given back."""
        with self._swap:
            (_, old), self._active = self._active, (0, -1)
        if old >= 0:
            self._retired.append(old)

    def _lock_active(self, deadline: float) -> None:
        fd = self._active[1]
        self._lock.acquire_file(fd, deadline)
        self._locked.append(fd)

    # --- its end

    def _mend_before_build(self, size: int) -> None:
        """What `build` will read must be all there is: an end without LF may be a whole line."""
        first, fd = self._active
        mark = self._reader.memory.tail
        at = mark.position
        begun = at.seq > 1 and at.offset > 0  # an empty last segment lacks its own first line
        if begun and (first, size, *self._identity) == (at.segment, at.offset, mark.device, mark.inode):
            self._reader.check_line_before(fd, at)
            self._reader.settle(mark)
        elif not begun or not size or self._files.pread(fd, 1, size - 1) != b"\n":
            self._mend()

    def _exact_end(self) -> Position:
        """Where the next line goes, every byte before it verified."""
        first = self._active[0]
        facts = self._stat(first)
        if facts is None or (facts.st_dev, facts.st_ino) != self._identity:
            self._leave()
            raise self._reader.replaced(self._reader.path(first), "it is not the file that was opened")
        mark = self._reader.memory.tail
        position = mark.position
        here = (first, facts.st_size) == (position.segment, position.offset) and mark.inode == facts.st_ino
        if here and position.offset:
            return position
        return self._mend()

    def _mend(self) -> Position:
        """Read on to the end and make it sound: LF for a whole line, a torn tail set aside, missing first lines."""
        position = self._reader.end().position
        first, fd = self._active
        if position.segment != first:
            raise self._reader.replaced(self._reader.path(first), "it is no longer the last segment")
        size = self._files.fstat(fd).st_size
        if size > position.offset:
            if self._is_unfinished_line(fd, position, size):
                self._files.append(fd, b"\n", size)
                position = self._reader.end().position
            else:
                self._set_aside(fd, position)
        if position.offset == 0:
            position = self._begin(position)
        if position.seq == 1:
            self._put(position, clock.now(), self._settings.first_events)
            position = self._reader.memory.tail.position
        return position

    def _is_unfinished_line(self, fd: int, position: Position, size: int) -> bool:
        if size - position.offset >= LINE_BYTES_MAX:
            return False
        data = self._files.pread(fd, size - position.offset, position.offset)
        return b"\n" not in data and len(segment.scan(data + b"\n", position).commits) == 1

    def _set_aside(self, fd: int, position: Position) -> None:
        """Copy what was never acknowledged, durably, before it is cut."""
        directory = f"{self._reader.directory}/{SET_ASIDE}"
        with contextlib.suppress(FileExistsError):
            self._files.mkdir(directory)
        name = f"{position.segment:020d}-{position.offset}-{time.time_ns()}-{os.getpid()}.torn"
        self._files.close(self._files.copy(fd, position.offset, f"{directory}/{name}"))
        self._files.fsync_directory(directory)
        self._files.fsync_directory(self._reader.directory)
        self._files.truncate(fd, position.offset)
        with self._flushing(position.segment):
            self._files.fdatasync(fd)
        self._settings.on_set_aside(name)

    # --- lines and segments

    def _put(self, position: Position, when: str, events: bytes) -> Appended:
        line, digest = _encode(position, when, events)
        _, fd = self._active
        self._files.append(fd, line, position.offset)
        seq = position.next_seq
        after = position.offset + len(line)
        end = Position(position.segment, after, seq, digest, seq + 1, digest, position.journal)
        self._reader.memory.add(Mark(end, *self._identity))
        return Appended(seq, digest, Place(position.segment, position.offset, len(line)))

    def _begin(self, position: Position) -> Position:
        """Write the first line of an empty segment; it and the segment's name are durable after that."""
        opened = {
            "type": "segment_opened",
            "format": segment.FORMAT,
            "journal": position.journal or self._reader.journal_id() or str(uuid.uuid4()),
            "prev": position.prev or position.hash,
            **({"by": self._settings.by} if self._settings.by else {}),
            "host": socket.gethostname(),
        }
        position = msgspec.structs.replace(position, journal=opened["journal"])
        self._put(position, clock.now(), msgspec.json.encode([opened]))
        _, fd = self._active
        with self._flushing(position.segment):
            self._files.fsync(fd)
            self._files.fsync_directory(self._reader.directory)
        self._named = position.segment
        return self._reader.memory.tail.position

    def _roll(self, position: Position, deadline: float) -> Position:
        """Finish the active segment, durably, and begin the next one."""
        self.flusher.confirm(self.end_point(), deadline)
        fd = self._files.open(self._reader.path(position.next_seq), _APPEND | os.O_CREAT)
        self._use(position.next_seq, fd)
        self._lock_active(deadline)
        return self._begin(segment.follow(position))

    # --- durability

    def _flush(self, upto: Point) -> Point:
        """Flush all there is; the one thing here that runs without the writer lock, in any thread."""
        target = max(upto, self.end_point())
        last = target[1]
        try:
            with self._swap:
                active, fd = self._active
                copy = self._files.dup(fd) if fd >= 0 else -1
        except OSError as error:  # no flush has failed: the next one may say more
            raise UnsyncedError(render_cause(error)) from error
        if copy >= 0:
            # A copy of the descriptor that wrote: it hears of every error since, and a roll may close the other.
            self._flush_and_close(active, copy)
        if last != active:
            with _failing(last):
                other = self._files.open(self._reader.path(last), os.O_RDONLY)
            self._flush_and_close(last, other)
        if self._named < last:
            with _failing(last):
                self._files.fsync_directory(self._reader.directory)
            self._named = last
        return target

    def _flush_and_close(self, first: int, fd: int) -> None:
        try:
            self._files.fdatasync(fd)
        except OSError as error:
            raise FlushFailedError(first, error) from error
        finally:
            self._files.close(fd)

    @contextlib.contextmanager
    def _flushing(self, first: int) -> Iterator[None]:
        """A flush of a segment under the writer lock: if it fails, it has failed for everyone."""
        try:
            with _failing(first):
                yield
        except FlushFailedError as error:
            raise self.flusher.fail(error) from error

    def _write_anew(self, failure: FlushFailedError, deadline: float) -> None:
        """Put a verified copy in the place of a segment whose flush failed: its own pages prove nothing any more."""
        first, path = failure.segment, self._reader.path(failure.segment)
        try:
            source = self._files.open(path, os.O_RDWR)
        except FileNotFoundError:  # what it held is gone, and whoever wrote it was told "unsynced"
            self.flusher.made_good()
            return
        except OSError as error:
            raise UnsyncedError(f"{failure.cause}, and then {render_cause(error)}") from error
        try:
            self._lock.acquire_file(source, deadline)
            self._reader.verify(source, first)
            fd = self._copy_over(source, first, path)
            self._named = max(self._named, first)
            if self._active[0] == first:
                self._use(first, fd)
            else:
                self._files.close(fd)
        except OSError as error:
            raise UnsyncedError(f"{failure.cause}, and then {render_cause(error)}") from error
        finally:
            self._files.close(source)
        self.flusher.made_good()

    def _copy_over(self, source: int, first: int, path: str) -> int:
        fd = self._files.copy(source, 0, path + ".new")
        try:
            facts = self._files.fstat(fd)
            self._files.rename(path + ".new", path)
            self._reader.memory.move(first, facts.st_dev, facts.st_ino)
            self._files.fsync_directory(self._reader.directory)
        except OSError:
            self._files.close(fd)
            raise
        return fd


@contextlib.contextmanager
def _failing(first: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FlushFailedError(first, error) from error


def _encode(position: Position, when: str, events: bytes) -> tuple[bytes, str]:
    base = position.prev or position.hash  # after `lost` without next_prev readers take what stands in the line
    line, digest = record.encode(position.next_seq, when, os.getpid(), events, base)
    if len(line) > LINE_BYTES_MAX:
        raise TooLargeError(len(line), LINE_BYTES_MAX)
    return line, digest
