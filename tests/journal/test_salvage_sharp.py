"""Which lines of a damaged stretch are sound: the small questions that a walk asks of each."""

from __future__ import annotations

from journal import salvage, segment
from tests.journal.test_segment import chain, digest, lost, opened, posted


def test_what_is_no_line_carries_no_seq() -> None:
    assert salvage.stated_seq(b"garbage") == 0
    assert salvage.stated_seq(chain(posted(), seq=7)[0][:-1]) == 7


def test_a_line_is_judged_where_it_stands() -> None:
    lines = chain(opened(), posted())
    at = segment.scan(lines[0], segment.start(1)).end
    found = salvage.judge(lines[1][:-1], at, first=False)
    assert [(commit.seq, commit.place.offset) for commit in found.commits] == [(2, len(lines[0]))]
    assert found.end.offset == len(b"".join(lines))
    alone = salvage.judge(lines[0][:-1], segment.start(1), first=True)
    assert ([commit.place.offset for commit in alone.commits], alone.end.offset) == ([0], len(lines[0]))
    assert not salvage.judge(lines[1][:-1], segment.start(2), first=True).commits
    assert "segment_opened inside" in (salvage.judge(lines[0][:-1], segment.start(1), first=False).fault or "")


def kept(lines: list[bytes], begin: int = 0) -> list[int]:
    """Seqs of the lines that are kept from the one with this index on."""
    return [each.seq for each in salvaged(lines, begin)]


def salvaged(lines: list[bytes], begin: int) -> list[salvage.Kept]:
    raws, offset, at = [], 0, segment.start(1)
    for number, line in enumerate(lines):
        if number < begin:
            at = segment.scan(line, at).end
        else:
            raws.append(salvage.Raw(offset, len(line), line[:-1], ended=True))
        offset += len(line)
    return salvage.salvage(raws, at, None)


def test_a_line_of_which_only_the_seq_was_changed_is_no_later_one_whatever_its_text_says() -> None:
    lines = chain(opened(), [{"type": "posted", "of": {"seq": 7}, "to": {"seq": 8}}], posted(), posted())
    lines[1] = lines[1].replace(b'{"seq":2,', b'{"seq":9,')
    assert kept(lines, 1) == [3, 4]
    assert kept(lines[:2], 1) == []


def test_a_line_that_continues_nothing_is_kept_only_where_the_one_before_it_is_gone() -> None:
    lines = chain(opened(), posted(), posted(), posted())
    other = chain(posted("other"), seq=3, prev="b" * 64)[0]
    assert kept([lines[0], lines[2], lines[3]], 1) == [3, 4]
    assert kept([lines[0], lines[1], other], 2) == []
    assert kept([lines[0], lines[1].replace(b"x", b"y"), other], 1) == []
    assert kept([lines[0], b"garbage\n", other], 1) == [3]


def test_of_two_chains_that_end_in_the_same_line_the_longer_is_kept() -> None:
    lines = chain(opened(), *[posted()] * 4)
    strange = [chain(posted("other"), seq=seq, prev="b" * 64)[0] for seq in (30, 29, 28)]
    assert kept([lines[0], *strange, lines[3], *lines[1:]], 1) == [2, 3, 4, 5]


def test_of_a_line_that_stands_there_twice_the_first_is_kept() -> None:
    lines = chain(opened(), posted(), posted(), posted())
    found = salvaged([*lines[:3], lines[2], lines[3]], 1)
    assert [each.seq for each in found] == [2, 3, 4]
    assert found[1].offset == len(lines[0] + lines[1])


def stray(seq: int) -> bytes:
    """A line that continues nothing that is left."""
    return chain(posted("other"), seq=seq, prev="b" * 64)[0]


def test_what_does_not_continue_a_sound_line_is_not_taken_as_it_is() -> None:
    lines = chain(opened(), posted(), posted())
    assert kept([*lines[:2], b"garbage\n", stray(3)], 2) == []
    assert kept([lines[0], b"garbage\n", lines[1], b"garbage\n", stray(3)], 1) == [2]
    three = chain(posted(), posted(), posted(), seq=3, prev="c" * 64)
    assert kept([lines[0], b"garbage\n", lines[1], b"garbage\n", *three], 1) == [2, 4, 5]
    later = chain(posted(), posted(), posted(), seq=4, prev="c" * 64)
    assert kept([lines[0], b"garbage\n", stray(3), b"garbage\n", *later], 1) == [4, 5, 6]


def test_the_opening_of_a_segment_inside_another_is_not_kept_and_what_follows_it_is() -> None:
    first = chain(opened(), posted())
    second = chain(opened(digest(first[1])), posted(), seq=3, prev=digest(first[1]))
    assert kept([*first, *second], 1) == [2, 4]


def test_a_segment_begins_with_what_opens_it_or_with_a_lost_range() -> None:
    assert kept(chain(posted())) == []
    assert kept([chain(lost(1, 3, None))[0], stray(4)]) == [1, 4]


def test_a_line_right_after_a_sound_one_that_continues_another_is_not_kept() -> None:
    lines = chain(opened(), posted())
    foreign = chain(posted(), posted(), posted(), seq=2, prev="c" * 64)
    assert kept([*lines, b"garbage\n", *foreign], 2) == [4]
