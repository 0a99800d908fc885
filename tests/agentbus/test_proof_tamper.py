"""Random journals and random tampering: what is done without new hashes is found at its place, the rest by an anchor.

Each seed is a journal and a tampering; `python -m tests.agentbus.test_proof_tamper FIRST COUNT` tries others than the
suite's.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from agentbus import replay as auditor
from agentbus.audit.anchors import Anchor
from agentbus.audit.evidence import Evidence, Judged
from journal import Commit, Fault, Verdict, walk
from journal.record import ZERO_HASH, decode, encode
from tests.agentbus.shell import CHANNELS, OPENED, posted

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEDS = 400
TIME = "2026-09-09T08:00:07.049Z"
Lines = list[bytes]


def chain(bodies: Sequence[bytes], cuts: Sequence[int] = (), journal: str = "one") -> list[Lines]:
    """Segments with these arrays of events, each with a line that opens it; one begins at each index in ``cuts``."""
    segments: list[Lines] = [[]]
    seq, prev = 1, ZERO_HASH

    def put(events: bytes) -> None:
        nonlocal seq, prev
        line, prev = encode(seq, TIME, 4711, events, prev)
        segments[-1].append(line)
        seq += 1

    for index, body in enumerate(bodies):
        if index in cuts:
            segments.append([])
        if not segments[-1]:
            put(msgspec.json.encode([OPENED | {"prev": prev, "journal": journal}]))
        put(body)
    return segments


def bodies_of(chance: random.Random, name: str) -> list[bytes]:
    texts = [f"{name} {number} {'x' * chance.choice([0, 5, 300])}" for number in range(chance.randrange(3, 30))]
    return [msgspec.json.encode(CHANNELS), *(msgspec.json.encode([posted(text)]) for text in texts)]


def flat(segments: Sequence[Lines]) -> Lines:
    return [line for lines in segments for line in lines]


def hash_of(line: bytes) -> str:
    return line[-67:-3].decode()


def write(place: Path, segments: Sequence[Lines], names: Sequence[int]) -> None:
    place.mkdir(parents=True)
    for first, lines in zip(names, segments, strict=True):
        (place / f"{first:020d}.jsonl").write_bytes(b"".join(lines))


def names_of(segments: Sequence[Lines]) -> list[int]:
    names, seq = [], 1
    for lines in segments:
        names.append(seq)
        seq += len(lines)
    return names


def look(place: Path, anchors: Sequence[Anchor] = ()) -> tuple[list[Fault], Verdict, list[Judged]]:
    evidence, faults, verdict = Evidence(anchors), [], Verdict()
    for found in walk([place]):
        if isinstance(found, Commit):
            evidence.take(found, auditor.parse_events(found))
        elif isinstance(found, Fault):
            evidence.fault()
            faults.append(found)
        else:
            verdict = found
    return faults, verdict, evidence.judge(verdict.unchecked)


class Tamper:
    """One tampering with segments of lines, hashes left as they are. Each method returns what then lies there."""

    def __init__(self, chance: random.Random, segments: list[Lines], other: list[Lines]) -> None:
        self.chance = chance
        self.segments = [list(lines) for lines in segments]
        self.other = other
        self.number = chance.randrange(len(segments))
        self.lines = self.segments[self.number]
        self.at = chance.randrange(len(self.lines))
        self.begins_otherwise = False

    def once(self) -> str:
        kinds = [self.change, self.remove, self.add, self.swap, self.truncate, self.splice, self.exchange]
        kind = self.chance.choice(kinds)
        kind()
        return kind.__name__

    def change(self) -> None:
        line = bytearray(self.lines[self.at])
        byte = self.chance.randrange(len(line))
        line[byte] ^= self.chance.randrange(1, 256)
        self.lines[self.at] = bytes(line)

    def remove(self) -> None:
        del self.lines[self.at : self.at + self.chance.randrange(1, 4)]

    def add(self) -> None:
        made = encode(self.at + 1, TIME, 1, msgspec.json.encode([posted("never said")]), "a" * 64)[0]
        line = self.chance.choice([made, b"hello\n", *flat(self.segments), *flat(self.other)])
        self.lines.insert(self.at, line)
        self.begins_otherwise = self.number == self.at == 0 and line == self.other[0][0]

    def swap(self) -> None:
        place = self.chance.choice(self.segments)
        other = self.chance.randrange(len(place))
        self.lines[self.at], place[other] = place[other], self.lines[self.at]

    def truncate(self) -> None:
        del self.lines[self.at + 1 :]
        self.lines[self.at] = self.lines[self.at][: self.chance.randrange(len(self.lines[self.at]))]

    def splice(self) -> None:
        """This journal up to a line, and the other from one on."""
        self.begins_otherwise = self.number == self.at == 0
        self.lines[self.at :] = self.other[0][self.chance.randrange(len(self.other[0])) :]

    def exchange(self) -> None:
        """A whole segment of the other journal."""
        self.begins_otherwise = self.number == 0
        self.lines[:] = self.chance.choice(self.other)


def first_difference(before: Sequence[Lines], after: Sequence[Lines]) -> tuple[int, int, int] | None:
    """Segment, line and seq of the first line that is not as it was; None if there is none."""
    seq = 1
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        was, now = b"".join(old), b"".join(new)
        for line, text in enumerate(old):
            if not now.startswith(text, sum(map(len, old[:line]))):
                return number, line, seq + line
        if was != now:
            return number, len(old), seq + len(old)
        seq += len(old)
    return None


def run_careless(place: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
    bodies = bodies_of(chance, "one")
    cuts = sorted(chance.sample(range(2, len(bodies)), k=chance.choice([0, 0, 1, 2])))
    before = chain(bodies, cuts)
    tamper = Tamper(chance, before, chain(bodies_of(chance, "two"), [3], "two"))
    kind = tamper.once()
    write(place, tamper.segments, names_of(before))
    found = first_difference(before, tamper.segments)
    end = Anchor(len(flat(before)), hash_of(flat(before)[-1]))
    faults, verdict, (judged,) = look(place, [end])
    if found is None:
        assert (faults, verdict.tail, judged.result) == ([], None, "matches"), kind
        return
    if tamper.begins_otherwise:  # then it is the other journal, up to where they meet
        assert faults or not judged.holds, kind
        return
    number, line, seq = found
    offset = sum(map(len, before[number][:line]))
    if faults:
        assert faults[0].seq == seq, kind
        assert (faults[0].offset, faults[0].line) in ((offset, line + 1), (0, 1)), kind
        if (faults[0].offset, faults[0].line) != (offset, line + 1):  # what is missing has no place but its name
            assert faults[0].file.endswith(f"/{seq:020d}.jsonl"), kind
        return
    # Lines cut off the end, whole or not, are what a crash leaves: only an anchor shows them.
    assert b"".join(before[-1]).startswith(b"".join(tamper.segments[-1])) or verdict.tail is not None, kind
    assert (verdict.last_seq, judged.result) == (seq - 1, "unknown"), kind


@pytest.mark.parametrize("part", range(4))
def test_tampering_without_new_hashes_is_found_where_it_was_done(tmp_path: Path, part: int) -> None:
    for seed in range(part, SEEDS, 4):
        run_careless(tmp_path / str(seed), seed)


def run_forger(place: Path, seed: int) -> None:
    """A forger who computes every hash anew from the line on that he touches."""
    chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
    bodies = bodies_of(chance, "one")
    cuts = sorted(chance.sample(range(2, len(bodies)), k=chance.choice([0, 0, 1, 2])))
    before = flat(chain(bodies, cuts))
    forged, at = list(bodies), chance.randrange(1, len(bodies))
    kind = chance.choice(["change", "remove", "add", "swap", "truncate", "splice"])
    if kind == "change":
        forged[at] = msgspec.json.encode([posted("never said")])
    elif kind == "remove":
        del forged[at]
    elif kind == "add":
        forged.insert(at, msgspec.json.encode([posted("never said")]))
    elif kind == "swap":
        forged[at], forged[-1] = forged[-1], forged[at]
    elif kind == "truncate":
        del forged[at:]
    else:
        forged[at:] = bodies_of(chance, "two")[1:]
    made = chain(forged, [cut for cut in cuts if cut < len(forged)])
    write(place, made, names_of(made))
    after = flat(made)
    anchors = [Anchor(seq, hash_of(line)) for seq, line in enumerate(before, 1)]
    faults, verdict, judged = look(place, anchors)
    assert (faults, verdict.lost, verdict.tail) == ([], [], None), kind
    same = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    assert [each.holds for each in judged] == [each.anchor.seq <= same for each in judged], kind


@pytest.mark.parametrize("part", range(4))
def test_tampering_with_new_hashes_is_found_by_every_anchor_at_or_after_it_and_by_no_other(
    tmp_path: Path, part: int
) -> None:
    for seed in range(part, SEEDS, 4):
        run_forger(tmp_path / str(seed), seed)


def test_a_forger_who_hides_lines_behind_a_lost_line_is_found_by_its_name(tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311  # repeatable, not secret
    (before,) = chain(bodies_of(chance, "one"))
    lost = {"type": "lost", "first": 3, "last": 4, "bytes": 9, "next_prev": hash_of(before[3]), "reason": "damage"}
    line, _ = encode(3, TIME, 4711, msgspec.json.encode([lost]), hash_of(before[1]))
    write(tmp_path / "journal", [[*before[:2], line, *before[4:]]], [1])
    anchors = [Anchor(seq, hash_of(line)) for seq, line in enumerate(before, 1)]
    faults, verdict, judged = look(tmp_path / "journal", anchors)
    assert (faults, [(each.seq, each.last) for each in verdict.lost]) == ([], [(3, 4)])
    assert [each.result for each in judged] == ["matches"] * 2 + ["unknown"] + ["partly"] * (len(before) - 3)
    assert decode(line[:-1], hash_of(before[1])).seq == 3


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
        with tempfile.TemporaryDirectory() as directory:
            try:
                run_careless(Path(directory) / "careless", number)
                run_forger(Path(directory) / "forger", number)
            except Exception as error:
                raise RuntimeError(f"seed {number}") from error
