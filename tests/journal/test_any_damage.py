"""Random damage to random journals: repair keeps every line that was not touched, and all bytes of those that were.

Each seed is a journal and up to three damages; `python -m tests.journal.test_any_damage FIRST COUNT` tries others than
the suite's.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import sys
import tempfile
from pathlib import Path

import pytest

from journal import LINE_BYTES_MAX, Files, Journal, Repair, Snapshots, archive, verify
from tests.journal.conftest import FIRST_EVENTS, Unflushed, soon

SEEDS = 160


class Harm:
    """Does damage to the segments in a directory, and knows which lines it has touched."""

    def __init__(self, place: Path, chance: random.Random) -> None:
        self.place = place
        self.chance = chance
        self.touched: set[bytes] = set()
        self.copied = False

    def once(self) -> None:
        files = sorted(self.place.glob("*.jsonl"))
        path = self.chance.choice(files)
        lines = path.read_bytes().splitlines(keepends=True)
        if not lines:
            return
        at = self.chance.randrange(len(lines))
        kinds = [self.changed, self.nuls, self.line_feed, self.cut, self.removed, self.put_in, self.once_more]
        kind = self.chance.choice([*kinds, self.swapped, self.emptied, self.torn, self.missing, self.strayed])
        kind(path, lines, at)

    def changed(self, path: Path, lines: list[bytes], at: int) -> None:
        self._overwrite(path, lines, at, bytes(self.chance.randrange(1, 256) for _ in range(self._length())))

    def nuls(self, path: Path, lines: list[bytes], at: int) -> None:
        self._overwrite(path, lines, at, bytes(self.chance.randrange(1, 1500)))
        if path == max(self.place.glob("*.jsonl")):
            self.touched |= set(lines[at:])  # may be the torn tail of a power cut

    def line_feed(self, path: Path, lines: list[bytes], at: int) -> None:
        self.touched |= set(lines[at : at + 2])
        lines[at] = lines[at][:-1] + b"x"
        path.write_bytes(b"".join(lines))

    def cut(self, path: Path, lines: list[bytes], at: int) -> None:
        self.touched |= set(lines[at:])
        path.write_bytes(b"".join(lines[:at]) + lines[at][: self.chance.randrange(len(lines[at]))])

    def removed(self, path: Path, lines: list[bytes], at: int) -> None:
        end = at + self.chance.randrange(1, 4)
        self.touched |= set(lines[at:end])
        path.write_bytes(b"".join(lines[:at] + lines[end:]))

    def put_in(self, path: Path, lines: list[bytes], at: int) -> None:
        long = b"y" * (LINE_BYTES_MAX + self.chance.choice([-2, -1, 0, 1 << 20]))
        new = self.chance.choice([b"hello", b"", b"\xff" * self.chance.randrange(1, 3000), long])
        path.write_bytes(b"".join([*lines[:at], new + b"\n", *lines[at:]]))

    def once_more(self, path: Path, lines: list[bytes], at: int) -> None:
        other = self.chance.choice(sorted(self.place.glob("*.jsonl"))).read_bytes().splitlines(keepends=True)
        first = self.chance.randrange(len(other) + 1)
        self.copied = True
        more = [line for line in other[first : first + 3] if line.endswith(b"\n")]
        path.write_bytes(b"".join([*lines[:at], *more, *lines[at:]]))

    def swapped(self, path: Path, lines: list[bytes], at: int) -> None:
        first, second = sorted((at, self.chance.randrange(len(lines))))
        if first != second:  # what lies between them no longer stands in order either
            self.touched |= set(lines[first : second + 1])
        lines[first], lines[second] = lines[second], lines[first]
        path.write_bytes(b"".join(lines))

    def emptied(self, path: Path, lines: list[bytes], _: int) -> None:
        self.touched |= set(lines)
        path.write_bytes(b"")

    def torn(self, path: Path, lines: list[bytes], _: int) -> None:
        path.write_bytes(b"".join(lines) + self.chance.choice([b"torn", b'{"seq":', bytes(600)]))

    def missing(self, path: Path, lines: list[bytes], _: int) -> None:
        if path != max(self.place.glob("*.jsonl")):  # what came after the last one nobody can know
            self.touched |= set(lines)
            path.unlink()

    def strayed(self, path: Path, lines: list[bytes], _: int) -> None:
        later = max(int(each.stem) for each in self.place.glob("*.jsonl")) + 1000
        path.with_name(f"{later:020d}.jsonl").write_bytes(b"".join(lines))

    def _length(self) -> int:
        return self.chance.choice([1, 1, 1, self.chance.randrange(1, 200)])

    def _overwrite(self, path: Path, lines: list[bytes], at: int, new: bytes) -> None:
        data = b"".join(lines)
        begin = len(b"".join(lines[:at])) + self.chance.randrange(len(lines[at]))
        end = min(len(data), begin + len(new))
        offset = 0
        for line in lines:
            # A line feed is of the line after it as well.
            if begin <= offset + len(line) and offset <= end:
                self.touched.add(line)
            offset += len(line)
        harmed = bytes(old ^ other if other else 0 for old, other in zip(data[begin:end], new, strict=False))
        path.write_bytes(data[:begin] + harmed + data[end:])


def make(place: Path, chance: random.Random) -> None:
    journal = Journal(
        place, first_events=FIRST_EVENTS, segment_bytes_max=chance.choice([400, 1500, 5000]), files=Unflushed()
    )
    for number in range(chance.randrange(3, 40)):
        event = {"type": "posted", "number": number, "content": "x" * chance.choice([0, 3, 50, 300, 700])}
        events = json.dumps([event], separators=(",", ":")).encode()
        journal.commit(lambda _, events=events: events, deadline=soon(), flush=False)  # type: ignore[misc]  # a default
    journal.close()


def pack(place: Path, chance: random.Random) -> None:
    """Pack some of the segments, damaged or not; then damage some of the archives. Their lines count as touched."""
    (place / "archive").mkdir()
    for path in sorted(place.glob("*.jsonl"))[:-1]:
        if chance.random() < 0.5:
            (place / "archive" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            if chance.random() < 0.8:
                path.unlink()


def harm_archives(place: Path, chance: random.Random, harm: Harm) -> None:
    for path in sorted(place.glob("archive/*.gz")):
        data = path.read_bytes()
        at = chance.randrange(len(data))
        if chance.random() < 0.3:
            if not (place / path.stem).exists():
                harm.touched |= set(gzip.decompress(data).splitlines(keepends=True))
            cut = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
            path.write_bytes(chance.choice([data[:at], cut, data + b"more"]))


def read_any(path: Path) -> bytes:
    """The lines of a segment, of an archive as far as it can be unpacked, or a piece."""
    opened = archive.open_any(Files(), str(path))
    with os.fdopen(opened.fd, "rb") as file:
        file.seek(0)
        return file.read()


def lines_of(place: Path) -> list[bytes]:
    found = {path.stem: path for path in place.glob("archive/*.gz")} | {
        path.name: path for path in place.glob("*.jsonl")
    }
    return [line for _, path in sorted(found.items()) for line in read_any(path).splitlines(keepends=True)]


def run(place: Path, seed: int, *, packs: bool) -> None:
    chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
    make(place, chance)
    before = lines_of(place)
    harm = Harm(place, chance)
    for _ in range(chance.choice([1, 1, 2, 3])):
        harm.once()
    if packs:
        pack(place, chance)
        harm_archives(place, chance, harm)
    damaged = lines_of(place)
    snapshots = place.parent / "snapshots"
    snapshots.mkdir()
    (snapshots / f"{3:020d}").write_bytes(b"")
    work = Repair(place, Snapshots(snapshots), first_events=FIRST_EVENTS, files=Unflushed())
    plan = work.plan()
    done = work.perform(plan, lambda: None, wait_s=5)
    assert [each.damage for each in done] == plan.damages
    assert not (plan.damages and any(path.name.isdigit() for path in snapshots.iterdir()))
    check(place, before, damaged, harm)
    again = work.plan()
    assert (again.damages, again.unnamed) == ([], [])


def check(place: Path, before: list[bytes], damaged: list[bytes], harm: Harm) -> None:
    after = lines_of(place)
    gone = [line for line in before if line not in after and line not in harm.touched]
    # Where copies were put in, more lines may be saved by them than by the lines that were not touched.
    saved = [line for line in before if line in after and line in harm.touched]
    assert len(gone) <= (len(saved) if harm.copied else 0), "a sound line is gone"
    journal = Journal(place, first_events=FIRST_EVENTS, files=Unflushed())
    journal.commit(lambda _: b'[{"type":"after"}]', deadline=soon(), flush=False)
    read = list(journal.read(0))
    journal.close()
    (verdict,) = verify([place])
    lost = {seq for each in getattr(verdict, "lost", []) for seq in range(each.seq + 1, each.last + 1)}
    assert [commit.seq for commit in read] == [seq for seq in range(1, read[-1].seq + 1) if seq not in lost]
    kept = set(lines_of(place))
    pieces = [read_any(path) for path in place.glob("set-aside/*")]
    for line in damaged:
        held = line in kept or line + b"\n" in kept or any(line in piece for piece in pieces)
        assert held, "a damaged byte is nowhere"


@pytest.mark.parametrize("packs", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("part", range(4))
def test_whatever_is_damaged_sound_lines_stay_and_damaged_bytes_are_set_aside(
    tmp_path: Path, part: int, *, packs: bool
) -> None:
    for seed in range(part, SEEDS, 4):
        run(tmp_path / str(seed) / "data" / "journal", seed, packs=packs)


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
        with tempfile.TemporaryDirectory() as directory:
            try:
                run(Path(directory) / "data" / "journal", number, packs=number % 2 > 0)
            except Exception as error:
                raise RuntimeError(f"seed {number}") from error
