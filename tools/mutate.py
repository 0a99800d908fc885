#!/usr/bin/env python3
"""Mutation testing: changes one thing in a room at a time and asks the tests whether they notice. Changes no file here.

    tools/mutate.py --room journal/record.py     a score and the survivors
    tools/mutate.py --room journal/record.py --list     the mutants, nothing is run
    tools/mutate.py --room journal/record.py --in decode     one function's
    tools/mutate.py --map FILE ...     keep what was learned of the tests; next time only changed ones are learned anew
    tools/mutate.py --again FILE ...     only the survivors that an earlier run's output names

A survivor that no test can or should kill is explained in tools/mutants/explained.md; an explanation that fits no
mutant any more is named. Ends with one line a room, and exit 1 if a survivor is not explained.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from tools.mutants.operators import Mutant, mutants
from tools.mutants.trial import OTHERS_S, Map, Outcome, Trials

ROOT = Path(__file__).parent.parent
EXPLAINED = "tools/mutants/explained.md"
AT_ONCE = 40  # the tests are collected once for so many mutants, and survivors are told after them
MODULE = "(module)"  # stands for what is in no function
_ENTRY = re.compile(r"- `([^`]*)`: ``(.+?)`` → ``(.+?)``: (.+)")
_SURVIVOR = re.compile(r"^(?:survived|not run): (.+?):\d+ - `([^`]*)`: ``(.+?)`` → ``(.+?)``  \[", re.MULTILINE)
Key = tuple[str, str, str, str]


@click.command(help=__doc__)
@click.option("--room", "rooms", multiple=True, required=True, help="A module, such as journal/record.py; repeatable.")
@click.option("--in", "function", default="", help="Only mutants in this function or class, by its dotted name.")
@click.option("--list", "only_list", is_flag=True, help="Print the mutants and run nothing.")
@click.option("--again", type=click.Path(path_type=Path, exists=True), help="Only what this output calls survivors.")
@click.option("--others", default=OTHERS_S, help="Seconds of other rooms' tests for each mutant, the quick ones first.")
@click.option("--map", "map_file", type=click.Path(path_type=Path), help="Keep the map of the tests here, or use it.")
@click.option("--tests", multiple=True, help="Where tests come from; default: tests/<the room's package>.")
@click.option("--root", default=ROOT, type=click.Path(path_type=Path), help="The project, if not this one.")
def main(  # noqa: PLR0913, PLR0917  # one option each
    rooms: tuple[str, ...],
    function: str,
    only_list: bool,  # noqa: FBT001  # a flag
    again: Path | None,
    others: float,
    map_file: Path | None,
    tests: tuple[str, ...],
    root: Path,
) -> None:
    """Run the command."""
    for missing in (path for path in tests if not (root / path).exists()):
        raise click.UsageError(f"there is no {missing}")
    trials = Trials(root, tests or sorted({f"tests/{Path(room).parts[0]}" for room in rooms}), others)
    named = None if again is None else parse_survivors(again.read_text())
    try:
        every = {room: list(mutants(room, trials.source(room))) for room in rooms}
        chosen = {room: [each for each in some if _is_asked(each, function, named)] for room, some in every.items()}
        if only_list:
            for each in (each for some in chosen.values() for each in some):
                click.echo(render(each))
            return
        known = _map(trials, map_file)
        file = root / EXPLAINED
        reasons = parse_explained(file.read_text()) if file.exists() else {}
        for key in reasons.keys() - {_key(each) for some in every.values() for each in some}:
            if key[0] in every:
                click.echo(f"explained, but no mutant now: {' '.join(key)}")
        left = sum(_try_room(trials, room, some, known, reasons) for room, some in chosen.items())
    finally:
        trials.close()
    sys.exit(1 if left else 0)


def _is_asked(mutant: Mutant, function: str, named: set[Key] | None) -> bool:
    within = not function or f"{mutant.function}.".startswith(f"{function}.")
    return within and (named is None or _key(mutant) in named)


def _map(trials: Trials, file: Path | None) -> Map:
    is_kept = file is not None and file.exists()
    known = Map(**json.loads(file.read_text())) if file is not None and is_kept else trials.learn()
    if (trials.refresh(known) or not is_kept) and file is not None:
        new = file.with_name(f"{file.name}.{os.getpid()}")  # two runs may share it
        new.write_text(json.dumps(asdict(known)))
        new.replace(file)
    if known.failed:
        click.echo(f"left out, since they fail on the unchanged project: {', '.join(sorted(set(known.failed)))}")
    return known


def _try_room(trials: Trials, room: str, chosen: list[Mutant], known: Map, reasons: dict[Key, str]) -> int:
    """Try a room's mutants; print the survivors and the score. Returns how many survivors nobody explains."""
    began = time.monotonic()
    counts: Counter[str] = Counter()
    for start in range(0, len(chosen), AT_ONCE):
        some = chosen[start : start + AT_ONCE]
        for mutant, outcome in zip(some, trials.attempt(some, known), strict=True):
            fate = _fate(mutant, outcome, reasons)
            counts[fate] += 1
            if fate in {"survived", "not run"}:
                click.echo(f"{fate}: {render(mutant)}  [{outcome.tests} tests]")
    click.echo(f"{render_score(room, counts)}, {time.monotonic() - began:.0f} s")
    return counts["survived"] + counts["not run"]


def _fate(mutant: Mutant, outcome: Outcome, reasons: dict[Key, str]) -> str:
    if outcome.by is not None:
        return "killed by the clock" if outcome.by == "death" else "killed"
    if _key(mutant) in reasons:
        return "explained"
    return "survived" if outcome.tests else "not run"


def render(mutant: Mutant) -> str:
    """One mutant on one line; from the dash on it is how explained.md names it."""
    change = f"`{mutant.function or MODULE}`: ``{mutant.before}`` → ``{mutant.after}``"
    return f"{mutant.room}:{mutant.line} - {change}"


def render_score(room: str, counts: Counter[str]) -> str:
    """What became of a room's mutants. The score counts those that are explained neither way."""
    killed = counts["killed"] + counts["killed by the clock"]
    left = counts["survived"] + counts["not run"]
    score = 100.0 * killed / (killed + left) if killed + left else 100.0
    return (
        f"{room}: {counts.total()} mutants, {killed} killed ({counts['killed by the clock']} by the clock), "
        f"{counts['explained']} explained, {left} survived: {score:.1f} %"
    )


def parse_explained(text: str) -> dict[Key, str]:
    """The reasons in explained.md, by room, function, before and after."""
    found: dict[Key, str] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        room, _, entries = part.partition("\n")
        for function, before, after, reason in _ENTRY.findall(entries):
            found[room.strip(), "" if function == MODULE else function, before, after] = reason
    return found


def parse_survivors(text: str) -> set[Key]:
    """The mutants that the output of a run calls survivors."""
    found = _SURVIVOR.findall(text)
    return {(room, "" if function == MODULE else function, before, after) for room, function, before, after in found}


def _key(mutant: Mutant) -> Key:
    return mutant.room, mutant.function, mutant.before, mutant.after


if __name__ == "__main__":
    main()
