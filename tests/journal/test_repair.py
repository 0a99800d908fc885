"""Damage of every kind, and what repair makes of it: nothing sound is taken, nothing damaged is destroyed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from journal import (
    LINE_BYTES_MAX,
    BusyError,
    ChangedError,
    Commit,
    Files,
    Journal,
    LostRange,
    Mended,
    Plan,
    Repair,
    ReplacedError,
    Snapshots,
    UnreadableError,
    UnsupportedError,
    UnwritableError,
    Verdict,
    verify,
    walk,
)
from journal.lock import NAME, WriterLock
from journal.record import ZERO_HASH, encode
from journal.segment import name
from tests.journal.conftest import FIRST_EVENTS, FaultyFiles, Unflushed, soon
from tests.journal.test_segment import TIME, chain, digest, lost, opened, posted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Lines = dict[int, list[bytes]]
Ranges = list[tuple[int, int]]
FOREIGN = "another journal"


def three(journal: str | None = None) -> Lines:
    """Three segments of four lines: 1 to 4, 5 to 8, 9 to 12."""
    prev, made = ZERO_HASH, {}
    for first in (1, 5, 9):
        opening = opened(prev) if journal is None else opened(prev, journal=journal)
        texts = [posted(f"{journal or 'text'} {seq}") for seq in range(first + 1, first + 4)]
        made[first] = chain(opening, *texts, seq=first, prev=prev)
        prev = digest(made[first][-1])
    return made


class Case:
    """A journal directory beside its snapshots, and what was in it before."""

    def __init__(self, path: Path, lines: Lines) -> None:
        self.place = path / "data" / "journal"
        self.place.mkdir(parents=True)
        self.snapshots = path / "data" / "snapshots"
        self.snapshots.mkdir()
        self.write(lines)

    def write(self, lines: Lines) -> None:
        for first, made in lines.items():
            (self.place / name(first)).write_bytes(b"".join(made))
        self.before = self.files()
        (self.snapshots / f"{5:020d}").write_bytes(b"a snapshot")

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.place.glob("*.jsonl")}

    def lines(self) -> list[bytes]:
        return [line for _, data in sorted(self.files().items()) for line in data.splitlines(keepends=True)]

    def repair(self, files: Files | None = None, **settings: Any) -> Repair:  # noqa: ANN401  # of Repair
        own = {"first_events": FIRST_EVENTS, "files": files or Unflushed(), **settings}
        return Repair(self.place, Snapshots(self.snapshots, own["files"]), **own)

    def run(self, **settings: Any) -> tuple[Plan, list[Mended]]:  # noqa: ANN401  # as above
        work = self.repair(**settings)
        plan = work.plan()
        return plan, work.perform(plan, lambda: None, wait_s=5)

    def verdict(self) -> Verdict:
        *faults, verdict = verify([self.place])
        assert faults == []
        assert isinstance(verdict, Verdict)
        return verdict

    def aside(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.place.glob("set-aside/*")}

    def check(self) -> Verdict:
        """What must be so after any repair."""
        plan = self.repair().plan()
        assert (plan.damages, plan.unnamed) == ([], [])
        assert not any(path.name.isdigit() for path in self.snapshots.iterdir())
        verdict = self.verdict()
        journal = Journal(self.place, first_events=FIRST_EVENTS, files=Unflushed(), segment_bytes_max=1)
        for _ in range(2):  # each rolls
            journal.commit(lambda _: b'[{"type":"after"}]', deadline=soon(), flush=False)
        read = list(journal.read(0))
        journal.close()
        assert [found for found in walk([self.place]) if isinstance(found, Commit)] == read
        assert b"after" in read[-1].events
        named = [
            (event["lost"], event["hash"])
            for commit in read
            for event in json.loads(commit.events)
            if event["type"] == "repaired" and "lost" in event
        ]
        assert sorted(named) == [(each.seq, each.hash) for each in verdict.lost]
        return verdict


def change(made: Lines, seq: int, old: bytes = b'"text', new: bytes = b'"tExt') -> None:
    first = max(each for each in made if each <= seq)
    made[first][seq - first] = made[first][seq - first].replace(old, new, 1)


def change_hash(made: Lines, seq: int) -> None:
    line = made[5][seq - 5]
    made[5][seq - 5] = line[:-4] + bytes([line[-4] ^ 1]) + line[-3:]


def join(made: Lines) -> None:
    made[5][1] = made[5][1][:-1] + b"\x0b"


def put(made: Lines, at: int, line: bytes) -> None:
    made[5].insert(at, line)


def swap(made: Lines) -> None:
    made[5][1], made[5][2] = made[5][2], made[5][1]


def truncate(made: Lines, first: int, lines: int, tail: bytes = b"") -> None:
    made[first][lines:] = [tail]


def renumber(made: Lines, seq: int, other: int) -> None:
    change(made, seq, b'{"seq":%d' % seq, b'{"seq":%d' % other)


def both(*steps: Callable[[Lines], object]) -> Callable[[Lines], None]:
    def damage(made: Lines) -> None:
        for step in steps:
            step(made)

    return damage


def foreign(made: Lines, first: int) -> None:
    made[first] = three(FOREIGN)[first]


DAMAGES: dict[str, tuple[Callable[[Lines], object], Ranges, list[int]]] = {
    "a changed text": (lambda made: change(made, 6), [(6, 6)], []),
    "a changed hash": (lambda made: change_hash(made, 6), [(6, 6)], []),
    "a hash that is none": (lambda made: put(made, 1, made[5].pop(1)[:-5] + b'zz"}\n'), [(6, 6)], []),
    "a hash that is too short": (lambda made: put(made, 1, made[5].pop(1)[:-5] + b'"}\n'), [(6, 6)], [7]),
    "a line taken out": (lambda made: made[5].pop(1), [(6, 6)], [7]),
    "two lines taken out": (both(lambda made: made[5].pop(1), lambda made: made[5].pop(1)), [(6, 7)], [8]),
    "lines put in": (both(lambda made: put(made, 1, b"hello\n"), lambda made: put(made, 1, b"\n")), [], []),
    "an earlier line once more": (lambda made: put(made, 2, made[1][1]), [], []),
    "later lines too early": (
        both(lambda made: put(made, 1, made[9][2]), lambda made: put(made, 1, made[9][1])),
        [],
        [],
    ),
    "a later line twice too early": (lambda made: put(made, 1, made[5][3] * 2), [], []),
    "two swapped": (swap, [(6, 6)], []),
    "a line over the limit": (lambda made: change(made, 6, b'"text', b"x" * LINE_BYTES_MAX), [(6, 6)], [7]),
    "a line over the limit put in": (lambda made: put(made, 0, b"x" * LINE_BYTES_MAX * 2 + b"\n"), [], []),
    "a line feed gone": (join, [(6, 7)], []),
    "a run of NUL": (lambda made: put(made, 1, made[5].pop(1)[:40] + bytes(900) + b"\n"), [(6, 6)], [7]),
    "a torn tail of an earlier segment": (lambda made: made[5].append(b'{"seq":9,"ti'), [], []),
    "lines of nothing at its end": (lambda made: made[5].extend([b"\xff\n", b"\xff"]), [], []),
    "no line feed at its end": (lambda made: put(made, 3, made[5].pop()[:-1]), [], []),
    "the same after damage": (
        both(lambda made: change(made, 6), lambda made: put(made, 3, made[5].pop()[:-1])),
        [(6, 6)],
        [],
    ),
    "a missing segment": (lambda made: made.pop(5), [(5, 8)], []),
    "two missing segments": (both(lambda made: made.pop(1), lambda made: made.pop(5)), [(1, 8)], []),
    "an empty segment": (lambda made: truncate(made, 5, 0), [(5, 8)], []),
    "a segment without its end": (lambda made: truncate(made, 5, 3), [(8, 8)], []),
    "a segment cut in a line": (lambda made: truncate(made, 5, 2, b'{"seq":7,"time"'), [(7, 8)], []),
    "a segment without its beginning": (lambda made: made[5].pop(0), [(5, 5)], [6]),
    "a changed first line": (lambda made: change(made, 5, b"segment_opened", b"segment_closed"), [(5, 5)], []),
    "another format in it": (lambda made: change(made, 5, b'"format":1', b'"format":3'), [(5, 5)], []),
    "the same where nothing is known": (
        both(lambda made: change(made, 4), lambda made: change(made, 5, b'"format":1', b'"format":3')),
        [(4, 4), (5, 5)],
        [],
    ),
    "a first line that is none": (lambda made: put(made, 0, made[5].pop(0)[:20] + b"\n"), [(5, 5)], [6]),
    "the first segment missing": (lambda made: made.pop(1), [(1, 4)], []),
    "the very first line": (lambda made: change(made, 1, b"segment_opened", b"segment_closed"), [(1, 1)], []),
    "the second line": (lambda made: change(made, 2), [(2, 2)], []),
    "the last line": (lambda made: change(made, 12), [(12, 12)], []),
    "the last line renumbered": (lambda made: renumber(made, 12, 19), [(12, 12)], []),
    "a line renumbered": (lambda made: renumber(made, 7, 9), [(7, 7)], []),
    "the line before the last taken out": (lambda made: made[9].pop(2), [(11, 11)], [12]),
    "the end of an earlier segment renumbered": (lambda made: renumber(made, 8, 7), [(8, 8)], []),
    "a segment's end that the next one denies": (
        both(lambda made: made[5].pop(2), lambda made: change_hash(made, 7)),
        [(7, 8)],
        [],
    ),
    "the last lines": (lambda made: truncate(made, 9, 2, b"\xff\n\xff\n"), [(11, 12)], []),
    "the last lines in one": (lambda made: change(made, 11, b"}\n", b"}\r"), [(11, 12)], []),
    "nothing but garbage from there on": (lambda made: truncate(made, 9, 3, b"\xff" * 5000 + b"\n"), [(12, 12)], []),
    "damage before an unfinished line": (
        both(lambda made: change(made, 11), lambda made: made[9].append(made[9].pop()[:-1])),
        [(11, 11)],
        [],
    ),
    "damage before a torn tail": (
        both(lambda made: change(made, 10), lambda made: truncate(made, 9, 3, b'{"seq"')),
        [(10, 10)],
        [],
    ),
    "several": (
        both(lambda made: change(made, 2), lambda made: change(made, 6), lambda made: change(made, 8)),
        [(2, 2), (6, 6), (8, 8)],
        [],
    ),
    "across a border": (both(lambda made: change(made, 8), lambda made: change(made, 9, b"posted")), [(8, 8)], []),
    "on both sides of a border": (
        both(lambda made: change(made, 8), lambda made: change(made, 9, b"segment_o", b"segment_O")),
        [(8, 8), (9, 9)],
        [],
    ),
    "a missing segment before a changed one": (
        both(lambda made: made.pop(5), lambda made: change(made, 9, b"segment_o", b"segment_O")),
        [(5, 8), (9, 9)],
        [],
    ),
    "a segment under another's name": (lambda made: made.update({5: made.pop(9)}), [(5, 9)], []),
    "a segment of another journal": (lambda made: foreign(made, 5), [(5, 8)], []),
    "the last segment of another journal": (lambda made: foreign(made, 9), [(9, 12)], []),
    "the first segment of another journal": (lambda made: foreign(made, 1), [(1, 4)], []),
    "a copy of a segment in the middle": (lambda made: made.update({3: made[9]}), [], []),
    "an empty file in the middle": (lambda made: made.update({3: []}), [], []),
    "a segment that went on after the next was begun": (
        lambda made: made[1].extend(chain(posted(), posted(), seq=5, prev=digest(made[1][-1]))),
        [],
        [],
    ),
    "a segment of another past in the middle": (
        lambda made: made.update({3: chain(opened("a" * 64), posted(), seq=3, prev="a" * 64)}),
        [],
        [],
    ),
    "lines of a later segment where the next is empty": (
        both(lambda made: truncate(made, 5, 0), lambda made: made[1].insert(3, made[9][1] + made[9][2])),
        [(5, 8)],
        [],
    ),
    "lines of the next segment where that is damaged": (
        both(
            lambda made: change(made, 5, b"segment_o", b"segment_O"),
            lambda made: made[1].insert(3, made[5][1] + made[5][2]),
        ),
        [(5, 5)],
        [],
    ),
    "another journal's segment at the end": (
        lambda made: made.update({20: chain(opened("a" * 64, journal=FOREIGN), seq=20, prev="a" * 64)}),
        [],
        [],
    ),
    "a copy of a segment under a later name": (lambda made: made.update({900: made[5]}), [], []),
    "a copy of a segment that is longer now": (lambda made: made.update({900: made[9][:2]}), [], []),
    "a copy of a segment that is damaged now": (
        both(lambda made: made.update({900: [*made[9]]}), lambda made: change(made, 11)),
        [(11, 11)],
        [],
    ),
    "a copy of a segment in a gap": (
        both(lambda made: made.pop(5), lambda made: made.update({7: made[1]})),
        [(5, 8)],
        [],
    ),
    "a copy in the place of the last segment": (lambda made: made.update({9: made[5]}), [(9, 12)], []),
    "the last segment under a later name": (lambda made: made.update({20: made.pop(9)}), [(9, 19), (20, 23)], []),
    "a segment that begins with another's first line": (
        both(
            lambda made: change(made, 9, b"segment_o", b"segment_O"),
            lambda made: made[9].insert(0, made[5][0]),
            lambda made: made[5].pop(),
        ),
        [(8, 8), (9, 9)],
        [],
    ),
    "another journal's segment in a gap": (
        both(
            lambda made: made.pop(5),
            lambda made: made.update({7: chain(opened("a" * 64, journal=FOREIGN), seq=7, prev="a" * 64)}),
        ),
        [(5, 8)],
        [],
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_taken_out_and_everything_else_stays(tmp_path: Path, kind: str) -> None:
    damage, ranges, unchecked = DAMAGES[kind]
    made = three()
    sound = dict(enumerate((line for lines in made.values() for line in lines), 1))
    damage(made)
    case = Case(tmp_path, made)
    plan, done = case.run()
    assert [each.damage for each in done] == plan.damages
    assert [(each.lost.seq, each.lost.last) for each in done if each.lost is not None] == ranges
    gone = {seq for first, last in ranges for seq in range(first, last + 1)}
    data = b"".join(case.before.values())
    stays = [line for seq, line in sound.items() if seq not in gone and line[:-1] in data]
    assert [line for line in case.lines() if line in stays] == stays
    assert plan.commits == len(stays) - (kind == "damage before an unfinished line")
    for each in done:
        check_set_aside(case, each)
    verdict = case.check()
    assert [(each.seq, each.last, each.reason) for each in verdict.lost] == [(*each, "damage") for each in ranges]
    assert verdict.unchecked == unchecked


def check_set_aside(case: Case, each: Mended) -> None:
    damage = each.damage
    data = case.before.get(damage.file.rsplit("/", 1)[1], b"")
    bytes_ = data[damage.offset : damage.offset + damage.bytes]
    assert (b"" if each.piece is None else case.aside()[each.piece]) == bytes_
    if each.lost is not None:
        line = next(line for line in case.lines() if line.startswith(b'{"seq":%d,' % damage.first))
        assert json.loads(line)["events"] == [
            {
                "type": "lost",
                "first": damage.first,
                "last": damage.last,
                "bytes": damage.bytes,
                "sha256": hashlib.sha256(bytes_).hexdigest(),
                "next_prev": damage.next_prev,
                "reason": "damage",
            }
        ]


@pytest.mark.parametrize("lines", [{}, three(), {1: []}, {1: [b'{"seq"']}], ids=["nothing", "sound", "empty", "torn"])
def test_where_nothing_is_damaged_nothing_is_done(tmp_path: Path, lines: Lines) -> None:
    case = Case(tmp_path, lines)
    plan, done = case.run()
    assert (plan.damages, plan.unnamed, done) == ([], [], [])
    assert plan.commits == sum(map(len, lines.values())) - (lines == {1: [b'{"seq"']})
    assert case.files() == case.before


def test_a_journal_that_is_not_there_needs_no_repair(tmp_path: Path) -> None:
    work = Repair(tmp_path / "none", Snapshots(tmp_path / "snapshots"), first_events=FIRST_EVENTS)
    assert work.plan() == Plan([], [], 0)
    assert list(tmp_path.iterdir()) == []


def test_a_torn_tail_is_left_to_the_writer(tmp_path: Path) -> None:
    made = three()
    made[9][2:] = [b'{"seq":11' + bytes(1024) + b"\n", b"\xff\n"]
    case = Case(tmp_path, made)
    assert case.repair().plan().damages == []
    change(made, 6)
    case.write(made)
    told: list[str] = []
    _, done = case.run(on_set_aside=told.append)
    assert [each.piece for each in done] != told
    assert case.aside()[told[0]] == b"".join(made[9][2:])
    assert case.check().lost[0].last == 6


@pytest.mark.parametrize(
    ("kind", "guessed"),
    [
        ("the last lines", [True]),
        ("the last segment of another journal", [True]),
        ("a copy in the place of the last segment", [True]),
        ("the last line", [True]),
        ("several", [False, False, False]),
        ("a missing segment", [False]),
    ],
)
def test_where_nothing_follows_the_number_of_lost_lines_is_a_guess(
    tmp_path: Path, kind: str, guessed: list[bool]
) -> None:
    made = three()
    DAMAGES[kind][0](made)
    assert [each.guessed for each in Case(tmp_path, made).repair().plan().damages] == guessed


def test_what_is_no_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    case = Case(tmp_path, three())
    path = case.place / name(900)
    elsewhere = tmp_path / "elsewhere"
    makes: list[tuple[Callable[[], object], str]] = [
        (path.mkdir, "it is no regular file: remove it, it is no segment"),
        (lambda: os.mkfifo(path), "it is no regular file: remove it, it is no segment"),
        (lambda: path.symlink_to(elsewhere), "it is a symlink: put the file itself in its place, or remove it"),
    ]
    for make, says in makes:
        make()
        with pytest.raises(UnreadableError) as refused:
            case.repair().plan()
        assert refused.value.cause == f"{path}: {says}"
        path.rename(tmp_path / str(len(list(tmp_path.iterdir()))))


def test_after_a_lost_end_numbers_are_not_used_again(tmp_path: Path) -> None:
    made = three()
    truncate(made, 9, 1, b"\xff\n" + made[9][2][:-1] + b"\r" + made[9][3])
    case = Case(tmp_path, made)
    case.run()
    assert case.verdict().last_seq == 13


def test_a_damaged_lost_line_is_lost_with_what_it_stood_for(tmp_path: Path) -> None:
    head = chain(opened(), posted(), lost(3, 6, "d" * 64))
    case = Case(tmp_path, {1: [*head, *chain(posted(), posted(), seq=7, prev="d" * 64)]})
    data = case.files()[name(1)]
    (case.place / name(1)).write_bytes(data.replace(b'"bytes":9', b'"bytes":8'))
    plan, _ = case.run()
    assert [(each.first, each.last, each.next_prev) for each in plan.damages] == [(3, 6, "d" * 64)]
    case.check()


def test_damage_after_a_lost_line_without_a_hash_is_repaired_too(tmp_path: Path) -> None:
    head = chain(opened(), posted(), lost(3, 6, None))
    case = Case(tmp_path, {1: [*head, b"x\n", *chain(posted(), posted(), seq=8, prev="d" * 64)]})
    plan, _ = case.run()
    assert [(each.first, each.last, each.prev) for each in plan.damages] == [(7, 7, digest(head[-1]))]
    assert case.check().unchecked == [7, 8]


def test_damage_before_a_lost_line_without_a_hash_is_repaired_too(tmp_path: Path) -> None:
    made = chain(opened(), posted("text"), posted(), lost(4, 6, None))
    made[1] = made[1].replace(b"text", b"tExt")
    case = Case(tmp_path, {1: [*made, *chain(posted(), posted(), seq=7, prev="d" * 64)]})
    plan, _ = case.run()
    assert [(each.first, each.last) for each in plan.damages] == [(2, 2)]
    assert case.check().unchecked == [7]


def test_a_segment_that_begins_with_lost_stays_where_the_one_before_it_is_gone(tmp_path: Path) -> None:
    made = three()
    change(made, 5, b"segment_o", b"segment_O")
    case = Case(tmp_path, made)
    case.run()
    (case.place / name(1)).unlink()
    case.run()
    assert [(each.seq, each.last) for each in case.verdict().lost] == [(1, 4), (5, 5)]
    case.check()


def test_a_newer_format_is_not_touched(tmp_path: Path) -> None:
    made = three()
    change(made, 2)
    newer = opened(digest(made[5][-1]), format=2)
    made[9] = chain(newer, posted(), seq=9, prev=digest(made[5][-1]))
    case = Case(tmp_path, made)
    with pytest.raises(UnsupportedError, match="format is 2"):
        case.repair().plan()
    change(made, 8)  # now nothing but the line itself says what it continues
    case.write(made)
    with pytest.raises(UnsupportedError, match="format is 2"):
        case.repair().plan()
    assert case.files() == case.before


def test_a_newer_line_after_damage_in_its_segment_is_not_touched(tmp_path: Path) -> None:
    made = three()
    made[5][0:1] = [b"hello\n", *chain(opened(digest(made[1][-1]), format=2), seq=5, prev=digest(made[1][-1]))]
    case = Case(tmp_path, made)
    with pytest.raises(UnsupportedError, match="format is 2"):
        case.repair().plan()


def misread(*seqs: int) -> Callable[[], Callable[[Commit, bool], str | None]]:
    return lambda: lambda commit, _: "no bus wrote this" if commit.seq in seqs and b"posted" in commit.events else None


def test_lines_that_verify_and_cannot_be_read_are_damage_like_any_other(tmp_path: Path) -> None:
    made = three()
    change(made, 11)
    case = Case(tmp_path, made)
    plan, _ = case.run(new_check=misread(2, 6, 7, 12))
    assert [(each.first, each.last, each.line) for each in plan.damages] == [(2, 2, 2), (6, 7, 2), (11, 12, 3)]
    assert plan.damages[1].cause == "no bus wrote this"
    assert case.check().unchecked == []


def test_a_line_that_lacks_its_line_feed_and_cannot_be_read_is_cut_out(tmp_path: Path) -> None:
    made = three()
    made[5].append(made[5].pop()[:-1])
    case = Case(tmp_path, made)
    plan, _ = case.run(new_check=misread(8))
    assert [(each.first, each.last, each.action) for each in plan.damages] == [(8, 8, "cut")]
    case.check()


def test_who_judges_lines_is_told_whether_something_is_gone_before_them(tmp_path: Path) -> None:
    asked: dict[int, bool] = {}

    def check(commit: Commit, damaged: bool) -> str | None:  # noqa: FBT001  # as repair calls it
        asked[commit.seq] = damaged
        return None

    made = three()
    change(made, 6)
    case = Case(tmp_path, made)
    case.run(new_check=lambda: check)
    assert [seq for seq, damaged in asked.items() if damaged] == [7, 8, 9, 10, 11, 12]
    case.repair(new_check=lambda: check).plan()
    assert [seq for seq, damaged in asked.items() if not damaged] == [1, 2, 3, 4, 5, 6]


def test_a_journal_that_changed_meanwhile_is_not_repaired(tmp_path: Path) -> None:
    made = three()
    change(made, 6)
    case = Case(tmp_path, made)
    plan = case.repair().plan()
    change(made, 7)
    case.write(made)
    with pytest.raises(ChangedError, match="nothing was done"):
        case.repair().perform(plan, lambda: None, wait_s=5)
    assert case.files() == case.before
    assert len(list(case.snapshots.iterdir())) == 1


def test_a_refusal_under_the_lock_leaves_everything_as_it_was(tmp_path: Path) -> None:
    made = three()
    change(made, 6)
    case = Case(tmp_path, made)

    def refuse() -> None:
        raise InterruptedError

    work = case.repair()
    with pytest.raises(UnwritableError):
        work.perform(work.plan(), refuse, wait_s=5)
    assert case.files() == case.before
    assert case.aside() == {}


def test_a_writer_keeps_repair_out(tmp_path: Path) -> None:
    made = three()
    change(made, 6)
    case = Case(tmp_path, made)
    writer = WriterLock(str(case.place), Files())
    writer.acquire(soon())
    work = case.repair()
    with pytest.raises(BusyError):
        work.perform(work.plan(), lambda: None, wait_s=0)
    writer.release()
    (case.place / NAME).unlink()  # another lock file: the segment's own lock is left
    fd = Files().open(str(case.place / name(5)), 0)
    Files().lock(fd)
    with pytest.raises(BusyError):
        work.perform(work.plan(), lambda: None, wait_s=0)
    Files().close(fd)
    assert case.files() == case.before


def test_a_segment_that_shrinks_under_the_lock_ends_the_repair(tmp_path: Path) -> None:
    made = three()
    change(made, 6)
    case = Case(tmp_path, made)

    class Shrinking(Unflushed):
        shrinks = False

        def pread(self, fd: int, length: int, offset: int) -> bytes:
            return b"" if self.shrinks and offset else super().pread(fd, length, offset)

        def mkdir(self, path: str) -> None:
            self.shrinks = True
            super().mkdir(path)

    with pytest.raises(UnwritableError, match="is shorter than when it was looked at"):
        case.run(files=Shrinking())
    assert case.files() == case.before
    assert case.aside() == {}


def test_a_segment_that_is_replaced_while_its_lock_is_waited_for_ends_the_repair(tmp_path: Path) -> None:
    made = three()
    change(made, 6)
    case = Case(tmp_path, made)

    class Replacing(Unflushed):
        def is_at(self, fd: int, path: str) -> bool:
            if path.endswith(".jsonl"):
                self.rename(shutil.copy(path, f"{path}.new"), path)
            return super().is_at(fd, path)

    with pytest.raises(ReplacedError, match="it is another file now"):
        case.run(files=Replacing())
    assert case.files() == case.before
    assert case.aside() == {}


def test_what_cannot_be_read_is_not_judged(tmp_path: Path) -> None:
    case = Case(tmp_path, three())
    files = FaultyFiles()
    files.fail_verbs("pread")
    with pytest.raises(UnreadableError):
        case.repair(files).plan()


def test_many_lost_ranges_are_named_in_commits_of_a_thousand(tmp_path: Path) -> None:
    made = chain(opened(), *(posted("text") for _ in range(2003)))
    for at in range(1, 2004, 2):
        made[at] = made[at].replace(b"text", b"tExt")
    case = Case(tmp_path, {1: made})
    case.run()
    verdict = case.check()
    assert len(verdict.lost) == 1002
    last = [json.loads(line)["events"] for line in case.lines() if b'"repaired"' in line]
    assert list(map(len, last)) == [1000, 2]


def test_a_repair_that_was_stopped_before_its_last_commit_is_ended_by_the_next(tmp_path: Path) -> None:
    head = chain(opened(), posted(), lost(3, 6, "d" * 64))
    redacted = chain(posted(), lost(8, 8, "e" * 64, reason="redacted"), seq=7, prev="d" * 64)
    case = Case(tmp_path, {1: [*head, *redacted]})
    plan, done = case.run()
    assert (plan.damages, done) == ([], [])
    assert plan.unnamed == [LostRange(3, digest(head[-1]), 6, "damage")]
    events = msgspec.json.encode([{"type": "repaired", "lost": 3, "hash": digest(head[-1])}])
    line, _ = encode(9, TIME, 1, events, "e" * 64)
    assert json.loads(case.lines()[-1])["events"] == json.loads(line)["events"]
    assert case.repair().plan().unnamed == []
