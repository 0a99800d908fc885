from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

from journal import (
    LINE_BYTES_MAX,
    BusyError,
    CorruptError,
    Journal,
    TooLargeError,
    UnsupportedError,
    UnusableError,
    audit,
    record,
)
from tests.journal.conftest import FIRST_EVENTS, events, soon

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journal.conftest import Kit


def test_opening_and_reading_creates_nothing(kit: Kit) -> None:
    journal = kit.open()
    assert list(journal.read(0)) == []
    assert (journal.exists, journal.last_seq, journal.anchor) == (False, 0, "")
    journal.flush(soon())
    assert (journal.torn_bytes(), journal.set_aside()) == (0, [])
    assert not kit.data.exists()


def test_the_first_commit_is_born_after_two_lines_of_the_journals_own(kit: Kit) -> None:
    journal = kit.open()
    assert kit.commit(journal).seq == 3
    first, second, third = journal.read(0)
    opened = msgspec.json.decode(first.events)[0]
    assert list(opened) == ["type", "format", "journal", "prev", "by", "host"]
    assert (opened["format"], opened["prev"], opened["by"]) == (1, record.ZERO_HASH, "test 1")
    assert second.events == FIRST_EVENTS
    assert third.events == events("hello")
    assert (third.pid, journal.exists) == (os.getpid(), True)
    assert journal.anchor == f"3:{third.hash}"


def test_everything_is_private_whatever_the_umask(kit: Kit) -> None:
    old = os.umask(0)
    try:
        kit.commit(kit.open())
    finally:
        os.umask(old)
    kit.segment().chmod(0o644)
    kit.data.chmod(0o755)
    kit.commit(kit.open())
    for path in (kit.data, kit.directory):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in kit.directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_build_is_given_the_time_of_the_line_and_its_events_stand_there_as_they_are(kit: Kit) -> None:
    journal = kit.open()
    times = []

    def build(time: str) -> bytes:
        times.append(time)
        return '[{"type":"posted","content":"a\u2028b","metadata":{"hash":"x"}}]'.encode()

    appended = journal.commit(build, deadline=soon())
    commit = list(journal.read(0))[-1]
    assert [commit.time] == times
    assert commit.events == '[{"type":"posted","content":"a\u2028b","metadata":{"hash":"x"}}]'.encode()
    assert (commit.seq, commit.hash, commit.place) == (appended.seq, appended.hash, appended.place)
    assert journal.line_at(appended.place, appended.seq) == commit


def test_what_build_raises_writes_nothing_and_releases_the_lock(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal)
    size = kit.segment().stat().st_size

    def refuse(_time: str) -> bytes:
        raise KeyError("no such channel")

    with pytest.raises(KeyError):
        journal.commit(refuse, deadline=soon())
    assert kit.segment().stat().st_size == size
    assert kit.commit(kit.open()).seq == 4


def test_a_commit_that_reads_nothing_still_goes_to_the_end(kit: Kit) -> None:
    blind, other = kit.open(), kit.open()
    for number in range(3):
        blind.commit(lambda _time: events("blind"), deadline=soon())
        assert kit.commit(other, f"{number}").seq == 2 * number + 4
    assert kit.texts() == ["blind", "0", "blind", "1", "blind", "2"]


def test_reading_on_is_given_only_what_is_new_from_wherever_it_stood(kit: Kit) -> None:
    journal, other = kit.open(), kit.open()
    for number in range(100):
        kit.commit(other if number % 3 else journal, str(number), flush=False)
        assert [commit.seq for commit in journal.read(number + 2)] == [number + 3]
    for after_seq in range(103):
        assert [commit.seq for commit in journal.read(after_seq)] == list(range(after_seq + 1, 103))


def test_a_read_that_is_given_up_can_be_taken_up_again(kit: Kit) -> None:
    journal = kit.open()
    for number in range(10):
        kit.commit(journal, str(number), flush=False)
    reader = kit.open()
    for commit in reader.read(0):
        if commit.seq == 5:
            break
    assert [commit.seq for commit in reader.read(5)] == list(range(6, 13))


def test_lines_longer_than_a_chunk_are_read_and_longer_than_the_limit_refused(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "x" * 1_900_000)
    kit.commit(journal, "y" * 1_900_000)
    assert [len(text) for text in kit.texts()] == [1_900_000, 1_900_000]
    size = kit.segment().stat().st_size
    with pytest.raises(TooLargeError) as caught:
        kit.commit(journal, "z" * LINE_BYTES_MAX)
    assert (caught.value.size > LINE_BYTES_MAX, caught.value.limit) == (True, LINE_BYTES_MAX)
    assert kit.segment().stat().st_size == size
    kit.commit(journal, "w" * (LINE_BYTES_MAX - caught.value.size + LINE_BYTES_MAX))
    assert len(kit.texts()) == 3


