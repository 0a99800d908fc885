"""Snapshots at their edges: what is on the disk before what, what is told, what is left open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from journal import Snapshots, UnwritableError
from tests.journal.conftest import FaultyFiles
from tests.journal.test_lock_waits import CountedFiles
from tests.journal.test_snapshot import PAYLOAD, VERSION, bookmark, directory, loaded

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["directory"]


def test_one_is_whole_on_the_disk_before_it_takes_its_name(directory: Path) -> None:
    files = FaultyFiles()
    Snapshots(directory, files).save(VERSION, bookmark(), PAYLOAD)
    steps = [call for call in files.calls if call in {"write", "fdatasync", "rename"}]
    assert steps == ["write", "write", "fdatasync", "rename"]


def test_of_two_names_the_later_is_the_newest(directory: Path) -> None:
    snapshots = Snapshots(directory)
    snapshots.save(VERSION, bookmark(9), PAYLOAD)
    (directory / f"{7:020d}").write_bytes(b"")
    assert snapshots.newest_seq() == 9


@pytest.mark.parametrize("verb", ["mkdir", "open", "try_lock", "write", "fdatasync", "rename", "listdir"])
def test_whatever_the_disk_refuses_is_told(directory: Path, verb: str) -> None:
    files = FaultyFiles()
    files.fail_verbs(verb)
    with pytest.raises(UnwritableError, match=f"{directory}: Input/output error"):
        Snapshots(directory, files).save(VERSION, bookmark(), PAYLOAD)


def test_whatever_comes_of_it_nothing_is_left_open(directory: Path) -> None:
    files = CountedFiles()
    snapshots = Snapshots(directory, files)
    assert snapshots.save(VERSION, bookmark(), PAYLOAD)
    assert loaded(snapshots) == [(7, PAYLOAD)]
    assert loaded(snapshots, "test 2") == []
    assert files.fds == set()
    held = files.open(f"{directory}/lock", 2)
    assert files.try_lock(held)
    assert snapshots.save(VERSION, bookmark(9), PAYLOAD) is False
    assert files.fds == {held}
    files.close(held)
    (directory / f"{8:020d}.new").mkdir()
    with pytest.raises(UnwritableError, match="directory"):
        snapshots.save(VERSION, bookmark(8), PAYLOAD)
    assert files.fds == set()
