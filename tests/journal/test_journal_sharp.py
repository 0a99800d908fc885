"""A journal's small answers: what lies there, in order, and nothing where nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.journal.conftest import FaultyFiles, soon

if TYPE_CHECKING:
    from tests.journal.conftest import Kit


def test_where_nothing_was_read_or_written_a_flush_does_nothing(kit: Kit) -> None:
    kit.commit(kit.open(), flush=False)
    files = FaultyFiles()
    kit.open(files=files).flush(soon())
    assert files.calls == []


def test_pieces_set_aside_are_named_in_order(kit: Kit) -> None:
    journal = kit.open()
    for _ in range(12):
        kit.commit(journal)
        with kit.segment().open("ab") as file:
            file.write(b'{"torn')
    kit.commit(journal)
    pieces = journal.set_aside()
    assert len(pieces) == 12
    assert pieces == sorted(pieces)


def test_each_segment_is_as_long_as_its_file(kit: Kit) -> None:
    journal = kit.open(segment_bytes_max=600)
    assert journal.sizes() == []
    for number in range(6):
        kit.commit(journal, str(number))
    files = sorted(kit.directory.glob("*.jsonl"))
    assert len(files) > 2
    assert journal.sizes() == [file.stat().st_size for file in files]


def test_an_interrupt_ends_every_sleep_that_was_armed_before(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal)
    armed = journal._watch.arm()
    journal.interrupt()
    assert journal._watch.arm() != armed


def test_a_short_wait_waits(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal)
    asked: list[bool] = []

    def interrupted() -> bool:
        asked.append(True)
        return False

    assert not journal.wait(journal.last_seq, 0.2, interrupted)
    assert len(asked) > 1


@pytest.mark.parametrize("closes", [True, False])
def test_a_change_of_a_file_ends_no_wait_with_a_line_for_who_is_interrupted_or_closed(
    kit: Kit, *, closes: bool
) -> None:
    journal = kit.open()
    kit.commit(journal)
    asked: list[bool] = []

    def interrupted() -> bool:
        asked.append(True)
        if len(asked) == 1:
            (kit.directory / "something").touch()  # the watch is armed by now
            return False
        journal._watch.closed = closes
        return not closes

    assert not journal.wait(journal.last_seq, 20, interrupted)
    assert len(asked) == 2
