"""One flush for all who wait for one. Knows points of a journal and a function that flushes; opens nothing itself.

Threads share a flush: one leads, at most one is in flight. A failed flush fails everyone who is not confirmed yet, and
stays: a second try proves nothing (the kernel may report an error once and call the same bytes clean afterwards).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from journal.errors import UnsyncedError
from journal.files import render_cause

if TYPE_CHECKING:
    from collections.abc import Callable

# The end of a line: how often the files were found replaced before, then segment and offset. What was flushed of files
# that are gone lies before every line of those that came.
Point = tuple[int, int, int]


class FlushFailedError(Exception):
    """A flush of a segment failed; carries which and why."""

    def __init__(self, segment: int, error: OSError) -> None:
        """Keep the segment's first seq and the cause."""
        self.segment = segment
        self.cause = render_cause(error)
        super().__init__(self.cause)


class Flusher:
    """What of a journal is known to be durable."""

    def __init__(self, flush: Callable[[Point], Point]) -> None:
        """Take the function that flushes all there is, at least up to a point, and returns how far that was."""
        self._flush = flush
        self._mutex = threading.Lock()
        self._turn = threading.Condition(self._mutex)
        self._in_flight = False
        self._waiting = 0
        self._done: Point = (0, 0, 0)
        self.failure: FlushFailedError | None = None

    def confirm(self, point: Point, limit: float) -> None:
        """Return when a flush that began after ``point`` was written or read has succeeded.

        Args:
            point: the end of a line.
            limit: `time.monotonic()` until which another thread's flush is waited for.

        Raises:
            UnsyncedError: it failed, or a flush failed before and has not been made good.
        """
        with self._mutex:
            while self._in_flight and self._done < point and self.failure is None:
                self._waiting += 1
                ended = self._turn.wait(max(0.0, limit - time.monotonic()))
                self._waiting -= 1
                if not ended:
                    raise UnsyncedError("the flush took too long")
            if self._done >= point:
                return
            if self.failure is not None:
                raise UnsyncedError(self.failure.cause)
            self._in_flight = True
        self._lead(point)

    def fail(self, failure: FlushFailedError) -> UnsyncedError:
        """Note a flush that failed elsewhere, for everyone who waits."""
        with self._mutex:
            self.failure = failure
            self._turn.notify_all()
        return UnsyncedError(failure.cause)

    def made_good(self, segment: int) -> None:
        """A segment has been written anew, durably: if its flush had failed, that is over."""
        with self._mutex:
            if self.failure is not None and self.failure.segment == segment:
                self.failure = None

    def _lead(self, point: Point) -> None:
        done, failure = self._done, None
        try:
            done = self._flush(point)
        except FlushFailedError as error:
            failure = error
        finally:
            with self._mutex:
                self._in_flight = False
                # A flush under the writer lock may have failed meanwhile: the system tells only one of the two.
                failure = self.failure = self.failure or failure
                if failure is None:
                    self._done = max(self._done, done)
                if self._waiting:
                    self._turn.notify_all()
        if failure is not None:
            raise UnsyncedError(failure.cause)
