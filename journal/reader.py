"""Read verified commits from the segments of one directory. Writes nothing; does not know what events mean.

Readers hold no lock. What was verified once is remembered as a few marks, so that reading on costs one look at the end;
each start from a mark checks that the file is the one read before and still holds the line before it.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from journal import record, segment
from journal.errors import CorruptError, ReplacedError, UnreadableError
from journal.files import render_cause
from journal.marks import Mark, Marks
from journal.record import LINE_BYTES_MAX, BadLineError, Commit, Place
from journal.shelf import Shelf
from journal.snapshot import Bookmark

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from journal.archive import Opened
    from journal.files import Files
    from journal.lock import WriterLock
    from journal.segment import Position, Scan

_CHUNK_BYTES: Final = 64 << 10  # what is made of the lines of more would no longer fit the processor's own cache
_SHARED_WAIT_S: Final = 5.0  # a writer holds the lock for milliseconds; one that is stopped is "busy"


class Reader:
    """Reads one journal directory, in any number of threads."""

    def __init__(self, directory: str, files: Files, lock: WriterLock) -> None:
        self.directory = directory
        self._files = files
        self._lock = lock
        self.marks = Marks()
        self.shelf = Shelf(directory, files)
        self._settled: Mark | None = None
        self._replaced = False  # nothing but a read from 0 is answered until there was one

    def path(self, first_seq: int) -> str:
        """Path of a segment that is not packed."""
        return self.shelf.path(first_seq)

    def read(self, after_seq: int) -> Iterator[Commit]:
        """Verified commits after ``after_seq``, up to the last LF; see `Journal.read`."""
        if after_seq == 0:
            self._replaced = False
        self.check_replaced()
        settled = self._settled
        if settled is not None and settled.position.seq == after_seq and self._lock.held_here:
            return iter(())
        if after_seq == 0:  # whoever begins anew wants what is there now
            return self._read(0)
        tail, in_hand = self.marks.after(after_seq)
        return self._read(after_seq) if in_hand is None or not self._is_end(tail) else iter(in_hand)

    def _is_end(self, mark: Mark) -> bool:
        """Whether nothing follows a mark, and the file is the one it was: mostly so, and cheap to know."""
        return self._size(mark) == mark.position.offset and not self._later(mark.position)

    def _size(self, mark: Mark) -> int | None:
        """Size of a mark's segment; None if the file at its path is not the one it was."""
        try:
            facts = self._files.stat(self.path(mark.position.segment))
        except OSError:
            return None
        return facts.st_size if (facts.st_dev, facts.st_ino) == (mark.device, mark.inode) else None

    def check_replaced(self) -> None:
        """Refuse to go on from what was read before the files were found replaced, until there was a read from 0."""
        if self._replaced:
            raise ReplacedError(self.directory, "it was found replaced")

    def replaced(self, path: str, cause: str) -> ReplacedError:
        """Forget all that was verified: the files are others."""
        self.forget()
        self._replaced = True
        return ReplacedError(path, cause)

    def forget(self) -> None:
        """Start afresh."""
        self.marks = Marks(self.marks.epoch + 1)

    def _read(self, after_seq: int) -> Iterator[Commit]:
        marks = self.marks
        mark = self._starting_mark(marks, after_seq)
        end = segment.start(after_seq + 1)
        names: list[int] = []
        while mark is not None:
            opened, at = self._open(mark)
            try:
                # Asked before the scan: a segment that has a follower by now is final, as one that is packed is.
                if not _is_before(at.position, names):
                    names = self.shelf.segments()  # once for all that were there: a directory may never rest
                later = opened.packed or _is_before(at.position, names)
                for scanned in self._scans(opened.fd, at.position, last=not later):
                    at = Mark(scanned.end, at.device, at.inode)
                    marks.add(at, scanned.commits)
                    yield from _after(scanned.commits, after_seq)
                if at is not mark:
                    marks.add(at)
                end = at.position
                mark = self._following(opened, at, names) if later else None
            finally:
                self._files.close(opened.fd)
        if end.next_seq <= after_seq:
            raise self.replaced(self.directory, f"it ends at seq {end.next_seq - 1}, before {after_seq}")

    def end(self) -> Mark:
        """Read on to the end and return it. Under the writer lock that is where the next line goes."""
        for _ in self._read(self.marks.tail.position.seq):
            pass
        return self.marks.tail

    def line_at(self, place: Place, seq: int) -> Commit:
        """One line by its place; see `Journal.line_at`."""
        tail, in_hand = self.marks.tail, self.marks.in_hand(seq, place)
        if in_hand is not None and tail.position.segment == place.segment and self._size(tail) is not None:
            return in_hand
        opened = self._open_segment(place.segment)
        fd = opened.fd
        try:
            lead = min(place.offset, record.TAIL_BYTES + 1)
            data = self._pread(fd, lead + place.line_bytes, place.offset - lead)
            line = data[lead:-1]
            if not line.startswith(b'{"seq":%d,' % seq) or data.find(b"\n", lead) != lead + place.line_bytes - 1:
                raise self.replaced(opened.path, f"seq {seq} is not at byte {place.offset}")
            before = record.stated_hash(data[: lead - 1]) if lead else None
            try:
                return record.decode(line, before, place.segment, place.offset)
            except BadLineError:
                # After a `lost` line the one before tells no hash. A scan of the segment does, or says what is damaged.
                start = segment.start(place.segment)
                for _ in self._scans(fd, start, last=not self._later(start)):
                    pass
                return record.decode(line, None, place.segment, place.offset)
        finally:
            self._files.close(fd)

    def bookmark(self, seq: int) -> Bookmark | None:
        """The place after a line that was verified lately; see `Journal.bookmark`."""
        mark = self.marks.nearest(seq)
        if mark is None or mark.position.seq != seq or not mark.position.offset:
            return None
        try:
            return Bookmark(mark.position, self._finished(mark.position))
        except (OSError, UnreadableError):
            return None

    def resume(self, bookmark: Bookmark) -> bool:
        """Take a place as verified; see `Journal.resume`."""
        position = bookmark.position
        try:
            if self._finished(position) != bookmark.finished:
                return False
            opened = self.shelf.open(position.segment)
        except OSError:
            return False
        try:
            if not self._holds(opened.fd, position):
                return False
            mark = self._mark(opened, position)
        finally:
            self._files.close(opened.fd)
        self.marks.add(mark)
        return True

    def _finished(self, position: Position) -> list[tuple[int, int]]:
        """The segments before a place, each with its size in bytes: they do not change any more."""
        earlier = [first for first in self.shelf.segments() if first < position.segment]
        return [(first, self.shelf.size(first)) for first in earlier]

    def journal_id(self) -> str | None:
        """The journal's uuid from the last segment that begins with `segment_opened`; None if none does."""
        for first in reversed(self.shelf.segments()):
            opened_file = self._open_segment(first)
            try:
                line, feed, _ = self._pread(opened_file.fd, LINE_BYTES_MAX, 0).partition(b"\n")
            finally:
                self._files.close(opened_file.fd)
            opened = segment.parse_opened(record.decode(line, None).events) if feed else None
            if opened is not None:
                return opened.journal
        return None

    def verify(self, fd: int, first_seq: int) -> None:
        """Verify an open segment from its beginning, at least up to the last line that was verified in it before.

        Raises:
            CorruptError: it is damaged, or ends before that line.
        """
        end = segment.start(first_seq)
        for scanned in self._scans(fd, end, last=True):
            end = scanned.end
        tail = self.marks.tail.position
        if tail.segment == first_seq and end.offset < tail.offset:
            raise self.corrupt(end, f"seq {tail.seq}, which was written and read before, is gone")

    def bytes_after(self, mark: Mark) -> int:
        """Bytes in the mark's segment after it."""
        opened, _ = self._open(mark)
        try:
            return max(0, self._fstat(opened.fd).st_size - mark.position.offset)
        finally:
            self._files.close(opened.fd)

    def check_line_before(self, fd: int, position: Position) -> None:
        """Make sure that an open segment still holds the line a position follows.

        Raises:
            ReplacedError: it does not.
        """
        if not self._holds(fd, position):
            raise self.replaced(self.path(position.segment), f"seq {position.seq} no longer ends where it did")

    def _holds(self, fd: int, position: Position) -> bool:
        length = record.TAIL_BYTES + 1
        return not position.offset or (
            self._pread(fd, length, position.offset - length) == b',"hash":"%b"}\n' % position.hash.encode()
        )

    def settle(self, mark: Mark | None) -> None:
        """The writer, under its locks, has seen that nothing follows ``mark``; None when it gives the locks back."""
        self._settled = mark

    def corrupt(self, position: Position, cause: str) -> CorruptError:
        """An error at the line after ``position``; counts the lines before it only now."""
        try:
            opened = self.shelf.open(position.segment)
        except OSError:
            return CorruptError(self.path(position.segment), 1, position.offset, position.next_seq, cause)
        try:
            line = 1 + self._files.count_lines(opened.fd, position.offset)
        except OSError as error:
            raise self._unreadable(error) from error
        finally:
            self._files.close(opened.fd)
        return CorruptError(opened.path, line, position.offset, position.next_seq, cause)

    def _starting_mark(self, marks: Marks, after_seq: int) -> Mark | None:
        """Where to begin so that the line after ``after_seq`` is met; None in an empty journal."""
        known = marks.nearest(after_seq) if after_seq else None
        if known is not None and known.position.seq == after_seq:
            return known
        names = self.shelf.segments()
        if not names:
            if after_seq:
                raise self.replaced(self.directory, "no segment is there")
            if marks.tail.inode:
                self.forget()
            return None
        first = max((name for name in names if name <= after_seq + 1), default=None)
        if first is None:
            raise self.corrupt(segment.start(after_seq + 1), "the segment that begins with it is missing")
        if known is not None and known.position.segment >= first:
            return known
        return Mark(segment.start(first))

    def _open(self, mark: Mark) -> tuple[Opened, Mark]:
        """Open the segment of a mark and make sure that it is the file, and holds the line, it was.

        One that was packed since is another file in any case, which holds the line.
        """
        position = mark.position
        opened = self._open_segment(position.segment)
        try:
            at = self._mark(opened, position)
            if mark.inode and at not in (mark, Mark(position)):
                raise self.replaced(opened.path, "it is another file now")  # noqa: TRY301 -- to be closed in one place
            self.check_line_before(opened.fd, position)
        except BaseException:
            self._files.close(opened.fd)
            raise
        return opened, mark if at == mark else at

    def _mark(self, opened: Opened, position: Position) -> Mark:
        """A mark in an open segment; without a file where it is an archive, as that one has no name to be asked by."""
        facts = None if opened.packed else self._fstat(opened.fd)
        return Mark(position) if facts is None else Mark(position, facts.st_dev, facts.st_ino)

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
            elif len(data) < want:
                return
            elif scanned.commits:
                want = _CHUNK_BYTES
            elif want < LINE_BYTES_MAX:
                want = LINE_BYTES_MAX
            else:
                if not (last and segment.is_torn_line(data, position.offset)):
                    self._check_no_line(fd, position)
                return

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
            self.check_line_before(fd, position)
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
        offset = position.offset + LINE_BYTES_MAX
        while data := self._pread(fd, _CHUNK_BYTES, offset):
            if b"\n" in data:
                raise self.corrupt(position, f"is longer than {LINE_BYTES_MAX} bytes")
            offset += len(data)

    def _later(self, position: Position) -> bool:
        return _is_before(position, self.shelf.plain())

    def _following(self, opened: Opened, mark: Mark, names: list[int]) -> Mark:
        """The beginning of the segment after one that is finished."""
        position = mark.position
        if opened.fault:
            raise self.corrupt(position, opened.fault)
        if self._fstat(opened.fd).st_size != position.offset:
            raise self.corrupt(position, "bytes after the last line of a segment that is not the last")
        if position.next_seq == position.segment:
            raise self.corrupt(position, "the segment is empty and is not the last")
        if position.next_seq not in names:
            raise self.corrupt(segment.follow(position), "the segment that begins with it is missing")
        return Mark(segment.follow(position))

    def _open_segment(self, first_seq: int) -> Opened:
        try:
            return self.shelf.open(first_seq)
        except FileNotFoundError:
            raise self.replaced(self.path(first_seq), "it is gone") from None
        except OSError as error:
            raise self._unreadable(error) from error

    def _pread(self, fd: int, length: int, offset: int) -> bytes:
        try:
            return self._files.pread(fd, length, offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def _fstat(self, fd: int) -> os.stat_result:
        try:
            return self._files.fstat(fd)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> UnreadableError:
        return UnreadableError(error.filename or self.directory, render_cause(error))


def _is_before(position: Position, segments: list[int]) -> bool:
    """Whether one of the segments comes after the one a position lies in."""
    return bool(segments) and segments[-1] > position.segment


def _after(commits: list[Commit], seq: int) -> list[Commit]:
    """Those after a seq; in the middle of a fold that is all of them, and nothing is copied."""
    if commits and commits[0].seq <= seq:
        return [commit for commit in commits if commit.seq > seq]
    return commits
