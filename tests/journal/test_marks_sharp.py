"""What is remembered of lines that were verified: the last ones in hand, and places to read on from."""

from __future__ import annotations

import pytest

from journal import segment
from journal.marks import Mark, Marks
from journal.record import Commit, Place
from journal.segment import Position

TIME = "2026-09-09T08:00:07.049Z"
EARLIER, LAST = 1, 50  # two segments


def place(seq: int, first_seq: int = LAST) -> Place:
    return Place(first_seq, seq * 100, 100)


def lines(*seqs: int, first_seq: int = LAST) -> list[Commit]:
    return [Commit(seq, TIME, 1, b"[]", "a" * 64, place(seq, first_seq)) for seq in seqs]


def mark(seq: int, first_seq: int = LAST, device: int = 1, inode: int = 2) -> Mark:
    return Mark(Position(first_seq, seq * 100 + 100, seq, "a" * 64, seq + 1, "a" * 64, "journal"), device, inode)


def seqs_after(marks: Marks, seq: int) -> list[int] | None:
    tail, found = marks.after(seq)
    assert tail is marks.tail
    return None if found is None else [commit.seq for commit in found]


@pytest.fixture
def marks() -> Marks:
    """Lines 60 to 64 in hand, read in two pieces."""
    made = Marks()
    made.add(mark(62), lines(60, 61, 62))
    made.add(mark(64), lines(63, 64))
    return made


def test_lines_in_hand_are_given_from_any_of_them_to_the_tail(marks: Marks) -> None:
    assert [seqs_after(marks, seq) for seq in (59, 61, 63, 64)] == [[60, 61, 62, 63, 64], [62, 63, 64], [64], []]


@pytest.mark.parametrize("seq", [0, 57, 58, 65])
def test_from_a_line_that_is_not_in_hand_or_not_there_yet_nothing_is_given(marks: Marks, seq: int) -> None:
    assert seqs_after(marks, seq) is None


def test_a_line_in_hand_is_found_by_its_seq_at_its_place_only(marks: Marks) -> None:
    assert marks.in_hand(61, place(61)) == lines(61)[0]
    assert marks.in_hand(61, place(62)) is None
    assert marks.in_hand(62, place(61)) is None


def test_lines_that_do_not_continue_those_in_hand_take_their_place(marks: Marks) -> None:
    for first in (71, 73, 74):  # a gap, another, and once more the same
        marks.add(mark(74), lines(*range(first, 75)))
        assert seqs_after(marks, first - 1) == list(range(first, 75))
        assert seqs_after(marks, first - 2) is None
        assert marks.in_hand(64, place(64)) is None


def test_a_place_further_on_without_its_lines_leaves_none_in_hand(marks: Marks) -> None:
    marks.add(mark(64))
    assert seqs_after(marks, 63) == [64]
    marks.add(mark(66))
    assert (seqs_after(marks, 65), seqs_after(marks, 66)) == (None, [])
    marks.add(mark(68), lines(67, 68))
    assert seqs_after(marks, 66) == [67, 68]


def test_many_lines_leave_the_last_ones_in_hand(marks: Marks) -> None:
    marks.add(mark(90), lines(*range(65, 91)))
    assert seqs_after(marks, 80) == list(range(81, 91))
    assert marks.in_hand(66, place(66)) is None
    for seq in range(91, 120):
        marks.add(mark(seq), lines(seq))
    assert seqs_after(marks, 109) == list(range(110, 120))
    assert marks.in_hand(91, place(91)) is None


def test_lines_of_an_earlier_segment_are_not_given_with_the_tails() -> None:
    marks = Marks()
    marks.add(mark(49, EARLIER), lines(48, 49, first_seq=EARLIER))
    marks.add(mark(51), lines(50, 51))
    assert [seqs_after(marks, seq) for seq in (47, 48, 49)] == [None, None, [50, 51]]


def test_of_lines_with_a_lost_range_between_them_only_what_continues_is_given() -> None:
    marks = Marks()
    marks.add(mark(64), lines(63, 64))
    marks.add(mark(70), lines(65, 70))  # 65 says that 65 to 69 are lost
    assert [seqs_after(marks, seq) for seq in (63, 68, 69)] == [None, None, [70]]


def test_the_tail_is_the_furthest_place_whatever_is_added_later(marks: Marks) -> None:
    for earlier in (mark(63), mark(99, EARLIER)):
        marks.add(earlier, lines(1))
        assert marks.tail == mark(64)
        assert seqs_after(marks, 63) == [64]
    marks.add(mark(1, 65))
    assert marks.tail == mark(1, 65)


def test_the_same_place_in_a_file_that_is_known_by_now_is_the_tail(marks: Marks) -> None:
    marks.add(mark(64, inode=7))
    assert marks.tail.inode == 7


def test_the_beginning_of_a_journal_is_kept_with_its_file_and_that_of_a_later_segment_alone_is_not() -> None:
    marks = Marks()
    marks.add(Mark(segment.start(1), 1, 2))
    assert (marks.tail.inode, marks.nearest(0)) == (2, marks.tail)
    marks.add(Mark(segment.start(50), 1, 3))
    assert (marks.tail.inode, marks.nearest(49)) == (2, marks.tail)


def test_the_nearest_place_is_the_last_at_or_before_a_line(marks: Marks) -> None:
    assert [marks.nearest(seq) for seq in (61, 62, 63, 64, 99)] == [None, mark(62), mark(62), mark(64), mark(64)]


def test_of_many_places_those_that_nobody_came_by_for_longest_are_forgotten() -> None:
    marks = Marks()
    for seq in (*range(1, 61), 1, *range(61, 101)):
        marks.add(mark(seq))
    assert marks.nearest(1) == mark(1)
    assert marks.nearest(30) == mark(1)
    assert marks.nearest(90) == mark(90)


def test_places_in_a_segment_that_was_copied_are_in_the_copy_and_others_are_not() -> None:
    marks = Marks()
    marks.add(mark(48, EARLIER))
    marks.add(mark(51))
    marks.move(EARLIER, 8, 9)
    assert (marks.nearest(48), marks.nearest(51), marks.tail) == (mark(48, EARLIER, 8, 9), mark(51), mark(51))
    marks.move(LAST, 8, 9)
    assert (marks.nearest(51), marks.tail) == (mark(51, LAST, 8, 9), mark(51, LAST, 8, 9))
