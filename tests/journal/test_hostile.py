"""A hostile journal directory: not ours, not what its names say, without locks, under other writers' feet.

What other tests cover is not here: test_directory.py (whose it is, symlinks, filesystems by their type),
test_replaced.py (files deleted, exchanged or put back), test_lock.py (a lock file deleted at rest),
test_faults.py (disks).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from journal import (
    CorruptError,
    Fault,
    Journal,
    ReplacedError,
    UnsyncedError,
    UnusableError,
    UnwritableError,
    verify,
)
from journal.lock import NAME
from tests.journal.conftest import FaultyFiles, Unflushed, events, soon

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.journal.conftest import Kit

GOLDEN = Path(__file__).parent.parent / "golden"
WAIT_S = 20.0
HOUR_NS = 3600 * 10**9
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")


def tree(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a path: mode, time of its last change, and content."""
    found = {}
    for each in sorted([path, *path.rglob("*")]):
        facts = each.lstat()
        content = each.read_bytes() if stat.S_ISREG(facts.st_mode) and facts.st_size < 1 << 20 else b""
        found[str(each)] = (facts.st_mode, facts.st_mtime_ns, content)
    return found


def segments(kit: Kit) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in kit.directory.glob("*.jsonl")}


def faults(kit: Kit) -> list[Fault]:
    return [found for found in verify([kit.directory]) if isinstance(found, Fault)]


def bounded(work: Callable[[], object]) -> BaseException | None:
    """What a call that must not hang raises."""
    outcome: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # handed to the test
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert outcome, "the call hangs"
    return outcome[0]


# --- not ours


@needs_root
@pytest.mark.parametrize("which", ["data", "journal"])
def test_a_directory_that_was_given_to_another_user_is_refused_by_name_and_left_alone(kit: Kit, which: str) -> None:
    kit.commit(kit.open(), "one")
    theirs = kit.data if which == "data" else kit.directory
    os.chown(theirs, 12345, 12345)
    theirs.chmod(0o755)
    before = tree(kit.data)
    with pytest.raises(UnusableError, match="it belongs to user 12345, not to 0") as caught:
        kit.commit(kit.open(), "two")
    assert caught.value.directory == str(theirs)
    assert tree(kit.data) == before


def test_a_journal_behind_a_symlink_is_refused_by_name_and_left_alone(kit: Kit, tmp_path: Path) -> None:
    kit.commit(kit.open(), "one")
    kit.directory.rename(tmp_path / "elsewhere")
    kit.directory.symlink_to(tmp_path / "elsewhere")
    before = tree(tmp_path)
    with pytest.raises(UnusableError, match="it is a symlink") as caught:
        kit.commit(kit.open(), "two")
    assert caught.value.directory == str(kit.directory)
    assert tree(tmp_path) == before


def test_loose_modes_are_set_right_by_the_next_process_that_writes(kit: Kit) -> None:
    kit.commit(kit.open(), "one")
    paths = [kit.data, kit.directory, kit.segment(), kit.directory / NAME]
    for path in paths:
        path.chmod(0o777)
    old = os.umask(0)
    try:
        kit.commit(kit.open(), "two")
    finally:
        os.umask(old)
    assert [oct(path.stat().st_mode & 0o7777) for path in paths] == ["0o700", "0o700", "0o600", "0o600"]


def test_a_umask_that_takes_everything_keeps_nobody_from_writing(kit: Kit) -> None:
    old = os.umask(0o777)
    try:
        kit.commit(kit.open(segment_bytes_max=1), "one")
        kit.commit(kit.open(segment_bytes_max=1), "two")
    finally:
        os.umask(old)
    assert {oct(path.stat().st_mode & 0o7777) for path in kit.directory.iterdir()} == {"0o600"}
    assert kit.texts() == ["one", "two"]


def test_a_directory_that_may_only_be_read_is_ours_and_made_writable(kit: Kit) -> None:
    kit.commit(kit.open(), "one")
    kit.directory.chmod(0o500)
    kit.data.chmod(0o500)
    kit.commit(kit.open(segment_bytes_max=1), "two")
    assert kit.texts() == ["one", "two"]


