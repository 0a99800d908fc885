"""What reaches the disk in which order: each step of a writer is safe before the next one relies on it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from typing import TYPE_CHECKING

import pytest

from journal import Journal, ReplacedError, TooLargeError, UnsyncedError, UnwritableError
from journal.record import LINE_BYTES_MAX, encode
from tests.journal.conftest import FaultyFiles, events, soon
from tests.journal.test_segment import TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.journal.conftest import Kit


class Traced(FaultyFiles):
    """Notes what is written and flushed, each file by the end of its name, a directory by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []
        self._names: dict[int, str] = {}

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self._names[fd] = os.path.basename(path).lstrip("0")
        return fd

    def note(self, verb: str, fd: int) -> None:
        name = self._names[fd]
        is_named = stat.S_ISDIR(os.fstat(fd).st_mode) or name.endswith(".jsonl")
        self.steps.append(f"{verb} {name if is_named else name.rpartition('.')[2]}")

    def write(self, fd: int, data: bytes) -> int:
        self.note("write", fd)
        return super().write(fd, data)

    def truncate(self, fd: int, length: int) -> None:
        super().truncate(fd, length)
        self.note("truncate", fd)

    def fdatasync(self, fd: int) -> None:
        self.note("flush", fd)

    def fsync(self, fd: int) -> None:
        self.note("flush", fd)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.steps.append("rename")

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        self.steps.append(f"make {os.path.basename(path)}")

    def taken(self) -> Iterator[str]:
        yield from self.steps
        self.steps.clear()


@pytest.fixture
def files() -> Traced:
    return Traced()


def test_the_directory_the_segment_and_its_name_are_safe_before_the_first_line_of_the_caller(
    kit: Kit, files: Traced
) -> None:
    kit.commit(kit.open(files=files))
    above = kit.data.parent.name
    assert list(files.taken()) == [
        *("make data", f"flush {above}", "make journal", "flush data"),
        *("write 1.jsonl", "flush 1.jsonl", "flush journal"),
        *("write 1.jsonl", "write 1.jsonl", "flush 1.jsonl"),
    ]


def test_a_segment_is_safe_before_the_next_is_begun_and_that_before_its_first_line(kit: Kit, files: Traced) -> None:
    journal = kit.open(files=files, segment_bytes_max=600)
    kit.commit(journal, "x" * 600, flush=False)
    list(files.taken())
    kit.commit(journal)
    assert list(files.taken()) == [
        *("flush 1.jsonl", "write 4.jsonl", "flush 4.jsonl", "flush journal"),
        *("write 4.jsonl", "flush 4.jsonl"),
    ]
    kit.commit(journal)
    assert list(files.taken()) == ["write 4.jsonl", "flush 4.jsonl"]


def test_the_name_of_a_segment_that_another_process_began_is_flushed_once(kit: Kit, files: Traced) -> None:
    kit.commit(kit.open())
    journal = kit.open(files=files)
    kit.commit(journal)
    kit.commit(journal)
    names = [step for step in files.taken() if step in {"flush journal", "flush 1.jsonl"}]
    assert names == ["flush 1.jsonl", "flush journal", "flush 1.jsonl"]


def test_what_was_read_is_flushed_where_it_lies_with_its_name(kit: Kit, files: Traced) -> None:
    journal = kit.open(files=files)
    kit.commit(journal)
    other = kit.open(segment_bytes_max=1)
    kit.commit(other, flush=False)
    list(journal.read(journal.last_seq))
    list(files.taken())
    journal.flush(float("inf"))
    assert list(files.taken()) == ["flush 1.jsonl", "flush 4.jsonl", "flush journal"]
    journal.flush(float("inf"))
    assert list(files.taken()) == []


def test_a_torn_tail_is_safe_where_it_was_set_aside_before_it_is_cut_and_cut_before_a_line_follows(
    kit: Kit, files: Traced
) -> None:
    kit.commit(kit.open())
    with kit.segment().open("ab") as file:
        file.write(b'{"torn')
    journal = kit.open(files=files)
    kit.commit(journal)
    steps = list(files.taken())
    assert steps[steps.index("make set-aside") :] == [
        *("make set-aside", "write torn", "flush torn", "flush set-aside", "flush journal"),
        *("truncate 1.jsonl", "flush 1.jsonl"),
        *("write 1.jsonl", "flush 1.jsonl", "flush journal"),
    ]


def test_a_line_feed_put_after_a_whole_line_is_safe_before_a_line_follows(kit: Kit, files: Traced) -> None:
    kit.commit(kit.open())
    os.truncate(kit.segment(), kit.segment().stat().st_size - 1)
    kit.commit(kit.open(files=files))
    steps = [step for step in files.taken() if step.endswith("1.jsonl")]
    assert steps == ["write 1.jsonl", "flush 1.jsonl", "write 1.jsonl", "flush 1.jsonl"]
    assert len(kit.texts()) == 2


