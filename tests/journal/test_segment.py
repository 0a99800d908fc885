from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal import UnsupportedError, record, segment
from journal.record import ZERO_HASH
from journal.segment import Position

TIME = "2026-09-09T08:00:07.049Z"
UUID = "3f2b8c1e-7a54-4d0e-9a51-0c6d2f9be001"


def chain(*bodies: list[dict[str, object]], seq: int = 1, prev: str = ZERO_HASH) -> list[bytes]:
    lines = []
    for number, events in enumerate(bodies, seq):
        line, prev = record.encode(number, TIME, 1, msgspec.json.encode(events), prev)
        lines.append(line)
    return lines


def opened(prev: str = ZERO_HASH, **fields: object) -> list[dict[str, object]]:
    return [{"type": "segment_opened", "format": 1, "journal": UUID, "prev": prev, **fields}]


def posted(text: str = "x") -> list[dict[str, object]]:
    return [{"type": "posted", "content": text}]


def lost(first: int, last: int, next_prev: str | None, **fields: object) -> list[dict[str, object]]:
    event = {"type": "lost", "first": first, "last": last, "bytes": 9, "sha256": "e" * 64, "next_prev": next_prev}
    return [{**event, "reason": "damage", **fields}]


def digest(line: bytes) -> str:
    return line[-67:-3].decode()


@given(st.integers(1, 10**20 - 1))
def test_a_segment_is_named_by_its_first_seq(first_seq: int) -> None:
    assert segment.parse_name(segment.name(first_seq)) == first_seq


@pytest.mark.parametrize(
    "name",
    ["writer.lock", "1.jsonl", "0" * 20 + ".jsonl", "0000000000000000000\u0661.jsonl", "x" * 26, "0" * 20 + ".json"],
)
def test_other_files_are_no_segments(name: str) -> None:
    assert segment.parse_name(name) is None


def test_any_cut_of_a_segment_gives_its_whole_lines_and_no_fault() -> None:
    lines = chain(opened(), posted(), posted("\u2028"), posted())
    data = b"".join(lines)
    for cut in range(len(data) + 1):
        found = segment.scan(data[:cut], segment.start(1))
        whole = data[:cut].count(b"\n")
        assert found.fault is None
        assert len(found.commits) == found.end.seq == whole
        assert found.end.offset == sum(map(len, lines[:whole]))


def test_a_scan_goes_on_where_another_ended() -> None:
    data = b"".join(chain(opened(), posted(), posted(), posted()))
    for cut in range(len(data) + 1):
        first = segment.scan(data[:cut], segment.start(1))
        second = segment.scan(data[first.end.offset :], first.end)
        assert first.commits + second.commits == segment.scan(data, segment.start(1)).commits
        assert second.end.journal == UUID


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (chain(posted()), "must begin with segment_opened"),
        (chain(opened(), opened()), "segment_opened inside a segment"),
        (chain(opened(), posted(), seq=2), "carries seq 2 where 1 is next"),
        (chain(opened("1" * 64)), "segment_opened continues 1111"),
        (chain(opened("zz")), "prev is no hash"),
        (chain([{"type": "segment_opened"}]), "does not parse"),
        (chain([{"type": "segment_opened", "format": 1}]), "does not parse"),
        (chain(opened(), lost(3, 4, None)), "is lost 3 to 4 at seq 2"),
        (chain(opened(), lost(2, 1, None)), "is lost 2 to 1 at seq 2"),
        (chain(opened(), lost(2, 2, "abc")), "next_prev is no hash"),
        (chain(opened(), [{"type": "lost"}]), "does not parse"),
    ],
)
def test_a_line_that_may_not_stand_there_is_a_fault(lines: list[bytes], cause: str) -> None:
    found = segment.scan(b"".join(lines), segment.start(1))
    assert found.fault is not None
    assert cause in found.fault
    assert found.end.offset == sum(map(len, lines[: len(found.commits)]))


def test_of_a_segment_nothing_is_known_but_its_name() -> None:
    assert segment.start(9) == Position(9, 0, 8, "", 9, None, None)
    assert segment.start(1) == Position(1, 0, 0, "", 1, ZERO_HASH, None)


