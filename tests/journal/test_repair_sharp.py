"""Repair at its edges: what it waits for, what it leaves open, what it says it did."""

from __future__ import annotations

import gzip
import os
import re
from typing import TYPE_CHECKING

import pytest

from journal import ChangedError, UnusableError
from journal.record import ZERO_HASH
from tests.journal.conftest import FaultyFiles
from tests.journal.test_repair import DAMAGES, Case, change, three
from tests.journal.test_segment import chain, digest, lost, opened, posted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from journal import Commit


def harmed(path: Path, damage: str = "a changed text") -> Case:
    lines = three()
    DAMAGES[damage][0](lines)
    return Case(path, lines)


@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_it_mends_it_leaves_nothing_open(damage: str, tmp_path: Path) -> None:
    files = FaultyFiles()
    harmed(tmp_path, damage).run(files=files)
    assert files.fds == set()


@pytest.mark.parametrize("verb", ["write", "fsync", "rename"])
def test_whatever_fails_it_leaves_nothing_open(verb: str, tmp_path: Path) -> None:
    case, files = harmed(tmp_path), FaultyFiles()
    work = case.repair(files)
    plan = work.plan()
    files.fail_verbs(verb)
    with pytest.raises(Exception, match="Input/output error"):
        work.perform(plan, lambda: None, wait_s=5)
    assert files.fds == set()


@pytest.mark.parametrize("held", [1, 2, 3])
def test_a_lock_that_is_held_is_waited_for(held: int, tmp_path: Path) -> None:
    """The writer lock, that of the segment, and that of the last one for the line that ends a repair."""

    class Held(FaultyFiles):
        asked = 0

        def try_lock(self, fd: int) -> bool:
            self.asked += 1
            return self.asked != held and super().try_lock(fd)

    case = harmed(tmp_path)
    files = Held()
    _, done = case.run(files=files)
    assert len(done) == 1
    assert files.asked >= held
    case.check()


def test_a_journal_that_changed_since_the_plan_is_named(tmp_path: Path) -> None:
    case = harmed(tmp_path)
    work = case.repair()
    plan = work.plan()
    lines = three()
    change(lines, 7)
    case.write(lines)
    with pytest.raises(ChangedError) as caught:
        work.perform(plan, lambda: None, wait_s=5)
    assert caught.value.directory == str(case.place)


def test_a_second_repair_tells_of_its_own_work_only(tmp_path: Path) -> None:
    case = harmed(tmp_path)
    work = case.repair()
    assert len(work.perform(work.plan(), lambda: None, wait_s=5)) == 1
    assert work.perform(work.plan(), lambda: None, wait_s=5) == []


def test_what_cost_no_line_is_told_in_the_journal_too(tmp_path: Path) -> None:
    case = harmed(tmp_path, "lines put in")
    assert [each.lost for each in case.run()[1]] == [None]
    assert b'"type":"repaired"' in case.lines()[-1]


def test_the_directory_is_private_after_it(tmp_path: Path) -> None:
    case = harmed(tmp_path)
    case.place.chmod(0o755)
    case.run()
    assert case.place.stat().st_mode & 0o777 == 0o700


def test_where_locks_may_not_hold_it_does_nothing_unless_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.directory._filesystem", lambda _: "nfs")
    case = harmed(tmp_path)
    with pytest.raises(UnusableError, match="nfs"):
        case.run()
    assert case.files() == case.before
    assert len(case.run(allow_network_filesystem=True)[1]) == 1


def test_who_does_not_say_what_software_it_is_is_named_in_no_line(tmp_path: Path) -> None:
    case = harmed(tmp_path)
    before = len(case.before)
    case.run(segment_bytes_max=1)
    assert len(case.files()) > before
    assert not any(b'"by"' in line for line in case.lines())


def refusing(*seqs: int) -> Callable[[], Callable[[Commit, bool], str | None]]:
    """Whoever reads the events cannot make sense of some lines."""
    return lambda: lambda commit, _lost: "makes no sense" if commit.seq in seqs else None