def test_what_did_not_fit_is_cut_off_safely(kit: Kit, files: Traced) -> None:
    journal = kit.open(files=files)
    kit.commit(journal)
    list(files.taken())
    files.short = True
    files.fail_verbs("write")
    with pytest.raises(UnwritableError):
        kit.commit(journal)
    assert list(files.taken()) == ["write 1.jsonl", "truncate 1.jsonl", "flush 1.jsonl"]


def test_a_copy_is_safe_before_it_takes_the_place_of_a_segment_whose_flush_failed(kit: Kit, files: Traced) -> None:
    journal = kit.open(files=files)
    kit.commit(journal)
    files.fail_verbs("fdatasync", "mark")  # a mark that fails changes nothing here
    with pytest.raises(UnsyncedError, match=r"Input/output error$"):
        kit.commit(journal)
    files.fail_nothing()
    list(files.taken())
    kit.commit(journal)
    assert list(files.taken()) == [
        *("write new", "flush new", "rename", "flush journal"),
        *("write new", "flush new"),  # the descriptor was opened by that name
    ]


def test_a_flush_covers_all_that_was_written_before_it_began(kit: Kit, files: Traced) -> None:
    journal = kit.open(files=files)
    first, second = (kit.commit(journal, text, flush=False) for text in ("one", "two"))
    journal.confirm(first, float("inf"))
    list(files.taken())
    journal.confirm(second, float("inf"))
    assert list(files.taken()) == []


def tear(kit: Kit) -> None:
    with kit.segment().open("ab") as file:
        file.write(b'{"torn')


def cut_line_feed(kit: Kit) -> None:
    os.truncate(kit.segment(), kit.segment().stat().st_size - 1)


def fill(kit: Kit) -> None:
    kit.commit(kit.open(), "x" * 600)


@pytest.mark.parametrize(
    ("before", "last"),
    [(fill, "write 5.jsonl"), (tear, "truncate 1.jsonl"), (cut_line_feed, "write 1.jsonl")],
)
def test_a_flush_under_the_lock_that_fails_is_told_and_nothing_is_written_until_it_is_made_good(
    kit: Kit, files: Traced, before: Callable[[Kit], None], last: str
) -> None:
    kit.commit(kit.open())
    before(kit)
    journal = kit.open(files=files, segment_bytes_max=600)

    def fails(verb: str, _number: int) -> int:
        return errno.EIO if verb in {"fsync", "fdatasync"} and files.steps[-1:] == [last] else 0

    files.fail = fails
    with pytest.raises(UnsyncedError, match="Input/output error"):
        kit.commit(journal)
    assert files.steps[-1] == last
    files.fail_nothing()
    list(files.taken())
    kit.commit(journal)
    assert "rename" in files.taken()


def test_a_flush_of_what_was_cut_back_that_fails_is_told(kit: Kit, files: Traced) -> None:
    journal = kit.open(files=files)
    kit.commit(journal)
    files.short = True
    files.fail_verbs("write", "fdatasync")
    with pytest.raises(UnsyncedError, match="Input/output error"):
        kit.commit(journal)


# --- when it writes


def test_a_segment_that_has_just_reached_its_size_is_followed_by_a_new_one(kit: Kit) -> None:
    kit.commit(kit.open())
    size = kit.segment().stat().st_size
    assert kit.commit(kit.open(segment_bytes_max=size + 1)).place.segment == 1
    size = kit.segment().stat().st_size
    assert kit.commit(kit.open(segment_bytes_max=size)).place.segment == 5


def test_a_line_that_is_too_large_begins_no_segment(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=1)
    kit.commit(journal)
    before = sorted(kit.directory.glob("*.jsonl"))
    with pytest.raises(TooLargeError):
        kit.commit(journal, "x" * LINE_BYTES_MAX)
    assert sorted(kit.directory.glob("*.jsonl")) == before


def test_after_a_replacement_nothing_is_written_before_all_was_read_anew_though_nobody_reads(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal)
    shutil.rmtree(kit.data)
    kit.commit(kit.open(), "anew")
    with pytest.raises(ReplacedError):
        list(journal.read(journal.last_seq))
    with pytest.raises(ReplacedError):
        journal.commit(lambda _: events("blind"), deadline=float("inf"))
    assert kit.texts() == ["anew"]