def test_a_directory_that_another_made_is_made_durable_all_the_same(kit: Kit) -> None:
    class Recording(Unflushed):
        def __init__(self) -> None:
            self.synced: list[str] = []

        def fsync_directory(self, path: str) -> None:
            self.synced.append(path)

    files = Recording()
    kit.data.mkdir()
    kit.commit(kit.open(files=files), "one")
    assert str(kit.data.parent) in files.synced


# --- locks that cannot be taken


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF])
def test_without_a_lock_nothing_is_ever_written_at_first_use_or_later(kit: Kit, code: int) -> None:
    files = FaultyFiles()
    files.fail_verbs("try_lock", code=code)
    first = kit.open(files=files)
    with pytest.raises(UnusableError, match="no lock on it") as caught:
        kit.commit(first, "one")
    assert caught.value.directory == str(kit.directory)
    assert os.strerror(code) in str(caught.value)
    assert list(kit.directory.glob("*.jsonl")) == []
    files.fail_nothing()
    kit.commit(first, "one")
    before = kit.segment().read_bytes()
    files.fail_verbs("try_lock", code=code)
    for journal in (first, kit.open(files=files)):
        with pytest.raises(UnusableError, match="no lock on it"):
            kit.commit(journal, "two")
    assert kit.segment().read_bytes() == before
    files.fail_nothing()
    kit.commit(first, "two")
    assert kit.texts() == ["one", "two"]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF])
def test_a_lock_that_the_segment_alone_refuses_is_no_lock_either(kit: Kit, code: int) -> None:
    class OnSegments(Unflushed):
        def try_lock(self, fd: int) -> bool:
            if self.fstat(fd).st_ino in {path.stat().st_ino for path in kit.directory.glob("*.jsonl")}:
                raise OSError(code, os.strerror(code))
            return super().try_lock(fd)

    kit.commit(kit.open(), "one")
    before = kit.segment().read_bytes()
    with pytest.raises(UnusableError, match="no lock on it"):
        kit.commit(kit.open(files=OnSegments()), "two")
    assert kit.segment().read_bytes() == before
    kit.commit(kit.open(), "two")


# --- the lock file deleted under two writers


class Told(Unflushed):
    """Tells when a lock was not free."""

    def __init__(self) -> None:
        self.refused = threading.Event()

    def try_lock(self, fd: int) -> bool:
        got = super().try_lock(fd)
        if not got:
            self.refused.set()
        return got


def race(kit: Kit, first: Journal, second: Journal, files: Told) -> list[int]:
    """``first`` commits "two"; as it decides, the lock file goes and ``second`` commits "three"; how much that saw."""
    seen: list[int] = []

    def late(_time: str) -> bytes:
        seen.append(len(list(second.read(second.last_seq))))
        return events("three")

    thread = threading.Thread(target=lambda: second.commit(late, deadline=soon(WAIT_S)))

    def build(_time: str) -> bytes:
        (kit.directory / NAME).unlink()
        thread.start()
        assert files.refused.wait(WAIT_S)
        return events("two")

    first.commit(build, deadline=soon(WAIT_S))
    thread.join(WAIT_S)
    return seen


def test_who_waited_for_a_writer_with_another_lock_file_decides_on_what_that_one_wrote(kit: Kit) -> None:
    files = Told()
    first, second = kit.open(), kit.open(files=files)
    kit.commit(first, "one")
    list(second.read(0))
    assert race(kit, first, second, files) == [1]
    assert kit.texts() == ["one", "two", "three"]


@pytest.mark.parametrize("segment_bytes_max", [1, 1 << 20])
def test_who_waited_while_another_with_another_lock_file_rolled_writes_into_the_new_segment(
    kit: Kit, segment_bytes_max: int
) -> None:
    files = Told()
    first, second = kit.open(segment_bytes_max=1), kit.open(files=files, segment_bytes_max=segment_bytes_max)
    kit.commit(first, "one")
    list(second.read(0))
    race(kit, first, second, files)
    assert faults(kit) == []
    assert kit.texts() == ["one", "two", "three"]