def test_a_full_segment_is_followed_by_one_that_continues_it(kit: Kit) -> None:
    journal, other = kit.open(segment_bytes_max=700), kit.open(segment_bytes_max=700)
    for number in range(30):
        kit.commit(journal if number % 2 else other, str(number))
    names = sorted(path.name for path in kit.directory.glob("*.jsonl"))
    assert len(names) > 5
    commits = list(kit.open(read_only=True).read(0))
    assert [commit.seq for commit in commits] == list(range(1, len(commits) + 1))
    assert kit.texts(journal) == kit.texts(other) == [str(number) for number in range(30)]
    for name in names[1:]:
        alone = list(audit([kit.directory / name]))
        opened = msgspec.json.decode(alone[0].events)[0]
        assert opened["journal"] == msgspec.json.decode(commits[0].events)[0]["journal"]
        assert opened["prev"] == commits[alone[0].seq - 2].hash
    for after_seq in range(len(commits)):
        assert next(iter(kit.open().read(after_seq))).seq == after_seq + 1
    with pytest.raises(TooLargeError):
        kit.commit(journal, "z" * LINE_BYTES_MAX)


def test_a_reader_follows_a_roll(kit: Kit) -> None:
    journal, reader = kit.open(segment_bytes_max=700), kit.open(read_only=True)
    seen = 0
    for number in range(20):
        kit.commit(journal, str(number))
        for commit in reader.read(seen):
            assert commit.seq == seen + 1
            seen = commit.seq
    assert seen == journal.last_seq


def test_threads_of_one_object_commit_in_one_order(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=4000)
    seqs: list[int] = []

    def work(name: int) -> None:
        seqs.extend(kit.commit(journal, f"{name}-{number}").seq for number in range(20))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(seqs)) == 120
    assert sorted(kit.texts()) == sorted(f"{name}-{number}" for name in range(6) for number in range(20))


def test_many_marks_are_not_kept(kit: Kit) -> None:
    journal = kit.open()
    for number in range(200):
        kit.commit(journal, str(number), flush=False)
    assert len(journal._reader.marks._marks) == 64


def test_a_journal_opened_to_read_refuses_to_write(kit: Kit) -> None:
    with pytest.raises(UnusableError, match="opened only to read"):
        kit.commit(kit.open(read_only=True))
    assert not kit.data.exists()


def test_whoever_holds_the_writer_lock_keeps_commits_out(kit: Kit) -> None:
    journal, other = kit.open(), kit.open()
    kit.commit(journal)
    with journal.locked(soon()), pytest.raises(BusyError):
        other.commit(lambda _time: events("no"), deadline=soon(0.05))
    assert kit.commit(other).seq == 4


def test_a_newer_format_stops_readers_and_writers(kit: Kit) -> None:
    kit.directory.mkdir(parents=True)
    opened = b'[{"type":"segment_opened","format":2,"x":1}]'
    line, _ = record.encode(1, "2026-09-09T08:00:07.049Z", 1, opened, record.ZERO_HASH)
    kit.segment().write_bytes(line)
    with pytest.raises(UnsupportedError):
        list(kit.open().read(0))
    with pytest.raises(UnsupportedError):
        kit.commit(kit.open())
    assert kit.segment().read_bytes() == line


@pytest.fixture
def rolled(kit: Kit) -> Kit:
    journal = kit.open(segment_bytes_max=700)
    for number in range(8):
        kit.commit(journal, str(number))
    return kit


def segments(kit: Kit) -> list[Path]:
    return sorted(kit.directory.glob("*.jsonl"))


def check_refused(kit: Kit, path: Path, line: int, offset: int, cause: str) -> None:
    """Reader and writer name the place, and nothing is written."""
    before = {each: each.read_bytes() for each in segments(kit)}
    for attempt in (lambda: list(kit.open().read(0)), lambda: kit.open().commit(lambda _t: b"", deadline=soon())):
        with pytest.raises(CorruptError, match=cause) as caught:
            attempt()
        found = caught.value
        assert (found.file, found.line, found.offset) == (str(path), line, offset)
    assert {each: each.read_bytes() for each in segments(kit)} == before


def test_a_changed_line_is_corrupt_in_every_segment(rolled: Kit) -> None:
    for path in segments(rolled):
        data = path.read_bytes()
        first = data.index(b"\n") + 1
        path.write_bytes(data[: first + 30] + b"~" + data[first + 31 :])
        check_refused(rolled, path, 2, first, "does not verify")
        path.write_bytes(data)