def test_what_others_wrote_since_a_commit_that_failed_is_read_under_the_lock(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")

    def refuse(_time: str) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        journal.commit(refuse, deadline=soon())
    other = kit.commit(kit.open(), "two")
    seen: list[int] = []

    def build(_time: str) -> bytes:
        seen.extend(commit.seq for commit in journal.read(other.seq - 1))
        return events("three")

    journal.commit(build, deadline=soon())
    assert seen == [other.seq]


def keep_line_one(kit: Kit) -> int:
    data = kit.segment().read_bytes()
    kit.segment().write_bytes(data[: data.index(b"\n") + 1])
    return 1


def begin_a_segment(kit: Kit) -> int:
    last = len(kit.segment().read_bytes().splitlines())
    kit.segment(last + 1).touch()
    return last


def leave_out_a_line_feed(kit: Kit) -> int:
    cut_line_feed(kit)
    return 2


@pytest.mark.parametrize("stop", [keep_line_one, begin_a_segment, leave_out_a_line_feed])
def test_what_a_writer_that_was_killed_did_not_finish_is_there_before_a_commit_is_built(
    kit: Kit, stop: Callable[[Kit], int]
) -> None:
    kit.commit(kit.open())
    last = stop(kit)
    journal = kit.open()
    assert [commit.seq for commit in journal.read(0)][-1] == last
    seen: list[int] = []

    def build(_time: str) -> bytes:
        seen.extend(commit.seq for commit in journal.read(last))
        return events("built")

    assert journal.commit(build, deadline=soon()).seq == last + 2
    assert seen == [last + 1]


@pytest.mark.parametrize(("later_ns", "looks"), [(-1, 1), (0, 0), (19_999_999, 0), (20_000_000, 1)])
def test_the_last_line_is_looked_at_again_unless_the_files_time_is_that_of_our_own_write(
    kit: Kit, later_ns: int, looks: int
) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal)
    written_ns = journal._writer._appended_ns
    assert written_ns > 0
    os.utime(kit.segment(), ns=(written_ns - later_ns, written_ns - later_ns))
    files.calls.clear()
    kit.commit(journal)
    assert files.calls.count("pread") == looks


def test_a_segment_replaced_by_one_of_the_same_size_takes_no_line_though_nobody_reads(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    kit.data.rename(kit.data.with_name("before"))  # kept, so that its inode is not given again
    kit.commit(kit.open(), "two")
    size = kit.segment().stat().st_size
    with pytest.raises(ReplacedError):
        journal.commit(lambda _: events("blind"), deadline=soon())
    assert kit.segment().stat().st_size == size
    assert kit.texts() == ["two"]


def unfinished(kit: Kit, journal: Journal, line_bytes: int) -> None:
    """Leave a line at the end that verifies and lacks its LF, so many bytes long with it."""
    seq, prev = journal.last_seq + 1, journal.anchor.partition(":")[2]
    spare = line_bytes - len(encode(seq, TIME, 1, events(""), prev)[0])
    with kit.segment().open("ab") as file:
        file.write(encode(seq, TIME, 1, events("x" * spare), prev)[0][:-1])


def test_a_whole_line_far_into_a_segment_gets_its_line_feed(kit: Kit) -> None:
    journal = kit.open()
    for _ in range(2):
        kit.commit(journal, "x" * (LINE_BYTES_MAX * 2 // 3))
    unfinished(kit, journal, 500)
    kit.commit(journal, "after")
    assert len(kit.texts()) == 4
    assert journal.set_aside() == []


@pytest.mark.parametrize(("too_much", "pieces"), [(0, 0), (1, 1)])
def test_of_a_line_without_its_line_feed_that_would_be_too_long_nothing_is_kept(
    kit: Kit, too_much: int, pieces: int
) -> None:
    journal = kit.open()
    kit.commit(journal)
    unfinished(kit, journal, LINE_BYTES_MAX + too_much)
    kit.commit(journal, "after")
    assert len(kit.texts()) == 3 - pieces
    assert len(journal.set_aside()) == pieces


def test_a_piece_set_aside_is_named_by_where_it_stood_when_and_by_whom_it_was_taken(kit: Kit) -> None:
    kit.commit(kit.open())
    size = kit.segment().stat().st_size
    tear(kit)
    told: list[str] = []
    journal = kit.open(on_set_aside=told.append)
    kit.commit(journal)
    assert journal.set_aside() == told
    assert re.fullmatch(rf"{1:020d}-{size}-\d{{19}}-{os.getpid()}\.torn", told[0])


def test_a_bookmark_names_the_journal_that_this_process_began(kit: Kit) -> None:
    journal = kit.open()
    at = journal.bookmark(kit.commit(journal).seq)
    assert at is not None
    assert at.position.journal
    assert f'"journal":"{at.position.journal}"'.encode() in kit.segment().read_bytes()


def test_who_does_not_say_what_software_it_is_is_named_in_no_segment(kit: Kit) -> None:
    journal = Journal(kit.directory, first_events=b"[]")
    kit.commit(journal)
    journal.close()
    assert b'"by"' not in kit.segment().read_bytes()
