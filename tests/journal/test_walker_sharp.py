"""What a walk says of many damages, to the letter: an auditor may compare two runs, and repair works by it.

A wanted change is taken over by `AGENTBUS_RENEW=1 pytest tests/journal/test_walker_sharp.py`; read it in the diff then.
"""

from __future__ import annotations

import gzip
import os
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from journal import LINE_BYTES_MAX, Commit, Fault, Files, UnsupportedError
from journal.segment import name
from journal.walker import Walker
from tests.journal.conftest import FaultyFiles
from tests.journal.test_any_damage import Harm
from tests.journal.test_repair import DAMAGES, Lines, change, three
from tests.journal.test_segment import chain, digest, lost, opened, posted

if TYPE_CHECKING:
    from collections.abc import Iterable

EXPECTED = Path(__file__).parent.parent / "expected"
SEEDS = 200


def harmed(place: Path, seed: int) -> None:
    """Three segments of four lines each with up to three damages, the same for the same seed.

    In some, two lines are lost already, or a segment of another journal lies among them.
    """
    lines = three()
    if seed % 5 in {1, 2}:
        base, after = digest(lines[5][1]), digest(lines[5][3])
        lines[5][2:] = chain(lost(7, 8, after if seed % 5 == 1 else None), seq=7, prev=base)
    if seed % 5 == 3:
        lines[13] = three("another journal")[9]
    for first, some in lines.items():
        (place / name(first)).write_bytes(b"".join(some))
    chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
    harm = Harm(place, chance)
    for _ in range(1 + seed % 3):
        harm.once()


def short(path: str) -> str:
    return Path(path).name.lstrip("0")


def account(place: Path) -> Iterable[str]:
    """One line for each run of commits, fault and damage, and what was found in all."""
    files = FaultyFiles()
    walker = Walker(files)
    sound: list[str] = []
    for found in walker.walk([place]):
        if isinstance(found, Commit):
            sound.append(f"{found.seq}@{found.place.offset}")
            continue
        assert isinstance(found, Fault)
        yield f"  sound {' '.join(sound) or 'none'}"
        sound.clear()
        yield f"  {short(found.file)}:{found.line} byte {found.offset} seq {found.seq}: {found.cause}"
    yield f"  sound {' '.join(sound) or 'none'}"
    assert files.fds == set()
    for each in walker.damages:
        yield (
            f"  {each.action} {short(each.file)} of {each.segment} line {each.line} bytes {each.offset}+{each.bytes}"
            f" seqs {each.first}..{each.last}{' guessed' * each.guessed}: {each.cause}"
            f" ({each.prev[:6]} {(each.next_prev or 'none')[:6]})"
        )
    all_in_all = walker.verdict
    yield (
        f"  {all_in_all.commits} commits in {all_in_all.segments} segments, {all_in_all.first_seq} to"
        f" {all_in_all.last_seq}:{all_in_all.hash[:6]}, {all_in_all.faults} faults, unchecked {all_in_all.unchecked}"
    )
    if all_in_all.tail is not None:
        tail = all_in_all.tail
        yield f"  tail {short(tail.file)} bytes {tail.offset}+{tail.bytes}{' unfinished' * tail.unfinished_line}"


def compare(told: Iterable[str], file: str) -> None:
    text = re.sub(r"([0-9a-f]{6})[0-9a-f]{58}", r"\1", "\n".join(told)) + "\n"
    if os.environ.get("AGENTBUS_RENEW"):
        (EXPECTED / file).write_text(text)
    assert (EXPECTED / file).read_text() == text


def test_what_is_said_of_each_damage_is_this(tmp_path: Path) -> None:
    told: list[str] = []
    for seed in range(SEEDS):
        place = tmp_path / str(seed)
        place.mkdir()
        harmed(place, seed)
        told += [f"seed {seed}", *account(place)]
    compare(told, "walks.txt")


def put(place: Path, lines: Lines, packed: Iterable[int] = ()) -> None:
    """Write segments, some of them as archives."""
    (place / "archive").mkdir(parents=True)
    for first, some in lines.items():
        data = b"".join(some)
        if first in packed:
            (place / "archive" / f"{name(first)}.gz").write_bytes(gzip.compress(data, compresslevel=0))
        else:
            (place / name(first)).write_bytes(data)


