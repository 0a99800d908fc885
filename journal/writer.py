"""Append lines to the active segment: mend its end, roll. All of it under the writer lock.

Takes no writer lock itself and decides nothing about what is written.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from journal import clock, record, segment
from journal.active import Active
from journal.errors import TooLargeError, UnwritableError
from journal.files import render_place
from journal.flush import Point
from journal.marks import Mark
from journal.record import LINE_BYTES_MAX, Commit, Place
from journal.segment import Position

if TYPE_CHECKING:
    from journal.files import Files
    from journal.lock import WriterLock
    from journal.reader import Reader

SET_ASIDE: Final = "set-aside"
_TICK_NS: Final = 20_000_000  # files are stamped by a clock that may lag so much, and is never ahead


class Appended(msgspec.Struct, frozen=True, gc=False):
    """A commit that was written: its seq, its hash, where it lies, and up to where a flush must reach for it."""

    seq: int
    hash: str
    place: Place
    end: Point


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
        self._files = files
        self._settings = settings
        self.active = Active(reader, lock, files)
        self._appended_ns = 0  # when this process last wrote: a file changed later holds something else

    def open(self, deadline: float) -> None:
        """Open and lock the active segment and make its end sound; makes the first segment if there is none.

        `release` must follow, whether this raised or not.

        Raises:
            BusyError, UnwritableError, UnsyncedError, CorruptError, UnsupportedError, ReplacedError
        """
        self._reader.check_replaced()
        try:
            self._mend_before_build(self.active.hold_last(deadline))
        except OSError as error:
            raise UnwritableError(render_place(error)) from error

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
                _encode(position, when, os.getpid(), events)  # too large is told before a roll
                position = self._roll(position, deadline)
            return self._put(position, when, events)
        except OSError as error:
            raise UnwritableError(render_place(error)) from error

    def release(self) -> None:
        """Unlock what `open` locked.

        Raises:
            UnsyncedError: it stays locked.
        """
        self._reader.settle(None)
        self.active.release()

    def close(self) -> None:
        """Close the active segment."""
        self.active.leave()
        self.release()

    # --- its end

    def _mend_before_build(self, facts: os.stat_result) -> None:
        """What `build` will read must be all there is: an end without LF may be a whole line."""
        size = facts.st_size
        active = self.active
        mark = self._reader.marks.tail
        at = mark.position
        begun = at.seq > 1 and at.offset > 0  # an empty last segment lacks its own first line
        if begun and (active.first, size, *active.identity) == (at.segment, at.offset, mark.device, mark.inode):
            if not 0 <= self._appended_ns - facts.st_mtime_ns < _TICK_NS:
                self._reader.check_line_before(active.fd, at)
            self._reader.settle(mark)
        elif not begun or not size or self._files.pread(active.fd, 1, size - 1) != b"\n":
            self._mend()

    def _exact_end(self) -> Position:
        """Where the next line goes, every byte before it verified."""
        facts = self.active.facts()
        if facts is None or (facts.st_dev, facts.st_ino) != self.active.identity:
            self.active.leave()
            raise self._reader.replaced(self.active.path, "it is not the file that was opened")
        mark = self._reader.marks.tail
        position = mark.position
        here = (self.active.first, facts.st_size) == (position.segment, position.offset) and mark.inode == facts.st_ino
        if here and position.offset:
            return position
        return self._mend()

    def _mend(self) -> Position:
        """Read on to the end and make it sound: LF for a whole line, a torn tail set aside, missing first lines."""
        position = self._reader.end().position
        fd = self.active.fd
        if position.segment != self.active.first:
            raise self._reader.replaced(self.active.path, "it is no longer the last segment")
        size = self._files.fstat(fd).st_size
        if size > position.offset:
            if self._is_unfinished_line(fd, position, size):
                self._files.append(fd, b"\n", size)
                with self.active.flushing():  # a power cut may keep what follows it, and not the LF: see `_put`
                    self._files.fdatasync(fd)
                position = self._reader.end().position
            else:
                self._set_aside(fd, position)
        if position.offset == 0:
            position = self._begin(position)
        if position.seq == 1:
            self._put(position, clock.now(), self._settings.first_events)
            position = self._reader.marks.tail.position
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
        with self.active.flushing():
            self._files.fdatasync(fd)
        self._settings.on_set_aside(name)

    # --- lines and segments

    def _put(self, position: Position, when: str, events: bytes) -> Appended:
        pid = os.getpid()
        line, digest = _encode(position, when, pid, events)
        try:
            self._files.append(self.active.fd, line, position.offset)
        except UnwritableError:
            # What was cut back may be on the disk, and come back in the place of lines that follow.
            with self.active.flushing():
                self._files.fdatasync(self.active.fd)
            raise
        self._appended_ns = time.time_ns()
        first, seq = position.segment, position.next_seq
        after = position.offset + len(line)
        end = Position(first, after, seq, digest, seq + 1, digest, position.journal)
        place = Place(first, position.offset, len(line))
        marks = self._reader.marks
        marks.add(Mark(end, *self.active.identity), [Commit(seq, when, pid, events, digest, place)])
        return Appended(seq, digest, place, (marks.epoch, first, after))

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
        self.active.flush_beginning()
        return self._reader.marks.tail.position

    def _roll(self, position: Position, deadline: float) -> Position:
        """Finish the active segment, durably, and begin the next one."""
        if not self.active.begin(position.next_seq, deadline):
            raise self._reader.replaced(self.active.path, "a writer with another lock file has begun it")
        return self._begin(segment.follow(position))


def _encode(position: Position, when: str, pid: int, events: bytes) -> tuple[bytes, str]:
    base = position.prev or position.hash  # after `lost` without next_prev readers take what stands in the line
    line, digest = record.encode(position.next_seq, when, pid, events, base)
    if len(line) > LINE_BYTES_MAX:
        raise TooLargeError(len(line), LINE_BYTES_MAX)
    return line, digest
