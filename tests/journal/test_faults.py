"""Every system call of a session fails once: it happened or it left nothing, and it heals by itself."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from journal import (
    BusyError,
    CorruptError,
    Fault,
    Files,
    JournalError,
    ReplacedError,
    UnsyncedError,
    UnusableError,
    UnwritableError,
    Verdict,
    verify,
)
from journal.files import is_marked
from journal.flush import Flusher, FlushFailedError
from tests.journal.conftest import FaultyFiles, Unflushed, events, soon

WAIT_S = 20

if TYPE_CHECKING:
    from pathlib import Path

    from journal import Journal
    from tests.journal.conftest import Kit


def session(kit: Kit, files: FaultyFiles) -> tuple[list[str], list[str]]:
    """Eight commits over rolls and a torn tail; what was acknowledged, and what may be there besides."""
    journal = kit.open(files=files, segment_bytes_max=700)
    done: list[str] = []
    unknown: list[str] = []
    for number in range(8):
        if number == 5:
            with max(kit.directory.glob("*.jsonl")).open("ab") as file:
                file.write(b'{"seq":')
        text = f"{number}" + "x" * 80
        try:
            kit.commit(journal, text)
            done.append(text)
        except UnsyncedError:
            unknown.append(text)
        except JournalError:
            pass
    return done, unknown


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EINTR])
@pytest.mark.parametrize("short", [False, True])
def test_any_one_failing_call_is_told_truly_and_healed_from(tmp_path: Path, code: int, short: bool) -> None:  # noqa: FBT001 -- a parameter of the test
    from tests.journal.conftest import Kit  # noqa: PLC0415 -- a kit a round, made by hand

    number = 1
    while True:
        kit = Kit(tmp_path / str(number))
        kit.directory.mkdir(parents=True, mode=0o700)
        kit.segment().touch()
        files = FaultyFiles()
        files.short = short
        files.fail_nth(number, code)
        done, unknown = session(kit, files)
        assert not [found for found in verify([kit.directory]) if isinstance(found, Fault)], number
        there = kit.texts()
        assert [text for text in there if text not in unknown] == done, number
        assert len(done) >= 6, number
        kit.close()
        if number > len(files.calls):
            break
        number += 1 if number < 60 else 7
    assert number > 100
    assert len(done) == 8


def test_a_full_disk_is_not_stored_until_there_is_room(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    data = kit.segment().read_bytes()
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        files.short = not files.short
        files.fail_verbs("write", code=code)
        with pytest.raises(UnwritableError, match=r"^not stored: disk full$"):
            kit.commit(journal, "two")
        assert kit.segment().read_bytes() == data
        assert (journal.last_seq, list(journal.read(3))) == (3, [])
    files.fail_nothing()
    assert kit.commit(journal, "two").seq == 4


def test_a_short_write_is_a_full_disk(kit: Kit) -> None:
    class Short(FaultyFiles):
        def write(self, fd: int, data: bytes) -> int:
            return os.write(fd, data[: len(data) // 2] if len(data) < 400 else data)

    class Nothing(FaultyFiles):
        def write(self, _fd: int, _data: bytes) -> int:
            return 0

    kit.commit(kit.open(), "one")
    data = kit.segment().read_bytes()
    with pytest.raises(UnwritableError, match="disk full"):
        kit.commit(kit.open(files=Short()), "two")
    assert kit.segment().read_bytes() == data
    with pytest.raises(OSError, match="No space"):
        Nothing().write_all(0, b"x")


def test_another_cause_is_told_in_the_systems_words(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal)
    files.fail_verbs("write", code=errno.EACCES)
    with pytest.raises(UnwritableError, match=r"^not stored: Permission denied$") as caught:
        kit.commit(journal)
    assert caught.value.cause == "Permission denied"


def test_a_rollback_that_fails_leaves_the_outcome_unknown_and_the_next_commit_mends_it(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    files.short = True
    files.fail_verbs("write", "truncate")
    with pytest.raises(UnsyncedError, match="Input/output error, and then"):
        kit.commit(journal, "two")
    files.fail_nothing()
    kit.commit(journal, "three")
    assert kit.texts() == ["one", "three"]
    assert len(journal.set_aside()) == 1


def test_after_a_failed_flush_nothing_is_done_until_the_segment_was_written_anew(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    old = kit.segment().stat().st_ino
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError, match="Input/output error") as caught:
        kit.commit(journal, "two")
    assert caught.value.cause == "Input/output error"
    for verb in ("fdatasync open", "fsync", "rename", "write", "pread"):
        files.fail_verbs(*verb.split())
        with pytest.raises((UnsyncedError, UnusableError)):
            kit.commit(journal, "three")
        with pytest.raises((UnsyncedError, UnusableError)):
            journal.flush(soon())
        files.fail_nothing()
        assert kit.texts(kit.open(read_only=True)) == ["one", "two"]
        assert kit.segment().stat().st_ino == old
    assert [commit.seq for commit in journal.read(2)] == [3, 4]
    kit.commit(journal, "three")
    assert kit.segment().stat().st_ino != old
    assert kit.texts() == ["one", "two", "three"]
    assert [commit.seq for commit in journal.read(3)] == [4, 5]


def test_flush_alone_makes_a_failed_flush_good(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(journal, "two")
    files.fail_nothing()
    with kit.open().locked(soon()), pytest.raises(BusyError):
        journal.flush(soon(0.05))
    journal.flush(soon())
    files.calls.clear()
    journal.flush(soon())
    assert "fdatasync" not in files.calls
    assert journal._writer.active.flusher.failure is None
    with journal.locked(soon()):
        journal._writer.active.make_all_good(1, soon())  # another thread was quicker: nothing is left to do


def test_a_segment_that_lost_lines_it_held_is_not_made_good_by_copying_what_is_left(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    kept = kit.segment().stat().st_size
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(journal, "x" * 2000)
    files.fail_nothing()
    with kit.segment().open("r+b") as file:  # what a filesystem may show when it drops the pages it could not write
        file.truncate(kept)
        file.truncate(kept + 2000)
    with pytest.raises(CorruptError, match="seq 4, which was written and read before, is gone"):
        kit.commit(journal, "three")
    assert journal._writer.active.flusher.failure is not None


def test_a_segment_that_is_gone_needs_no_writing_anew(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(journal, "two")
    files.fail_nothing()
    kit.segment().unlink()
    with pytest.raises(JournalError):
        kit.commit(journal, "three")
    assert list(journal.read(0)) == []
    assert kit.commit(journal, "three").seq == 3


def test_a_flush_that_fails_in_an_earlier_segment_is_made_good_there(kit: Kit) -> None:
    files = FaultyFiles()
    journal, other = kit.open(files=files), kit.open(segment_bytes_max=1)
    kit.commit(journal, "one", flush=False)
    kit.commit(other, "two")
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(journal, "three")
    files.fail_nothing()
    for _ in journal.read(journal.last_seq):
        pass
    journal._writer.active._use(4, os.open(kit.segment(4), os.O_RDWR | os.O_APPEND))
    kit.commit(journal, "three")
    assert kit.texts() == ["one", "two", "three"]


def test_a_roll_is_not_begun_before_the_old_segment_is_safe(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files, segment_bytes_max=700)
    kit.commit(journal, "x" * 700, flush=False)
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(journal, "two")
    assert len(list(kit.directory.glob("*.jsonl"))) == 1
    files.fail_nothing()
    kit.commit(journal, "two")
    files.calls.clear()
    assert len(list(kit.directory.glob("*.jsonl"))) == 2


def test_a_process_makes_a_segments_name_durable_before_its_first_answer_from_it(kit: Kit) -> None:
    kit.commit(kit.open(), "one")
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "two")
    assert files.calls.count("fsync") == 2 + 1  # the directories above it, once a process, and then its own
    kit.commit(journal, "three")
    assert files.calls.count("fsync") == 2 + 1
    files.calls.clear()
    files.fail = lambda verb, _: errno.EIO if verb == "fsync" and files.calls.count("fsync") == 3 else 0
    with pytest.raises(UnsyncedError):
        kit.commit(kit.open(files=files), "four")


def test_a_reader_may_flush_what_it_read(kit: Kit) -> None:
    kit.commit(kit.open(), "one", flush=False)
    files = FaultyFiles()
    reader = kit.open(files=files)
    list(reader.read(0))
    reader.flush(soon())
    assert files.calls.count("fdatasync") == 1
    kit.segment().unlink()
    reader._reader.marks.epoch += 1
    with pytest.raises(UnsyncedError, match="No such file"):
        reader.flush(soon())


def test_threads_share_a_flush_and_a_failure(kit: Kit) -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow(FaultyFiles):
        gate = False

        def fdatasync(self, fd: int) -> None:
            if self.gate:
                entered.set()
                assert leave.wait(20)
            super().fdatasync(fd)

    files = Slow()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    files.gate = True
    files.calls.clear()
    results: list[object] = []

    def commit(text: str) -> None:
        try:
            results.append(kit.commit(journal, text).seq)
        except UnsyncedError as error:
            results.append(error.cause)

    leader = threading.Thread(target=commit, args=("two",))
    leader.start()
    assert entered.wait(20)
    kit.commit(journal, "three", flush=False)
    with pytest.raises(UnsyncedError, match="took too long"):
        journal.flush(soon(0.05))
    followers = [threading.Thread(target=commit, args=(f"more {number}",)) for number in range(3)]
    for thread in followers:
        thread.start()
    while journal.last_seq < 8:
        threading.Event().wait(0.001)
    files.fail_verbs("fdatasync")
    leave.set()
    for thread in (leader, *followers):
        thread.join(20)
    # The flush that was under way covers what was written before it began; the next one failed, once, for all others.
    assert sorted(map(str, results)) == ["4", *["Input/output error"] * 3]
    assert files.calls.count("fdatasync") == 2


def test_a_failure_told_from_elsewhere_ends_the_waits() -> None:
    flusher = Flusher(lambda point: point)
    failure = FlushFailedError(1, OSError(errno.EIO, "gone"))
    assert flusher.fail(failure).cause == "gone"
    with pytest.raises(UnsyncedError, match="gone"):
        flusher.confirm((0, 1, 5), soon())
    flusher.made_good(2)
    with pytest.raises(UnsyncedError, match="gone"):
        flusher.confirm((0, 1, 5), soon())
    flusher.made_good(1)
    flusher.confirm((0, 1, 5), soon())
    flusher.fail(failure)
    flusher.confirm((0, 1, 4), soon())


def test_a_flush_that_breaks_down_lets_the_next_one_lead() -> None:
    broken = True

    def flush(point: tuple[int, int, int]) -> tuple[int, int, int]:
        if broken:
            raise ZeroDivisionError
        return point

    flusher = Flusher(flush)
    with pytest.raises(ZeroDivisionError):
        flusher.confirm((0, 1, 5), soon())
    broken = False
    flusher.confirm((0, 1, 5), soon())


def reading(journal: Journal) -> object:
    return list(journal.read(0))


def test_a_disk_that_cannot_be_read_makes_the_directory_unusable(kit: Kit) -> None:
    appended = kit.commit(kit.open(), "one")
    for verb in ("open", "pread", "stat", "listdir"):
        files = FaultyFiles()
        files.fail_verbs(verb)
        with pytest.raises(UnusableError, match="Input/output error") as caught:
            reading(kit.open(files=files))
        assert caught.value.directory == str(kit.directory)
    files = FaultyFiles()
    files.fail_verbs("open", code=errno.EACCES)
    with pytest.raises(UnusableError, match="Permission denied"):
        kit.open(files=files).line_at(appended.place, appended.seq)


def test_an_error_while_making_files_private_leaves_no_descriptor_open(kit: Kit) -> None:
    kit.data.mkdir()
    files = FaultyFiles()
    files.fail_verbs("make_private")
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    for _ in range(5):
        with pytest.raises(OSError, match="Input/output"):
            files.open(str(kit.data / "x"), os.O_RDWR | os.O_CREAT)
    assert len(os.listdir("/proc/self/fd") if before else []) == len(before)


def test_a_segment_that_stays_locked_is_told(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal)
    files.fail_verbs("unlock")
    with pytest.raises(UnsyncedError, match="a segment stays locked"):
        kit.commit(journal)
    files.fail_nothing()
    journal.commit(lambda _time: events("x"), deadline=soon())
    assert kit.commit(journal).seq == 6


def test_a_disk_with_a_cache_of_its_own_is_flushed_through_it(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.data.mkdir()
    files = Files()
    fd = files.open(str(kit.data / "x"), os.O_RDWR | os.O_CREAT)
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(fcntl, "fcntl", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr("journal.files._FULLFSYNC", 51)
    files.fdatasync(fd)
    files.fsync(fd)
    assert asked == [(fd, 51), (fd, 51)]
    monkeypatch.setattr("journal.files._FULLFSYNC", None)
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(os, "fsync", lambda at: asked.append((at, 0)))
    files.fdatasync(fd)
    assert asked[2:] == [(fd, 0)]
    files.close(fd)


def test_a_segment_that_is_left_while_another_thread_flushes_it_is_closed_only_after_that(kit: Kit) -> None:
    """Its number might be another file's by then, and the flush a lie."""
    flushing, go = threading.Event(), threading.Event()
    closed: list[int] = []

    class Slow(Unflushed):
        first_fd = -1

        def fdatasync(self, fd: int) -> None:
            if threading.current_thread().name == "flusher":
                self.first_fd = fd
                flushing.set()
                assert go.wait(WAIT_S)

        def close(self, fd: int) -> None:
            closed.append(fd)
            super().close(fd)

    files = Slow()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    kit.commit(journal, "two", flush=False)
    waiter = threading.Thread(target=lambda: journal.flush(soon(WAIT_S)), name="flusher", daemon=True)
    waiter.start()
    assert flushing.wait(WAIT_S)
    copy = kit.segment().read_bytes()
    kit.segment().unlink()
    kit.segment().write_bytes(copy)
    with pytest.raises(ReplacedError):
        kit.commit(journal, "three", flush=False)
    list(journal.read(0))
    kit.commit(journal, "three", flush=False)
    assert files.first_fd not in closed
    go.set()
    waiter.join(WAIT_S)
    kit.commit(journal, "four")
    assert files.first_fd in closed
    assert kit.texts() == ["one", "two", "three", "four"]


