"""What the system tells of a directory, and what a watch does with the descriptors it has."""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING

import pytest

from journal.watch import Source, open_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "journal"
    made.mkdir()
    (made / "a").touch()
    (tmp_path / "outside").touch()
    return made


@pytest.fixture
def source(place: Path) -> Iterator[Source]:
    made = open_source(str(place))
    assert made is not None
    yield made
    made.close()


def is_told(source: Source) -> bool:
    poll = select.poll()
    poll.register(source.fd, select.POLLIN)
    return bool(poll.poll(0))


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"line\n")


@pytest.mark.parametrize(
    "happen",
    [
        lambda place: append(place / "a"),
        lambda place: (place / "b").touch(),
        lambda place: (place.parent / "outside").rename(place / "b"),
    ],
    ids=["written to", "made", "moved in"],
)
def test_a_file_that_grows_or_comes_is_told_and_the_watch_stays_good(
    source: Source, place: Path, happen: object
) -> None:
    assert not is_told(source)
    assert callable(happen)
    happen(place)
    assert is_told(source)
    assert source.drain()
    assert not is_told(source)
    append(place / "a")
    assert is_told(source)


@pytest.mark.parametrize("name", ["x", "a-name-that-takes-more-than-one-slot-of-sixteen-bytes"])
def test_many_events_are_taken_at_once_whatever_their_names(source: Source, place: Path, name: str) -> None:
    for number in range(20):
        (place / f"{name}{number}").touch()
    assert source.drain()
    assert not is_told(source)


@pytest.mark.parametrize("last", [True, False])
def test_a_directory_that_is_gone_needs_a_new_source(source: Source, place: Path, last: bool) -> None:  # noqa: FBT001  # a parameter
    (place / "b").touch()
    place.rename(place.parent / "away")
    if not last:
        append(place.parent / "away" / "a")
    assert not source.drain()


def test_a_directory_that_is_deleted_needs_a_new_source(source: Source, place: Path) -> None:
    (place / "a").unlink()
    place.rmdir()
    assert is_told(source)
    assert not source.drain()


def test_reading_looking_and_taking_out_are_nothing_to_wake_for(source: Source, place: Path) -> None:
    (place / "a").read_bytes()
    (place / "a").stat()
    (place / "a").chmod(0o600)
    (place / "a").rename(place.parent / "b")
    assert not is_told(source)