def test_a_segment_begun_by_a_writer_with_another_lock_file_is_not_begun_twice(kit: Kit) -> None:
    class Rolling(Unflushed):
        made = 0

        def open(self, path: str, flags: int) -> int:
            new = flags & os.O_CREAT and path.endswith(".jsonl") and not os.path.exists(path)
            fd = super().open(path, flags)
            self.made += bool(new)
            if new and self.made == 3:  # the segment of "two" is there and not locked yet
                (kit.directory / NAME).unlink()
                kit.commit(kit.open(), "three")
            return fd

    journal = kit.open(files=Rolling(), segment_bytes_max=1)
    kit.commit(journal, "one")
    with pytest.raises(ReplacedError):
        kit.commit(journal, "two")
    assert faults(kit) == []
    list(journal.read(0))
    kit.commit(journal, "two")
    assert faults(kit) == []
    assert kit.texts() == ["one", "three", "two"]


def test_a_segment_written_anew_by_a_writer_with_another_lock_file_is_not_covered_by_an_older_copy(kit: Kit) -> None:
    class Copying(Unflushed):
        met = False

        def open(self, path: str, flags: int) -> int:
            fd = super().open(path, flags)
            if flags == os.O_RDWR and path.endswith(".jsonl") and not self.met:  # to copy it; not locked yet
                self.met = True
                (kit.directory / NAME).unlink()
                kit.commit(kit.open(), "two")
            return fd

    kit.commit(kit.open(), "one")
    files = Copying()
    files.mark(str(kit.segment()))
    journal = kit.open(files=files)
    with contextlib.suppress(ReplacedError):
        kit.commit(journal, "three")
    assert files.met
    assert faults(kit) == []
    assert kit.texts()[:2] == ["one", "two"]
    list(journal.read(0))
    kit.commit(journal, "four")
    assert kit.texts()[-1] == "four"


WRITE = """
journal = Journal(Path(sys.argv[1]), first_events=b'[{"type":"first"}]', segment_bytes_max=600)
def build(_time):
    for _ in journal.read(journal.last_seq):
        pass
    return b'[{"type":"posted","content":"%s"}]' % text.encode()
for number in range(int(sys.argv[3])):
    text = f"{sys.argv[2]}-{number}"
    while True:
        try:
            seq = journal.commit(build, deadline=time.monotonic() + 20).seq
        except ReplacedError:
            list(journal.read(0))
        else:
            break
    print(seq, text, flush=True)
"""


def test_a_lock_file_deleted_again_and_again_under_two_writers_that_roll_costs_nothing(kit: Kit) -> None:
    each = 150
    kit.commit(kit.open(), "begin")
    running = [kit.run(WRITE, str(name), str(each)) for name in range(2)]
    deleted, ended = 0, threading.Event()
    outputs: list[str] = []

    def collect() -> None:
        outputs.extend(process.communicate(timeout=60)[0] for process in running)
        ended.set()

    thread = threading.Thread(target=collect)
    thread.start()
    while not ended.wait(0.0005):
        try:
            (kit.directory / NAME).unlink()
            deleted += 1
        except FileNotFoundError:
            pass
    thread.join(WAIT_S)
    assert [process.returncode for process in running] == [0, 0]
    told = dict(line.split() for line in "".join(outputs).splitlines())
    assert (faults(kit), len(told)) == ([], 2 * each)
    texts = kit.texts()
    assert [texts.count(text) for text in told.values()] == [1] * len(told)
    assert len(list(kit.directory.glob("*.jsonl"))) > 10
    assert deleted > 10


# --- names that are not what they say


