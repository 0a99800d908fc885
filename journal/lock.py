"""The writer lock: threads of a process, then processes, under one deadline. Knows nothing of what it guards.

The kernel's lock on a side file that is never unlinked. It is tried once; if it is held, one worker thread blocks for
it, which costs no polling and wakes at once. A caller waits for that worker until its deadline. A worker that gets the
lock when no caller waits any more gives it back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from typing import TYPE_CHECKING, Final

from journal.errors import BusyError, UnreadableError, UnusableError, UnwritableError
from journal.files import render_cause, render_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from journal.files import Files

NAME: Final = "writer.lock"
_POLL_S: Final = 0.005
_REFUSED: Final = frozenset({errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT})  # the disk, not its locks


class _Worker:
    """One wait in the kernel's queue, on a descriptor of its own that shares the lock file's lock."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.wanted = True  # a caller waits for the lock; without one it is given back
        self.done = False
        self.failure: OSError | None = None


class WriterLock:
    """One process's side of the writer lock of one directory."""

    def __init__(self, directory: str, files: Files) -> None:
        self._directory = directory
        self._path = f"{directory}/{NAME}"
        self._files = files
        self._reset()

    def _reset(self) -> None:
        self._threads = threading.Lock()
        self._holder: int | None = None
        self._turn = threading.Condition(threading.Lock())
        self._worker: _Worker | None = None
        self._fd: int | None = None
        self._identity = (0, 0)  # device and inode of the file that is open

    def after_fork(self) -> None:
        """In a child, which shares the descriptors' lock: close its copies, so that it can neither hold nor drop it."""
        own = [self._fd] if self._fd is not None else []
        queued = [self._worker.fd] if self._worker is not None else []
        self._reset()
        for fd in own + queued:
            os.close(fd)

    @property
    def held_here(self) -> bool:
        """Whether the calling thread holds the lock."""
        return self._holder == threading.get_ident()

    def acquire(self, deadline: float) -> None:
        """Take the lock; not twice in one thread.

        Args:
            deadline: `time.monotonic()` by which it must be there.

        Raises:
            BusyError: it was not.
            UnusableError: the filesystem has no locks.
        """
        free = self._threads.acquire(blocking=False)
        if not free and not self._threads.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise BusyError("the writer lock (another call of this process)")
        try:
            self._take(deadline)
        except BaseException:
            self._threads.release()
            raise
        self._holder = threading.get_ident()

    def release(self) -> None:
        """Give the lock back."""
        self._holder = None
        try:
            if self._fd is not None:
                self._files.unlock(self._fd)
        except OSError:
            self._drop()  # the lock goes with the last descriptor
        finally:
            self._threads.release()

    def acquire_file(self, fd: int, deadline: float) -> None:
        """Lock one more open file while the lock is held; somebody else has it only if the lock file was deleted.

        Closing the file, or `Files.unlock`, gives it back.

        Raises:
            BusyError: it was not free by the deadline.
            UnusableError: the filesystem has no locks.
        """
        self._poll(self._files.try_lock, fd, deadline)

    @contextlib.contextmanager
    def share(self, deadline: float) -> Iterator[None]:
        """Keep writers out while something is read again. Without a lock file that can be read: no lock, no error."""
        try:
            fd = self._files.open(self._path, os.O_RDONLY)
        except OSError:
            yield
            return
        try:
            self._poll(self._files.try_share, fd, deadline)
            yield
        finally:
            self._files.close(fd)

    def close(self, also: Callable[[], None] = lambda: None) -> None:
        """Close the lock file, and do ``also``, unless another thread is at it: then all goes with the process.

        A worker still in the queue has a descriptor of its own and gives the lock back.
        """
        if self._threads.acquire(blocking=False):
            try:
                also()
                self._drop()
            finally:
                self._threads.release()

    def _take(self, deadline: float) -> None:
        while True:
            fd = self._open() if self._fd is None else self._fd
            self._acquire(fd, deadline)
            if self._is_at_path():
                return
            self._drop()  # and its lock with it

    def _acquire(self, fd: int, deadline: float) -> None:
        with self._turn:
            if self._worker is None:
                if self._try(self._files.try_lock, fd):
                    return
                self._worker = self._start_worker(fd)
            worker = self._worker
            worker.wanted = True
            got = self._turn.wait_for(lambda: worker.done, max(0.0, deadline - time.monotonic()))
            worker.wanted = False  # one that is done from here on has given the lock back
        if not got:
            raise BusyError("the writer lock")
        if worker.failure is not None:
            raise self._unusable(worker.failure) from worker.failure

    def _start_worker(self, fd: int) -> _Worker:
        try:
            worker = _Worker(self._files.dup(fd))
        except OSError as error:
            raise UnreadableError(self._directory, render_cause(error)) from error
        thread = threading.Thread(target=self._work, args=(worker,), name="journal-lock", daemon=True)
        try:
            thread.start()  # it cannot finish before the caller, who holds self._turn, begins to wait
        except RuntimeError as error:
            self._files.close(worker.fd)
            raise BusyError("a thread to wait for the writer lock") from error
        return worker

    def _work(self, worker: _Worker) -> None:
        """In the worker's thread: wait in the kernel's queue, then hand over to whoever waits here by then."""
        try:
            self._files.lock(worker.fd)
        except OSError as error:
            worker.failure = error
        with self._turn:
            worker.done = True
            if self._worker is worker:
                self._worker = None
            if not worker.wanted and worker.failure is None:
                self._files.unlock(worker.fd)
            self._files.close(worker.fd)
            self._turn.notify_all()

    def _poll(self, attempt: Callable[[int], bool], fd: int, deadline: float) -> None:
        while not self._try(attempt, fd):
            if time.monotonic() >= deadline:
                raise BusyError("a file of the journal")
            time.sleep(_POLL_S)

    def _try(self, attempt: Callable[[int], bool], fd: int) -> bool:
        try:
            return attempt(fd)
        except OSError as error:
            raise self._unusable(error) from error

    def _open(self) -> int:
        try:
            fd = self._fd = self._files.open(self._path, os.O_RDWR | os.O_CREAT)
            facts = self._files.fstat(fd)
        except OSError as error:
            if error.errno in _REFUSED:
                raise UnwritableError(f"{self._path}: {render_cause(error)}") from error
            raise self._unusable(error) from error
        self._identity = (facts.st_dev, facts.st_ino)
        return fd

    def _is_at_path(self) -> bool:
        """Whether the file locked is still the one others will find: a deleted lock file guards nothing."""
        try:
            facts = self._files.stat(self._path)
        except OSError:
            return False
        return (facts.st_dev, facts.st_ino) == self._identity

    def _drop(self) -> None:
        with self._turn:
            self._worker = None  # one still in the queue is nobody's: it will give the lock back
        if self._fd is not None:
            self._files.close(self._fd)
            self._fd = None

    def _unusable(self, error: OSError) -> UnusableError:
        return UnusableError(self._directory, f"no lock on it: {render_place(error)}")
