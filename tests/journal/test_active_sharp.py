"""The segment that is written to: locked before its first byte, flushed before its answer, nothing of it left open."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from journal import Files, UnsyncedError, UnwritableError
from tests.journal.conftest import FaultyFiles, Kit, soon

if TYPE_CHECKING:
    from pathlib import Path


class Guarded(FaultyFiles):
    """Notes for each write whether the last segment was locked."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.locked: list[bool] = []

    def write(self, fd: int, data: bytes) -> int:
        other = os.open(max(self.directory.glob("*.jsonl")), os.O_RDWR)
        self.locked.append(not Files().try_lock(other))
        os.close(other)
        return super().write(fd, data)


def test_every_line_is_written_under_the_lock_of_its_own_segment(kit: Kit) -> None:
    """The lock file may have been deleted: then that lock alone keeps two writers apart."""
    files = Guarded(kit.directory)
    journal = kit.open(files=files, segment_bytes_max=300)
    for number in range(4):
        kit.commit(journal, str(number))
    segments = len(list(kit.directory.glob("*.jsonl")))
    assert segments > 2
    assert files.locked == [True] * (segments + 1 + 4)


def test_a_segment_is_copied_under_its_own_lock(kit: Kit) -> None:
    """Or a line that another writer appends meanwhile would be in the old file only."""
    files = Guarded(kit.directory)
    journal = kit.open(files=files)
    kit.commit(journal)
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(journal)
    files.fail_nothing()
    files.locked.clear()
    journal.flush(soon())
    assert files.locked == [True]


def test_a_failed_flush_that_no_mark_tells_of_is_made_good_by_the_next(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal)
    files.fail_verbs("fdatasync", "mark")
    with pytest.raises(UnsyncedError):
        kit.commit(journal)
    files.fail_nothing()
    journal.flush(soon())
    assert journal._writer.active.flusher.failure is None


@pytest.mark.parametrize("verb", ["rename", "fsync", "write", "fstat"])
def test_why_a_segment_could_not_be_written_anew_is_told(kit: Kit, verb: str) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal)
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(journal)
    files.fail_verbs(verb)
    with pytest.raises(UnsyncedError, match="Input/output error, and then Input/output error"):
        kit.commit(journal)


def test_to_flush_what_is_gone_makes_nothing_anew(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal)
    shutil.rmtree(kit.data)
    journal.flush(soon())
    assert not kit.data.exists()


def test_the_child_of_a_process_that_wrote_nothing_has_nothing_to_close(kit: Kit) -> None:
    journal = kit.open()
    journal._writer.active.after_fork()
    assert kit.commit(journal).seq == 3


def test_a_child_closes_its_copies_and_knows_nothing_of_the_flushes_of_its_parent(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal)
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(journal)
    active = journal._writer.active
    old, flusher = active.fd, active.flusher
    active.after_fork()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(old)
    assert (active.first, active.fd) == (0, -1)
    assert active.flusher is not flusher
    assert active.flusher.failure is None
    files.fds.remove(old)
    files.fail_nothing()
    kit.commit(journal)


def test_a_segment_that_the_system_tells_nothing_of_is_not_left_open(kit: Kit) -> None:
    kit.commit(kit.open())
    files = FaultyFiles()
    files.fail = lambda verb, _: 5 if verb == "fstat" and files.calls.count("fstat") == 2 else 0  # the lock's first
    with pytest.raises(UnwritableError, match="Input/output error"):
        kit.commit(kit.open(files=files))
    assert len(files.fds) == 1  # the lock file


def test_who_only_read_makes_a_flush_good_that_failed_elsewhere_and_leaves_nothing_open(kit: Kit) -> None:
    failing = FaultyFiles()
    writer = kit.open(files=failing)
    kit.commit(writer)
    failing.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(writer)
    old = kit.segment().stat().st_ino
    files = FaultyFiles()
    reader = kit.open(files=files)
    list(reader.read(0))
    reader.flush(soon())
    assert kit.segment().stat().st_ino != old
    assert len(files.fds) == 1  # the lock file
