"""Archiving, and the repair of archives, on a disk that fails and a machine that stops: the journal reads the same."""

from __future__ import annotations

import contextlib
import errno
import gzip
from typing import TYPE_CHECKING

import pytest

from journal import CorruptError, Fault, Files, Journal, JournalError, UnreadableError, archive, verify
from journal.record import LINE_BYTES_MAX
from journal.segment import name
from tests.journal.conftest import FIRST_EVENTS, FaultyFiles
from tests.journal.test_archive import filled, firsts, place, verdict, wanted, whole
from tests.journal.test_repair import Case, change, three
from tests.journal.test_repair_faults import Deadly, Killed, Noted

if TYPE_CHECKING:
    from pathlib import Path

    from journal import Commit, Verdict
    from tests.journal.conftest import Kit
    from tests.journal.test_repair import Lines


def read(case: Case) -> list[Commit]:
    return list(Journal(case.place, first_events=FIRST_EVENTS, read_only=True).read(0))


def packed_case(path: Path, made: Lines, *firsts: int) -> Case:
    """A journal of which some segments are packed as they stand."""
    case = Case(path, made)
    (case.place / "archive").mkdir()
    for first in firsts:
        (case.place / "archive" / f"{name(first)}.gz").write_bytes(gzip.compress(b"".join(made[first]), mtime=0))
        (case.place / name(first)).unlink()
    return case


@pytest.mark.parametrize("kills", [False, True], ids=["fails", "kills"])
def test_whichever_system_call_fails_or_kills_the_journal_reads_the_same_and_can_be_packed(
    tmp_path: Path, *, kills: bool
) -> None:
    number, kept = 0, [line for lines in three().values() for line in lines]
    while True:
        number += 1
        case = Case(tmp_path / str(number), three())
        before = read(case)
        files = Deadly(number, kills=kills)
        deadly = files.fail
        # The kernel does not refuse an unlock; and who is killed in it has given the lock back.
        files.fail = lambda verb, at, deadly=deadly: 0 if verb == "unlock" else deadly(verb, at)  # type: ignore[misc]  # a default
        journal = Journal(case.place, first_events=FIRST_EVENTS, files=files)
        with contextlib.suppress(JournalError, Killed):
            journal.archive(wanted())
        journal.close()
        assert read(case) == before
        assert case.verdict().commits == len(kept)
        again = Journal(case.place, first_events=FIRST_EVENTS)
        again.archive(wanted())
        assert read(case) == before
        left = sorted(path.relative_to(case.place).as_posix() for path in case.place.rglob("*0*"))
        assert left == [name(9), f"archive/{name(1)}.gz", f"archive/{name(5)}.gz"]
        if len(files.calls) < number:
            break
    assert number > 60


class Named(Noted):
    """Also what has no name."""

    def unnamed(self) -> int:
        fd = super().unnamed()
        self.paths[fd] = "unnamed"
        return fd


def test_the_archive_s_name_is_on_the_disk_before_the_segment_loses_its_own(tmp_path: Path) -> None:
    case = Case(tmp_path, three())
    files = Named()
    Journal(case.place, first_events=FIRST_EVENTS, files=files).archive(wanted(segments_max=1))
    steps = ["mkdir archive", "fsync journal", "write new", "fsync new", "rename new", "fsync archive", "unlink jsonl"]
    assert [step for step in files.steps if step in steps] == steps


def test_the_writer_lock_is_held_only_to_put_the_archive_in_its_place(kit: Kit) -> None:
    files = FaultyFiles()
    journal = filled(kit, files=files)
    files.calls.clear()
    journal.archive(wanted(segments_max=1))
    packing = files.calls[files.calls.index("write") :]
    held = packing[packing.index("try_lock") : packing.index("unlock")]
    assert [verb for verb in held if verb in ("rename", "fsync", "unlink")] == ["rename", "fsync", "unlink"]
    assert not {"write", "pread", "unnamed"} & set(held)