@pytest.mark.parametrize("file", ["damages.txt", "damages-packed.txt"])
def test_what_is_said_of_every_kind_of_damage_is_this(tmp_path: Path, file: str) -> None:
    """Packed are all but the last segment, and that too in every third case: then what follows it is missing."""
    told: list[str] = []
    for number, (kind, (damage, *_)) in enumerate(DAMAGES.items()):
        lines = three()
        damage(lines)
        packed = set(lines) - ({max(lines)} if number % 3 else set()) if "packed" in file else set()
        put(tmp_path / kind, lines, packed)
        told += [kind, *account(tmp_path / kind)]
    compare(told, file)


BROKEN = (
    "a changed text",
    "no line feed at its end",
    "a segment of another journal",
    "the last segment of another journal",
)


def test_what_is_said_of_an_archive_that_is_cut_is_this(tmp_path: Path) -> None:
    """Damaged or another journal's, in the middle or the last, with some lines left or with none."""
    told: list[str] = []
    for kind in ("", *BROKEN):
        for cut in (5, 9):
            for left in (700, 12):
                lines, place = three(), tmp_path / f"{kind or 'nothing else'}, {cut} cut after {left}"
                DAMAGES.get(kind, (str,))[0](lines)
                put(place, lines, {1, 5, cut})
                (packed,) = place.glob(f"archive/*{cut}.jsonl.gz")
                packed.write_bytes(packed.read_bytes()[:left])
                told += [place.name, *account(place)]
    compare(told, "damages-cut.txt")


def walked(*paths: Path) -> tuple[list[tuple[str, int, int, int]], Walker]:
    """(file, line, seq, offset) of each fault, and the walker."""
    walker = Walker(Files())
    found = [each for each in walker.walk(paths) if isinstance(each, Fault)]
    return [(short(each.file), each.line, each.seq, each.offset) for each in found], walker


def test_directories_and_files_are_one_chain_and_only_a_directory_that_comes_first_must_begin_with_seq_1(
    tmp_path: Path,
) -> None:
    lines = three()
    put(tmp_path / "a", {5: lines[5]})
    put(tmp_path / "b", {9: lines[9]})
    put(tmp_path / "none", {})
    a, b, alone = tmp_path / "a", tmp_path / "b", tmp_path / "a" / name(5)
    assert walked(a, b)[0] == [("1.jsonl", 1, 1, 0)]
    assert walked(alone, b)[0] == []
    assert walked(tmp_path / "none", b)[0] == [("1.jsonl", 1, 1, 0)]


def test_a_file_without_a_segments_name_whose_first_line_is_damaged_is_taken_for_the_continuation(
    tmp_path: Path,
) -> None:
    lines = three()
    lines[5][0] = b"x\n"
    put(tmp_path, lines)
    second = (tmp_path / name(5)).rename(tmp_path / "second")
    found, walker = walked(tmp_path / name(1), second)
    assert (found, walker.verdict.commits) == ([("second", 1, 5, 0)], 7)


def test_what_stands_between_a_segment_and_a_file_of_which_nothing_is_known_stands_for_no_line(tmp_path: Path) -> None:
    lines = three()
    lines[1].append(b"x\n")
    put(tmp_path, lines)
    (tmp_path / "unknown").write_bytes(b"y\n")
    _, walker = walked(tmp_path / name(1), tmp_path / "unknown")
    assert [(each.first, each.last) for each in walker.damages] == [(5, 4), (5, 5)]


def test_a_gap_is_a_gap_beside_a_file_of_which_nothing_is_known(tmp_path: Path) -> None:
    put(tmp_path, three())
    (tmp_path / "unknown").write_bytes(b"x" * 2000)
    found, walker = walked(tmp_path / name(1), tmp_path / name(9), tmp_path / "unknown")
    assert (found, walker.verdict.commits) == ([("5.jsonl", 1, 5, 0)], 8)


def test_another_journals_lines_are_not_taken_for_this_ones_far_into_a_damaged_segment_either(tmp_path: Path) -> None:
    lines = three()
    lines[1] = [b"x\n"] * 20 + three("another journal")[1][:1]
    put(tmp_path, lines)
    assert {file for file, *_ in walked(tmp_path)[0]} == {"1.jsonl"}


