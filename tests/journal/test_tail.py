"""Cuts, torn tails and unfinished lines: what was acknowledged stays, what was not is set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from journal import Verdict, verify
from tests.journal.conftest import FIRST_EVENTS, Unflushed, soon

if TYPE_CHECKING:
    from tests.journal.conftest import Kit


def check_sound(kit: Kit) -> None:
    *faults, verdict = verify([kit.directory])
    assert faults == []
    assert isinstance(verdict, Verdict)
    assert verdict.tail is None


def test_the_last_line_cut_at_every_byte_costs_nothing_but_itself(kit: Kit) -> None:
    journal = kit.open()
    for text in ("one", "two", "three"):
        kit.commit(journal, text)
    data = kit.segment().read_bytes()
    begin = data[:-1].rindex(b"\n") + 1
    for cut in range(begin, len(data) + 1):
        kit.segment().write_bytes(data[:cut])
        kept = ["one", "two", "three"] if cut == len(data) else ["one", "two"]
        reader = kit.open(read_only=True)
        assert kit.texts(reader) == kept
        assert reader.torn_bytes() == (cut - begin if cut < len(data) else 0)
        writer = kit.open(files=Unflushed())
        kit.commit(writer, "more")
        if cut == len(data) - 1:
            kept = ["one", "two", "three"]  # it lacked only its LF
        pieces = [kit.directory / "set-aside" / name for name in writer.set_aside()]
        assert [piece.read_bytes() for piece in pieces] == ([data[begin:cut]] if begin < cut < len(data) - 1 else [])
        for piece in pieces:
            piece.unlink()
        assert kit.texts() == [*kept, "more"]
        check_sound(kit)
        writer.close()
        reader.close()


def test_the_first_lines_cut_at_every_byte_are_born_again(kit: Kit) -> None:
    kit.commit(kit.open(), "one")
    data = kit.segment().read_bytes()
    second = data.index(b"\n") + 1
    third = data.index(b"\n", second) + 1
    for cut in range(third + 1):
        kit.segment().write_bytes(data[:cut])
        kit.commit(kit.open(files=Unflushed()), "again")
        events = [commit.events for commit in kit.open().read(0)]
        assert len(events) == 3
        assert events[1] == FIRST_EVENTS
        check_sound(kit)


def test_a_roll_cut_at_every_byte_of_its_first_line_is_finished_by_the_next_writer(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=700)
    first = kit.commit(journal, "x" * 100)
    while first.place.segment == 1:
        first = kit.commit(journal, "x" * 100)
    path = kit.segment(first.place.segment)
    data = path.read_bytes()
    before = kit.texts()[:-1]
    for cut in range(data.index(b"\n") + 1):
        path.write_bytes(data[:cut])
        assert kit.texts() == before
        kit.commit(kit.open(files=Unflushed()), "again")
        assert kit.texts() == [*before, "again"]
        check_sound(kit)


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_blocks_lost_in_a_power_cut_are_a_torn_tail_with_all_that_follows(kit: Kit, blocks: int) -> None:
    journal = kit.open()
    kit.commit(journal, "kept")
    kit.commit(journal, "x" * 4000)
    kit.commit(journal, "y" * 100)
    data = kit.segment().read_bytes()
    begin = data.index(b"xxx") // 512 * 512 + 512
    torn = data[:begin] + b"\0" * 512 * blocks + data[begin + 512 * blocks :]
    kit.segment().write_bytes(torn)
    *_, verdict = verify([kit.directory])
    assert isinstance(verdict, Verdict)
    assert verdict.tail is not None
    assert (verdict.faults, verdict.commits, verdict.tail.unfinished_line) == (0, 3, False)
    writer = kit.open()
    assert kit.texts(writer) == ["kept"]
    assert writer.torn_bytes() == verdict.tail.bytes == len(torn) - verdict.tail.offset
    kit.commit(writer, "more")
    piece = kit.directory / "set-aside" / writer.set_aside()[0]
    assert piece.read_bytes() == torn[verdict.tail.offset :]
    assert kit.texts() == ["kept", "more"]
    check_sound(kit)


def test_a_writer_that_died_in_a_line_is_mended_by_another_that_had_read_it_all(kit: Kit) -> None:
    journal, other = kit.open(), kit.open()
    kit.commit(journal, "one")
    kit.commit(other, "two")
    data = kit.segment().read_bytes()
    last = data[data[:-1].rindex(b"\n") + 1 :]
    with kit.segment().open("ab") as file:
        file.write(last[:40])
    kit.commit(other, "three")
    kit.commit(journal, "four")
    assert kit.texts() == ["one", "two", "three", "four"]
    assert len(journal.set_aside()) == 1


def test_who_mends_a_torn_tail_is_told_the_name_of_the_piece(kit: Kit) -> None:
    told: list[str] = []
    kit.commit(kit.open(), "one")
    with kit.segment().open("ab") as file:
        file.write(b'{"seq":')
    writer = kit.open(on_set_aside=told.append)
    kit.commit(writer, "two")
    assert len(told) == 1
    assert told == writer.set_aside()


def test_an_unfinished_line_is_part_of_what_build_sees(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    kit.commit(journal, "two")
    data = kit.segment().read_bytes()
    kit.segment().write_bytes(data[:-1])
    seen: list[int] = []
    fresh = kit.open()

    def build(_time: str) -> bytes:
        seen.extend(commit.seq for commit in fresh.read(0))
        return b'[{"type":"x"}]'

    fresh.commit(build, deadline=soon())
    assert seen == [1, 2, 3, 4]
    assert kit.segment().read_bytes().startswith(data)


def test_a_reader_that_begins_at_an_empty_segment_knows_of_no_line(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    kit.segment(4).touch()
    reader = kit.open()
    assert list(reader.read(3)) == []
    assert (reader.last_seq, reader.anchor) == (0, "")
    assert kit.commit(reader, "two").seq == 5
    assert kit.texts(journal) == ["one", "two"]


@pytest.mark.parametrize("length", [1 << 20, 2 << 20, (2 << 20) + 8192, 4 << 20])
def test_a_torn_tail_may_be_longer_than_a_line(kit: Kit, length: int) -> None:
    journal = kit.open()
    kit.commit(journal, "kept")
    size = kit.segment().stat().st_size
    with kit.segment().open("ab") as file:
        file.write(b'{"seq":4,' + b"\0" * length + b'"}\n')
    *faults, verdict = verify([kit.directory])
    assert isinstance(verdict, Verdict)
    assert verdict.tail is not None
    assert (faults, verdict.tail.offset) == ([], size)
    writer = kit.open()
    assert kit.texts(writer) == ["kept"]
    kit.commit(writer, "more")
    assert kit.texts() == ["kept", "more"]
    check_sound(kit)