def test_a_process_killed_while_it_packs_leaves_half_an_archive_that_is_not_looked_at(kit: Kit) -> None:
    journal = filled(kit)
    everything = whole(kit)
    journal.archive(wanted(segments_max=1))
    first = firsts(kit)[0]
    half = place(kit, first).with_suffix(".gz.new")
    half.write_bytes(b"\x1f\x8b half")
    assert whole(kit) == everything
    assert verdict(kit).commits == len(everything)
    assert first in journal.archive(wanted())
    assert not half.exists()


@pytest.mark.parametrize("verb", ["open", "pread", "fstat", "unnamed", "write", "stat", "listdir"])
def test_what_the_system_refuses_while_an_archive_is_read_is_told(kit: Kit, verb: str) -> None:
    filled(kit).archive(wanted())
    everything = whole(kit)
    for number in range(1, 40):
        files = FaultyFiles()
        files.fail = lambda called, _at, files=files, number=number: (  # type: ignore[misc]  # defaults
            errno.EIO if called == verb and files.calls.count(verb) == number else 0
        )
        with contextlib.suppress(UnreadableError):
            assert list(kit.open(read_only=True, files=files).read(0)) == everything


def test_a_line_number_that_cannot_be_counted_is_told(kit: Kit) -> None:
    filled(kit)
    damaged = kit.segment(firsts(kit)[0])
    damaged.write_bytes(damaged.read_bytes().replace(b'"text 1"', b'"text !"'))
    causes = set()
    for number in range(1, 8):
        files = FaultyFiles()
        files.fail = lambda verb, _at, files=files, number=number: (  # type: ignore[misc]  # defaults
            errno.EIO if verb == "pread" and files.calls.count(verb) == number else 0
        )
        with pytest.raises(JournalError) as caught:
            list(kit.open(read_only=True, files=files).read(0))
        causes.add(type(caught.value))
    assert causes == {UnreadableError, CorruptError}


# --- repair


def check(case: Case, before: Lines, lost: list[tuple[int, int]]) -> Verdict:
    verdict = case.check()
    assert [(each.seq, each.last) for each in verdict.lost] == lost
    kept = [line for lines in before.values() for line in lines]
    gone = {seq for first, last in lost for seq in range(first, last + 1)}
    held = {line for path in case.place.glob("*.jsonl") for line in path.read_bytes().splitlines(keepends=True)}
    held |= {
        line
        for path in case.place.glob("archive/*.gz")
        if not (case.place / path.stem).exists()
        for line in gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    }
    assert all(line in held for seq, line in enumerate(kept, 1) if seq not in gone)
    return verdict


def test_a_line_changed_in_an_archive_is_taken_out_and_the_archive_is_set_aside(tmp_path: Path) -> None:
    made, sound = three(), three()
    change(made, 6)
    case = packed_case(tmp_path, made, 1, 5)
    data = (case.place / "archive" / f"{name(5)}.gz").read_bytes()
    plan, done = case.run()
    assert [(damage.file, damage.line) for damage in plan.damages] == [
        (str(case.place / "archive" / f"{name(5)}.gz"), 2)
    ]
    assert done[0].archive is not None
    assert case.aside()[done[0].archive] == data
    assert done[0].piece is not None
    assert case.aside()[done[0].piece] == made[5][1]
    assert (case.place / name(5)).exists()
    assert [path.name for path in case.place.glob("archive/*")] == [f"{name(1)}.gz"]
    check(case, sound, [(6, 6)])


def test_an_archive_that_unpacks_whole_and_is_damaged_all_the_same_costs_no_line(tmp_path: Path) -> None:
    case = packed_case(tmp_path, three(), 1, 5)
    path = case.place / "archive" / f"{name(5)}.gz"
    data = path.read_bytes()
    for wrong in (data[:-1], data[:-5] + b"\xff\xff" + data[-3:], data + b"\0"):
        path.write_bytes(wrong)
        plan, done = case.run()
        assert [(damage.bytes, damage.last - damage.first) for damage in plan.damages] == [(0, -1)]
        assert [(each.piece, each.lost) for each in done] == [(None, None)]
        assert wrong in case.aside().values()
        (case.place / name(5)).unlink()
        path.write_bytes(data)
    check(case, three(), [])