def test_a_segment_can_be_verified_alone() -> None:
    data = b"".join(chain(opened("a" * 64), posted(), seq=9, prev="a" * 64))
    assert [commit.seq for commit in segment.scan(data, segment.start(9)).commits] == [9, 10]
    other = b"".join(chain(opened("b" * 64), posted(), seq=9, prev="a" * 64))
    assert "does not verify" in str(segment.scan(other, segment.start(9)).fault)


def test_two_journals_mixed_are_named() -> None:
    first = chain(opened())
    end = segment.scan(first[0], segment.start(1)).end
    second = chain(opened(end.hash, journal="other"), seq=2, prev=end.hash)
    assert segment.scan(second[0], segment.follow(end)).fault == f"two journals mixed: {UUID} and other"


def test_another_format_names_both_versions() -> None:
    line = chain(opened(format=2, new_field=[1]))[0]
    with pytest.raises(UnsupportedError, match="format is 2, this software knows 1") as caught:
        segment.scan(line, segment.start(1))
    assert (caught.value.found, caught.value.known) == ("2", "1")


def test_after_a_lost_line_the_chain_goes_on_at_last_plus_one_from_next_prev() -> None:
    head = chain(opened(), lost(2, 5, "c" * 64))
    after = chain(posted(), posted(), seq=6, prev="c" * 64)
    found = segment.scan(b"".join(head + after), segment.start(1))
    assert [commit.seq for commit in found.commits] == [1, 2, 6, 7]
    assert found.unchecked == []
    wrong = chain(posted(), seq=6, prev="d" * 64)
    assert "does not verify" in str(segment.scan(b"".join(head + wrong), segment.start(1)).fault)


def test_after_a_lost_line_without_next_prev_the_next_hash_is_taken_as_stated() -> None:
    head = chain(opened(), lost(2, 5, None))
    after = chain(posted(), posted(), seq=6, prev="d" * 64)
    found = segment.scan(b"".join(head + after), segment.start(1))
    assert (found.fault, found.unchecked) == (None, [6])
    assert found.end.prev == digest(after[1])


def test_a_lost_line_may_give_no_reason() -> None:
    found = segment.parse_lost(b'[{"type":"lost","first":2,"last":5}]')
    assert found is not None
    assert (found.first, found.last, found.next_prev, found.reason) == (2, 5, None, "")


def test_a_segment_may_begin_with_a_lost_line() -> None:
    lines = chain(lost(9, 9, None), seq=9, prev="a" * 64) + chain(posted(), seq=10, prev="b" * 64)
    found = segment.scan(b"".join(lines), segment.start(9))
    assert (len(found.commits), found.unchecked, found.end.journal) == (2, [9, 10], None)


def test_a_fault_leaves_the_place_before_the_bad_line() -> None:
    lines = chain(opened(), posted(), posted())
    lines[1] = lines[1].replace(b'"x"', b'"y"')
    found = segment.scan(b"".join(lines), segment.start(1))
    first = digest(lines[0])
    assert found.end == Position(1, len(lines[0]), 1, first, 2, first, UUID)


NULS = b"\0"


@pytest.mark.parametrize(
    ("line", "offset", "torn"),
    [
        (b"ab" + NULS + b"cd", 100, False),
        (b"ab" + NULS * 511 + b"cd", 510, False),
        (b"ab" + NULS * 512 + b"cd", 510, True),
        (b"ab" + NULS * 600 + b"cd", 511, False),
        (b"ab" + NULS * 1200 + b"cd", 3, True),
        (NULS * 24 + b"cd", 1000, True),
        (NULS * 24 + b"cd", 999, False),
        (NULS + b"cd", 1023, False),
        (NULS * 2 + b"cd", 1022, True),
        (b"a" + NULS * 23 + b"cd", 1000, False),
        (b"ab", 0, False),
    ],
)
def test_only_nuls_that_fill_blocks_are_a_power_cuts(line: bytes, offset: int, torn: bool) -> None:  # noqa: FBT001 -- a column
    assert segment.is_torn_line(line, offset) is torn
