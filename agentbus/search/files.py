"""The files of the search index: found, checked whole, published, deleted. Knows neither texts nor the journal.

A file is finished in private, gets its name, which holds the seq it covers and the checksum of its bytes, and does not
change any more. So whoever dies, runs beside another or finds the disk full leaves the file before it as it was, and
one whose bytes were changed is as good as absent. It is not flushed: what a power cut takes of it does not sum up.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import unicodedata
import zlib
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from agentbus.limits import SEARCH_DISK_BYTES_MIN
from journal import Files

if TYPE_CHECKING:
    from collections.abc import Iterator

FORM: Final = f"2.{unicodedata.unidata_version}"
"""Raise its first number when tables or tokens change. Which characters are letters is Python's to say, by version."""

_NAME: Final = re.compile(r"\d{20}-[0-9a-f]{8}-[0-9.]+", re.ASCII)
_DIGEST: Final = slice(21, 29)
_UNUSED_S: Final = 7 * 24 * 3600  # after which a file of another form has no users left
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
        form: of the files that are of use here. Processes of two versions each keep one.
    """

    def __init__(self, directory: str | os.PathLike[str], files: Files = _SYSTEM_FILES, form: str = FORM) -> None:
        self._directory = os.path.abspath(directory)
        self._files = files
        self._form = form
        self._sums: dict[tuple[int, ...], str] = {}  # of the file looked at last: to sum it up takes a while

    def whole(self) -> Iterator[Finished]:
        """The finished files that are whole, the one that covers most first."""
        for name in self._finished():
            path = f"{self._directory}/{name}"
            with contextlib.suppress(OSError):
                facts = self._facts(path)
                if self._sum(path, facts) == name[_DIGEST]:
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
        name = f"{seq:020d}-{digest}-{self._form}"
        self._files.rename(path, f"{self._directory}/{name}")
        self._sums = {self._facts(f"{self._directory}/{name}"): digest}
        for other in self._listed():
            if other != name and (self._is_mine(other) or self._is_unused(other)):
                self.drop(f"{self._directory}/{other}")

    def drop(self, path: str) -> None:
        """Delete a file that did not come to its end, if it is there. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(path)

    def _listed(self) -> list[str]:
        """Names of finished files of any form; none where the system does not tell them."""
        try:
            return list(filter(_NAME.fullmatch, self._files.listdir(self._directory)))
        except OSError:
            return []

    def _finished(self) -> list[str]:
        """Names of those of this form, the one that covers most first."""
        return sorted(filter(self._is_mine, self._listed()), reverse=True)

    def _is_mine(self, name: str) -> bool:
        return name.split("-")[2] == self._form

    def _is_unused(self, name: str) -> bool:
        return self._files.stat(f"{self._directory}/{name}").st_mtime < time.time() - _UNUSED_S

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