def test_an_archive_cut_off_loses_what_cannot_be_unpacked_and_what_is_gone_is_counted_by_the_next(
    tmp_path: Path,
) -> None:
    data = gzip.compress(b"".join(three()[5]))
    ranges = set()
    for cut in range(0, len(data), 7):
        case = packed_case(tmp_path / str(cut), three(), 1, 5)
        (case.place / "archive" / f"{name(5)}.gz").write_bytes(data[:cut])
        case.run()
        lost = [(each.seq, each.last) for each in case.verdict().lost]
        ranges |= set(lost)
        check(case, three(), lost)
    assert ranges == {(5, 8), (6, 8), (7, 8), (8, 8)}


def test_where_the_last_segment_is_gone_behind_archives_a_lost_line_takes_its_place(tmp_path: Path) -> None:
    made = three()
    case = packed_case(tmp_path, made, 1, 5)
    (case.place / name(9)).unlink()
    plan, _ = case.run()
    assert [(damage.first, damage.last, damage.guessed) for damage in plan.damages] == [(9, 9, True)]
    del made[9]
    check(case, made, [(9, 9)])


def test_an_archive_named_alone_is_judged_to_its_end(tmp_path: Path) -> None:
    made = three()
    made[5][-1] = made[5][-1][:-1]
    case = packed_case(tmp_path, made, 5)
    path = case.place / "archive" / f"{name(5)}.gz"
    (fault, _) = verify([path])
    assert isinstance(fault, Fault)
    assert fault.cause.startswith("bytes after the last line")
    path.write_bytes(gzip.compress(b"".join(three()[5]))[:-1])
    (fault, _) = verify([path])
    assert isinstance(fault, Fault)
    assert (fault.line, fault.seq) == (5, 9)
    path.write_bytes(gzip.compress(b"".join(three()[5])[:-100]))
    (fault, _) = verify([path])
    assert isinstance(fault, Fault)
    path.write_bytes(gzip.compress(b"".join(three()[5])))
    assert len(list(verify([path]))) == 1
    path.unlink()
    (fault, _) = verify([path])
    assert isinstance(fault, Fault)
    assert fault.cause == "the segment is missing"


@pytest.mark.parametrize("kills", [False, True], ids=["fails", "kills"])
def test_whichever_system_call_fails_or_kills_the_repair_of_an_archive_can_be_run_again(
    tmp_path: Path, *, kills: bool
) -> None:
    made, number = three(), 0
    change(made, 6)
    while True:
        number += 1
        case = packed_case(tmp_path / str(number), made, 1, 5)
        data = (case.place / "archive" / f"{name(5)}.gz").read_bytes()
        files = Deadly(number, kills=kills)
        try:
            case.run(files=files)
        except (JournalError, Killed):
            pass
        else:
            if len(files.calls) < number:
                break
        case.run()
        check(case, three(), [(6, 6)])
        held = [*case.aside().values(), *(path.read_bytes() for path in case.place.glob("archive/*"))]
        assert data in held
        assert made[5][1] in held
    assert number > 80


def test_an_archive_with_a_line_that_is_too_long_is_told(tmp_path: Path) -> None:
    made = three()
    made[5][1] = b"x" * (LINE_BYTES_MAX + 1) + b"\n"
    case = packed_case(tmp_path, made, 5)
    case.run()
    check(case, three(), [(6, 6)])


def test_no_descriptor_is_left_open_where_an_archive_cannot_be_unpacked(tmp_path: Path) -> None:
    case = packed_case(tmp_path, three(), 5)
    opened: list[int] = []
    closed: list[int] = []

    class Counted(Files):
        def open(self, path: str, flags: int) -> int:
            opened.append(super().open(path, flags))
            return opened[-1]

        def unnamed(self) -> int:
            opened.append(super().unnamed())
            return opened[-1]

        def close(self, fd: int) -> None:
            closed.append(fd)
            super().close(fd)

        def write(self, _fd: int, _data: bytes) -> int:
            raise OSError(errno.ENOSPC, "disk full")

    with pytest.raises(OSError, match="disk full"):
        archive.open_any(Counted(), str(case.place / "archive" / f"{name(5)}.gz"))
    assert sorted(opened) == sorted(closed)
