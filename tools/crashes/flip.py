"""Every byte of a journal changed, one at a time; see ``tools/crash.py flip --help``.

Where a change must be named follows from the bytes alone: at the line it lies in, by file, line and offset, in a read
from the beginning and in verify, with every line before it given and none after. There are two exceptions, both at
the LF that ends the last segment: taken out, it leaves an unfinished line; changed, a torn tail. FORMAT.md cannot tell
these from a line that was never acknowledged.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from journal import CorruptError, Fault, Journal, JournalError, verify
from tools.crashes import Summary, again_with
from tools.crashes.damage import Segments, commit, contents, go_on, laid, lay, lines_of, opened, read, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHANGES = ("bit", "printable", "NUL", "LF", "LF before", "none")
_PRINTABLE = bytes(range(0x20, 0x7F))


@dataclass(frozen=True, slots=True)
class Flip:
    """One change at a byte of a segment; at its end only ``LF before``."""

    name: str
    at: int
    change: str

    def __str__(self) -> str:
        """For people."""
        return f"{self.change} at byte {self.at} of {self.name}"


def run(rounds: int, seed: int) -> Summary:
    """Every change of every byte, or ``rounds`` of them by chance."""
    journal = recorded()
    flips = list(flips_of(journal))
    if rounds:
        chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
        flips = chance.sample(flips, min(rounds, len(flips)))
    wrong: list[str] = []
    named: Counter[str] = Counter()
    with laid(journal) as data:
        for flip in flips:
            what, text = _attempt(data, journal, flip, seed)
            named[what] += 1
            if text:
                wrong.append(f"{what}, {flip}: {text}; {again_with('flip', rounds, seed)}")
    size = sum(map(len, journal.values()))
    kinds = ("corrupt", "torn tail", "unfinished line", "undetected", "misnamed")
    return Summary("flip", {"bytes": size, "flips": len(flips), **{kind: named[kind] for kind in kinds}}, wrong)


def flips_of(journal: Segments) -> Iterator[Flip]:
    """Every change that makes the journal another one."""
    for name, text in journal.items():
        for at, byte in enumerate(text):
            for change in CHANGES:
                if change != "LF" or byte != 0x0A:
                    yield Flip(name, at, change)
        yield Flip(name, len(text), "LF before")


def attempt(journal: Segments, flip: Flip, seed: int) -> tuple[str, str]:
    """One change of a journal: what became of it, and what is wrong with that."""
    with laid(journal) as data:
        return _attempt(data, journal, flip, seed)


def changed(text: bytes, flip: Flip, seed: int) -> bytes:
    """A segment with the change made; which bit or byte it is follows from the seed and the place."""
    chance = random.Random(f"{seed} {flip}")  # noqa: S311  # repeatable, not secret
    before, byte, after = text[: flip.at], text[flip.at : flip.at + 1], text[flip.at + 1 :]
    match flip.change:
        case "bit":
            new = bytes([byte[0] ^ 1 << chance.randrange(8)])
        case "printable":
            new = bytes([chance.choice(_PRINTABLE.replace(byte, b""))])
        case "NUL":
            new = b"\0"
        case "LF":
            new = b"\n"
        case "LF before":
            new = b"\n" + byte
        case _:
            new = b""
    return before + new + after


def _attempt(data: Path, journal: Segments, flip: Flip, seed: int) -> tuple[str, str]:
    damaged = journal | {flip.name: changed(journal[flip.name], flip, seed)}
    text = damaged[flip.name]
    lay(data, {flip.name: text})
    last_lf = flip.name == max(journal) and flip.at == len(journal[flip.name]) - 1 and not text.endswith(b"\n")
    if last_lf:
        with laid(damaged) as other:
            outcome = _go_on(other, journal, damaged)
    else:
        try:
            outcome = _must_be_named(data, damaged, flip)
        except JournalError as error:
            outcome = "misnamed", str(error)
    if outcome[1]:
        shutil.rmtree(data)  # something may have been written anywhere
        lay(data, journal)
    lay(data, {flip.name: journal[flip.name]})
    return outcome


def _go_on(data: Path, journal: Segments, damaged: Segments) -> tuple[str, str]:
    kept = lines_of(damaged)
    torn = damaged[max(damaged)].rpartition(b"\n")[2]
    finished = torn == lines_of(journal)[-1]
    try:
        wrong = go_on(data, kept, torn, finished=finished)
    except JournalError as error:
        wrong = [f"going on fails: {error}"]
    return "unfinished line" if finished else "torn tail", "; ".join(wrong)


def _must_be_named(data: Path, damaged: Segments, flip: Flip) -> tuple[str, str]:
    """The line the change lies in is the first that is wrong, for verify, for a reader and for a writer."""
    path = data / "journal" / flip.name
    text = damaged[flip.name]
    # A LF put before a LF ends the line as well as that one did: what is wrong is the empty line behind it.
    ends_it = flip.change == "LF before" and text[flip.at + 1 :].startswith(b"\n")
    start = text.rfind(b"\n", 0, flip.at + ends_it) + 1
    expected = (str(path), text.count(b"\n", 0, start) + 1, start)
    before = sum(text.count(b"\n") for name, text in damaged.items() if name < flip.name) + expected[1] - 1
    faults = [found for found in verify([data / "journal"]) if isinstance(found, Fault)]
    journal = opened(data)
    commits, error = read(journal)
    journal.close()
    if not faults or error is None:
        return "undetected", f"verify says {faults}, a reader {error}"
    if (faults[0].file, faults[0].line, faults[0].offset) != expected:
        return "misnamed", f"by verify: {faults[0]}, not {expected}"
    if (error.file, error.line, error.offset) != expected or len(commits) != before:
        return "misnamed", f"by a reader after {len(commits)} lines: {error}, not {expected} after {before}"
    wrote = _writes(data, damaged)
    return ("undetected", wrote) if wrote else ("corrupt", "")


def _writes(data: Path, damaged: Segments) -> str:
    """What a process writes that finds the damage; empty if it refuses and leaves everything as it is."""
    journal: Journal = opened(data)
    try:
        commit(journal, 1)
    except CorruptError:
        now = contents(data / "journal")
        return (
            "" if now == damaged else f"a refused commit changed {[name for name in now if now[name] != damaged[name]]}"
        )
    else:
        return "a commit was written after it"
    finally:
        journal.close()
