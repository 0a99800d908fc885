"""What the data directory takes of the disk, by what it is for; and what is free. Reads names and sizes only."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOG = "agentbus.log"


class Usage(Struct, frozen=True):
    """Bytes in files. ``free`` is what the filesystem would still give us, of ``size``; None where it does not say."""

    journal: int = 0
    archive: int = 0
    set_aside: int = 0
    snapshots: int = 0
    search: int = 0
    log: int = 0
    other: int = 0
    free: int | None = None
    size: int | None = None

    @property
    def total(self) -> int:
        """All of it."""
        return self.journal + self.archive + self.set_aside + self.snapshots + self.search + self.log + self.other


def measure(data: Path) -> Usage:
    """What there is now. What comes or goes meanwhile, or may not be looked at, is passed over."""
    counted: dict[str, int] = {}
    for parts, size in _files(os.fspath(data), ()):
        kind = _kind(parts)
        counted[kind] = counted.get(kind, 0) + size
    try:
        found = os.statvfs(data)
    except OSError:
        return Usage(**counted)
    return Usage(**counted, free=found.f_bavail * found.f_frsize, size=found.f_blocks * found.f_frsize)


def _kind(parts: tuple[str, ...]) -> str:
    match parts:
        case ("journal", "archive", _, *_):
            return "archive"
        case ("journal", "set-aside", _, *_):
            return "set_aside"
        case ("journal" | "snapshots" | "search" as kind, _, *_):
            return kind
        case (name,) if _LOG in name:
            return "log"
    return "other"


def _files(directory: str, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Every regular file below: the parts of its path from the data directory, and its bytes. Follows no link."""
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        try:
            facts = os.lstat(f"{directory}/{name}")
        except OSError:
            continue
        if stat.S_ISDIR(facts.st_mode):
            yield from _files(f"{directory}/{name}", (*parts, name))
        elif stat.S_ISREG(facts.st_mode):
            yield (*parts, name), facts.st_size
