"""Files put back from an older copy, deleted or exchanged: no silent skip or replay, no write into the wrong file."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from journal import CorruptError, Fault, ReplacedError, UnusableError, record, verify
from journal.lock import NAME
from tests.journal.conftest import FaultyFiles, events, soon

if TYPE_CHECKING:
    from pathlib import Path

    from journal import Journal
    from tests.journal.conftest import Kit


def put_back(kit: Kit, copy: Path) -> None:
    shutil.rmtree(kit.directory)
    shutil.copytree(copy, kit.directory)


@pytest.fixture
def older(kit: Kit, tmp_path: Path) -> tuple[Journal, Path]:
    """A journal with three commits more than a copy of it."""
    journal = kit.open()
    kit.commit(journal, "one")
    copy = tmp_path / "copy"
    shutil.copytree(kit.directory, copy)
    for text in ("two", "three", "four"):
        kit.commit(journal, text)
    return journal, copy


def test_a_directory_put_back_from_an_older_copy_is_folded_afresh(kit: Kit, older: tuple[Journal, Path]) -> None:
    journal, copy = older
    put_back(kit, copy)
    with pytest.raises(ReplacedError, match="it is another file now"):
        list(journal.read(6))
    assert journal.last_seq == 0
    with pytest.raises(ReplacedError, match="it was found replaced"):
        journal.read(6)
    with pytest.raises(ReplacedError):
        kit.commit(journal, "not before it was read afresh")
    assert kit.texts(journal) == ["one"]
    assert kit.commit(journal, "five").seq == 4
    assert kit.texts() == ["one", "five"]


def test_a_commit_never_goes_into_a_file_that_is_gone(kit: Kit, older: tuple[Journal, Path]) -> None:
    journal, copy = older
    put_back(kit, copy)
    with pytest.raises(ReplacedError):
        journal.commit(lambda _time: events("lost"), deadline=soon())
    assert kit.texts(journal) == ["one"]
    journal.commit(lambda _time: events("five"), deadline=soon())
    assert kit.texts() == ["one", "five"]


def test_what_was_flushed_of_the_old_files_counts_for_nothing(kit: Kit, older: tuple[Journal, Path]) -> None:
    _, copy = older
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "x" * 5000)
    put_back(kit, copy)
    with pytest.raises(ReplacedError):
        kit.commit(journal, "two")
    list(journal.read(0))
    files.calls.clear()
    kit.commit(journal, "two")
    assert files.calls.count("fdatasync") == 1


def test_a_copy_written_over_the_files_is_noticed(kit: Kit, older: tuple[Journal, Path]) -> None:
    journal, copy = older
    full = kit.segment().read_bytes()
    kit.segment().write_bytes((copy / kit.segment().name).read_bytes())
    with pytest.raises(ReplacedError, match="no longer ends where it did"):
        list(journal.read(6))
    kit.segment().write_bytes(full)
    assert len(list(journal.read(0))) == 6
    kit.segment().write_bytes(full[:-70] + full[-71:-1])
    with pytest.raises(ReplacedError, match="no longer ends where it did"):
        kit.commit(journal, "five")


def test_a_line_that_fails_after_the_line_before_it_changed_is_no_damage(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    data = kit.segment().read_bytes()
    reader = kit.open()
    list(reader.read(0))
    mark = reader._reader.marks.tail
    kit.segment().write_bytes(data[:-20] + data[-19:] + b"x\n")
    with pytest.raises(ReplacedError), kit.segment().open("rb") as file:
        reader._reader._again(file.fileno(), mark.position, last=True)


def test_a_journal_that_was_deleted_is_empty_after_one_error(kit: Kit, older: tuple[Journal, Path]) -> None:
    journal, _ = older
    reader = kit.open()
    list(reader.read(0))
    shutil.rmtree(kit.data)
    with pytest.raises(ReplacedError, match="it is gone"):
        list(journal.read(6))
    assert list(journal.read(0)) == []
    assert list(reader.read(0)) == []
    assert reader.last_seq == 0
    kit.commit(journal, "anew")
    assert kit.texts() == ["anew"]


def test_a_seq_that_the_journal_does_not_have_is_no_place_to_go_on_from(kit: Kit, older: tuple[Journal, Path]) -> None:
    journal, _ = older
    with pytest.raises(ReplacedError, match="it ends at seq 6, before 7"):
        list(kit.open().read(7))
    shutil.rmtree(kit.directory)
    kit.directory.mkdir()
    with pytest.raises(ReplacedError, match="no segment is there"):
        list(kit.open().read(7))
    assert journal.exists is False


def test_a_segment_exchanged_under_the_lock_is_seen_before_the_append(kit: Kit, older: tuple[Journal, Path]) -> None:
    journal, copy = older

    def exchange(_time: str) -> bytes:
        put_back(kit, copy)
        return events("lost")

    with pytest.raises(ReplacedError, match="not the file that was opened"):
        journal.commit(exchange, deadline=soon())
    assert kit.texts() == ["one"]


def test_a_segment_deleted_under_the_lock_is_seen_before_the_append(kit: Kit, older: tuple[Journal, Path]) -> None:
    journal, _ = older

    def delete(_time: str) -> bytes:
        kit.segment().unlink()
        return events("lost")

    with pytest.raises(ReplacedError, match="not the file that was opened"):
        journal.commit(delete, deadline=soon())


def test_a_segment_that_came_after_the_one_opened_is_seen(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=1 << 20)
    kit.commit(journal, "one")
    other = kit.open(segment_bytes_max=1)

    def roll(_time: str) -> bytes:
        (kit.directory / NAME).unlink()
        journal._files.unlock(journal._writer.active.fd)  # as if this process's locks were worth nothing
        kit.commit(other, "two")
        with kit.segment(1).open("ab") as file:
            file.write(b"")
        journal._reader.settle(None)
        list(journal.read(journal.last_seq))
        return events("three")

    with pytest.raises(ReplacedError, match="no longer the last segment"):
        journal.commit(roll, deadline=soon())
    list(journal.read(0))
    kit.commit(journal, "three")
    assert kit.texts() == ["one", "two", "three"]


def test_a_place_is_read_only_if_the_line_is_still_there(kit: Kit, older: tuple[Journal, Path]) -> None:
    journal, copy = older
    commits = list(journal.read(0))
    for commit in commits:
        assert journal.line_at(commit.place, commit.seq) == commit
    for place, seq in (
        (commits[3].place, 5),
        (record.Place(1, commits[3].place.offset, commits[3].place.line_bytes - 1), 4),
        (record.Place(1, commits[3].place.offset, commits[3].place.line_bytes + 1), 4),
        (record.Place(7, 0, 100), 7),
    ):
        with pytest.raises(ReplacedError):
            journal.line_at(place, seq)
    put_back(kit, copy)
    with pytest.raises(ReplacedError, match="seq 6 is not at byte"):
        journal.line_at(commits[5].place, 6)
    data = kit.segment().read_bytes()
    kit.segment().write_bytes(data.replace(b'{"type":"first"', b'{"type" "first"'))
    with pytest.raises(CorruptError, match="seq 2"):
        journal.line_at(commits[1].place, 2)


def test_damage_in_a_file_that_vanishes_is_still_told(kit: Kit) -> None:
    reader = kit.open()._reader
    kit.commit(kit.open(), "one")
    list(reader.read(0))
    position = reader.marks.tail.position
    assert reader.corrupt(position, "x").line == 4
    kit.segment().write_bytes(kit.segment().read_bytes()[:10])
    assert reader.corrupt(position, "x").line == 1
    kit.segment().unlink()
    assert reader.corrupt(position, "x").line == 1
    assert isinstance(reader.corrupt(position, "x"), CorruptError)


def test_a_directory_that_goes_while_it_is_used_is_made_again_or_told(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    files.fail_verbs("try_lock")
    with pytest.raises(UnusableError):
        kit.commit(journal, "two")
    files.fail_nothing()
    shutil.rmtree(kit.data)
    with pytest.raises(ReplacedError):
        kit.commit(journal, "two")
    list(journal.read(0))
    assert kit.commit(journal, "two").seq == 3


@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_emptied_in_the_middle_is_corrupt_and_holds_nobody_up(kit: Kit, number: int) -> None:
    journal = kit.open(segment_bytes_max=300)
    for text in ("one", "two", "three", "four"):
        kit.commit(journal, text * 50)
    emptied = sorted(kit.directory.glob("*.jsonl"))[number]
    emptied.write_bytes(b"")
    with pytest.raises(CorruptError, match="the segment is empty and is not the last") as caught:
        list(kit.open().read(0))
    assert (caught.value.file, caught.value.line, caught.value.offset) == (str(emptied), 1, 0)
    found = [fault for fault in verify([kit.directory]) if isinstance(fault, Fault)]
    assert [fault.file for fault in found][:1] == [str(emptied)]
    with pytest.raises(CorruptError):
        kit.commit(kit.open(), "five")


def test_a_journal_of_several_segments_that_was_deleted_is_begun_anew_by_the_next_commit(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=400)
    for number in range(5):
        kit.commit(journal, str(number))
    assert len(list(kit.directory.glob("*.jsonl"))) > 1
    shutil.rmtree(kit.data)
    with pytest.raises(ReplacedError):
        list(journal.read(journal.last_seq))
    assert list(journal.read(0)) == []
    kit.commit(journal, "anew")
    assert kit.texts() == ["anew"]


def test_a_line_in_hand_is_given_only_while_its_file_is_there(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    appended = kit.commit(journal, "one")
    files.calls.clear()
    assert journal.line_at(appended.place, appended.seq).seq == appended.seq
    assert files.calls == ["stat"]
    other = kit.segment().read_bytes().replace(b"one", b"two")
    kit.segment().unlink()
    kit.segment().write_bytes(other)
    with pytest.raises(CorruptError):
        journal.line_at(appended.place, appended.seq)
    kit.segment().unlink()
    with pytest.raises(ReplacedError):
        journal.line_at(appended.place, appended.seq)


def test_a_line_after_a_lost_one_is_read_by_its_place_though_the_line_before_it_tells_no_hash(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal)
    seq, prev = journal.last_seq + 1, journal.anchor.partition(":")[2]
    lost = b'[{"type":"lost","first":%d,"last":%d,"next_prev":"%b","reason":"damage"}]' % (seq, seq, b"a" * 64)
    line, _ = record.encode(seq, "2026-09-09T08:00:07.049Z", 1, lost, prev)
    with kit.segment().open("ab") as file:
        file.write(line)
    after = kit.commit(journal, "after it")
    for number in range(20):  # more than are in hand
        kit.commit(journal, str(number))
    assert b"after it" in journal.line_at(after.place, after.seq).events
