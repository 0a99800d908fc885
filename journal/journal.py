"""`Journal`: read, commit, flush and wait over the segments of one directory. Knows nothing of what events mean.

Any number of threads and processes may use one directory. Nothing is opened, made or read before the first call that
needs it.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from typing import TYPE_CHECKING, Final

import msgspec

from journal import clock, directory, segment
from journal.archiver import Archiver, Wanted
from journal.errors import BusyError, CorruptError, JournalError, UnreadableError, UnusableError
from journal.files import Files, render_cause
from journal.lock import WriterLock
from journal.reader import Reader
from journal.watch import Watch
from journal.writer import SET_ASIDE, Appended, Settings, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from journal.record import Commit, Place
    from journal.snapshot import Bookmark

SEGMENT_BYTES_MAX: Final = 16 << 20
# What was appended within the deadline is worth waiting for: giving up on its flush would only make it "unsynced".
_FLUSH_WAIT_S: Final = 5.0
_SYSTEM_FILES: Final = Files()


class Journal:
    """One journal directory, as one process sees it.

    Args:
        directory: ``<data>/journal``; made, private, at the first commit.
        first_events: JSON array of the events of line 2.
        by: software and version, for the first line of segments this object opens.
        segment_bytes_max: a segment that has reached this size is followed by a new one.
        files: the system calls; a test's may fail.
        on_set_aside: told the name of each piece that mending took out, under the writer lock; must not raise.
        read_only: never write, never make anything.
        allow_network_filesystem: write even where locks may not hold.
    """

    def __init__(  # noqa: PLR0913 -- the settings of a journal are keywords of one object, set once
        self,
        directory: Path,
        *,
        first_events: bytes,
        by: str = "",
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        files: Files = _SYSTEM_FILES,
        on_set_aside: Callable[[str], None] = lambda _: None,
        read_only: bool = False,
        allow_network_filesystem: bool = False,
    ) -> None:
        self._directory = os.path.abspath(directory)
        self._files = files
        self._read_only = read_only
        self._allow_network = allow_network_filesystem
        self._prepared = False
        self._lock = WriterLock(self._directory, files)
        self._reader = Reader(self._directory, files, self._lock)
        settings = Settings(first_events, by, segment_bytes_max, on_set_aside)
        self._writer = Writer(self._reader, self._lock, files, settings)
        self._archiver = Archiver(self._reader, self.locked, files)
        self._watch = Watch(self._directory)
        forked = weakref.WeakMethod(self._after_fork)
        os.register_at_fork(after_in_child=lambda: (method := forked()) and method())

    # --- reading

    @property
    def exists(self) -> bool:
        """Whether a segment is there."""
        return bool(self._reader.shelf.segments())

    @property
    def last_seq(self) -> int:
        """Seq of the last line verified so far by this object; 0 if none was."""
        return self._reader.marks.tail.position.seq

    @property
    def anchor(self) -> str:
        """``seq:hash`` of that line; kept elsewhere it shows any later change at or before it. Empty if none."""
        position = self._reader.marks.tail.position
        return f"{position.seq}:{position.hash}" if position.seq else ""

    def read(self, after_seq: int) -> Iterator[Commit]:
        """Verified commits after ``after_seq``, up to the last LF, this process's own included.

        Cheap where the last read or commit of this object ended; elsewhere the segment is scanned up to there.

        Raises:
            CorruptError: a line is damaged; all lines before it were given.
            UnsupportedError: a segment is of another format.
            ReplacedError: the files are not the ones read before. Every read but one from 0 raises it from then on.
            BusyError: a line fails, and a writer that may be in the middle of it holds the lock too long.
            UnusableError: the system refuses to read.
        """
        return self._reader.read(after_seq)

    def line_at(self, place: Place, seq: int) -> Commit:
        """The line that was verified at a place, by one read; that it continues the one before is checked again.

        Raises:
            ReplacedError: another line is there.
            CorruptError: it was damaged since.
        """
        return self._reader.line_at(place, seq)

    def bookmark(self, seq: int) -> Bookmark | None:
        """The place after the line with this seq, to be kept with what was folded up to there.

        None if the line is not among those that this object read or wrote last.
        """
        return self._reader.bookmark(seq)

    def resume(self, bookmark: Bookmark) -> bool:
        """Take a bookmark's place as read: `read` may go on after its seq without the lines before it.

        Returns:
            Whether the journal still holds the line before that place, and the segments before that line.
        """
        return self._reader.resume(bookmark)

    def corrupt_at(self, commit: Commit, cause: str) -> CorruptError:
        """The error for a line that verifies and still makes no sense to whoever folds it. Only made, not raised."""
        at = msgspec.structs.replace(
            segment.start(commit.place.segment), offset=commit.place.offset, next_seq=commit.seq
        )
        return self._reader.corrupt(at, cause)

    def wait(self, after_seq: int, timeout_s: float, interrupted: Callable[[], bool]) -> bool:
        """Sleep until the journal has grown past ``after_seq``.

        Args:
            after_seq: what the caller has folded.
            timeout_s: at most so long.
            interrupted: asked after each `interrupt`; true ends the wait.

        Returns:
            True when there is something to read, an error included, or a file has changed; False at the time-out or
            when interrupted.
        """
        limit = time.monotonic() + timeout_s
        while True:
            try:
                armed = self._watch.arm()
            except OSError as error:
                raise UnreadableError(self._directory, f"cannot watch it: {render_cause(error)}") from error
            if interrupted() or self._watch.closed:
                return False
            if self._has_grown(after_seq):
                return True
            left_s = limit - time.monotonic()
            if left_s <= 0:
                return False
            if self._watch.sleep(armed, left_s):
                return not (interrupted() or self._watch.closed)

    def interrupt(self) -> None:
        """Wake every `wait` of this object, so that it asks its ``interrupted``."""
        self._watch.wake()

    # --- writing

    def commit(self, build: Callable[[str], bytes], *, deadline: float, flush: bool = True) -> Appended:
        """Append one line, made under the writer lock.

        Args:
            build: given the line's time; reads on, decides, and returns the JSON array of the line's events. What it
                raises goes to the caller, and nothing is written.
            deadline: `time.monotonic()` by which the locks must be there.
            flush: return only when the line is durable; without it a power cut may take the line until `confirm`.

        Raises:
            BusyError, TooLargeError, UnwritableError, UnusableError: nothing was written.
            CorruptError, UnsupportedError, ReplacedError: nothing was written; see `read`.
            UnsyncedError: the line may or may not be there, now or after a power cut.
        """
        self._acquire(deadline)
        try:
            self._writer.open(deadline)
            when = clock.now()
            appended = self._writer.append(when, build(when), deadline)
        finally:
            self._release()
        if flush:
            self.confirm(appended, deadline)
        return appended

    def confirm(self, appended: Appended, deadline: float) -> None:
        """Return when a commit is durable; it was made with a deadline, and its flush may take a little longer.

        Raises:
            UnsyncedError: it may or may not be there after a power cut.
        """
        self._writer.active.flusher.confirm(appended.end, deadline + _FLUSH_WAIT_S)

    def flush(self, deadline: float) -> None:
        """Make everything this object has read or written so far durable; for answers that write nothing.

        Nothing happens if a flush that began after all that has succeeded.

        Raises:
            BusyError: a flush failed before, and the lock to make it good was not free by the deadline.
            UnsyncedError: it is not known to be durable.
        """
        end = self._writer.active.end_point()
        if not self.last_seq:
            return
        active = self._writer.active
        if active.flusher.failure is not None or active.has_failed(end[1]):
            with self.locked(deadline):
                active.make_all_good(end[1], deadline)
        active.flusher.confirm(end, deadline)

    @contextlib.contextmanager
    def locked(self, deadline: float) -> Iterator[None]:
        """Hold the writer lock: no other thread or process commits meanwhile. Makes the directory if need be.

        Raises:
            BusyError, UnusableError, UnwritableError: nothing was done.
        """
        self._acquire(deadline)
        try:
            yield
        finally:
            self._release()

    def archive(self, wanted: Wanted) -> list[int]:
        """Pack segments that nobody needs; readers read them as before. Takes long, and the writer lock for moments.

        Returns:
            First seqs of the segments that were packed; none while another process is at it.

        Raises:
            UnusableError: the journal was opened only to read.
            UnwritableError, BusyError: what was packed before stands; the rest is as it was.
            JournalError: the journal cannot be read.
        """
        if self._read_only:
            raise self._read_only_error()
        return self._archiver.archive(wanted)

    def _read_only_error(self) -> UnusableError:
        return UnusableError(self._directory, "this journal was opened only to read")

    def _acquire(self, deadline: float) -> None:
        if self._read_only:
            raise self._read_only_error()
        if self._prepared:
            try:
                self._lock.acquire(deadline)
            except UnusableError:
                if os.path.isdir(self._directory):
                    raise
            else:
                return
        directory.prepare(self._directory, self._files, allow_network=self._allow_network)
        self._prepared = True
        self._lock.acquire(deadline)

    def _release(self) -> None:
        try:
            self._writer.release()
        finally:
            self._lock.release()

    # --- what was never acknowledged

    def torn_bytes(self) -> int:
        """Bytes after the last line now: a torn tail, or a line that is being written. Reads on to know."""
        return self._reader.bytes_after(self._reader.end()) if self.exists else 0

    def set_aside(self) -> list[str]:
        """Names of the pieces that mending and repair have taken out, in order of segment and offset."""
        try:
            return sorted(self._files.listdir(f"{self._directory}/{SET_ASIDE}"))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnreadableError(error.filename or self._directory, render_cause(error)) from error

    def sizes(self) -> list[int]:
        """Bytes of each segment there is that is not packed, in order."""
        return self._reader.shelf.sizes()

    def archive_sizes(self) -> list[int]:
        """Bytes of each archive there is, in order."""
        return self._reader.shelf.archive_sizes()

    def close(self) -> None:
        """End every wait and close the files; while a commit runs in another thread they are left to the process."""
        self._watch.close()
        self._lock.close(self._writer.close)

    def _after_fork(self) -> None:
        """A child neither holds nor drops its parent's locks, and shares no descriptor with it."""
        self._lock.after_fork()
        self._writer.active.after_fork()
        self._watch.after_fork()
        self._reader.forget()

    def _has_grown(self, after_seq: int) -> bool:
        if self.last_seq > after_seq:
            return True
        try:
            return next(iter(self._reader.read(after_seq)), None) is not None
        except BusyError:
            return False
        except JournalError:
            return True  # the caller's own read will meet it
