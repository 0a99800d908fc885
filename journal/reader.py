"""Read verified commits from the segments of one directory. Writes nothing; does not know what events mean.

Readers hold no lock. What was verified once is remembered as a few marks, so that reading on costs one look at the end;
each start from a mark checks that the file is the one read before and still holds the line before it.
"""
# ruff: noqa: PTH -- paths stay plain text down to the system calls in files.py

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from journal import record, segment
from journal.errors import CorruptError, JournalError, ReplacedError, UnusableError
from journal.files import render_cause
from journal.record import LINE_BYTES_MAX, BadLineError, Commit, Place
from journal.segment import Position, Scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from journal.files import Files
    from journal.lock import WriterLock

_CHUNK_BYTES: Final = 1 << 20
_MARKS_MAX: Final = 64  # one for each recent read and commit; enough for the threads of a process
_SHARED_WAIT_S: Final = 5.0  # a writer holds the lock for milliseconds; one that is stopped is "busy"


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A place between two verified lines, and the file it lies in; inode 0 before that file was opened."""

    position: Position
    device: int = 0
    inode: int = 0


_BEGINNING: Final = Mark(segment.start(1))


class Memory:
    """What has been verified since the files were last found to be others."""

    def __init__(self) -> None:
        self._marks: dict[int, Mark] = {}
        self._mutex = threading.Lock()
        self.tail = _BEGINNING  # the furthest mark

    def add(self, mark: Mark) -> None:
        """Keep one mark for each seq; the oldest go."""
        position = mark.position
        if position.seq and not position.hash:
            return  # the beginning of a segment opened without the one before it: it knows less than that one's end
        with self._mutex:
            self._marks.pop(position.seq, None)
            self._marks[position.seq] = mark
            if len(self._marks) > _MARKS_MAX:
                del self._marks[next(iter(self._marks))]
            tail = self.tail.position
            if (position.segment, position.offset) >= (tail.segment, tail.offset):
                self.tail = mark

    def nearest(self, seq: int) -> Mark | None:
        """The last mark at or before a seq."""
        with self._mutex:
            exact = self._marks.get(seq)
            if exact is not None:
                return exact
            return max(
                (mark for known, mark in self._marks.items() if known < seq),
                key=lambda mark: mark.position.seq,
                default=None,
            )

    def move(self, first_seq: int, device: int, inode: int) -> None:
        """The segment was put on a new file with the same bytes."""
        with self._mutex:
            for seq, mark in self._marks.items():
                if mark.position.segment == first_seq:
                    self._marks[seq] = Mark(mark.position, device, inode)
            if self.tail.position.segment == first_seq:
                self.tail = Mark(self.tail.position, device, inode)


class Reader:
    """Reads one journal directory, in any number of threads."""

    def __init__(self, directory: str, files: Files, lock: WriterLock) -> None:
        self.directory = directory
        self._files = files
        self._lock = lock
        self.memory = Memory()
        self._replaced = False  # nothing but a read from 0 is answered until there was one

    def path(self, first_seq: int) -> str:
        """Path of a segment."""
        return os.path.join(self.directory, segment.name(first_seq))

    def segments(self) -> list[int]:
        """First seqs of the segments there are, in order."""
        try:
            names = self._files.listdir(self.directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unreadable(error) from error
        return sorted(seq for text in names if (seq := segment.parse_name(text)) is not None)

    def read(self, after_seq: int) -> Iterator[Commit]:
        """Verified commits after ``after_seq``, up to the last LF; see `Journal.read`."""
        if after_seq == 0:
            self._replaced = False
        elif self._replaced:
            raise ReplacedError(self.directory, "it was found replaced since")
        memory = self.memory
        mark = self._starting_mark(memory, after_seq)
        at = _BEGINNING
        while mark is not None:
            with self._open(mark) as (fd, at):
                # Asked before the scan: a segment that has a follower by now is final.
                later = self._later(at.position)
                for scanned in self._scans(fd, at.position, last=not later):
                    at = Mark(scanned.end, at.device, at.inode)
                    memory.add(at)
                    if scanned.commits and scanned.commits[0].seq <= after_seq:
                        yield from [commit for commit in scanned.commits if commit.seq > after_seq]
                    else:
                        yield from scanned.commits
                memory.add(at)
                mark = self._following(fd, at) if later else None
        if at.position.next_seq <= after_seq:
            raise self._forget(self.directory, f"it ends at seq {at.position.next_seq - 1}, before {after_seq}")

    def end(self) -> Mark:
        """Read on to the end and return it. Under the writer lock that is where the next line goes."""
        for _ in self.read(self.memory.tail.position.seq):
            pass
        return self.memory.tail

    def line_at(self, place: Place, seq: int) -> Commit:
        """One line by its place; see `Journal.line_at`."""
        path = self.path(place.segment)
        try:
            fd = self._files.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise self._forget(path, "it is gone") from None
        except OSError as error:
            raise self._unreadable(error) from error
        try:
            line = self._pread(fd, place.line_bytes, place.offset)
        finally:
            self._files.close(fd)
        try:
            if line.startswith(b'{"seq":%d,' % seq) and line.find(b"\n") == place.line_bytes - 1:
                return record.decode(line[:-1], None, place.segment, place.offset)
        except BadLineError:
            pass
        raise self._forget(path, f"seq {seq} is not at byte {place.offset}")

    def journal_id(self) -> str | None:
        """The journal's uuid from the last segment that begins with `segment_opened`; None if none does."""
        for first in reversed(self.segments()):
            with self._open(Mark(segment.start(first))) as (fd, _):
                line, feed, _ = self._pread(fd, LINE_BYTES_MAX, 0).partition(b"\n")
            opened = segment.parse_opened(record.decode(line, None).events) if feed else None
            if opened is not None:
                return opened.journal
        return None

    def verify(self, fd: int, first_seq: int) -> None:
        """Verify an open segment from its beginning.

        Raises:
            CorruptError: it is damaged.
        """
        for _ in self._scans(fd, segment.start(first_seq), last=True):
            pass

    def corrupt(self, position: Position, cause: str) -> CorruptError:
        """An error at the line after ``position``; counts the lines before it only now."""
        path = self.path(position.segment)
        line = 1
        try:
            fd = self._files.open(path, os.O_RDONLY)
        except OSError:
            return CorruptError(path, line, position.offset, position.next_seq, cause)
        try:
            at = 0
            while at < position.offset:
                data = self._pread(fd, min(_CHUNK_BYTES, position.offset - at), at)
                line += data.count(b"\n")
                at += len(data) or position.offset
        finally:
            self._files.close(fd)
        return CorruptError(path, line, position.offset, position.next_seq, cause)

    def _starting_mark(self, memory: Memory, after_seq: int) -> Mark | None:
        """Where to begin so that the line after ``after_seq`` is met; None in an empty journal."""
        known = memory.nearest(after_seq) if after_seq else None
        if known is not None and known.position.seq == after_seq:
            return known
        names = self.segments()
        if not names:
            if after_seq or memory.tail.inode:
                raise self._forget(self.directory, "no segment is there")
            return None
        first = max((name for name in names if name <= after_seq + 1), default=None)
        if first is None:
            raise self.corrupt(segment.start(after_seq + 1), "the segment that begins with it is missing")
        if known is not None and known.position.segment >= first:
            return known
        return Mark(segment.start(first))

    @contextlib.contextmanager
    def _open(self, mark: Mark) -> Iterator[tuple[int, Mark]]:
        """Open the segment of a mark and make sure that it is the file, and holds the line, it was."""
        position = mark.position
        path = self.path(position.segment)
        try:
            fd = self._files.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise self._forget(path, "it is gone") from None
        except OSError as error:
            raise self._unreadable(error) from error
        try:
            facts = self._files.fstat(fd)
            if mark.inode and (facts.st_dev, facts.st_ino) != (mark.device, mark.inode):
                raise self._forget(path, "it is another file now")
            self._check_line_before(fd, position)
            yield fd, Mark(position, facts.st_dev, facts.st_ino)
        finally:
            self._files.close(fd)

    def _check_line_before(self, fd: int, position: Position) -> None:
        if not position.offset:
            return
        length = record.TAIL_BYTES + 1
        if self._pread(fd, length, position.offset - length) != b',"hash":"%b"}\n' % position.hash.encode():
            raise self._forget(self.path(position.segment), f"seq {position.seq} no longer ends where it did")

    def _scans(self, fd: int, position: Position, *, last: bool) -> Iterator[Scan]:
        """Scan a segment from a place to its last whole line, or to a torn tail of the last one."""
        want = _CHUNK_BYTES
        while True:
            # Always from the last verified LF: bytes kept from an earlier read may have been rolled back since.
            data = self._pread(fd, want, position.offset)
            scanned = segment.scan(data, position)
            if scanned.commits:
                yield scanned
            position = scanned.end
            if scanned.fault is not None:
                again = self._again(fd, position, last=last)
                if again is None:
                    return
                yield again
                position = again.end
            elif not scanned.commits:
                if len(data) < want:
                    return
                if want == LINE_BYTES_MAX:
                    self._check_no_line(fd, position)
                    return
                want = LINE_BYTES_MAX

    def _again(self, fd: int, position: Position, *, last: bool) -> Scan | None:
        """Read a failing line again, in the end while no writer is at work; None if it is the torn tail.

        Raises:
            CorruptError: it is damage.
        """
        scanned = self._scan_once(fd, position)
        if scanned.commits or scanned.fault is None:
            return scanned
        with self._without_writers():
            scanned = self._scan_once(fd, position)
            if scanned.commits or scanned.fault is None:
                return scanned
            self._check_line_before(fd, position)
            if last and not self._later(position):
                line, _, _ = self._pread(fd, LINE_BYTES_MAX, position.offset).partition(b"\n")
                if segment.is_torn_line(line, position.offset):
                    return None
            raise self.corrupt(position, scanned.fault)

    def _scan_once(self, fd: int, position: Position) -> Scan:
        return segment.scan(self._pread(fd, LINE_BYTES_MAX, position.offset), position)

    def _without_writers(self) -> contextlib.AbstractContextManager[None]:
        if self._lock.held_here:
            return contextlib.nullcontext()
        return self._lock.share(time.monotonic() + _SHARED_WAIT_S)

    def _check_no_line(self, fd: int, position: Position) -> None:
        for data in self._files.read_all(fd, position.offset + LINE_BYTES_MAX):
            if b"\n" in data:
                raise self.corrupt(position, f"is longer than {LINE_BYTES_MAX} bytes")

    def _later(self, position: Position) -> bool:
        return any(first > position.segment for first in self.segments())

    def _following(self, fd: int, mark: Mark) -> Mark:
        """The beginning of the segment after one that is finished."""
        position = mark.position
        if self._files.fstat(fd).st_size != position.offset:
            raise self.corrupt(position, "bytes after the last line of a segment that is not the last")
        if position.next_seq not in self.segments():
            raise self.corrupt(segment.follow(position), "the segment that begins with it is missing")
        return Mark(segment.follow(position))

    def _pread(self, fd: int, length: int, offset: int) -> bytes:
        try:
            return self._files.pread(fd, length, offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def _forget(self, path: str, cause: str) -> ReplacedError:
        self.memory = Memory()
        self._replaced = True
        return ReplacedError(path, cause)

    def _unreadable(self, error: OSError) -> UnusableError:
        return UnusableError(self.directory, render_cause(error))
