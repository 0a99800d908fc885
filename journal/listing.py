"""Which segments, or archives, a directory holds, asked only when that can have changed. Opens no file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from journal.errors import UnreadableError
from journal.files import render_cause

if TYPE_CHECKING:
    from collections.abc import Callable

    from journal.files import Files

_TICK_NS: Final = 50_000_000  # kernels stamp files by a clock that ticks at least every 10 ms
_COARSE_TICK_NS: Final = 3_000_000_000  # a time without a fraction may come from a filesystem that counts 2 seconds


class Listing:
    """The segments in one directory.

    Args:
        directory: it need not exist.
        files: the system calls.
        parse_name: the first seq of a segment by a file's name; None for other files.
    """

    def __init__(self, directory: str, files: Files, parse_name: Callable[[str], int | None]) -> None:
        self._directory = directory
        self._files = files
        self._parse_name = parse_name
        self._none: list[int] = []
        # The directory's time when it was listed (-1 if the next change might not move that), and what was there: one
        # value, as threads list at the same time.
        self._known: tuple[int, list[int]] = (-1, [])

    def segments(self) -> list[int]:
        """First seqs of the segments there are, in order; none without a directory.

        A listing is kept while the directory's time stands still, if it was made long enough after that time for
        the next change to move it.

        Raises:
            UnreadableError: the system refuses.
        """
        try:
            changed_ns = self._files.stat(self._directory).st_mtime_ns
            known_ns, known = self._known
            if known_ns == changed_ns:
                return known
            names = self._files.listdir(self._directory)
        except FileNotFoundError:
            return self._none
        except OSError as error:
            raise UnreadableError(self._directory, render_cause(error)) from error
        found = sorted(seq for text in names if (seq := self._parse_name(text)) is not None)
        settled_ns = _TICK_NS if changed_ns % 1_000_000_000 else _COARSE_TICK_NS
        self._known = (changed_ns if time.time_ns() - changed_ns > settled_ns else -1, found)
        return found