def test_a_first_line_that_makes_no_sense_is_damage_that_continues_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path, three())
    (damage,) = case.repair(new_check=refusing(1)).plan().damages
    assert (damage.first, damage.last, damage.prev) == (1, 1, ZERO_HASH)


@pytest.mark.parametrize("damage", ["a changed text", "a line taken out"])
def test_a_line_that_makes_no_sense_after_a_damage_continues_what_stands_before_it(damage: str, tmp_path: Path) -> None:
    case = harmed(tmp_path, damage)
    case.run(new_check=refusing(8))
    assert [(each.seq, each.last) for each in case.verdict().lost] == [(6, 6), (8, 8)]
    case.check()


@pytest.mark.parametrize("missing", [5, 9])
def test_a_line_that_makes_no_sense_after_a_missing_segment_continues_what_that_is_replaced_by(
    missing: int, tmp_path: Path
) -> None:
    lines = three()
    del lines[5]
    if missing == 9:
        lines[5] = three()[5][:3]
    case = Case(tmp_path, lines)
    case.run(new_check=refusing(9))
    assert [each.last for each in case.verdict().lost][-1] == 9
    case.check()


def test_a_lost_range_is_said_to_be_damage_and_its_bytes_are_named_by_where_they_stood(tmp_path: Path) -> None:
    case = harmed(tmp_path)
    _, (done,) = case.run()
    assert done.lost is not None
    assert (done.lost.reason, [each.reason for each in case.verdict().lost]) == ("damage", ["damage"])
    (piece,) = case.aside()
    assert re.fullmatch(rf"{5:020d}-{done.damage.offset}-\d{{19}}-{os.getpid()}\.damaged", piece)


@pytest.mark.parametrize("next_prev", [True, False])
def test_a_line_that_makes_no_sense_after_a_lost_range_continues_what_that_says_or_itself(
    tmp_path: Path, *, next_prev: bool
) -> None:
    lines = three()
    after = digest(lines[5][3])
    lines[5][2:] = chain(lost(7, 8, after if next_prev else None), seq=7, prev=digest(lines[5][1]))
    case, files = Case(tmp_path, lines), FaultyFiles()
    (damage,) = case.repair(files, new_check=refusing(9)).plan().damages
    assert damage.prev == (after if next_prev else digest(lines[5][2]))
    assert files.fds == set()


def test_a_line_that_makes_no_sense_far_into_a_segment_is_named_by_its_number(tmp_path: Path) -> None:
    made = {1: chain(opened(), *[posted("x" * (400 << 10))] * 3, *[posted()] * 4)}
    (damage,) = Case(tmp_path, made).repair(new_check=refusing(6)).plan().damages
    assert (damage.line, damage.offset) == (6, len(b"".join(made[1][:5])))


def planned(case: Case, *seqs: int) -> list[tuple[int, int, str]]:
    """What is to be done where these lines make no sense; and then it is done."""
    plan, _ = case.run(new_check=refusing(*seqs))
    case.check()
    return [(each.first, each.last, each.action) for each in plan.damages]


def test_a_lost_line_that_makes_no_sense_after_a_damage_that_nothing_follows_continues_what_stands_before_both(
    tmp_path: Path,
) -> None:
    lines = three()
    change(lines, 8)
    lines[9] = [*chain(lost(9, 10, None), seq=9, prev="d" * 64), *chain(posted(), seq=11, prev="e" * 64)]
    case = Case(tmp_path, lines)
    damages = case.repair(new_check=refusing(9)).plan().damages
    assert [(each.first, each.prev) for each in damages] == [(8, digest(lines[5][2])), (9, digest(lines[5][2]))]
    assert planned(case, 9) == [(8, 8, "cut"), (9, 10, "cut")]