def fifo(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def link(path: Path) -> None:
    target = path.parent.parent / "target"
    target.write_bytes(b"not to be touched")
    path.symlink_to(target)


def dangling(path: Path) -> None:
    path.symlink_to(path.parent.parent / "nowhere")


STRANGE = [fifo, directory, link, dangling]


@pytest.mark.parametrize("make", STRANGE)
@pytest.mark.parametrize("which", ["segment", "lock"])
def test_what_is_no_regular_file_is_refused_by_name_without_a_wait(
    kit: Kit, which: str, make: Callable[[Path], None]
) -> None:
    kit.commit(kit.open(), "one")
    path = kit.segment() if which == "segment" else kit.directory / NAME
    path.rename(kit.data / "kept")
    make(path)
    before = tree(kit.data)
    journal = kit.open()
    error = bounded(lambda: kit.commit(journal, "two"))
    assert isinstance(error, UnusableError | UnwritableError), error
    assert str(path) in str(error)
    if which == "segment":
        error = bounded(lambda: list(kit.open(read_only=True).read(0)))
        assert isinstance(error, UnusableError), error
        assert str(path) in str(error)
    assert tree(kit.data) == before
    path.rmdir() if make is directory else path.unlink()
    (kit.data / "kept").rename(path)
    kit.commit(kit.open(), "two")
    assert kit.texts() == ["one", "two"]


def test_an_auditor_is_told_of_a_fifo_and_does_not_wait_for_it(kit: Kit) -> None:
    kit.commit(kit.open(), "one")
    os.mkfifo(kit.segment(3))
    error = bounded(lambda: list(verify([kit.directory])))
    assert isinstance(error, OSError), error
    assert error.filename == str(kit.segment(3))


def test_a_place_for_set_aside_pieces_that_is_a_file_is_told_by_name_and_nothing_is_cut(kit: Kit) -> None:
    kit.commit(kit.open(), "one")
    with kit.segment().open("ab") as file:
        file.write(b'{"seq":')
    (kit.directory / "set-aside").write_text("")
    torn = kit.segment().read_bytes()
    with pytest.raises(UnwritableError, match="set-aside"):
        kit.commit(kit.open(), "two")
    assert kit.segment().read_bytes() == torn
    with pytest.raises(UnusableError, match="set-aside"):
        kit.open(read_only=True).set_aside()
    (kit.directory / "set-aside").unlink()
    kit.commit(kit.open(), "two")
    assert kit.texts() == ["one", "two"]


def test_names_that_are_almost_segment_names_and_other_litter_are_not_looked_at(kit: Kit) -> None:
    kit.commit(kit.open(), "one")
    name = kit.segment(4).name
    litter = [name + ".bak", name + "~", name + ".new", f".{name}.swp", name.upper(), " " + name, name[1:], "0" + name]
    for each in [*litter, kit.segment(0).name, "٣" * 20 + ".jsonl", "x.jsonl"]:
        (kit.directory / each).write_bytes(b"garbage\n")
    (kit.directory / "folder").mkdir()
    os.mkfifo(kit.directory / "fifo")
    with contextlib.suppress(OSError), open(os.fsencode(kit.directory) + b"/\xff\xfe.jsonl", "wb") as file:
        file.write(b"garbage\n")  # where names are any bytes
    with (kit.directory / "huge").open("wb") as file:
        file.truncate(1 << 40)
    before = {path: facts for path, facts in tree(kit.directory).items() if not path.endswith((".lock", "journal"))}
    kit.commit(kit.open(), "two")
    assert kit.texts() == ["one", "two"]
    assert faults(kit) == []
    after = tree(kit.directory)
    assert {path for path, facts in before.items() if after[path] != facts} == {str(kit.segment())}


@pytest.mark.parametrize("strange", [b"", b"garbage\n", b"garbage"])
@pytest.mark.parametrize("first_seq", [3, 5, 10**20 - 1])
def test_a_file_that_takes_the_name_of_a_later_segment_stops_writers_or_is_used_but_never_hides_a_line(
    kit: Kit, first_seq: int, strange: bytes
) -> None:
    kit.commit(kit.open(), "one")
    kit.commit(kit.open(), "two")
    kit.segment(first_seq).write_bytes(strange)
    if first_seq == 5 and not strange.endswith(b"\n"):  # the next one: as if a roll had been interrupted
        kit.commit(kit.open(), "three")
        assert kit.texts() == ["one", "two", "three"]
        return
    before = segments(kit)
    with pytest.raises(CorruptError):
        kit.commit(kit.open(), "three")
    with pytest.raises(CorruptError):
        kit.texts()
    assert segments(kit) == before
    kit.segment(first_seq).unlink()
    kit.commit(kit.open(), "three")
    assert kit.texts() == ["one", "two", "three"]


# --- journals mixed, clocks set


def _lines(kit: Kit) -> list[bytes]:
    return kit.segment().read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("how", ["a segment", "a line"])
def test_two_journals_mixed_are_corrupt_and_nothing_more_is_written(kit: Kit, how: str, tmp_path: Path) -> None:
    from tests.journal.conftest import Kit  # noqa: PLC0415  # the second one, made by hand

    other = Kit(tmp_path / "other")
    for each in (kit, other):
        for text in ("one", "two"):
            each.commit(each.open(), text)
    if how == "a segment":
        kit.segment(5).write_bytes(other.segment().read_bytes())
        place = (str(kit.segment(5)), 1, 0)
    else:
        place = (str(kit.segment()), 5, kit.segment().stat().st_size)
        with kit.segment().open("ab") as file:
            file.write(_lines(other)[-1])
    before = segments(kit)
    for attempt in (lambda: kit.commit(kit.open(), "three"), kit.texts):
        with pytest.raises(CorruptError) as caught:
            attempt()
        assert (caught.value.file, caught.value.line, caught.value.offset, caught.value.seq) == (*place, 5)
    assert segments(kit) == before
    assert faults(kit)
    other.close()


def _noted(times: list[str], at: str, number: int) -> bytes:
    times.append(at)
    return events(str(number))


def test_the_order_is_that_of_seq_however_the_clock_is_set(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    journal = kit.open(segment_bytes_max=600)
    times: list[str] = []
    for number, hours in enumerate((0, -1, 24 * 365, 0, -24 * 365 * 50, 0)):
        monkeypatch.setattr(time, "time_ns", lambda hours=hours: now + hours * HOUR_NS)
        journal.commit(lambda at, number=number: _noted(times, at, number), deadline=soon())  # type: ignore[misc]  # number
    assert times != sorted(times)
    assert kit.texts() == [str(number) for number in range(6)]
    assert kit.texts(journal) == [str(number) for number in range(6)]
    assert faults(kit) == []
    assert journal.wait(journal.last_seq, 0.01, lambda: False) is False


# --- a disk that is full from the start


@pytest.mark.parametrize("verb", ["mkdir", "open", "write", "fsync", "fdatasync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_takes_nothing_at_first_start_is_told_and_the_start_is_made_later(
    kit: Kit, verb: str, code: int
) -> None:
    files = FaultyFiles()
    files.fail_verbs(verb, code=code)
    journal = kit.open(files=files)
    unknown = 0
    for _ in range(2):
        with pytest.raises((UnwritableError, UnusableError, UnsyncedError)) as caught:
            kit.commit(journal, "one")
        unknown += isinstance(caught.value, UnsyncedError)
    there = ["one"] * unknown if verb == "fdatasync" else []  # its line is written before that flush
    assert kit.texts() == there
    files.fail_nothing()
    kit.commit(journal, "two")
    assert faults(kit) == []
    assert kit.texts() == [*there, "two"]


# --- bodies


@pytest.mark.parametrize(("old", "new"), [(b"100", b"999"), (b'"posted"', b'"posted\x00'), (b'{"type"', b"[[[[[[[")])
def test_a_body_that_changed_since_it_was_verified_is_not_given(kit: Kit, old: bytes, new: bytes) -> None:
    journal = kit.open()
    kit.commit(journal, "pay 100")
    for number in range(20):  # more than are in hand
        kit.commit(journal, str(number))
    commit = list(journal.read(0))[2]
    sound = kit.segment().read_bytes()
    at = sound.index(old, commit.place.offset)
    with kit.segment().open("r+b") as file:
        file.seek(at)
        file.write(new)
    with pytest.raises(CorruptError) as caught:
        journal.line_at(commit.place, commit.seq)
    assert (caught.value.line, caught.value.offset, caught.value.seq) == (3, commit.place.offset, 3)
    kit.segment().write_bytes(sound)
    list(journal.read(0))
    assert journal.line_at(commit.place, commit.seq) == commit


@pytest.mark.parametrize("golden", sorted(path.name for path in GOLDEN.iterdir() if path.is_dir()))
def test_a_body_is_read_by_its_place_in_every_golden_journal(golden: str) -> None:
    journal = Journal(GOLDEN / golden, first_events=b"[]", read_only=True)
    commits = list(journal.read(0))
    assert commits
    assert [journal.line_at(commit.place, commit.seq) for commit in commits] == commits
    journal.close()
