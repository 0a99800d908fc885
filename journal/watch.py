"""Sleep until a directory's files grow. Knows nothing of lines; wakes may be for nothing, misses are bounded by a look.

One watch serves all waiting threads of a process: one sleeps in the kernel, the others wait for it. Linux tells by
inotify, macOS by kqueue; elsewhere, and where that fails, the sleeper comes back every half second.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import sys
import threading
from typing import Final, Protocol

_SAFETY_S: Final = 1.0  # with events: a look for what they may have missed
_POLL_S: Final = 0.5  # without
_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE = 0x2, 0x80, 0x100
_IN_DELETE_SELF, _IN_MOVE_SELF, _IN_IGNORED = 0x400, 0x800, 0x8000
_GONE: Final = _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_IGNORED
_EVENT_HEAD: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_EVENTS_BYTES: Final = 64 << 10


class Source(Protocol):
    """Where events come from: a descriptor that is readable when there are some."""

    fd: int

    def drain(self) -> bool:
        """Take the events; False when a new source is needed."""

    def close(self) -> None:
        """Give the descriptor back."""


class Watch:
    """Wakes sleepers when something happens in a directory, or when it is told to."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.closed = False
        self._reset()

    def _reset(self) -> None:
        self._turn = threading.Condition(threading.Lock())
        self._leading = False
        self._wakes = 0
        self._events = 0
        self._source: Source | None = None
        self._pipe: tuple[int, int] | None = None

    def arm(self) -> int:
        """Begin to watch: whatever happens after this call ends the `sleep` that is given its result."""
        with self._turn:
            if self._pipe is None and not self.closed:
                self._pipe = os.pipe()
                os.set_blocking(self._pipe[0], False)
                os.set_blocking(self._pipe[1], False)
            if self._source is None and not self._leading and not self.closed:
                self._source = open_source(self._directory)
            return self._wakes

    def sleep(self, armed: int, timeout_s: float) -> bool:
        """Sleep until something happened since ``armed`` was given, at most ``timeout_s``; may return early.

        Returns:
            Whether it ended by an event in the directory.
        """
        with self._turn:
            if self._wakes != armed or self._pipe is None:
                return False
            events = self._events
            if self._leading:
                self._turn.wait(timeout_s)
                return self._events != events
            self._leading = True
            pipe, source = self._pipe[0], self._source
        woken = False
        try:
            woken = self._poll(pipe, source, timeout_s)
        finally:
            with self._turn:
                self._leading = False
                self._wakes += woken
                self._turn.notify_all()
        return self._events != events

    def wake(self) -> None:
        """End every sleep."""
        with self._turn:
            self._wakes += 1
            self._turn.notify_all()
            if self._leading and self._pipe is not None:
                with contextlib.suppress(BlockingIOError):  # full of wakes already
                    os.write(self._pipe[1], b"!")

    def close(self) -> None:
        """End every sleep, from here on, and give the descriptors back."""
        self.closed = True
        self.wake()
        with self._turn:
            self._turn.wait_for(lambda: not self._leading)
            self._drop()

    def after_fork(self) -> None:
        """In a child: close what it shares with the parent, and start afresh."""
        self._drop()
        self._reset()

    def _drop(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe[0])
            os.close(self._pipe[1])
            self._pipe = None
        self._drop_source()

    def _poll(self, pipe: int, source: Source | None, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        if source is not None:
            poll.register(source.fd, select.POLLIN)
        limit_s = _POLL_S if source is None else _SAFETY_S
        ready = {fd for fd, _ in poll.poll(min(timeout_s, limit_s) * 1000)}
        if pipe in ready:
            os.read(pipe, _EVENTS_BYTES)
        if source is not None and source.fd in ready:
            self._events += 1
            if not source.drain():
                self._drop_source()
        return bool(ready)

    def _drop_source(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None


def open_source(directory: str) -> Source | None:
    """The system's way to tell; None where there is none or the directory is not there yet."""
    try:
        if sys.platform == "darwin":  # pragma: no cover -- the suite's coverage is counted on Linux
            return Kqueue(directory)
        return Inotify(directory)
    except (OSError, AttributeError):  # no directory, no watch left, a C library without inotify
        return None


class Inotify:
    """Linux: one watch on the directory hears of every write to a file in it."""

    def __init__(self, directory: str) -> None:
        import ctypes  # noqa: PLC0415 -- only who waits needs it

        libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        mask = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE_SELF | _IN_MOVE_SELF
        if libc.inotify_add_watch(self.fd, os.fsencode(directory), mask) < 0:
            os.close(self.fd)
            raise OSError(ctypes.get_errno(), "inotify_add_watch")

    def drain(self) -> bool:
        """Take the events; False once the directory is gone."""
        data = os.read(self.fd, _EVENTS_BYTES)
        at, seen = 0, 0
        while at < len(data):
            _, mask, _, name_bytes = _EVENT_HEAD.unpack_from(data, at)
            seen |= mask
            at += _EVENT_HEAD.size + name_bytes
        return not seen & _GONE

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fd)


if sys.platform == "darwin":  # pragma: no cover -- the suite's coverage is counted on Linux

    class Kqueue:
        """macOS: a directory tells of new names only, so its last segment is watched beside it."""

        def __init__(self, directory: str) -> None:
            segments = sorted(name for name in os.listdir(directory) if name.endswith(".jsonl"))
            paths = [directory, *(os.path.join(directory, name) for name in segments[-1:])]
            self._queue = select.kqueue()
            self._files = [os.open(path, os.O_EVTONLY) for path in paths]
            self.fd = self._queue.fileno()
            for fd in self._files:
                flags = select.KQ_EV_ADD | select.KQ_EV_CLEAR
                notes = select.KQ_NOTE_WRITE | select.KQ_NOTE_EXTEND | select.KQ_NOTE_DELETE | select.KQ_NOTE_RENAME
                self._queue.control([select.kevent(fd, select.KQ_FILTER_VNODE, flags, notes)], 0)

        def drain(self) -> bool:
            """Take the events; False when the directory changed, as there may be a new segment."""
            events = self._queue.control(None, 16, 0)
            return all(event.ident != self._files[0] for event in events)

        def close(self) -> None:
            """Give the descriptors back."""
            for fd in self._files:
                os.close(fd)
            self._queue.close()