def test_a_commit_may_be_made_durable_afterwards(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    appended = kit.commit(journal, "two", flush=False)
    files.calls.clear()
    journal.confirm(appended, soon())
    assert files.calls.count("fdatasync") == 1
    journal.confirm(appended, soon())
    assert files.calls.count("fdatasync") == 1


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_disk_that_takes_no_lock_file_is_unwritable_and_not_without_locks(kit: Kit, code: int) -> None:
    files = FaultyFiles()
    kit.commit(kit.open(), "one")
    files.fail_verbs("open", code=code)
    with pytest.raises(UnwritableError, match="not stored: "):
        kit.commit(kit.open(files=files), "two")


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_a_roll_that_found_the_disk_full_is_finished_by_the_next_commit_whoever_reads_between(
    kit: Kit, looks: int
) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files, segment_bytes_max=300)
    next_seq = kit.commit(journal, "x" * 300).seq + 1
    files.fail_verbs("write", code=errno.ENOSPC)
    with pytest.raises(UnwritableError, match="disk full"):
        kit.commit(journal, "refused")
    files.fail_nothing()
    assert kit.segment(next_seq).stat().st_size == 0
    for _ in range(looks):
        assert list(journal.read(journal.last_seq)) == []
        assert kit.texts(kit.open()) == ["x" * 300]
    kit.commit(journal, "two")
    other = kit.open(segment_bytes_max=300)
    list(other.read(0))
    kit.commit(other, "three")
    assert kit.texts() == ["x" * 300, "two", "three"]
    assert [found.faults for found in verify([kit.directory]) if isinstance(found, Verdict)] == [0]


