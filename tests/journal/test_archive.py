"""Archives: a segment that nobody needs is packed, and every reader reads it as it was."""

from __future__ import annotations

import errno
import gzip
import os
import stat
import threading
import time
from typing import TYPE_CHECKING

import pytest

from journal import (
    Commit,
    CorruptError,
    Fault,
    Files,
    Journal,
    ReplacedError,
    UnreadableError,
    UnusableError,
    UnwritableError,
    Verdict,
    Wanted,
    archive,
    audit,
    parse_time,
    verify,
    walk,
)
from journal.segment import name
from tests.journal.conftest import FaultyFiles, Kit, Unflushed, soon

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEGMENT_BYTES = 700
FAR_MS = 1 << 50


def wanted(**changes: object) -> Wanted:
    """Everything that is finished, unless told otherwise."""
    fields = {"needed": (), "through_seq": 1 << 40, "before_ms": FAR_MS, "segments_max": 100, "stopped": lambda: False}
    return Wanted(**{**fields, **changes})  # type: ignore[arg-type]  # keywords in a dict


def filled(kit: Kit, commits: int = 20, files: Files | None = None) -> Journal:
    """A journal of several segments."""
    journal = kit.open(segment_bytes_max=SEGMENT_BYTES, files=files or Unflushed())
    for number in range(commits):
        kit.commit(journal, f"text {number}")
    return journal


def firsts(kit: Kit) -> list[int]:
    """First seqs of the segments that are not packed."""
    return sorted(int(path.stem) for path in kit.directory.glob("*.jsonl"))


def packed(kit: Kit) -> list[int]:
    return sorted(int(path.name[:20]) for path in kit.directory.glob("archive/*.jsonl.gz"))


def place(kit: Kit, first_seq: int) -> Path:
    return kit.directory / "archive" / f"{name(first_seq)}.gz"


def whole(kit: Kit) -> list[Commit]:
    """All commits, as a reader that comes now has them."""
    return list(kit.open(read_only=True).read(0))


def verdict(kit: Kit) -> Verdict:
    *faults, last = verify([kit.directory])
    assert faults == []
    assert isinstance(last, Verdict)
    return last


# --- what is packed


def test_a_packed_journal_reads_verifies_and_grows_as_before(kit: Kit) -> None:
    journal = filled(kit)
    before, segments, bytes_before = whole(kit), firsts(kit), {f: kit.segment(f).read_bytes() for f in firsts(kit)}
    assert len(segments) > 3
    assert journal.archive(wanted()) == segments[:-1]
    assert (packed(kit), firsts(kit)) == (segments[:-1], segments[-1:])
    assert whole(kit) == before == [found for found in walk([kit.directory]) if isinstance(found, Commit)]
    assert list(audit([kit.directory])) == before
    assert {f: gzip.decompress(place(kit, f).read_bytes()) for f in packed(kit)} == {
        f: bytes_before[f] for f in segments[:-1]
    }
    assert verdict(kit).segments == len(segments)
    assert journal.archive(wanted()) == []
    kit.commit(journal, "and on")
    assert whole(kit)[: len(before)] == before
    assert kit.texts(journal)[-1] == "and on"


def test_a_walk_goes_on_in_the_archives_of_what_is_packed_while_it_walks(kit: Kit) -> None:
    journal = filled(kit)
    before = whole(kit)
    walking = walk([kit.directory])
    found = [next(walking)]
    kit.commit(journal, "and on")
    assert len(journal.archive(wanted())) > 2
    found += walking
    assert found[:-1] == before
    assert isinstance(found[-1], Verdict)


def test_an_archive_that_goes_while_it_is_walked_to_is_missing(kit: Kit) -> None:
    filled(kit).archive(wanted())
    second = place(kit, packed(kit)[1])
    walking = walk([kit.directory])
    next(walking)
    aside = second.rename(second.with_name("aside"))
    assert "the segment is missing" in [each.cause for each in walking if isinstance(each, Fault)]
    aside.rename(second)


