"""A power cut while segments are archived: whatever the disk kept of it, the journal reads the same."""

from __future__ import annotations

import os
import random
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from journal import Files, Journal, Wanted, audit
from tests.journal.conftest import FIRST_EVENTS
from tools.crashes.disk import Disk
from tools.crashes.power import Recording, Story
from tools.crashes.states import after_a_cut

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from journal import Commit

WANTED = Wanted((), 1 << 40, 1 << 50, 2, lambda: False)


class Recorded(Recording):
    """What has no name is of no interest: no power cut leaves it."""

    def __init__(self, disk: Disk, tell: Callable[[], None]) -> None:
        super().__init__(disk, Story(), tell)
        self.nameless: set[int] = set()

    def unnamed(self) -> int:
        fd = Files().unnamed()
        self.nameless.add(fd)
        return fd

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data) if fd in self.nameless else super().write(fd, data)

    def close(self, fd: int) -> None:
        if fd in self.nameless:
            self.nameless.remove(fd)
            os.close(fd)
        else:
            super().close(fd)


def put(place: Path, tree: dict[str, bytes | None]) -> Path:
    """A state of the disk, as files."""
    place.mkdir()
    for path, data in tree.items():
        if data is None:
            (place / path).mkdir(mode=0o700)
        else:
            (place / path).write_bytes(data)
    return place / "data" / "journal"


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_any_moment_of_archiving_leaves_every_line(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
    root = tmp_path / "disk"
    root.mkdir()
    disk = Disk(str(root))
    known: set[int] = set()
    states = []
    begun = False
    expected: list[Commit] = []

    def look() -> None:
        if not begun:
            return
        for tree in after_a_cut(disk, chance):
            digest = hash(tuple(sorted(tree.items(), key=lambda row: row[0])))
            if digest in known or len(known) > 400:
                continue
            known.add(digest)
            place = tmp_path / str(len(known))
            journal = put(place, tree)
            states.append(sorted(path.name for path in journal.rglob("*.jsonl*")))
            assert list(audit([journal])) == expected
            again = Journal(journal, first_events=FIRST_EVENTS)
            assert list(again.read(0)) == expected
            again.archive(WANTED)
            assert list(again.read(0)) == expected
            again.close()
            shutil.rmtree(place)

    files = Recorded(disk, look)
    journal = Journal(root / "data" / "journal", first_events=FIRST_EVENTS, segment_bytes_max=900, files=files)
    for number in range(14):
        events = b'[{"type":"posted","number":%d,"content":"%s"}]' % (number, b"x" * chance.randrange(200))
        journal.commit(lambda _, events=events: events, deadline=time.monotonic() + 5)  # type: ignore[misc]  # a default
    expected += journal.read(0)
    begun = True
    assert len(journal.archive(WANTED)) == 2
    look()
    assert list(journal.read(0)) == expected
    journal.close()
    assert len(states) > 20
    assert any(sum(".gz" in name and ".new" not in name for name in state) == 2 for state in states)
    assert any(any(name + ".gz" in state for name in state) for state in states)  # there twice
