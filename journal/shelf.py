"""The segments of one journal wherever each lies: beside each other, or packed in archive/. Reads no line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from journal import archive, segment
from journal.errors import UnreadableError
from journal.files import render_cause
from journal.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from journal.archive import Opened
    from journal.files import Files


class Shelf:
    """The segments of one directory. Where a segment is there twice, the one that is not packed counts."""

    def __init__(self, directory: str, files: Files) -> None:
        self.directory = directory
        self._files = files
        self._plain = Listing(directory, files, segment.parse_name)
        self._packed = Listing(f"{directory}/{archive.DIRECTORY}", files, archive.parse_name)
        self._all: tuple[list[int], list[int], list[int]] = ([], [], [])  # two listings, and what they make together

    def path(self, first_seq: int) -> str:
        """Where a segment lies that is not packed."""
        return f"{self.directory}/{first_seq:020d}.jsonl"

    def segments(self) -> list[int]:
        """First seqs of all segments there are, in order.

        Raises:
            UnreadableError: the system refuses.
        """
        plain = self.plain()  # first: what is packed after this is met in both, never in none
        packed = self._packed.segments()
        if not packed:
            return plain
        known = self._all
        if known[0] is not plain or known[1] is not packed:
            known = self._all = plain, packed, sorted({*plain, *packed})
        return known[2]

    def plain(self) -> list[int]:
        """First seqs of those that are not packed. The last of all is among them, or the journal lacks its end."""
        return self._plain.segments()

    def open(self, first_seq: int) -> Opened:
        """Open a segment.

        Raises:
            OSError: FileNotFoundError if it is nowhere; or the system refuses.
        """
        try:
            return archive.open_any(self._files, self.path(first_seq))
        except FileNotFoundError:
            found = self._open_packed(first_seq)
            if found is None:
                raise
            return found

    def _open_packed(self, first_seq: int) -> Opened | None:
        try:
            return archive.open_any(self._files, archive.path(self.directory, first_seq))
        except FileNotFoundError:
            return None

    def size(self, first_seq: int) -> int:
        """How many bytes the lines of a segment take, packed or not.

        Raises:
            OSError
        """
        try:
            return self._files.stat(self.path(first_seq)).st_size
        except FileNotFoundError:
            return archive.unpacked_bytes(self._files, archive.path(self.directory, first_seq))

    def is_packed(self, first_seq: int) -> bool:
        """Whether there is an archive of a segment. Raises OSError."""
        try:
            self._files.stat(archive.path(self.directory, first_seq))
        except FileNotFoundError:
            return False
        return True

    def sizes(self) -> list[int]:
        """Bytes of each segment that is not packed, in order. Raises UnreadableError."""
        return self._sizes(map(self.path, self.plain()))

    def archive_sizes(self) -> list[int]:
        """Bytes of each archive, in order. Raises UnreadableError."""
        return self._sizes(archive.path(self.directory, first) for first in self._packed.segments())

    def _sizes(self, paths: Iterable[str]) -> list[int]:
        sizes = []
        for path in paths:
            try:
                sizes.append(self._files.stat(path).st_size)
            except FileNotFoundError:  # archived, or repaired, since
                continue
            except OSError as error:
                raise UnreadableError(path, render_cause(error)) from error
        return sizes