def test_an_archive_is_private_and_says_nothing_of_when_and_by_whom_it_was_made(kit: Kit) -> None:
    journal = filled(kit)
    first = firsts(kit)[0]
    text = kit.segment(first).read_bytes()
    journal.archive(wanted(segments_max=1))
    data = place(kit, first).read_bytes()
    assert stat.S_IMODE(place(kit, first).stat().st_mode) == 0o600
    assert stat.S_IMODE(place(kit, first).parent.stat().st_mode) == 0o700
    assert data[:9] == b"\x1f\x8b\x08\0\0\0\0\0\0"  # no name, no time
    again = kit.directory / "again.gz"
    fd = os.open(kit.directory / "again", os.O_RDWR | os.O_CREAT)
    os.write(fd, text)
    assert archive.pack(Unflushed(), fd, str(again), lambda: False) is not None
    os.close(fd)
    assert again.read_bytes() == data


def test_what_is_needed_young_unseen_or_the_last_stays(kit: Kit) -> None:
    journal = filled(kit)
    one, two, three, four, *_, last = firsts(kit)
    assert journal.archive(wanted(needed={one, three}, segments_max=2)) == [two, four]
    assert journal.archive(wanted(through_seq=two - 2)) == []
    assert journal.archive(wanted(through_seq=two - 1)) == [one]
    ended = [commit.time for commit in whole(kit) if commit.place.segment == three][-1]
    assert journal.archive(wanted(before_ms=parse_time(ended))) == []
    assert three in journal.archive(wanted(before_ms=parse_time(ended) + 1))
    journal.archive(wanted())
    assert firsts(kit) == [last]


def test_a_segment_whose_flush_failed_or_whose_end_is_no_line_stays(kit: Kit) -> None:
    journal = filled(kit)
    one, two, *_ = firsts(kit)
    Files().mark(str(kit.segment(one)))
    assert journal.archive(wanted(segments_max=1)) == [two]
    assert list((kit.directory / "archive").glob("*.new")) == []
    kit.segment(one).chmod(0o600)
    kit.segment(one).write_bytes(kit.segment(one).read_bytes() + b"no line\n")
    assert journal.archive(wanted()) == []
    assert one in firsts(kit)


