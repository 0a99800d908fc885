"""What a walk says of many damages, to the letter: an auditor may compare two runs, and repair works by it.

A wanted change is taken over by `AGENTBUS_RENEW=1 pytest tests/journal/test_walker_sharp.py`; read it in the diff then.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

from journal import Commit, Fault, Files
from journal.segment import name
from journal.walker import Walker
from tests.journal.test_any_damage import Harm
from tests.journal.test_repair import three
from tests.journal.test_segment import chain, digest, lost

if TYPE_CHECKING:
    from collections.abc import Iterable

EXPECTED = Path(__file__).parent.parent / "expected" / "walks.txt"
SEEDS = 200


def harmed(place: Path, seed: int) -> None:
    """Three segments of four lines each with up to three damages, the same for the same seed.

    In some, two lines are lost already, or a segment of another journal lies among them.
    """
    lines = three()
    if seed % 5 in {1, 2}:
        base, after = digest(lines[5][1]), digest(lines[5][3])
        lines[5][2:] = chain(lost(7, 8, after if seed % 5 == 1 else None), seq=7, prev=base)
    if seed % 5 == 3:
        lines[13] = three("another journal")[9]
    for first, some in lines.items():
        (place / name(first)).write_bytes(b"".join(some))
    chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
    harm = Harm(place, chance)
    for _ in range(1 + seed % 3):
        harm.once()


def short(path: str) -> str:
    return Path(path).name.lstrip("0")


def account(place: Path) -> Iterable[str]:
    """One line for each run of commits, fault and damage, and what was found in all."""
    walker = Walker(Files())
    sound: list[str] = []
    for found in walker.walk([place]):
        if isinstance(found, Commit):
            sound.append(f"{found.seq}@{found.place.offset}")
            continue
        assert isinstance(found, Fault)
        yield f"  sound {' '.join(sound) or 'none'}"
        sound.clear()
        yield f"  {short(found.file)}:{found.line} byte {found.offset} seq {found.seq}: {found.cause}"
    yield f"  sound {' '.join(sound) or 'none'}"
    for each in walker.damages:
        yield (
            f"  {each.action} {short(each.file)} of {each.segment} line {each.line} bytes {each.offset}+{each.bytes}"
            f" seqs {each.first}..{each.last}{' guessed' * each.guessed}: {each.cause}"
            f" ({each.prev[:6]} {(each.next_prev or 'none')[:6]})"
        )
    all_in_all = walker.verdict
    yield (
        f"  {all_in_all.commits} commits in {all_in_all.segments} segments, {all_in_all.first_seq} to"
        f" {all_in_all.last_seq}:{all_in_all.hash[:6]}, {all_in_all.faults} faults, unchecked {all_in_all.unchecked}"
    )
    if all_in_all.tail is not None:
        tail = all_in_all.tail
        yield f"  tail {short(tail.file)} bytes {tail.offset}+{tail.bytes}{' unfinished' * tail.unfinished_line}"


def test_what_is_said_of_each_damage_is_this(tmp_path: Path) -> None:
    told: list[str] = []
    for seed in range(SEEDS):
        place = tmp_path / str(seed)
        place.mkdir()
        harmed(place, seed)
        told += [f"seed {seed}", *account(place)]
    text = re.sub(r"([0-9a-f]{6})[0-9a-f]{58}", r"\1", "\n".join(told)) + "\n"
    if os.environ.get("AGENTBUS_RENEW"):
        EXPECTED.write_text(text)
    assert EXPECTED.read_text() == text


def test_where_no_line_is_sound_none_is_named(tmp_path: Path) -> None:
    (tmp_path / name(1)).write_bytes(b"nothing\nof it\n")
    walker = Walker(Files())
    assert all(isinstance(found, Fault) for found in walker.walk([tmp_path]))
    assert (walker.verdict.commits, walker.verdict.first_seq, walker.verdict.last_seq) == (0, 0, 0)
    assert walker.verdict.hash == ""
