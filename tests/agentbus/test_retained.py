"""A channel's columns, against a list of rows."""

from __future__ import annotations

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from agentbus.retained import Columns, Retained
from journal import Place

Row = tuple[int, int]  # seq, author
AUTHORS = 3


def place(seq: int) -> Place:
    return Place(seq * 1000, seq * 10, seq + 200)


def made(rows: list[Row]) -> Retained:
    retained = Retained()
    for seq, author in rows:
        retained.append(seq, author, 10_000 - seq, place(seq))
    return retained


# Long runs of one author, as an agent that only posts makes them.
runs = st.lists(st.tuples(st.integers(0, AUTHORS - 1), st.integers(1, 12), st.integers(1, 3)), max_size=8)


@st.composite
def rows_of(draw: st.DrawFn) -> list[Row]:
    seq, rows = 0, []
    for author, many, step in draw(runs):
        for _ in range(many):
            seq += step
            rows.append((seq, author))
    return rows


@st.composite
def thinned(draw: st.DrawFn) -> tuple[list[Row], Retained]:
    """Rows from which some were removed one by one, and all below some seq at once."""
    rows = draw(rows_of())
    retained = made(rows)
    for seq in draw(st.lists(st.sampled_from([seq for seq, _ in rows]), unique=True)) if rows else []:
        retained.remove(seq)
        rows = [row for row in rows if row[0] != seq]
    before = draw(st.integers(0, 40))
    retained.remove_before(before)
    return [row for row in rows if row[0] >= before], retained


seqs = st.integers(0, 120)


@given(thinned(), seqs, seqs, st.none() | st.integers(0, AUTHORS))
def test_every_question_has_the_answer_of_a_list(
    made_of: tuple[list[Row], Retained], after: int, before: int, without: int | None
) -> None:
    rows, retained = made_of
    assert list(zip(retained.seqs, retained.authors, strict=True)) == rows
    assert len(retained) == len(rows)
    wanted = [index for index, (seq, author) in enumerate(rows) if seq > after and author != without]
    assert list(retained.walk(after, without=without)) == wanted
    between = [index for index in wanted if rows[index][0] < before]
    assert retained.count_between(after, before, without=without) == len(between)
    assert retained.last_before(before) == max((seq for seq, _ in rows if seq < before), default=0)
    assert retained.first_after(after) == sum(seq <= after for seq, _ in rows)
    assert retained.find(after) == next((index for index, (seq, _) in enumerate(rows) if seq == after), None)


@given(thinned())
def test_each_message_keeps_its_place_and_time(made_of: tuple[list[Row], Retained]) -> None:
    rows, retained = made_of
    for index, (seq, _) in enumerate(rows):
        assert retained.place(index) == place(seq)
        assert retained.line_bytes(index) == seq + 200
        assert retained.times[index] == 10_000 - seq


class Counted(list[int]):
    """A column that counts how often it was read."""

    reads = 0

    def __getitem__(self, index: int) -> int:  # type: ignore[override]  # columns are not sliced by a walk
        self.reads += 1
        return super().__getitem__(index)


def test_a_run_of_own_messages_is_stepped_over_and_not_read() -> None:
    retained = made([(seq, 0) for seq in range(1, 100_001)] + [(100_001, 1)])
    retained.authors = Counted(retained.authors)  # type: ignore[assignment]  # a column that counts
    retained.seqs = seqs = Counted(retained.seqs)  # type: ignore[assignment]  # a column that counts
    assert list(retained.walk(0, without=0)) == [100_000]
    assert seqs.reads < 100


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(0, 10))
@example([5, 3], 4)
def test_the_first_since_a_time_is_the_first_of_that_time_or_later_also_where_clocks_were_set_back(
    times: list[int], since: int
) -> None:
    retained = Retained()
    for seq, time in enumerate(times, 1):
        retained.append(seq, 0, time, place(seq))
    expected = next((index for index, time in enumerate(times) if time >= since), len(times))
    assert retained.first_since(since) == expected
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(retained.columns()), type=Columns)
    assert Retained.restore(kept).first_since(since) == expected


def test_the_segments_that_hold_a_message_are_each_named_once() -> None:
    retained = Retained()
    assert list(retained.segments()) == []
    for seq, segment in enumerate((1, 5, 5, 5, 9), 1):
        retained.append(seq, 0, 0, Place(segment, 0, 200))
    assert list(retained.segments()) == [1, 5, 9]
    retained.remove_before(3)
    assert list(retained.segments()) == [5, 9]


def test_what_was_removed_is_not_counted_against_what_its_author_left() -> None:
    retained = made([(1, 0), (2, 0), (3, 0), (4, 1), (5, 0)])
    retained.remove_before(3)
    assert retained.count_between(0, 9, without=0) == 1
    retained.remove(3)
    assert retained.count_between(0, 9, without=0) == 1
