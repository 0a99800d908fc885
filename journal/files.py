"""The few things done to files, durably. The one place where a fault can be injected; knows nothing of lines.

The first half are single system calls, which a test's subclass makes fail; the second half are built of them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING

from journal.errors import UnsyncedError, UnwritableError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULLFSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's cache
_COPY_BYTES = 1 << 20
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def render_place(error: OSError) -> str:
    """Why something failed, in words for people, with the path where the system tells it."""
    cause = render_cause(error)
    return f"{error.filename}: {cause}" if error.filename else cause


def render_cause(error: OSError) -> str:
    """Why something failed, in words for people."""
    if error.errno == errno.ELOOP:
        return "it is a symlink"
    return "disk full" if error.errno in _FULL else (error.strerror or str(error))


def is_marked(facts: os.stat_result) -> bool:
    """Whether `Files.mark` was called for a file; a copy put in its place has no mark."""
    return bool(facts.st_mode & stat.S_ISVTX)


class Files:
    """System calls on files and directories. Errors are OSErrors unless a method says otherwise."""

    def open(self, path: str, flags: int) -> int:
        """A descriptor of a regular file or, with O_DIRECTORY, of a directory; closed on exec.

        A new file is private to its owner whatever the umask. A FIFO is refused, not waited for; a link not followed.
        """
        if flags & os.O_DIRECTORY:
            return os.open(path, flags | os.O_CLOEXEC)
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, FILE_MODE)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", path)  # noqa: TRY301  # closed in one place
            if flags & os.O_CREAT:
                self.make_private(fd)
        except OSError:
            os.close(fd)
            raise
        return fd

    def unnamed(self) -> int:
        """An open file without a name, of this process only: it is gone with its last descriptor."""
        if hasattr(os, "memfd_create"):
            return os.memfd_create("journal-archive", os.MFD_CLOEXEC)
        import tempfile  # noqa: PLC0415  # heavy, and needed only for an archive, and not on Linux

        with tempfile.TemporaryFile(buffering=0) as made:
            return os.dup(made.fileno())

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def dup(self, fd: int) -> int:
        """Another descriptor of the same open file."""
        return os.dup(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """At most ``length`` bytes from ``offset``; fewer at the end of the file."""
        return os.pread(fd, length, offset)

    def write(self, fd: int, data: bytes) -> int:
        """One write; how many bytes it took."""
        return os.write(fd, data)

    def truncate(self, fd: int, length: int) -> None:
        """Cut a file."""
        os.ftruncate(fd, length)

    def fdatasync(self, fd: int) -> None:
        """What was written, and the size, reach the disk."""
        if _FULLFSYNC is not None:
            fcntl.fcntl(fd, _FULLFSYNC)
        elif hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            os.fsync(fd)

    def fsync(self, fd: int) -> None:
        """The whole file, or the names in a directory, reach the disk."""
        if _FULLFSYNC is not None:
            fcntl.fcntl(fd, _FULLFSYNC)
        else:
            os.fsync(fd)

    def rename(self, old: str, new: str) -> None:
        """Put ``old`` in the place of ``new``, in one step."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Take a name out of its directory."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Make one private directory; the mode is set again after it, whatever the umask."""
        os.mkdir(path, DIRECTORY_MODE)
        os.chmod(path, DIRECTORY_MODE)

    def stat(self, path: str) -> os.stat_result:
        """Facts of a file by its path."""
        return os.stat(path)

    def fstat(self, fd: int) -> os.stat_result:
        """Facts of an open file."""
        return os.fstat(fd)

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, in no order."""
        return os.listdir(path)

    def make_private(self, fd: int) -> None:
        """0600 if it is anything else."""
        mode = os.fstat(fd).st_mode
        if mode & 0o777 != FILE_MODE:
            os.fchmod(fd, FILE_MODE | mode & stat.S_ISVTX)

    def mark(self, path: str) -> None:
        """Mark a segment of which a flush failed: a bit of its mode needs no room on the disk, and no name."""
        os.chmod(path, FILE_MODE | stat.S_ISVTX)

    # The kernel's lock is flock, called by itself: a library's checks around it cost ten times the call, which every
    # commit makes four times, and its import more than all the rest of a start.

    def try_lock(self, fd: int) -> bool:
        """Take the lock on an open file if it is free; whether it was."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def try_share(self, fd: int) -> bool:
        """As `try_lock`, beside others who share."""
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock(self, fd: int) -> None:
        """Wait for the lock on an open file, however long it takes."""
        fcntl.flock(fd, fcntl.LOCK_EX)

    def unlock(self, fd: int) -> None:
        """Give the lock back."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    def is_at(self, fd: int, path: str) -> bool:
        """Whether an open file is the one at a path."""
        held, there = self.fstat(fd), self.stat(path)
        return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)

    def append(self, fd: int, data: bytes, end: int) -> None:
        """All of ``data`` at the end of a file of ``end`` bytes opened for appending, or nothing.

        Raises:
            UnwritableError: it did not fit or the system refused; the file is as long as before.
            UnsyncedError: that, and it could not be cut back: part or all of it may be there.
        """
        try:
            if self.write(fd, data) == len(data):
                return
            cause = "disk full"  # a short write of a regular file means just that
        except OSError as error:
            cause = render_cause(error)
        try:
            self.truncate(fd, end)
        except OSError as error:
            raise UnsyncedError(f"{cause}, and then {render_cause(error)}") from error
        raise UnwritableError(cause)

    def write_all(self, fd: int, data: bytes) -> None:
        """All of ``data`` into a file nobody reads yet, in as many writes as it takes."""
        while data:
            taken = self.write(fd, data)
            if not taken:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[taken:]

    def read_all(self, fd: int, offset: int) -> Iterator[bytes]:
        """The file from ``offset`` to its end, in pieces."""
        while data := self.pread(fd, _COPY_BYTES, offset):
            yield data
            offset += len(data)

    def count_lines(self, fd: int, offset: int) -> int:
        """How many line feeds an open file has before ``offset``."""
        lines = at = 0
        while at < offset:
            data = self.pread(fd, min(_COPY_BYTES, offset - at), at)
            lines, at = lines + data.count(b"\n"), at + (len(data) or offset)
        return lines

    def copy(self, source: int, offset: int, path: str) -> int:
        """Copy what stands in ``source`` from ``offset`` on to a new file at ``path`` and flush it.

        Returns:
            The new file's descriptor, opened for appending; the caller makes its name durable and closes it.
        """
        fd = self.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC)
        try:
            for data in self.read_all(source, offset):
                self.write_all(fd, data)
            self.fsync(fd)
        except OSError:
            self.close(fd)
            raise
        return fd

    def fsync_directory(self, path: str) -> None:
        """The names in a directory reach the disk."""
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)
