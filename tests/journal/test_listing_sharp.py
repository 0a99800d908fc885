"""When a listing of the segments is kept, and when it is made anew: one kept too long would hide a segment."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from journal import segment
from journal.listing import Listing
from tests.journal.conftest import FaultyFiles

if TYPE_CHECKING:
    from pathlib import Path

SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS


def whole_seconds_ago(seconds: int) -> int:
    """A time without a fraction, as of a filesystem that counts whole seconds."""
    return (time.time_ns() // SECOND_NS - seconds) * SECOND_NS


def made(directory: Path, files: FaultyFiles) -> Listing:
    return Listing(str(directory), files, segment.parse_name)


def listings(directory: Path, changed_ns: int) -> int:
    """How often two questions list a directory that changed at a time."""
    files = FaultyFiles()
    listing = made(directory, files)
    os.utime(directory, ns=(changed_ns, changed_ns))
    first = listing.segments()
    assert listing.segments() == first == [1, 5]
    return files.calls.count("listdir")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for first_seq in (5, 1):
        (tmp_path / segment.name(first_seq)).touch()
    return tmp_path


def test_a_listing_of_a_directory_that_rested_is_kept(directory: Path) -> None:
    assert listings(directory, time.time_ns() - HOUR_NS | 1) == 1
    assert listings(directory, whole_seconds_ago(3600)) == 1
    assert listings(directory, time.time_ns() - 2 * SECOND_NS | 1) == 1


def test_a_listing_of_a_directory_that_may_change_within_the_same_tick_is_made_anew(directory: Path) -> None:
    assert listings(directory, time.time_ns() + HOUR_NS) == 2
    assert listings(directory, whole_seconds_ago(1)) == 2


def test_once_the_time_moves_what_is_there_is_seen(directory: Path) -> None:
    listing = made(directory, FaultyFiles())
    past_ns = time.time_ns() - HOUR_NS | 1
    os.utime(directory, ns=(past_ns, past_ns))
    assert listing.segments() == [1, 5]
    (directory / segment.name(9)).touch()
    assert listing.segments() == [1, 5, 9]
    os.utime(directory, ns=(past_ns, past_ns))
    assert listing.segments() == [1, 5, 9]


def test_a_directory_without_a_time_is_like_any_other(directory: Path) -> None:
    """As an archive of files without times leaves it."""
    for changed_ns in (0, 1):
        os.utime(directory, ns=(changed_ns, changed_ns))
        assert made(directory, FaultyFiles()).segments() == [1, 5]
