"""System calls on files: asked for real, private, and nothing left open when one fails."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from journal import Files
from journal.files import render_cause
from tests.journal.conftest import FaultyFiles
from tests.journal.test_lock_waits import CountedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def loose() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def tight() -> Iterator[None]:
    before = os.umask(0o777)
    yield
    os.umask(before)


@pytest.mark.parametrize("verb", ["fdatasync", "fsync"])
def test_a_flush_reaches_the_system_whose_answer_counts(verb: str, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    getattr(Files(), verb)(fd)
    os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        getattr(Files(), verb)(fd)


def test_a_flush_of_lines_is_an_fdatasync_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("journal.files._FULLFSYNC", None)
    monkeypatch.setattr(os, "fdatasync", asked.append, raising=False)
    with (tmp_path / "x").open("wb") as file:
        Files().fdatasync(file.fileno())
        assert asked == [file.fileno()]


@pytest.mark.usefixtures("tight")
def test_what_is_made_under_a_tight_umask_is_its_owners_all_the_same(tmp_path: Path) -> None:
    Files().mkdir(str(tmp_path / "d"))
    assert (tmp_path / "d").stat().st_mode & 0o7777 == 0o700
    os.close(Files().open(str(tmp_path / "d" / "x"), os.O_RDWR | os.O_CREAT))
    assert (tmp_path / "d" / "x").stat().st_mode & 0o7777 == 0o600


@pytest.mark.usefixtures("loose")
@pytest.mark.parametrize("mode", [0o644, 0o601, 0o400, 0o777, 0o600])
def test_a_file_opened_for_writing_is_made_private_and_one_opened_for_reading_keeps_its_mode(
    mode: int, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.touch(mode)
    os.close(Files().open(str(path), os.O_RDONLY))
    assert path.stat().st_mode & 0o7777 == mode
    os.close(Files().open(str(path), os.O_RDONLY | os.O_CREAT))
    assert path.stat().st_mode & 0o7777 == 0o600


def test_a_file_is_no_directory_to_open(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(NotADirectoryError):
        Files().open(str(tmp_path / "x"), os.O_RDONLY | os.O_DIRECTORY)


def test_writing_all_goes_on_where_a_write_stopped(tmp_path: Path) -> None:
    class Short(Files):
        def write(self, fd: int, data: bytes) -> int:
            return super().write(fd, data[:3])

    files = Short()
    fd = files.open(str(tmp_path / "x"), os.O_RDWR | os.O_CREAT)
    files.write_all(fd, b"ten bytes.")
    assert files.pread(fd, 100, 0) == b"ten bytes."
    files.close(fd)


@pytest.mark.parametrize("verb", ["write", "fsync", "pread"])
def test_a_copy_that_fails_is_told_and_leaves_nothing_open(verb: str, tmp_path: Path) -> None:
    class Failing(CountedFiles, FaultyFiles):
        def __init__(self) -> None:
            CountedFiles.__init__(self)
            FaultyFiles.__init__(self)

    files = Failing()
    (tmp_path / "from").write_bytes(b"bytes")
    source = files.open(str(tmp_path / "from"), os.O_RDONLY)
    files.fail_verbs(verb)
    with pytest.raises(OSError, match="Input/output error"):
        files.copy(source, 0, str(tmp_path / "to"))
    assert files.fds == {source}
    files.fail_verbs("fsync")
    with pytest.raises(OSError, match="Input/output error"):
        files.fsync_directory(str(tmp_path))
    files.fail_nothing()
    files.fsync_directory(str(tmp_path))
    assert files.fds == {source}
    files.close(source)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(errno.ENOSPC, "No space left"), "disk full"),
        (OSError(errno.EDQUOT, "Quota exceeded"), "disk full"),
        (OSError(errno.EFBIG, "File too large"), "disk full"),
        (OSError(errno.ELOOP, "Too many levels"), "it is a symlink"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (OSError("in words alone"), "in words alone"),
    ],
)
def test_a_cause_is_told_in_words_for_people(error: OSError, cause: str) -> None:
    assert render_cause(error) == cause
