"""The journal's system calls, made for real and told to a model disk. Injects nothing: `meet` is for subclasses."""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING, Final

from journal import Files

if TYPE_CHECKING:
    from tools.crashes.disk import Disk

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  # each user makes a directory of his own in it
MEMORY: Final = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else None
"""Where throw-away directories are made and removed fastest; None for the usual place."""


class Unflushed(Files):
    """Leaves out what only a power cut would show."""

    def fdatasync(self, fd: int) -> None:
        """Nothing."""

    def fsync(self, fd: int) -> None:
        """Nothing."""


class Watched(Unflushed):
    """System calls below the model's directory, and nowhere else.

    Attributes:
        disk: the model.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def meet(self, verb: str, fd: int = -1) -> None:
        """Before each call; what it raises is what the call fails with. ``create`` is an open that may make a file."""

    def share(self, data: bytes) -> bytes:
        """What of a write gets through."""
        return data

    def changed(self) -> None:
        """After each call that changed what a power cut may leave."""

    def open(self, path: str, flags: int) -> int:
        """As the system's."""
        self.meet("create" if flags & os.O_CREAT else "open")
        created = bool(flags & os.O_CREAT) and not os.path.lexists(path)
        fd = super().open(path, flags)
        self.disk.opened(fd, path, created=created, cut=bool(flags & os.O_TRUNC))
        if created or flags & os.O_TRUNC:
            self.changed()
        return fd

    def close(self, fd: int) -> None:
        """As the system's."""
        self.disk.closed(fd)
        super().close(fd)

    def dup(self, fd: int) -> int:
        """As the system's."""
        self.meet("dup")
        copy = super().dup(fd)
        self.disk.copied(fd, copy)
        return copy

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """As the system's."""
        self.meet("pread")
        return super().pread(fd, length, offset)

    def write(self, fd: int, data: bytes) -> int:
        """As the system's, of what `share` leaves; every file of a journal is written at its end."""
        self.meet("write")
        data = self.share(data)
        end = os.fstat(fd).st_size
        taken = super().write(fd, data)
        self.disk.wrote(fd, bytes(data[:taken]), end)
        self.changed()
        return taken

    def truncate(self, fd: int, length: int) -> None:
        """As the system's."""
        self.meet("truncate")
        super().truncate(fd, length)
        self.disk.truncated(fd, length)
        self.changed()

    def fdatasync(self, fd: int) -> None:
        """In the model only."""
        self.meet("fdatasync", fd)
        self.disk.flushed(fd)
        self.changed()

    def fsync(self, fd: int) -> None:
        """In the model only."""
        self.meet("fsync", fd)
        self.disk.flushed(fd)
        self.changed()

    def rename(self, old: str, new: str) -> None:
        """As the system's."""
        self.meet("rename")
        super().rename(old, new)
        self.disk.renamed(old, new)
        self.changed()

    def unlink(self, path: str) -> None:
        """As the system's."""
        self.meet("unlink")
        super().unlink(path)
        self.disk.unlinked(path)
        self.changed()

    def mark(self, path: str) -> None:
        """As the system's: a mode in memory, which fails only where nothing else can be written either."""
        self.meet("mark")
        super().mark(path)

    def mkdir(self, path: str) -> None:
        """As the system's."""
        self.meet("mkdir")
        super().mkdir(path)
        self.disk.made(path)
        self.changed()

    def stat(self, path: str) -> os.stat_result:
        """As the system's, but a directory has always changed just now: what is called never hangs on the time."""
        self.meet("stat")
        facts = super().stat(path)
        if not stat.S_ISDIR(facts.st_mode):
            return facts
        return os.stat_result(tuple(facts), {"st_mtime_ns": time.time_ns()})

    def fstat(self, fd: int) -> os.stat_result:
        """As the system's."""
        self.meet("fstat")
        return super().fstat(fd)

    def listdir(self, path: str) -> list[str]:
        """As the system's."""
        self.meet("listdir")
        return super().listdir(path)

    def try_lock(self, fd: int) -> bool:
        """As the system's."""
        self.meet("lock")
        return super().try_lock(fd)

    def try_share(self, fd: int) -> bool:
        """As the system's."""
        self.meet("lock")
        return super().try_share(fd)

    def lock(self, fd: int) -> None:
        """As the system's."""
        self.meet("lock")
        super().lock(fd)