@pytest.mark.parametrize("next_prev", [True, False])
def test_of_a_lost_line_that_makes_no_sense_the_whole_range_is_lost(tmp_path: Path, *, next_prev: bool) -> None:
    lines = three()
    after = chain(posted(), seq=11, prev="e" * 64)
    lines[9] = [*chain(lost(9, 10, "e" * 64 if next_prev else None), seq=9, prev=digest(lines[5][3])), *after]
    assert planned(Case(tmp_path, lines), 9) == [(9, 10, "cut")]


def test_a_lost_line_that_makes_no_sense_is_one_with_the_damage_before_it(tmp_path: Path) -> None:
    lines = three()
    lines[9][1:] = chain(posted("text 10"), lost(11, 14, "e" * 64), seq=10, prev=digest(lines[9][0]))
    lines[9] += chain(posted(), seq=15, prev="e" * 64)
    change(lines, 10)
    assert planned(Case(tmp_path, lines), 11) == [(10, 14, "cut")]


def test_a_line_feed_is_added_even_if_the_line_after_it_makes_no_sense(tmp_path: Path) -> None:
    assert planned(harmed(tmp_path, "no line feed at its end"), 9) == [(0, -1, "end"), (9, 9, "cut")]


def test_a_line_without_its_line_feed_that_makes_no_sense_is_one_with_the_damage_before_it(tmp_path: Path) -> None:
    lines = three()
    for seq in (2, 4, 7):
        change(lines, seq)
    lines[5].append(lines[5].pop()[:-1])
    assert planned(Case(tmp_path, lines), 8) == [(2, 2, "cut"), (4, 4, "cut"), (7, 8, "cut")]


def test_a_line_that_makes_no_sense_is_not_one_with_bytes_that_were_put_in_before_it(tmp_path: Path) -> None:
    assert planned(harmed(tmp_path, "lines put in"), 6) == [(6, 5, "cut"), (6, 6, "cut")]


def pack(case: Case) -> None:
    """Every segment but the last becomes an archive."""
    (case.place / "archive").mkdir()
    for path in sorted(case.place.glob("*.jsonl"))[:-1]:
        (case.place / "archive" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def test_of_the_damages_in_one_archive_the_last_names_what_became_of_it(tmp_path: Path) -> None:
    lines, files = three(), FaultyFiles()
    for seq in (2, 6, 8):
        change(lines, seq)
    case = Case(tmp_path, lines)
    pack(case)
    _, done = case.run(files=files)
    assert [each.archive is None for each in done] == [False, True, False]
    assert files.fds == set()
    assert set(case.aside()) == {str(name) for each in done for name in (each.piece, each.archive) if name}


def test_a_file_that_is_taken_away_is_set_aside_as_what_it_is(tmp_path: Path) -> None:
    for kind, ending in ((False, ".damaged"), (True, ".damaged.gz")):
        case = harmed(tmp_path / ending, "a copy of a segment in the middle")
        if kind:
            pack(case)
        case.run()
        assert [name[name.index(".") :] for name in case.aside()] == [ending]


class Noting(FaultyFiles):
    """Notes what gets another name, and which directories are flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def rename(self, old: str, new: str) -> None:
        self.noted.append(f"into {os.path.basename(os.path.dirname(new))}")
        super().rename(old, new)

    def fsync_directory(self, path: str) -> None:
        self.noted.append(f"flush {os.path.basename(path)}")
        super().fsync_directory(path)


def test_an_archive_that_is_taken_away_is_gone_durably(tmp_path: Path) -> None:
    case, files = harmed(tmp_path, "a copy of a segment in the middle"), Noting()
    pack(case)
    case.run(files=files)
    assert "flush archive" in files.noted[files.noted.index("into set-aside") :]


@pytest.mark.parametrize("damage", ["a changed text", "a copy of a segment in the middle"])
def test_what_an_archive_was_is_in_set_aside_durably(damage: str, tmp_path: Path) -> None:
    case, files = harmed(tmp_path, damage), Noting()
    pack(case)
    case.run(files=files)
    at = files.noted.index("into set-aside")
    assert files.noted[at - 1] == "flush journal"
    assert files.noted[at + 1] == "flush set-aside"