def test_an_empty_last_segment_that_was_read_gets_its_first_line_before_any_other(kit: Kit) -> None:
    last_seq = kit.commit(kit.open(segment_bytes_max=300), "x" * 300).seq
    kit.segment(last_seq + 1).touch()
    reader = kit.open()
    assert kit.texts(reader) == ["x" * 300]
    assert list(reader.read(last_seq)) == []
    kit.commit(reader, "two")
    assert kit.texts() == ["x" * 300, "two"]
    assert [found.faults for found in verify([kit.directory]) if isinstance(found, Verdict)] == [0]


# --- what a process cannot see of another's flush


@pytest.mark.parametrize("opened", [False, True])
def test_after_a_failed_flush_another_process_writes_the_segment_anew_before_it_relies_on_it(
    kit: Kit, *, opened: bool
) -> None:
    files = FaultyFiles()
    failing, other = kit.open(files=files), kit.open()
    kit.commit(other if opened else failing, "one")
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(failing, "two")
    inode = kit.segment().stat().st_ino
    assert is_marked(kit.segment().stat())
    kit.commit(other, "three")
    assert kit.segment().stat().st_ino != inode
    assert not is_marked(kit.segment().stat())
    files.fail_nothing()
    kit.commit(failing, "four")
    assert kit.texts() == ["one", "two", "three", "four"]