def test_a_newer_format_that_verifies_ends_the_walk_whatever_else_it_says(tmp_path: Path) -> None:
    lines = three()
    newer = [{"type": "segment_opened", "format": 2, "before": digest(lines[1][-1])}]
    lines[5] = chain(newer, posted(), seq=5, prev=digest(lines[1][-1]))
    put(tmp_path, lines)
    with pytest.raises(UnsupportedError, match="format is 2"):
        walked(tmp_path)


def test_a_file_that_goes_while_it_is_walked_to_is_a_fault_where_it_should_begin(tmp_path: Path) -> None:
    put(tmp_path, three())
    walking = (walker := Walker(Files())).walk([tmp_path])
    next(walking)
    (tmp_path / name(5)).unlink()
    faults = [each for each in walking if isinstance(each, Fault)]
    assert faults[0] == Fault(str(tmp_path / name(5)), 1, 0, 5, "the segment is missing")
    assert walker.file == str(tmp_path / name(9))


def test_what_a_damaged_line_says_of_its_format_is_told(tmp_path: Path) -> None:
    lines = three()
    change(lines, 5, b'"format":1', b'"format":3')
    put(tmp_path, {5: lines[5]})
    (fault,) = (each for each in Walker(Files()).walk([tmp_path / name(5)]) if isinstance(each, Fault))
    assert "format is 3" in fault.cause


def test_damage_at_a_segments_end_reaches_to_the_next_that_has_a_place_and_not_to_one_that_has_none(
    tmp_path: Path,
) -> None:
    lines = three()
    change(lines, 4)
    put(tmp_path / "a", lines | {3: lines[9]})
    assert [(each.first, each.last, each.action) for each in walked(tmp_path / "a")[1].damages] == [
        (4, 4, "cut"),
        (5, 4, "take"),
    ]
    lines = three("another journal") | {1: [*three()[1], b"torn"], 9: three()[9]}
    put(tmp_path / "b", lines)
    assert [(each.first, each.last) for each in walked(tmp_path / "b")[1].damages] == [(5, 4), (5, 8)]


def test_lines_stay_where_they_are_if_the_next_segment_does_not_hold_them(tmp_path: Path) -> None:
    lines = three()
    lines[1] += chain(posted(), posted(), seq=5, prev=digest(lines[1][-1]))
    change(lines, 2)
    lines[5] = []
    put(tmp_path, lines)
    found, walker = walked(tmp_path)
    assert found == [("1.jsonl", 2, 2, len(lines[1][0])), ("5.jsonl", 1, 7, 0), ("7.jsonl", 1, 7, 0)]
    assert walker.verdict.commits == 9


def test_lines_of_the_next_segment_are_looked_for_there_if_it_holds_any_line_that_belongs_there(tmp_path: Path) -> None:
    lines = three()
    lines[1] += chain(posted(), posted(), seq=5, prev=digest(lines[1][-1]))
    change(lines, 2)
    lines[5] = [b"x\n", lines[5][1], b"y\n"]
    put(tmp_path, lines)
    _, walker = walked(tmp_path)
    assert [(each.file[-7:], each.first, each.last, each.action) for each in walker.damages] == [
        ("1.jsonl", 2, 2, "cut"),
        ("1.jsonl", 5, 4, "cut"),
        ("5.jsonl", 5, 5, "cut"),
        ("5.jsonl", 7, 8, "cut"),
    ]


def test_a_segment_that_begins_with_anothers_line_keeps_the_lines_that_belong_there(tmp_path: Path) -> None:
    lines = three()
    lines[5].pop()
    lines[9] = [lines[5][0], lines[9][1]]
    put(tmp_path, lines)
    assert walked(tmp_path)[1].verdict.commits == 8


def test_an_archive_that_ends_right_before_its_last_line_feed_is_cut_and_not_ended(tmp_path: Path) -> None:
    put(tmp_path, three(), {1, 5})
    (path,) = tmp_path.glob("archive/*5.jsonl.gz")
    path.write_bytes(path.read_bytes()[:-9])
    assert [(each.first, each.last, each.action) for each in walked(tmp_path)[1].damages] == [(8, 8, "cut")]


def test_an_archive_that_lacks_nothing_but_its_checksum_is_damaged_and_loses_no_line(tmp_path: Path) -> None:
    put(tmp_path, three(), {1, 5})
    (path,) = tmp_path.glob("archive/*5.jsonl.gz")
    path.write_bytes(path.read_bytes()[:-8])
    found, walker = walked(tmp_path)
    assert (found, walker.verdict.commits) == ([("5.jsonl.gz", 5, 9, 819)], 12)
    assert [(each.first, each.last, each.action) for each in walker.damages] == [(9, 8, "cut")]


