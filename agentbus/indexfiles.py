"""The files of the search index: found, checked whole, published, deleted. Knows neither texts nor the journal.

A file is finished in private, gets its name, which holds the seq it covers and the checksum of its bytes, and does not
change any more. So whoever dies, runs beside another or finds the disk full leaves the file before it as it was, and
one whose bytes were changed is as good as absent. It is not flushed: what a power cut takes of it does not sum up.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from agentbus.limits import SEARCH_DISK_BYTES_MIN
from journal import Files

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME: Final = re.compile(r"(\d{20})-([0-9a-f]{8})", re.ASCII)
_NEW: Final = "new"
_LOCK: Final = "lock"
_SYSTEM_FILES: Final = Files()


class UnkeptError(Exception):
    """The index could not be brought up to date; searches go on without. The text is the cause."""


class Finished(Struct, frozen=True):
    """A whole file: its path, and what would have changed if its bytes had."""

    path: str
    facts: tuple[int, ...]


class IndexFiles:
    """The files in ``<data>/search``, for any number of processes.

    Args:
        directory: made, private, when there is something to keep.
        files: the system calls; a test's may fail.
    """

    def __init__(self, directory: str | os.PathLike[str], files: Files = _SYSTEM_FILES) -> None:
        self._directory = os.path.abspath(directory)
        self._files = files
        self._sums: dict[tuple[int, ...], str] = {}  # of the file looked at last: to sum it up takes a while

    def whole(self) -> Iterator[Finished]:
        """The finished files that are whole, the one that covers most first."""
        for name in self._finished():
            path = f"{self._directory}/{name}"
            with contextlib.suppress(OSError):
                facts = self._facts(path)
                if self._sum(path, facts) == name[-8:]:
                    yield Finished(path, facts)

    def is_intact(self, finished: Finished) -> bool:
        """Whether nobody wrote to a file since it was found whole. To who reads it a deleted one is as it was."""
        try:
            return self._facts(finished.path) == finished.facts
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def size(self) -> tuple[int, int] | None:
        """(seq, bytes) of the file that covers most, by its name; None if there is none."""
        for name in self._finished():
            with contextlib.suppress(OSError):
                return int(name[:20]), self._files.stat(f"{self._directory}/{name}").st_size
        return None

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """While this lasts nobody else makes a file; false if another process is at it. Raises OSError."""
        with contextlib.suppress(FileExistsError):
            self._files.mkdir(self._directory)
        lock = self._files.open(f"{self._directory}/{_LOCK}", os.O_RDWR | os.O_CREAT)
        try:
            yield self._files.try_lock(lock)
        finally:
            self._files.close(lock)

    def begin(self, base: Finished | None) -> str:
        """The path of an empty file, or of a copy of a finished one, that nobody else reads.

        Raises:
            UnkeptError: the disk is nearly full, and the journal needs what is left.
            OSError
        """
        size = 0 if base is None else base.facts[0]
        disk = os.statvfs(self._directory)
        if disk.f_bavail * disk.f_frsize < 2 * size + SEARCH_DISK_BYTES_MIN:
            raise UnkeptError(f"less than {SEARCH_DISK_BYTES_MIN >> 20} MiB would be left on the disk")
        path = f"{self._directory}/{_NEW}"
        new = self._files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            if base is not None:
                self._copy(base.path, new)
        finally:
            self._files.close(new)
        return path

    def _copy(self, path: str, new: int) -> None:
        fd = self._files.open(path, os.O_RDONLY)
        try:
            for piece in self._files.read_all(fd, 0):
                self._files.write_all(new, piece)
        finally:
            self._files.close(fd)

    def publish(self, path: str, seq: int) -> None:
        """Give a file that is finished its name, by which it is found; the others go. Raises OSError."""
        digest = self._read_sum(path)
        name = f"{seq:020d}-{digest}"
        self._files.rename(path, f"{self._directory}/{name}")
        self._sums = {self._facts(f"{self._directory}/{name}"): digest}
        for other in self._finished():
            if other != name:
                self._delete(other)

    def drop(self, path: str) -> None:
        """Delete a file that did not come to its end, if it is there. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(path)

    def _delete(self, name: str) -> None:
        self.drop(f"{self._directory}/{name}")

    def _finished(self) -> list[str]:
        """Names of finished files, the one that covers most first; none where the system does not tell them."""
        try:
            names = self._files.listdir(self._directory)
        except OSError:
            return []
        return sorted(filter(_NAME.fullmatch, names), reverse=True)

    def _facts(self, path: str) -> tuple[int, ...]:
        facts = self._files.stat(path)
        return facts.st_size, facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns

    def _sum(self, path: str, facts: tuple[int, ...]) -> str:
        known = self._sums.get(facts)
        if known is None:
            known = self._read_sum(path)
            self._sums = {facts: known}
        return known

    def _read_sum(self, path: str) -> str:
        fd = self._files.open(path, os.O_RDONLY)
        try:
            found = 0
            for piece in self._files.read_all(fd, 0):
                found = zlib.crc32(piece, found)
        finally:
            self._files.close(fd)
        return f"{found:08x}"