def test_an_answer_that_writes_nothing_does_not_rely_on_it_either(kit: Kit) -> None:
    files = FaultyFiles()
    failing, other = kit.open(files=files), kit.open()
    kit.commit(other, "one")
    files.fail_verbs("fdatasync")
    with pytest.raises(UnsyncedError):
        kit.commit(failing, "two")
    inode = kit.segment().stat().st_ino
    list(other.read(0))
    other.flush(soon())
    assert kit.segment().stat().st_ino != inode
    assert kit.texts() == ["one", "two"]


def test_a_process_whose_first_flush_comes_after_the_failure_looks_for_the_mark_once_more(kit: Kit) -> None:
    """The failure, and its mark, may come when it has opened the segment and looked already."""
    kit.commit(kit.open(), "one")
    journal = kit.open()

    def build(_time: str) -> bytes:
        Files().mark(str(kit.segment()))
        list(journal.read(0))
        return events("two")

    with pytest.raises(UnsyncedError, match="in another process"):
        journal.commit(build, deadline=soon())
    kit.commit(journal, "three")
    assert kit.texts() == ["one", "two", "three"]
    assert not is_marked(kit.segment().stat())


def test_a_first_flush_that_cannot_look_for_the_mark_is_unsynced(kit: Kit) -> None:
    kit.commit(kit.open(), "one")
    files = FaultyFiles()
    journal = kit.open(files=files)

    def build(_time: str) -> bytes:
        list(journal.read(0))
        files.fail = lambda verb, _: errno.EIO if verb == "stat" and "fdatasync" in files.calls else 0
        return events("two")

    with pytest.raises(UnsyncedError):
        journal.commit(build, deadline=soon())
    files.fail_nothing()
    kit.commit(journal, "three")
    assert kit.texts() == ["one", "two", "three"]


def test_a_segment_that_cannot_be_marked_fails_its_flush_all_the_same(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    files.fail = lambda verb, _: errno.EIO if "fdatasync" in files.calls and verb in ("mark", "fdatasync") else 0
    files.calls.clear()
    with pytest.raises(UnsyncedError, match="Input/output error"):
        kit.commit(journal, "two")
    files.fail_nothing()
    kit.commit(journal, "three")
    assert kit.texts() == ["one", "two", "three"]


def test_an_answer_that_writes_nothing_is_unsynced_where_the_system_does_not_tell_of_the_mark(kit: Kit) -> None:
    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    files.fail_verbs("stat")
    with pytest.raises(UnsyncedError):
        journal.flush(soon())
    files.fail_nothing()
    journal.flush(soon())


def test_what_is_gone_has_no_mark(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    kit.segment().unlink()
    journal.flush(soon())


def test_a_mode_that_is_set_right_keeps_the_mark(kit: Kit) -> None:
    kit.commit(kit.open(), "one")
    kit.segment().chmod(0o1644)
    files = Files()
    files.close(files.open(str(kit.segment()), os.O_RDWR | os.O_CREAT))
    assert stat.filemode(kit.segment().stat().st_mode) == "-rw------T"
