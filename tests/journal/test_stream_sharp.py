"""What a stream says of many damages, to the letter, however it comes in; see test_walker_sharp.py."""

from __future__ import annotations

import gzip
import random
from typing import TYPE_CHECKING

import pytest

from journal import LINE_BYTES_MAX, Commit, Fault, UnsupportedError, stream
from tests.journal.test_repair import DAMAGES, three
from tests.journal.test_segment import chain, opened, posted
from tests.journal.test_stream import read_from, verdict
from tests.journal.test_walker_sharp import compare

if TYPE_CHECKING:
    from collections.abc import Iterable


def account(data: bytes, at_once: int) -> Iterable[str]:
    """One line for each run of commits and fault, and what was found in all."""
    sound: list[int] = []
    try:
        found = read_from(data, at_once)
    except UnsupportedError as error:
        yield f"  {error}"
        return
    for each in found:
        if isinstance(each, Commit):
            sound.append(each.seq)
            continue
        yield f"  sound {' '.join(map(str, sound)) or 'none'}"
        sound.clear()
        if isinstance(each, Fault):
            yield f"  {each.file}:{each.line} byte {each.offset} seq {each.seq}: {each.cause}"
            continue
        yield (
            f"  {each.commits} commits in {each.segments} segments, {each.first_seq} to {each.last_seq}:"
            f"{each.hash[:6]}, {each.faults} faults, unchecked {each.unchecked}"
        )
        if each.tail is not None:
            tail = each.tail
            yield f"  tail {tail.file} bytes {tail.offset}+{tail.bytes}{' unfinished' * tail.unfinished_line}"


@pytest.mark.parametrize(("at_once", "packs"), [(1 << 20, False), (997, False), (1 << 20, True), (50, True)])
def test_what_a_stream_says_of_every_kind_of_damage_is_this(at_once: int, *, packs: bool) -> None:
    told: list[str] = []
    for kind, (damage, *_) in DAMAGES.items():
        lines = three()
        damage(lines)
        parts = [b"".join(some) for _, some in sorted(lines.items())]
        data = b"".join(gzip.compress(part) if packs else part for part in parts)
        told += [kind, *account(data, at_once if len(data) < 1 << 20 else 1 << 16)]
    compare(told, "damages-stream.txt")


def told(data: bytes, at_once: int = 1 << 20) -> tuple[list[tuple[int, int, int]], list[int]]:
    """(line, offset, seq) of each fault, and the seqs of the commits."""
    found = read_from(data, at_once)
    faults = [(each.line, each.offset, each.seq) for each in found if isinstance(each, Fault)]
    return faults, [each.seq for each in found if isinstance(each, Commit)]


def test_a_stream_that_begins_with_what_is_no_line_begins_with_seq_1_in_a_first_segment() -> None:
    (first, second, third, *_) = three()[1]
    assert told(b"x\n" + second + third) == ([(1, 0, 1)], [2, 3])
    assert verdict(b"x\n" + second + third).segments == 1
    assert verdict(b"x\n" + first).segments == 2


def test_lines_that_come_twice_are_given_once() -> None:
    lines = [line for some in three().values() for line in some]
    faults, seqs = told(b"".join(lines[:8] + lines[6:8] + lines[8:]))
    assert ([line for line, _, _ in faults], seqs) == ([9, 10], list(range(1, 13)))


def test_the_longest_line_is_one_and_a_byte_more_is_too_long_with_a_line_feed_or_without() -> None:
    head = chain(opened(), posted(""))
    for over, faults in ((0, 0), (1, 1)):
        line = chain(opened(), posted("x" * (LINE_BYTES_MAX + over - len(head[1]))))[1]
        assert len(line) == LINE_BYTES_MAX + over
        for at_once in (1 << 16, 1 << 20):
            assert verdict(head[0] + line, at_once).faults == faults
            assert verdict(head[0] + line[:-1], at_once).faults == faults


@pytest.mark.parametrize("at_once", [1000, 1 << 20])
def test_what_is_packed_is_unpacked_whole_however_much_it_is_and_however_far_back_it_repeats(at_once: int) -> None:
    far = random.Random(1).randbytes(20 << 10).hex()  # noqa: S311  # repeatable, not secret
    data = b"".join(chain(opened(), posted(far + far), posted("x" * (1500 << 10)), posted()))
    assert told(gzip.compress(data), at_once) == ([], [1, 2, 3, 4])


def test_why_something_cannot_be_unpacked_is_told_in_a_few_words() -> None:
    packed = bytearray(gzip.compress(b"".join(three()[1])))
    packed[-8] ^= 1
    (fault,) = (each for each in read_from(bytes(packed)) if isinstance(each, Fault))
    assert fault.cause == "cannot be unpacked any further: incorrect data check"


def test_a_stream_is_read_no_further_than_to_what_is_given() -> None:
    lines = three()
    rest = [gzip.compress(b"".join(lines[1])), *lines[5], *lines[9]]
    walking = stream(lambda _: rest.pop(0) if rest else b"")
    assert [next(walking).seq for _ in range(5)] == [1, 2, 3, 4, 5]  # type: ignore[union-attr]  # they are commits
    assert len(rest) >= 6


@pytest.mark.parametrize("at_once", [1 << 16, 1 << 20])
@pytest.mark.parametrize("behind", [0, 5])
def test_behind_a_line_that_is_too_long_lines_and_bytes_are_counted_on(at_once: int, behind: int) -> None:
    """Also where what is read ends right before its line feed."""
    lines = three()[1]
    head = b"".join(lines[:2])
    long = b"x" * (3 * (1 << 20) + behind - len(head)) + b"\n"
    data = head + long + b"y\n" + lines[2] + b"z\n" + lines[3]
    after = len(head + long)
    assert told(data, at_once) == (
        [(3, len(head), 3), (4, after, 3), (6, after + 2 + len(lines[2]), 4)],
        [1, 2, 3, 4],
    )