def test_a_whole_archive_of_another_journal_at_the_end_is_told_as_that(tmp_path: Path) -> None:
    put(tmp_path, three() | {9: three("another journal")[9]}, {1, 5, 9})
    faults = [each for each in Walker(Files()).walk([tmp_path]) if isinstance(each, Fault)]
    assert [(each.seq, each.cause.partition(":")[0]) for each in faults] == [
        (9, "two journals mixed"),
        (13, "the segment that begins with it is missing"),
    ]


def test_a_line_that_is_too_long_at_the_end_is_damage_once_it_has_ended(tmp_path: Path) -> None:
    lines = three()
    lines[9].append(b"x" * (LINE_BYTES_MAX + 10) + b"\n")
    put(tmp_path, lines)
    (damage,) = walked(tmp_path)[1].damages
    assert (damage.first, damage.last, damage.bytes, damage.guessed) == (13, 13, LINE_BYTES_MAX + 11, True)


def test_only_a_later_segment_of_the_same_journal_bounds_what_may_stand_in_one(tmp_path: Path) -> None:
    lines = three()
    change(lines, 6)
    put(tmp_path / "a", lines)
    assert walked(tmp_path / "a" / name(5), tmp_path / "a" / name(1))[1].verdict.commits == 3
    put(tmp_path / "b", three() | {3: chain(opened(digest(lines[1][1]), journal="x"), seq=3, prev=digest(lines[1][1]))})
    assert walked(tmp_path / "b")[1].verdict.commits == 12
    (tmp_path / "b" / name(3)).unlink()
    copy = tmp_path / "copy"
    copy.write_bytes(b"".join(three()[9]))
    assert walked(tmp_path / "b", copy)[0] == [("copy", 1, 13, 0)]


def test_what_cannot_be_checked_is_told_of_the_lines_that_stand_before_those_of_the_next_segment(
    tmp_path: Path,
) -> None:
    first = [*chain(opened(), posted(), lost(3, 3, None)), *chain(posted(), seq=4, prev="d" * 64)]
    on = [*chain(lost(5, 5, None), seq=5, prev=digest(first[-1])), *chain(posted(), seq=6, prev="e" * 64)]
    put(tmp_path, {1: first + on, 5: chain(opened(digest(first[-1])), posted(), seq=5, prev=digest(first[-1]))})
    verdict = walked(tmp_path)[1].verdict
    assert (verdict.unchecked, verdict.commits, verdict.last_seq) == ([4], 6, 6)


def test_a_torn_line_behind_a_damaged_one_does_not_make_that_torn(tmp_path: Path) -> None:
    lines = three()
    change(lines, 10)
    lines[9].append(b'{"seq":13' + bytes(1200) + b"\n")
    put(tmp_path, lines)
    found, walker = walked(tmp_path)
    assert [(line, seq) for _, line, seq, _ in found] == [(2, 10)]
    assert (walker.verdict.commits, walker.verdict.tail is None) == (11, False)


@pytest.mark.parametrize(("over", "unfinished"), [(0, True), (1, False)])
def test_a_line_that_lacks_its_line_feed_is_whole_if_it_is_no_longer_than_a_line_may_be(
    tmp_path: Path, over: int, *, unfinished: bool
) -> None:
    before = [opened(), *[posted("x" * (700 << 10))] * 2]
    length = LINE_BYTES_MAX + over - len(chain(*before, posted(""))[-1])
    put(tmp_path, {1: [b"".join(chain(*before, posted("x" * length)))[:-1]]})
    tail = walked(tmp_path)[1].verdict.tail
    assert tail is not None
    assert (tail.bytes, tail.unfinished_line) == (LINE_BYTES_MAX + over - 1, unfinished)


def test_where_no_line_is_sound_none_is_named(tmp_path: Path) -> None:
    (tmp_path / name(1)).write_bytes(b"nothing\nof it\n")
    walker = Walker(Files())
    assert all(isinstance(found, Fault) for found in walker.walk([tmp_path]))
    assert (walker.verdict.commits, walker.verdict.first_seq, walker.verdict.last_seq) == (0, 0, 0)
    assert walker.verdict.hash == ""