def test_one_process_packs_at_a_time_and_one_that_is_stopped_leaves_nothing_behind(kit: Kit) -> None:
    journal = filled(kit)
    segments = firsts(kit)
    (kit.directory / "archive").mkdir()
    lock = os.open(kit.directory / "archive" / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    assert Files().try_lock(lock)
    assert journal.archive(wanted()) == []
    os.close(lock)
    answers = iter([False, True, True])
    assert journal.archive(wanted(stopped=lambda: next(answers))) == []
    assert journal.archive(wanted(stopped=lambda: True)) == []
    assert (firsts(kit), os.listdir(kit.directory / "archive")) == (segments, ["lock"])


def test_a_journal_opened_only_to_read_packs_nothing(kit: Kit) -> None:
    filled(kit)
    with pytest.raises(UnusableError, match="only to read"):
        kit.open(read_only=True).archive(wanted())
    assert packed(kit) == []


class Meddling(Unflushed):
    """Does something once, right before a call on a path that ends so."""

    def __init__(self, verb: str, ending: str, act: Callable[[], object]) -> None:
        self.verb, self.ending, self.act = verb, ending, act

    def meddle(self, verb: str, path: str) -> None:
        if verb == self.verb and path.endswith(self.ending):
            act, self.act = self.act, lambda: None
            self.verb = ""
            act()

    def open(self, path: str, flags: int) -> int:
        self.meddle("open", path)
        return super().open(path, flags)

    def stat(self, path: str) -> os.stat_result:
        self.meddle("stat", path)
        return super().stat(path)

    def rename(self, old: str, new: str) -> None:
        self.meddle("rename", old)
        super().rename(old, new)


def test_a_segment_that_was_replaced_or_packed_meanwhile_is_left_alone(kit: Kit) -> None:
    filled(kit)
    one, two, *_ = firsts(kit)
    copy = kit.directory / "copy"

    def replace() -> None:
        copy.write_bytes(kit.segment(one).read_bytes())
        copy.rename(kit.segment(one))

    def other() -> None:
        kit.open(files=Unflushed()).archive(wanted())

    assert kit.open(files=Meddling("open", ".new", replace)).archive(wanted(segments_max=1)) == [two]
    assert packed(kit) == [two]
    kit.segment(two).write_bytes(gzip.decompress(place(kit, two).read_bytes()))
    gone = Meddling("open", ".new", kit.segment(one).unlink)
    kept = kit.segment(one).read_bytes()
    assert kit.open(files=gone).archive(wanted(segments_max=1)) == [two]
    kit.segment(one).write_bytes(kept)
    for ending in (name(one), "lock"):
        kit.segment(one).write_bytes(kept)
        quicker = kit.open(files=Meddling("open", ending, kit.segment(one).unlink))
        assert one not in quicker.archive(wanted(segments_max=1))


def test_an_archive_that_does_not_give_back_what_was_packed_is_not_kept(kit: Kit) -> None:
    class Lossy(Unflushed):
        def write_all(self, fd: int, data: bytes) -> None:
            super().write_all(fd, data[:-1] if data.startswith(b"\x1f\x8b") else data)

    journal = filled(kit, files=Lossy())
    segments = firsts(kit)
    assert journal.archive(wanted()) == []
    assert (firsts(kit), packed(kit)) == (segments, [])


# --- reading while it happens


def test_a_reader_in_a_segment_that_is_packed_reads_on_to_the_end(kit: Kit) -> None:
    journal = filled(kit)
    everything = whole(kit)
    for begun in range(1, len(everything)):
        reader = kit.open(read_only=True)
        reading = reader.read(0)
        read = [next(reading) for _ in range(begun)]
        journal.archive(wanted(segments_max=1))
        assert [*read, *reading] == everything
        assert list(reader.read(begun)) == everything[begun:]
    assert len(firsts(kit)) == 1


def test_a_process_that_slept_while_its_segment_was_packed_goes_on_behind_it(kit: Kit) -> None:
    sleeper = kit.open(segment_bytes_max=SEGMENT_BYTES, files=Unflushed())
    kit.commit(sleeper, "early")
    last = sleeper.last_seq
    filled(kit).archive(wanted())
    assert not kit.segment(1).exists()
    sleeper.flush(soon())
    assert sleeper.line_at(next(iter(whole(kit))).place, 1).seq == 1
    rest = list(sleeper.read(last))
    assert rest == whole(kit)[last:]
    kit.commit(sleeper, "late")
    assert kit.texts()[-1] == "late"


def test_a_process_whose_last_read_line_is_packed_needs_no_flush_of_it(kit: Kit) -> None:
    filled(kit)
    one, two, *_ = firsts(kit)
    reader = kit.open(segment_bytes_max=SEGMENT_BYTES, files=Unflushed())
    reading = reader.read(0)
    while next(reading).seq < two - 1:
        pass
    kit.open(files=Unflushed()).archive(wanted(segments_max=1))
    assert not kit.segment(one).exists()
    reader.flush(soon())
    place(kit, one).unlink()
    with pytest.raises(Exception, match="No such file"):
        kit.open(segment_bytes_max=SEGMENT_BYTES, files=Unflushed())._writer.active._flush_other(one)


def test_a_bookmark_stands_whatever_is_packed_before_and_under_it(kit: Kit) -> None:
    journal = filled(kit)
    everything = whole(kit)
    marks = []
    for commit in journal.read(0):
        bookmark = journal.bookmark(commit.seq)
        if bookmark is not None:
            marks.append(bookmark)
    assert {mark.position.segment for mark in marks} >= set(firsts(kit)[:-1])
    journal.archive(wanted())
    for mark in marks:
        fresh = kit.open(read_only=True)
        assert fresh.resume(mark)
        assert list(fresh.read(mark.position.seq)) == everything[mark.position.seq :]
    first = firsts(kit)
    damaged = place(kit, packed(kit)[0])
    damaged.write_bytes(damaged.read_bytes() + b"\0")
    assert not kit.open(read_only=True).resume(marks[-1])
    damaged.write_bytes(b"\0")
    assert not kit.open(read_only=True).resume(marks[-1])
    damaged.unlink()
    assert not kit.open(read_only=True).resume(marks[-1])
    assert first == firsts(kit)


def test_where_a_segment_is_there_twice_the_one_that_is_not_packed_counts(kit: Kit) -> None:
    journal = filled(kit)
    everything, first = whole(kit), firsts(kit)[1]
    text = kit.segment(first).read_bytes()
    journal.archive(wanted())
    for beside in (place(kit, first).read_bytes(), place(kit, first).read_bytes()[:-9], b"", b"no archive"):
        place(kit, first).write_bytes(beside)
        kit.segment(first).write_bytes(text)
        assert whole(kit) == everything
        assert verdict(kit).commits == len(everything)
        assert journal.archive(wanted()) == [first]
        assert whole(kit) == everything


def test_an_archive_given_by_name_is_read_as_a_segment_is(kit: Kit) -> None:
    journal = filled(kit)
    everything = whole(kit)
    journal.archive(wanted())
    one, two, *_ = packed(kit)
    found = list(walk([place(kit, two)]))
    assert found[:-1] == [commit for commit in everything if commit.place.segment == two]
    both = list(walk([place(kit, one), place(kit, two)]))
    assert both[0] == everything[0]
    assert isinstance(both[-1], Verdict)
    assert both[-1].segments == 2


def test_readers_follow_without_a_hole_while_writers_write_and_archives_are_made(kit: Kit) -> None:
    writer = filled(kit, commits=3)
    done = threading.Event()

    def pack() -> None:
        packer = kit.open(segment_bytes_max=SEGMENT_BYTES, files=Unflushed())
        while not done.is_set():
            packer.archive(wanted())

    def write() -> None:
        for number in range(150):
            kit.commit(writer, f"more {number}", flush=False)

    threads = [threading.Thread(target=pack), threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    follower, seen = kit.open(read_only=True), 0
    limit = time.monotonic() + 20
    while threads[1].is_alive() or seen < writer.last_seq:
        assert time.monotonic() < limit
        for commit in follower.read(seen):
            assert commit.seq == seen + 1
            seen = commit.seq
        fresh = [commit.seq for commit in kit.open(read_only=True).read(0)]
        assert fresh == list(range(1, len(fresh) + 1))
    done.set()
    for thread in threads:
        thread.join(20)
    assert packed(kit)
    assert verdict(kit).last_seq == writer.last_seq


# --- what is wrong with one


def damage_of(kit: Kit, first: int) -> tuple[str, Exception]:
    """What a reader says, and what verify says, of a damaged journal: the file and the error."""
    faults = [found for found in verify([kit.directory]) if isinstance(found, Fault)]
    assert faults
    assert faults[0].file == str(place(kit, first))
    with pytest.raises(CorruptError) as caught:
        whole(kit)
    assert caught.value.file == str(place(kit, first))
    assert (caught.value.line, caught.value.offset) == (faults[0].line, faults[0].offset)
    return faults[0].cause, caught.value


def test_an_archive_cut_anywhere_is_named_with_the_place_up_to_which_it_reads(kit: Kit) -> None:
    journal = filled(kit)
    everything = whole(kit)
    journal.archive(wanted())
    first = packed(kit)[1]
    data = place(kit, first).read_bytes()
    for cut in range(len(data)):
        place(kit, first).write_bytes(data[:cut])
        cause, _ = damage_of(kit, first)
        assert "too early" in cause or "hash" in cause or "bytes after" in cause or "empty" in cause
        kept = [found for found in walk([kit.directory]) if isinstance(found, Commit)]
        assert [commit for commit in kept if commit.place.segment != first] == [
            commit for commit in everything if commit.place.segment != first
        ]


def test_a_changed_byte_of_an_archive_never_goes_unnoticed(kit: Kit) -> None:
    journal = filled(kit)
    everything = whole(kit)
    journal.archive(wanted())
    first = packed(kit)[0]
    data = place(kit, first).read_bytes()
    silent = 0
    for at in range(len(data)):
        place(kit, first).write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        if any(isinstance(found, Fault) for found in verify([kit.directory])):
            damage_of(kit, first)
        else:  # the header's time and system, and bits between the last symbol and the checksum, say nothing
            assert whole(kit) == everything
            silent += 1
    assert silent <= 7


def test_what_stands_behind_an_archive_s_end_is_damage(kit: Kit) -> None:
    journal = filled(kit)
    everything = whole(kit)
    journal.archive(wanted())
    first = packed(kit)[0]
    data = place(kit, first).read_bytes()
    for more in (b"\0", data):
        place(kit, first).write_bytes(data + more)
        cause, error = damage_of(kit, first)
        assert cause == "holds more than one packed segment"
        assert str(first + 0) in str(error)
        assert [found for found in walk([kit.directory]) if isinstance(found, Commit)] == everything


def test_lines_edited_inside_an_archive_are_named_by_their_place_in_what_was_packed(kit: Kit) -> None:
    journal = filled(kit)
    journal.archive(wanted())
    first = packed(kit)[0]
    text = gzip.decompress(place(kit, first).read_bytes())
    place(kit, first).write_bytes(gzip.compress(text.replace(b"text 1", b"text !")))
    cause, error = damage_of(kit, first)
    assert "hash" in cause
    assert isinstance(error, CorruptError)
    assert error.line == text[: text.index(b"text 1")].count(b"\n") + 1


def test_an_archive_without_end_is_not_unpacked_to_the_end(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = filled(kit)
    journal.archive(wanted())
    first = packed(kit)[0]
    monkeypatch.setattr(archive, "UNPACKED_BYTES_MAX", 3 << 20)
    text = gzip.decompress(place(kit, first).read_bytes())
    place(kit, first).write_bytes(gzip.compress(text + bytes(64 << 20)))
    opened = archive.open_any(Files(), str(place(kit, first)))
    assert os.fstat(opened.fd).st_size <= 3 << 20
    os.close(opened.fd)
    assert opened.fault.startswith("unpacks to more than")
    damage_of(kit, first)


def test_a_packed_segment_that_is_gone_is_missing(kit: Kit) -> None:
    journal = filled(kit)
    journal.archive(wanted())
    first = packed(kit)[1]
    place(kit, first).unlink()
    (fault,) = [found for found in verify([kit.directory]) if isinstance(found, Fault)]
    assert (fault.file, fault.cause) == (str(kit.segment(first)), "the segment that begins with it is missing")
    with pytest.raises(CorruptError, match="missing"):
        whole(kit)


def test_where_only_archives_are_left_the_end_is_missing_and_nobody_writes(kit: Kit) -> None:
    journal = filled(kit)
    journal.archive(wanted())
    last = firsts(kit)[0]
    kit.segment(last).unlink()
    (fault,) = [found for found in verify([kit.directory]) if isinstance(found, Fault)]
    assert (fault.file, fault.seq) == (str(kit.segment(last)), last)
    with pytest.raises(CorruptError, match="missing"):
        whole(kit)
    for writer in (kit.open(), journal):
        with pytest.raises((CorruptError, ReplacedError)):
            kit.commit(writer)
    assert firsts(kit) == []


def test_a_file_in_the_place_of_the_archives_is_named(kit: Kit) -> None:
    filled(kit)
    (kit.directory / "archive").write_text("")
    with pytest.raises(UnreadableError, match="archive"):
        whole(kit)
    with pytest.raises(NotADirectoryError):
        list(verify([kit.directory]))


def test_archives_elsewhere_behind_a_link_are_read(kit: Kit, tmp_path: Path) -> None:
    journal = filled(kit)
    everything = whole(kit)
    (tmp_path / "large disk").mkdir()
    (kit.directory / "archive").symlink_to(tmp_path / "large disk")
    assert journal.archive(wanted())
    assert whole(kit) == everything
    assert verdict(kit).commits == len(everything)


def test_the_sizes_of_segments_and_archives_are_told_apart(kit: Kit) -> None:
    journal = filled(kit)
    assert (len(journal.sizes()), journal.archive_sizes()) == (len(firsts(kit)), [])
    journal.archive(wanted(segments_max=1))
    assert journal.archive_sizes() == [place(kit, 1).stat().st_size]
    place(kit, 1).unlink()
    listing = journal._reader.shelf._packed
    listing._known = (place(kit, 1).parent.stat().st_mtime_ns, [1])
    assert journal.archive_sizes() == []
    files = FaultyFiles()
    files.fail = lambda verb, _at: errno.EACCES if verb == "stat" and len(files.calls) > 1 else 0
    with pytest.raises(UnreadableError):
        kit.open(read_only=True, files=files).sizes()


def test_what_is_unpacked_has_no_name_on_systems_without_files_in_memory(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = filled(kit)
    everything = whole(kit)
    journal.archive(wanted())
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert whole(kit) == everything


def test_a_full_disk_leaves_the_segment_and_no_half_archive(kit: Kit) -> None:
    files = FaultyFiles()
    journal = filled(kit, files=files)
    everything, segments = whole(kit), firsts(kit)
    files.fail_verbs("write", code=errno.ENOSPC)
    with pytest.raises(UnwritableError, match="disk full"):
        journal.archive(wanted())
    files.fail_nothing()
    assert (firsts(kit), os.listdir(kit.directory / "archive")) == (segments, ["lock"])
    assert whole(kit) == everything
    assert journal.archive(wanted()) == segments[:-1]