def test_a_missing_segment_is_corrupt(rolled: Kit) -> None:
    first, middle, *_ = segments(rolled)
    data = middle.read_bytes()
    middle.unlink()
    check_refused(rolled, middle, 1, 0, "segment that begins with it is missing")
    middle.write_bytes(data)
    first.unlink()
    check_refused(rolled, first, 1, 0, "segment that begins with it is missing")


def test_bytes_after_the_last_line_of_an_earlier_segment_are_corrupt(rolled: Kit) -> None:
    first = segments(rolled)[0]
    data = first.read_bytes()
    first.write_bytes(data + b"x" * 10)
    check_refused(rolled, first, data.count(b"\n") + 1, len(data), "bytes after the last line")
    first.write_bytes(data + b"\0" * 1024 + b"\n")
    check_refused(rolled, first, data.count(b"\n") + 1, len(data), "does not end in a hash")


def test_a_line_over_the_limit_is_corrupt_if_it_ends_and_a_torn_tail_if_it_does_not(kit: Kit) -> None:
    kit.commit(kit.open())
    sound = kit.segment().read_bytes()
    kit.segment().write_bytes(sound + b"x" * (LINE_BYTES_MAX + 5) + b"\n")
    check_refused(kit, kit.segment(), 4, len(sound), "is longer than")
    kit.segment().write_bytes(sound + b"x" * (LINE_BYTES_MAX + 5))
    assert len(list(kit.open().read(0))) == 3
    assert kit.commit(kit.open()).seq == 4


def test_damage_is_met_after_all_that_is_sound(kit: Kit) -> None:
    journal = kit.open()
    for number in range(5):
        kit.commit(journal, str(number))
    kit.segment().write_bytes(kit.segment().read_bytes().replace(b'"3"', b'"4"'))
    commits = kit.open().read(0)
    assert [next(commits).seq for _ in range(5)] == [1, 2, 3, 4, 5]
    with pytest.raises(CorruptError):
        next(commits)


def test_a_journal_that_ends_in_a_lost_line_goes_on_after_it(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=1)
    kit.commit(journal)
    last = max(segments(kit))
    prev = journal.anchor.partition(":")[2]
    seq = journal.last_seq + 1
    lost = b'[{"type":"lost","first":%d,"last":%d,"next_prev":null,"reason":"damage"}]' % (seq, seq + 2)
    line, _ = record.encode(seq, "2026-09-09T08:00:07.049Z", 1, lost, prev)
    last.write_bytes(last.read_bytes() + line)
    fresh = kit.open(segment_bytes_max=1 << 20)
    assert kit.commit(fresh).seq == seq + 3
    assert [commit.seq for commit in kit.open().read(seq)] == [seq + 3]
    assert [commit.seq for commit in kit.open().read(seq + 1)] == [seq + 3]
    rolling = kit.open(segment_bytes_max=1)
    assert kit.commit(rolling).seq == seq + 5


def test_a_segment_whose_opening_is_lost_takes_its_uuid_from_an_earlier_one(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=1)
    kit.commit(journal)
    uuid = msgspec.json.decode(next(iter(journal.read(0))).events)[0]["journal"]
    seq = journal.last_seq + 1
    lost = b'[{"type":"lost","first":%d,"last":%d,"next_prev":null,"reason":"damage"}]' % (seq, seq)
    line, _ = record.encode(seq, "2026-09-09T08:00:07.049Z", 1, lost, journal.anchor.partition(":")[2])
    kit.segment(seq).write_bytes(line)
    fresh = kit.open(segment_bytes_max=1)
    assert [commit.seq for commit in fresh.read(seq - 1)] == [seq]
    appended = kit.commit(fresh)
    opened = msgspec.json.decode(next(iter(audit([kit.segment(appended.place.segment)]))).events)[0]
    assert opened["journal"] == uuid


def test_a_directory_of_the_caller_may_be_relative(kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative = kit.directory.relative_to(tmp_path)
    journal = Journal(relative, first_events=FIRST_EVENTS)
    journal.commit(lambda _time: events("x"), deadline=soon())
    journal.close()
    assert kit.texts() == ["x"]


def test_a_line_that_makes_no_sense_to_its_reader_is_named_by_its_place(kit: Kit) -> None:
    journal = kit.open()
    appended = kit.commit(journal)
    error = journal.corrupt_at(list(journal.read(0))[-1], "no such channel")
    assert (error.file, error.line, error.offset) == (str(kit.segment()), 3, appended.place.offset)
    assert (error.seq, error.cause) == (3, "no such channel")
