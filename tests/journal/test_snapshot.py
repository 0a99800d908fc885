"""Snapshots are a cache: whole and of the right journal, or as good as absent."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

import pytest

from journal import Bookmark, Journal, Snapshots, UnwritableError
from journal.segment import Position
from tests.journal.conftest import FaultyFiles, Kit, events, soon

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "test 1"
PAYLOAD = b"what was folded\n\0 of it"


def bookmark(seq: int = 7) -> Bookmark:
    return Bookmark(Position(1, 700, seq, "a" * 64, seq + 1, "a" * 64, "some-journal"), [])


def loaded(snapshots: Snapshots, version: str = VERSION) -> list[tuple[int, bytes]]:
    return [(found.bookmark.position.seq, bytes(found.payload)) for found in snapshots.load(version)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


def test_what_was_saved_is_loaded_with_its_place_in_the_journal(directory: Path) -> None:
    snapshots = Snapshots(directory)
    assert loaded(snapshots) == []
    assert snapshots.newest_seq() == 0
    assert snapshots.save(VERSION, bookmark(), PAYLOAD)
    (found,) = Snapshots(directory).load(VERSION)
    assert (found.bookmark, bytes(found.payload)) == (bookmark(), PAYLOAD)
    assert snapshots.newest_seq() == 7


def test_snapshots_are_private(directory: Path) -> None:
    Snapshots(directory).save(VERSION, bookmark(), PAYLOAD)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_the_newest_takes_the_place_of_all_others_and_of_what_was_left_half_written(directory: Path) -> None:
    snapshots = Snapshots(directory)
    for seq in (7, 9, 8):
        snapshots.save(VERSION, bookmark(seq), PAYLOAD)
        (directory / f"{seq - 5:020d}.new").write_bytes(b"half")
        (directory / "README").write_bytes(b"somebody's own")
    snapshots.save(VERSION, bookmark(10), b"")
    assert sorted(path.name for path in directory.iterdir()) == [f"{10:020d}", "README", "lock"]
    assert loaded(snapshots) == [(10, b"")]


def test_the_newest_sound_one_comes_first(directory: Path) -> None:
    snapshots = Snapshots(directory)
    for seq in (8, 7):
        snapshots.save(VERSION, bookmark(seq), b"%d" % seq)
        shutil.copytree(directory, directory.with_name(str(seq)))
    shutil.copy(directory.with_name("8") / f"{8:020d}", directory)
    assert loaded(snapshots) == [(8, b"8"), (7, b"7")]
    (directory / f"{9:020d}").write_bytes(b"")
    assert loaded(snapshots) == [(8, b"8"), (7, b"7")]


def test_one_of_another_version_is_not_loaded(directory: Path) -> None:
    Snapshots(directory).save(VERSION, bookmark(), PAYLOAD)
    assert loaded(Snapshots(directory), "test 2") == []


def test_one_with_any_byte_changed_or_cut_off_is_not_loaded(directory: Path) -> None:
    snapshots = Snapshots(directory)
    snapshots.save(VERSION, bookmark(), PAYLOAD)
    path = directory / f"{7:020d}"
    whole = path.read_bytes()
    for at in range(len(whole)):
        for wrong in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            path.write_bytes(wrong)
            assert loaded(snapshots) == [], at


def test_one_whose_header_is_of_another_form_is_not_loaded(directory: Path) -> None:
    snapshots = Snapshots(directory)
    snapshots.save(VERSION, bookmark(), PAYLOAD)
    path = directory / f"{7:020d}"
    import hashlib  # noqa: PLC0415  # the one test that forges a checksum

    for rest in (b"", b"{}\n", b"no line feed", b'{"version":1}\n'):
        path.write_bytes(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
        assert loaded(snapshots) == []


def test_while_another_process_saves_one_nothing_is_done(directory: Path) -> None:
    snapshots = Snapshots(directory)
    snapshots.save(VERSION, bookmark(), PAYLOAD)
    files = FaultyFiles()
    held = files.open(f"{directory}/lock", 2)
    assert files.try_lock(held)
    assert not snapshots.save(VERSION, bookmark(9), PAYLOAD)
    assert loaded(snapshots) == [(7, PAYLOAD)]
    files.close(held)
    assert snapshots.save(VERSION, bookmark(9), PAYLOAD)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_whatever_call_fails_there_is_an_old_one_or_the_new_one_and_the_space_is_given_back(
    directory: Path, code: int
) -> None:
    number = 0
    while True:
        number += 1
        shutil.rmtree(directory, ignore_errors=True)
        Snapshots(directory).save(VERSION, bookmark(), PAYLOAD)
        files = FaultyFiles()
        files.fail_nth(number, code)
        try:
            Snapshots(directory, files).save(VERSION, bookmark(8), PAYLOAD)
        except UnwritableError as error:
            assert str(directory) in str(error)  # noqa: PT017  # the error of one of many turns
        assert loaded(Snapshots(directory))[0] in [(7, PAYLOAD), (8, PAYLOAD)]
        assert not any(path.stat().st_size for path in directory.glob("*.new"))
        if len(files.calls) < number:
            break
    assert number > 8


def test_clear_deletes_all_of_them_and_nothing_else(directory: Path) -> None:
    snapshots = Snapshots(directory)
    snapshots.clear()
    assert not directory.exists()
    snapshots.save(VERSION, bookmark(), PAYLOAD)
    (directory / f"{9:020d}.new").write_bytes(b"half")
    snapshots.clear()
    snapshots.clear()
    assert [path.name for path in directory.iterdir()] == ["lock"]


def test_clear_says_when_it_could_not(directory: Path) -> None:
    Snapshots(directory).save(VERSION, bookmark(), PAYLOAD)
    for verb in ("listdir", "unlink", "fsync"):
        files = FaultyFiles()
        files.fail_verbs(verb)
        with pytest.raises(UnwritableError, match=str(directory)):
            Snapshots(directory, files).clear()


def test_one_that_another_process_deletes_first_is_no_fault(directory: Path) -> None:
    Snapshots(directory).save(VERSION, bookmark(), PAYLOAD)
    files = FaultyFiles()
    files.fail_verbs("unlink", code=errno.ENOENT)
    Snapshots(directory, files).clear()


def test_snapshots_that_cannot_be_read_are_none(directory: Path) -> None:
    Snapshots(directory).save(VERSION, bookmark(), PAYLOAD)
    for verb in ("listdir", "open", "pread"):
        files = FaultyFiles()
        files.fail_verbs(verb)
        assert loaded(Snapshots(directory, files)) == []
    files.fail_verbs("listdir")
    assert Snapshots(directory, files).newest_seq() == 0


# --- where a journal may be read on


def kept(kit: Kit, journal: Journal) -> Bookmark:
    found = journal.bookmark(journal.last_seq)
    assert found is not None
    kit.close()
    return found


def test_a_journal_goes_on_from_a_bookmark_without_the_lines_before_it(kit: Kit) -> None:
    journal = kit.open()
    for number in range(5):
        kit.commit(journal, str(number))
    at = kept(kit, journal)
    kit.commit(kit.open(), "later")
    resumed = kit.open()
    assert resumed.resume(at)
    assert resumed.last_seq == at.position.seq
    assert [commit.seq for commit in resumed.read(at.position.seq)] == [at.position.seq + 1]
    assert kit.commit(resumed).seq == at.position.seq + 2
    assert len(kit.texts()) == 7


def test_a_line_that_is_not_remembered_has_no_bookmark(kit: Kit) -> None:
    journal = kit.open()
    assert journal.bookmark(1) is None
    kit.commit(journal)
    assert journal.bookmark(journal.last_seq + 1) is None
    assert kit.open().bookmark(journal.last_seq) is None


def test_the_beginning_of_a_segment_is_no_bookmark(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal)
    kit.segment(journal.last_seq + 1).touch()
    reader = kit.open(read_only=True)
    last = [commit.seq for commit in reader.read(0)][-1]
    assert reader.bookmark(last) is None


def test_a_bookmark_is_refused_where_the_journal_holds_another_line(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    at = kept(kit, journal)
    shutil.rmtree(kit.directory)
    assert not kit.open().resume(at)
    kit.commit(kit.open(), "two")
    fresh = kit.open()
    assert not fresh.resume(at)
    assert [commit.seq for commit in fresh.read(0)] == [1, 2, 3]


def test_a_bookmark_is_refused_where_its_line_was_cut_off(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    at = kept(kit, journal)
    data = kit.segment().read_bytes()
    kit.segment().write_bytes(data[:-1])
    assert not kit.open().resume(at)
    kit.segment().write_bytes(data)
    assert kit.open().resume(at)


def test_a_bookmark_is_refused_where_an_earlier_segment_is_gone_or_shorter(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=600)
    for number in range(6):
        kit.commit(journal, str(number))
    at = kept(kit, journal)
    assert len(at.finished) >= 2
    first = kit.segment().read_bytes()
    kit.segment().write_bytes(first[:-1])
    assert not kit.open().resume(at)
    kit.segment().unlink()
    assert not kit.open().resume(at)
    kit.segment().write_bytes(first)
    assert kit.open().resume(at)


def test_a_bookmark_is_neither_given_nor_taken_where_the_system_refuses_to_look(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(segment_bytes_max=600, files=files)
    for number in range(6):
        journal.commit(lambda _, number=number: events(str(number)), deadline=soon())  # type: ignore[misc]  # a default
    last = journal.last_seq
    at = journal.bookmark(last)
    assert at is not None
    list(journal.read(last))
    files.fail = lambda verb, _: errno.EIO if verb == "stat" and files.calls[-2:] == ["stat", "stat"] else 0
    assert journal.bookmark(last) is None
    files.fail_verbs("open")
    assert not journal.resume(at)
    files.fail_nothing()
    assert journal.resume(at)


def test_of_a_file_that_is_none_only_the_beginning_is_read(directory: Path) -> None:
    """Garbage of a terabyte under such a name must not fill the memory of every process that starts."""
    Snapshots(directory).save(VERSION, bookmark(), PAYLOAD)
    with (directory / f"{9:020d}").open("wb") as garbage:
        garbage.truncate(1 << 40)
    whole = (directory / f"{7:020d}").read_bytes()
    with (directory / f"{8:020d}").open("wb") as grown:
        grown.write(whole)
        grown.truncate(1 << 40)
    assert loaded(Snapshots(directory)) == [(7, PAYLOAD)]


def test_a_directory_that_cannot_be_listed_gives_no_bookmark(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    journal.commit(lambda _: events("one"), deadline=soon())
    files.fail_verbs("stat")
    assert journal.bookmark(journal.last_seq) is None


def test_a_payload_of_many_pieces_is_loaded_whole(directory: Path) -> None:
    payload = bytes(range(256)) * (3 << 13)
    Snapshots(directory).save(VERSION, bookmark(), payload)
    assert loaded(Snapshots(directory)) == [(7, payload)]
