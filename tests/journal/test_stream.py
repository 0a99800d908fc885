"""A journal that comes as a stream: the same commits as from its files, and faults where they are."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal import Commit, Fault, Tail, UnsupportedError, Verdict, stream, walk
from journal.record import LINE_BYTES_MAX, ZERO_HASH, encode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journal.conftest import Kit

OPENED = '[{"type":"segment_opened","format":1,"journal":"j","prev":"%s"}]'
TIME = "2026-09-09T08:00:07.049Z"


def read_from(data: bytes, at_once: int = 1 << 20) -> list[Commit | Fault | Verdict]:
    """What a stream of these bytes holds, read in pieces of at most so many."""
    rest = [data]

    def read(length: int) -> bytes:
        piece, rest[0] = rest[0][: min(length, at_once)], rest[0][min(length, at_once) :]
        return piece

    return list(stream(read))


def faults(data: bytes, at_once: int = 1 << 20) -> list[Fault]:
    return [found for found in read_from(data, at_once) if isinstance(found, Fault)]


def seqs(data: bytes) -> list[int]:
    return [found.seq for found in read_from(data) if isinstance(found, Commit)]


def verdict(data: bytes, at_once: int = 1 << 20) -> Verdict:
    found = read_from(data, at_once)[-1]
    assert isinstance(found, Verdict)
    return found


def chain(*texts: str, segments: tuple[int, ...] = (1,)) -> list[bytes]:
    """Lines of a journal; one of ``segments`` opens one, the others hold a text each."""
    lines: list[bytes] = []
    prev, rest = ZERO_HASH, iter(texts)
    for seq in range(1, len(texts) + len(segments) + 1):
        events = OPENED % prev if seq in segments else json.dumps([{"type": "posted", "content": next(rest)}])
        line, prev = encode(seq, TIME, 7, events.replace(" ", "").encode(), prev)
        lines.append(line)
    return lines


@pytest.fixture
def journal(kit: Kit) -> bytes:
    """The bytes of a journal of several segments."""
    journal = kit.open(segment_bytes_max=700)
    for number in range(12):
        kit.commit(journal, f"text {number}", flush=False)
    assert len(list(kit.directory.glob("*.jsonl"))) > 2
    return b"".join(path.read_bytes() for path in sorted(kit.directory.glob("*.jsonl")))


def test_it_gives_the_same_as_the_files_do(journal: bytes, kit: Kit) -> None:
    from_files = list(walk([kit.directory]))
    assert read_from(journal) == from_files
    assert read_from(journal, 37) == from_files


@pytest.mark.parametrize("at_once", [1, 1000, 1 << 20])
def test_packed_segments_may_come_first(kit: Kit, journal: bytes, at_once: int) -> None:
    parts = [path.read_bytes() for path in sorted(kit.directory.glob("*.jsonl"))]
    packed = [gzip.compress(part) for part in parts]
    for mixed in (b"".join(packed), b"".join(packed[:2]) + b"".join(parts[2:]), gzip.compress(journal)):
        assert read_from(mixed, at_once) == read_from(journal)


def test_nothing_is_no_journal_and_no_fault() -> None:
    assert read_from(b"") == [Verdict()]


def test_a_stream_may_begin_with_any_segment(journal: bytes, kit: Kit) -> None:
    first, second = sorted(kit.directory.glob("*.jsonl"))[:2]
    rest = journal[first.stat().st_size :]
    found = verdict(rest)
    assert (found.first_seq, found.faults) == (int(second.stem), 0)
    assert found.hash == verdict(journal).hash


def test_a_stream_that_begins_inside_a_segment_cannot_be_judged_there() -> None:
    lines = chain("a", "b", "c")
    (fault,) = faults(b"".join(lines[1:]))
    assert fault == Fault("stdin", 1, 0, 2, "a segment must begin with segment_opened")
    assert seqs(b"".join(lines[1:])) == [3, 4], "the rest continues what that line states"


@given(st.integers(1, 5), st.sampled_from(["change", "remove", "twice", "spoil"]))
def test_one_fault_is_told_at_its_place_and_the_rest_is_read_on(number: int, how: str) -> None:
    lines = chain(*"abcdefg")
    broken = list(lines)
    if how == "change":
        broken[number] = lines[number].replace(b'"content":"', b'"content":"!')
    elif how == "remove":
        del broken[number]
    elif how == "twice":
        broken.insert(number, lines[number - 1])
    else:
        broken[number] = b"spoilt\n"
    data = b"".join(broken)
    (fault,) = faults(data)
    assert (fault.line, fault.offset) == (number + 1, sum(map(len, broken[:number])))
    assert fault.seq == number + 1
    missing = {"change": {number + 1}, "remove": {number + 1, number + 2}, "twice": set(), "spoil": {number + 1}}[how]
    assert set(range(1, 9)) - set(seqs(data)) == missing
    # Nothing states any more what the line after a spoilt one continues.
    assert verdict(data).unchecked == ([number + 2] if how == "spoil" else [])


def test_two_faults_in_a_row_are_two() -> None:
    lines = chain(*"abcdef")
    for number in (2, 3):
        lines[number] = lines[number].replace(b'"content":"', b'"content":"!')
    assert [each.line for each in faults(b"".join(lines))] == [3, 4]
    assert seqs(b"".join(lines)) == [1, 2, 5, 6, 7]


def test_behind_bytes_put_in_a_line_that_does_not_continue_the_sound_one_before_is_a_fault() -> None:
    lines = chain(*"abcdef")
    forged, _ = encode(4, TIME, 7, b'[{"type":"posted","content":"forged"}]', "f" * 64)
    data = b"".join([*lines[:3], b"spoilt\n", forged, *lines[3:]])
    assert [(each.line, each.seq) for each in faults(data)] == [(4, 4), (5, 4)]
    assert seqs(data) == [1, 2, 3, 4, 5, 6, 7]
    assert not any(isinstance(each, Commit) and b"forged" in each.events for each in read_from(data))
    assert verdict(data).unchecked == []


def test_a_seq_that_is_not_the_next_is_named() -> None:
    lines = chain("a", "b", "c", "d")
    assert faults(b"".join(lines[:2] + lines[3:]))[0].cause == "carries seq 4 where 3 is next"


def test_a_missing_segment_is_named(journal: bytes, kit: Kit) -> None:
    first, second, *rest = sorted(kit.directory.glob("*.jsonl"))
    data = first.read_bytes() + b"".join(path.read_bytes() for path in rest)
    (fault,) = faults(data)
    assert fault.cause == f"carries seq {int(rest[0].stem)} where {int(second.stem)} is next"
    assert fault.offset == first.stat().st_size
    assert verdict(data).segments == verdict(journal).segments - 1


def test_lost_lines_and_what_cannot_be_checked_are_counted() -> None:
    lines = chain("a")
    prev = json.loads(lines[-1])["hash"]
    lost = b'[{"type":"lost","first":3,"last":4,"bytes":9,"next_prev":null,"reason":"damage"}]'
    line, digest = encode(3, TIME, 7, lost, prev)
    after, _ = encode(5, TIME, 7, b'[{"type":"posted"}]', "f" * 64)
    found = verdict(b"".join([*lines, line, after]))
    assert [(each.seq, each.last, each.hash) for each in found.lost] == [(3, 4, digest)]
    assert (found.unchecked, found.faults, found.last_seq) == ([5], 0, 5)


def test_a_torn_tail_is_no_fault_and_a_whole_line_without_its_end_is_named() -> None:
    lines = chain("a", "b")
    whole = b"".join(lines)
    assert verdict(whole + b'{"seq":4').tail == Tail("stdin", len(whole), 8, unfinished_line=False)
    assert verdict(whole[:-1]).tail == Tail("stdin", sum(map(len, lines[:2])), len(lines[2]) - 1, unfinished_line=True)
    assert verdict(b"{").tail == Tail("stdin", 0, 1, unfinished_line=False)
    assert verdict(whole).tail is None


def torn(lines: list[bytes]) -> bytes:
    """A line that lost whole blocks, as a power cut leaves it, behind these."""
    before = sum(map(len, lines))
    return b"x" * (512 - before % 512) + b"\0" * 512 + b"x\n"


def test_lines_that_lost_blocks_at_the_end_are_a_torn_tail_with_all_that_follows() -> None:
    lines = chain("a", "b", "c")
    tail = torn(lines[:3]) + lines[3] + b"{"
    data = b"".join(lines[:3]) + tail
    assert faults(data) == []
    assert verdict(data, 100).tail == Tail("stdin", sum(map(len, lines[:3])), len(tail), unfinished_line=False)


def test_they_are_a_fault_if_another_segment_follows() -> None:
    lines = chain("a", "b", "c", segments=(1, 4))
    data = b"".join(lines[:3]) + torn(lines[:3]) + b"".join(lines[3:])
    (fault,) = faults(data)
    assert (fault.line, fault.seq) == (4, 4)
    assert seqs(data) == [1, 2, 3, 4, 5]
    assert verdict(data).tail is None


def test_what_looks_like_an_opening_in_a_text_opens_nothing() -> None:
    text = '\\n{"seq":1,"time":"","pid":1,"events":[{"type":"segment_opened",'
    lines = chain(json.dumps(text)[1:-1], "b")
    assert verdict(b"".join(lines)).segments == 1


@pytest.mark.parametrize("at_once", [1 << 16, 1 << 21])
def test_a_line_that_is_too_long_is_passed_over(at_once: int) -> None:
    lines = chain("a", "b")
    long = b"x" * (LINE_BYTES_MAX + (1 << 20))
    data = b"".join(lines[:2]) + long + b"\n" + lines[2]
    (fault,) = faults(data, at_once)
    assert fault == Fault("stdin", 3, len(lines[0] + lines[1]), 3, f"is longer than {LINE_BYTES_MAX} bytes")
    assert seqs(data) == [1, 2, 3]
    assert verdict(lines[0] + long, at_once).faults == 1
    (fault,) = faults(long, at_once)
    assert (fault.line, fault.offset, fault.seq) == (1, 0, 1)


def test_an_archive_that_is_damaged_or_cut_is_a_fault(journal: bytes) -> None:
    packed = gzip.compress(journal)
    (fault,) = faults(packed[:-20])
    assert fault.cause == "ends too early to be unpacked any further"
    spoilt = packed[:200] + bytes(100) + packed[300:]
    assert faults(spoilt, 64)[-1].cause.startswith("cannot be unpacked any further: ")
    (fault,) = faults(packed[:10])
    assert (fault.line, fault.offset, fault.seq) == (1, 0, 1)


def test_another_format_is_not_read(tmp_path: Path) -> None:  # noqa: ARG001  # nothing is written
    events = (OPENED % ZERO_HASH).replace('"format":1', '"format":2')
    line, _ = encode(1, TIME, 7, events.encode(), ZERO_HASH)
    with pytest.raises(UnsupportedError):
        read_from(line)
