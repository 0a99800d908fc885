"""The end of a journal cut at every byte and filled with NUL from every border; see ``tools/crash.py cut --help``."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from journal import JournalError
from tools.crashes import Summary, again_with
from tools.crashes.damage import Segments, go_on, laid, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Point:
    """One end to try: the segments up to ``name``, the last of which holds ``text``.

    Attributes:
        what: for people.
        good: bytes of the text that are whole lines no power cut has touched; the rest is torn.
        edge: where a rule of the format changes; half of a sample is of these.
    """

    what: str
    name: str
    text: bytes
    good: int
    edge: bool = True


def run(rounds: int, seed: int) -> Summary:
    """Every point, or ``rounds`` of them by chance."""
    journal = recorded()
    points = [point for name, text in journal.items() for point in points_of(name, text)]
    if rounds:
        points = _sample(points, rounds, random.Random(seed))  # noqa: S311  # repeatable, not secret
    wrong = []
    for point in points:
        wrong += [f"{point.what}: {text}; {again_with('cut', rounds, seed)}" for text in attempt(journal, point)]
    cuts = sum(point.what.startswith("cut") for point in points)
    tried = {"segments": len({point.name for point in points}), "cuts": cuts, "NUL-filled": len(points) - cuts}
    return Summary("cut", {**tried, "faults": len(wrong)}, wrong)


def _sample(points: list[Point], count: int, chance: random.Random) -> list[Point]:
    edges = [point for point in points if point.edge]
    chosen = chance.sample(edges, min(-(-count // 2), len(edges)))
    others = [point for point in points if not point.edge]
    return chosen + chance.sample(others, min(count - len(chosen), len(others)))


def points_of(name: str, text: bytes) -> Iterator[Point]:
    """Every bad end of one segment."""
    starts = [0, *(at + 1 for at, byte in enumerate(text) if byte == 0x0A)]
    for start, end in ((starts[-2], starts[-1]), (0, starts[1])):
        for at in range(start, end):
            edge = at in (start, start + 1, end - 1)
            yield Point(f"cut {name} at byte {at}", name, text[:at], start, edge)
    for border in range(0, len(text), BLOCK_BYTES):
        good = max(start for start in starts if start <= border)
        after = min(border + BLOCK_BYTES, len(text))
        nul = b"\0" * BLOCK_BYTES
        rest = b"\0" * (len(text) - border)
        padded = b"\0" * (-(-len(rest) // BLOCK_BYTES) * BLOCK_BYTES)
        yield Point(f"NUL in {name} from byte {border} to its end", name, text[:border] + rest, good)
        yield Point(f"NUL in {name} from byte {border} to its last block's end", name, text[:border] + padded, good)
        if border + BLOCK_BYTES <= len(text):
            yield Point(f"NUL in {name} from byte {border} for a block", name, text[:border] + nul + text[after:], good)
    for start in starts[:-1]:
        border = -(-start // BLOCK_BYTES) * BLOCK_BYTES
        if border - start > 1 and border < len(text):
            nul = b"\0" * (border - start)
            yield Point(
                f"NUL in {name} from the line at byte {start} to byte {border}",
                name,
                text[:start] + nul + text[border:],
                start,
            )


def attempt(journal: Segments, point: Point) -> list[str]:
    """One end, and what was wrong with going on from it."""
    segments = {name: text for name, text in journal.items() if name < point.name} | {point.name: point.text}
    good = segments | {point.name: point.text[: point.good]}
    kept = [line for text in good.values() for line in text.split(b"\n")[:-1]]
    torn = point.text[point.good :]
    finished = torn + b"\n" in journal[point.name].splitlines(keepends=True)
    with laid(segments) as data:
        try:
            return go_on(data, kept, torn, finished=finished)
        except JournalError as error:
            return [f"going on fails: {error}"]
