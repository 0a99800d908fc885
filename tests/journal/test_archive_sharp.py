"""Archives at their edges: what is unpacked, what is kept, and which segments there are."""

from __future__ import annotations

import errno
import gzip
import os
import random
from typing import TYPE_CHECKING

import pytest

from journal import Files, UnwritableError, archive
from journal.segment import name
from journal.shelf import Shelf
from tests.journal.conftest import FIRST_EVENTS, FaultyFiles, Kit, Unflushed
from tests.journal.test_archive import filled, firsts, packed, wanted
from tests.journal.test_segment import chain, digest, opened, posted

if TYPE_CHECKING:
    from pathlib import Path

FAR = random.Random(1).randbytes(20 << 10)  # noqa: S311  # repeatable, not secret


def unpacked(path: Path) -> tuple[bytes, str]:
    files = FaultyFiles()
    found = archive.open_any(files, str(path))
    data = b"".join(files.read_all(found.fd, 0))
    files.close(found.fd)
    assert files.fds == set()
    return data, found.fault


def test_whatever_another_program_packed_is_unpacked(tmp_path: Path) -> None:
    path, data = tmp_path / "x.gz", FAR * 2 + bytes(3 << 20)
    path.write_bytes(gzip.compress(data))
    assert unpacked(path) == (data, "")


def test_why_an_archive_cannot_be_unpacked_is_told_in_a_few_words(tmp_path: Path) -> None:
    path, packed_ = tmp_path / "x.gz", bytearray(gzip.compress(b"x" * 100))
    packed_[-8] ^= 1
    path.write_bytes(packed_)
    assert unpacked(path) == (b"x" * 100, "cannot be unpacked any further: incorrect data check")


@pytest.mark.parametrize(("data", "size"), [(b"", -1), (b"\1\0\0", -1), (b"\1\2\0\0", 513), (b"xx\1\2\0\0", 513)])
def test_an_archive_states_the_size_of_what_was_packed_in_its_last_four_bytes(
    tmp_path: Path, data: bytes, size: int
) -> None:
    path, files = tmp_path / "x.gz", FaultyFiles()
    path.write_bytes(data)
    assert archive.unpacked_bytes(files, str(path)) == size
    assert files.fds == set()


def test_a_segment_of_a_single_line_is_packed_too(kit: Kit) -> None:
    kit.directory.mkdir(parents=True, mode=0o700)
    first = chain(opened())
    kit.segment(1).write_bytes(first[0])
    kit.segment(2).write_bytes(b"".join(chain(opened(digest(first[0])), posted(), seq=2, prev=digest(first[0]))))
    assert kit.open(first_events=FIRST_EVENTS, files=Unflushed()).archive(wanted()) == [1]


class Spoiling(Unflushed):
    """Changes an archive once it is written: something more behind it, or other lines in it."""

    def __init__(self, *, more: bool) -> None:
        self.more = more
        self.fd = -1

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        if path.endswith(".new") and flags & os.O_CREAT:
            self.fd = fd
        return fd

    def fsync(self, fd: int) -> None:
        if fd == self.fd:
            data = os.pread(fd, 1 << 20, 0) + b"\0" if self.more else gzip.compress(b"other lines\n")
            os.ftruncate(fd, len(data))
            os.pwrite(fd, data, 0)
        super().fsync(fd)


@pytest.mark.parametrize("more", [True, False])
def test_an_archive_that_is_more_or_other_than_what_was_packed_is_not_kept(kit: Kit, *, more: bool) -> None:
    journal = filled(kit, files=Spoiling(more=more))
    segments = firsts(kit)
    assert journal.archive(wanted()) == []
    assert (firsts(kit), packed(kit), list(kit.directory.glob("archive/*.new"))) == (segments, [], [])


def test_why_an_archive_cannot_be_made_is_told(kit: Kit) -> None:
    class Refusing(Unflushed):
        def open(self, path: str, flags: int) -> int:
            if path.endswith(".new"):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
            return super().open(path, flags)

    with pytest.raises(UnwritableError, match="Permission denied"):
        filled(kit, files=Refusing()).archive(wanted())


# --- which segments there are


def test_what_comes_and_goes_beside_or_among_the_archives_is_listed(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    shelf = Shelf(str(tmp_path), Files())
    assert shelf.segments() == []
    long_ago = 1_000_000_000
    for number, (path, listed) in enumerate(
        (
            (tmp_path / name(5), [5]),
            (tmp_path / "archive" / f"{name(1)}.gz", [1, 5]),
            (tmp_path / name(9), [1, 5, 9]),
            (tmp_path / "archive" / f"{name(3)}.gz", [1, 3, 5, 9]),
            (tmp_path / name(11), [1, 3, 5, 9, 11]),
        )
    ):
        path.touch()
        # A directory that changed just now is listed anew each time.
        os.utime(path.parent, (long_ago + number, long_ago + number))
        assert shelf.segments() == listed


def test_a_segment_that_is_nowhere_is_missed_where_it_lies_unpacked(tmp_path: Path) -> None:
    shelf = Shelf(str(tmp_path), Files())
    with pytest.raises(FileNotFoundError) as missed:
        shelf.open(5)
    assert missed.value.filename == str(tmp_path / name(5))
    assert not shelf.is_packed(5)


def test_sizes_go_on_behind_a_segment_that_went(kit: Kit) -> None:
    class Forgetting(Unflushed):
        def stat(self, path: str) -> os.stat_result:
            if path.endswith(name(1)):
                raise FileNotFoundError(path)
            return super().stat(path)

    filled(kit)
    sizes = [kit.segment(first).stat().st_size for first in firsts(kit)]
    assert Shelf(str(kit.directory), Forgetting()).sizes() == sizes[1:]
