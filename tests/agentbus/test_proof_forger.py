"""A forger who knows how journals are judged: whatever he leaves, no anchor and no accepted loss says too much.

He writes lines anew with hashes that fit, and hides where they meet the true ones behind damage, junk, missing lines
and `lost` lines of his own; lines that are taken on trust he edits. Each seed is a journal and a forgery; `python -m
tests.agentbus.test_proof_forger FIRST COUNT` tries others than the suite's.
"""

from __future__ import annotations

import hashlib
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agentbus import wire
from agentbus.audit.anchors import Anchor
from agentbus.audit.evidence import Evidence, Judged
from agentbus.cli.sources import parse_line
from journal import Commit, Fault, Verdict, stream, walk
from journal.record import ZERO_HASH, encode
from tests.agentbus.shell import CHANNELS, OPENED, posted

if TYPE_CHECKING:
    from collections.abc import Iterable

SEEDS = 600
TIME = "2026-09-09T08:00:07.049Z"
JUNK = b"junk\n"


class Line(msgspec.Struct, frozen=True):
    """One line as it stands, and the seq after it."""

    seq: int
    next_seq: int
    data: bytes

    @property
    def hash(self) -> str:
        return self.data[-67:-3].decode()


class Chain:
    """Lines one after another, with hashes that fit."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.seq, self.prev = 1, ZERO_HASH

    def put(self, *events: dict[str, Any], prev: str | None = None) -> None:
        data, self.prev = encode(self.seq, TIME, 4711, msgspec.json.encode(events), prev or self.prev)
        self._keep(data, self.seq + 1)

    def lose(self, count: int, next_prev: str | None, **fields: Any) -> None:  # noqa: ANN401  # JSON
        first, last = self.seq, self.seq + count - 1
        event = {"type": "lost", "first": first, "last": last, "bytes": 9, "next_prev": next_prev, "reason": "damage"}
        self.put({name: value for name, value in (event | fields).items() if value != ""})
        self.lines[-1] = msgspec.structs.replace(self.lines[-1], next_seq=last + 1)
        self.seq, self.prev = last + 1, next_prev or ""

    def take(self, line: Line) -> None:
        self.lines.append(line)
        self.seq, self.prev = line.next_seq, line.hash

    def _keep(self, data: bytes, next_seq: int) -> None:
        self.lines.append(Line(self.seq, next_seq, data))
        self.seq = next_seq


def true_journal(chance: random.Random) -> Chain:
    """What was there when anchors were taken; some of it lost already."""
    made = Chain()
    made.put(OPENED)
    made.put(*CHANNELS)
    for number in range(chance.randrange(6, 24)):
        if chance.random() < 0.12:
            made.lose(chance.randrange(1, 4), None if chance.random() < 0.5 else "e" * 64)
        made.put(posted(f"text {number}"), prev=made.prev or "d" * 64)
    return made


def forge(chance: random.Random, true: Chain) -> list[bytes]:
    """Stretches of doctored and of true lines, and what hides that they do not fit."""
    made, pieces = Chain(), [b""]
    lines = {line.seq: line for line in true.lines}
    seqs = sorted(lines)
    goes_true = chance.random() < 0.5
    at = 0
    while at < len(seqs):
        run = seqs[at : at + chance.randrange(1, 9)]
        begin = len(made.lines)
        for seq in run:
            if goes_true or seq == 1:
                made.take(lines[seq])
            else:
                made.seq = seq
                made.put(posted(f"doctored {seq}"), prev=made.prev or "d" * 64)
        pieces += [_edited(chance, line.data) for line in made.lines[begin:]]
        at += len(run)
        if at < len(seqs):
            at += _hide(chance, made, pieces, [lines[seq] for seq in seqs[at:]])
        goes_true = not goes_true or chance.random() < 0.5
    return _beheaded(chance, pieces) if chance.random() < 0.3 else pieces


def _beheaded(chance: random.Random, pieces: list[bytes]) -> list[bytes]:
    """Without the first lines, or with something else in their place."""
    return [chance.choice([b"", JUNK, b"{}\n"]), *pieces[chance.randrange(1, 6) :]]


def _edited(chance: random.Random, data: bytes) -> bytes:
    """Lines on trust bear any text; others become damage. The hash they state stays."""
    return data.replace(b':"text', b':"TEXT') if chance.random() < 0.1 else data


def _hide(chance: random.Random, made: Chain, pieces: list[bytes], rest: list[Line]) -> int:
    """Something that the true lines after it may continue; how many lines it stands for."""
    count = chance.randrange(1, min(3, len(rest)) + 1)
    gone = rest[:count]
    last = gone[-1]
    kind = chance.choice(["damage", "junk", "missing", "lost", "null", "malformed", "named", "nothing", "between"])
    if kind in ("nothing", "between"):
        pieces += [JUNK] * (kind == "between")
        return 0
    if kind == "damage":
        pieces += [line.data.replace(b'"time"', b'"tame"') for line in gone]
    elif kind == "junk":
        pieces.append(JUNK * count)
    elif kind != "missing":
        made.seq = gone[0].seq
        begin = len(made.lines)
        fields = {"malformed": {"bytes": ""}, "named": {"sha256": "a" * 64}}.get(kind, {})
        if not made.prev:
            made.prev = "d" * 64
        made.lose(last.next_seq - made.seq, None if kind == "null" else last.hash, **fields)
        pieces += [line.data for line in made.lines[begin:]]
    made.prev, made.seq = last.hash, last.next_seq
    return count


class Seen:
    """What a walk gave, and what it is said to prove."""

    def __init__(
        self, walked: Iterable[Commit | Fault | Verdict], anchors: list[Anchor], accepted: list[Anchor]
    ) -> None:
        self.evidence = Evidence(anchors, accepted)
        self.commits: dict[int, Commit] = {}
        self.faults = 0
        self.verdict = Verdict()
        for found in walked:
            if isinstance(found, Commit):
                self.commits[found.seq] = found
                self._take(found)
            elif isinstance(found, Fault):
                self.faults += 1
                self.evidence.fault()
            else:
                self.verdict = found
        self.judged = self.evidence.judge(self.verdict.unchecked)

    def _take(self, found: Commit) -> None:
        try:
            self.evidence.take(found, parse_line(found))
        except wire.MalformedError:
            self.faults += 1
            self.evidence.take(found, ())


def check(seen: Seen, true: dict[int, Commit], accepted: list[Anchor]) -> None:
    """That nothing more is said than is so."""
    trusted = set(seen.evidence.unchecked)
    ranges = {lost.seq: lost for lost in seen.verdict.lost}
    for stretch in seen.evidence.stretches:
        assert trusted.isdisjoint(range(stretch.first, stretch.last + 1))
        for seq in range(stretch.first + 1, stretch.last + 1):
            assert is_next(seen.commits[seq - 1], seen.commits[seq])
    for each in accepted:
        if each.seq in ranges and ranges[each.seq].hash == each.hash and each.seq not in trusted:
            assert same(seen.commits[each.seq], true[each.seq])
    for judged in seen.judged:
        check_anchor(judged, seen, true, trusted)


def check_anchor(judged: Judged, seen: Seen, true: dict[int, Commit], trusted: set[int]) -> None:
    if judged.fails:
        return
    first = int(judged.text.partition("before seq ")[2].partition(" ")[0] or 1)
    assert (first > 1) == (judged.result == "partly"), judged.text
    here = {seq for seq in seen.commits if first <= seq <= judged.anchor.seq}
    lost = {seq for each in seen.verdict.lost for seq in range(each.seq, each.last + 1)}
    expected = {seq for seq in true if first <= seq <= judged.anchor.seq}
    if judged.result == "matches":
        assert (here, here & (lost | trusted)) == (expected, set()), judged.text
    assert expected - here <= lost, judged.text
    assert ("taken on trust" in judged.text) == bool(here & trusted - {first}), judged.text
    named = lost if judged.result == "partly" else set()
    for seq in here - trusted - named:
        assert seq in true, (judged.text, seq)
        assert same(seen.commits[seq], true[seq]), (judged.text, seq)


def same(one: Commit, other: Commit) -> bool:
    return (one.seq, one.time, one.pid, one.events, one.hash) == (
        other.seq,
        other.time,
        other.pid,
        other.events,
        other.hash,
    )


def is_next(one: Commit, other: Commit) -> bool:
    line, _ = encode(other.seq, other.time, other.pid, other.events, one.hash)
    return (
        line[-67:-3].decode() == other.hash
        and hashlib.sha256(one.hash.encode() + line[:-76]).hexdigest() == line[-67:-3].decode()
    )


def run(place: Path, seed: int) -> tuple[int, int]:
    """Forge, and judge it as files and as a stream; how many anchors were judged, and how many of them held."""
    chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
    made = true_journal(chance)
    accepted = [Anchor(line.seq, line.hash) for line in made.lines if b'"type":"lost"' in line.data]
    every = [Anchor(line.seq, line.hash) for line in made.lines]
    anchors = chance.sample(every, k=chance.randrange(1, len(every)))
    path = place / f"{1:020d}.jsonl"
    place.mkdir(parents=True)
    path.write_bytes(b"".join(line.data for line in made.lines))
    sound = Seen(walk([path]), every, accepted)
    true = sound.commits
    check(sound, true, accepted)
    unknown = {each.anchor.seq for each in sound.judged if each.fails}
    assert (sound.faults, unknown) == (0, set(sound.evidence.unchecked))
    data = b"".join(forge(chance, made))
    path.write_bytes(data)
    held = 0
    given = [data[at : at + 100] for at in range(0, len(data), 100)]
    for walked in (walk([path]), stream(lambda _: given.pop(0) if given else b"")):
        seen = Seen(walked, anchors, accepted)
        check(seen, true, accepted)
        held += sum(not each.fails for each in seen.judged)
    return 2 * len(anchors), held


@pytest.mark.parametrize("part", range(4))
def test_whatever_a_forger_leaves_no_anchor_says_more_than_is_true(tmp_path: Path, part: int) -> None:
    found = [run(tmp_path / str(seed), seed) for seed in range(part, SEEDS, 4)]
    judged, held = map(sum, zip(*found, strict=True))
    assert judged / 5 < held < judged  # neither is everything refused, nor everything taken


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
        with tempfile.TemporaryDirectory() as directory:
            try:
                run(Path(directory) / "journal", number)
            except Exception as error:
                raise RuntimeError(f"seed {number}") from error
