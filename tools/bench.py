#!/usr/bin/env python3
"""Measure agentbus beside its yardsticks: ratios in one run, never bare seconds.

Every round takes a figure and its yardstick in turn: a machine whose speed drifts slows both. What is printed is the
median of the rounds' ratios, with the smallest and the largest. Exit 1 if a bar is not met.

    tools/bench.py                 all figures: some ten minutes

    tools/bench.py --only P8,P9    some of them

    tools/bench.py --quick         fewer rounds, a smaller journal: about a minute

    tools/bench.py --json FILE     keep the figures of every round

Journals are made once and kept in $XDG_CACHE_HOME/agentbus-bench (~/.cache/agentbus-bench).
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentbus import __version__
from tools.figures import calls, commits, folding, growth, idle, searching, starts
from tools.figures.journals import Plan, Shelf
from tools.figures.measuring import HEAD, Bar, Figure, Measured, NotMeasuredError, measure, render
from tools.figures.places import Place, cache_directory, filesystem, is_in_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tools.figures.measuring import Experiment

EXPERIMENTS: dict[str, Callable[[Place], Experiment]] = {
    "P1": commits.OneWriter,
    "P2": commits.EightWriters,
    "P3": calls.Post,
    "P4": calls.Delivery,
    "P5": starts.Opening,
    "P6": folding.Folding,
    "P7": folding.Verifying,
    "P8": starts.Identity,
    "P9": starts.Serving,
    "P10": idle.Idle,
    "P11": searching.Search,
    "P12": growth.Growth,
}
ON_LONG_JOURNALS = {"P5", "P6", "P7", "P9"}

QUICK_ROUNDS = 5
COMMITS = 1_000_000
QUICK_COMMITS = 100_000


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
@click.option("--only", metavar="NAMES", help="Figures to measure, such as P8,P9.")
@click.option("--quick", is_flag=True, help="Fewer rounds and a smaller journal.")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of each figure; 5 to 21 unless told.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, writable=True), help="Write the figures there.")
@click.option(
    "--directory", type=click.Path(file_okay=False), help="Where to write and keep; the cache folder unless told."
)
@click.option("--fresh", is_flag=True, help="Make the journals anew.")
def main(
    only: str | None, rounds: int | None, json_file: str | None, directory: str | None, *, quick: bool, fresh: bool
) -> None:
    """Measure, print, and fail if a bar is not met."""
    names = _parse_names(only)
    base = Path(directory) if directory else cache_directory()
    if is_in_memory(base):
        raise click.UsageError(f"{base} is kept in memory, where a flush costs nothing: name a --directory on a disk")
    place = Place(base, Shelf(base, fresh=fresh), QUICK_COMMITS if quick else COMMITS, quick=quick)
    try:
        head = _head(base, place)
        click.echo("\n".join(f"{key}: {value}" for key, value in head.items()))
        if ON_LONG_JOURNALS & set(names):
            _prepare(place)
        done = _run(names, place, rounds or (QUICK_ROUNDS if quick else None))
    finally:
        place.close()
    if json_file:
        text = json.dumps(head | {"figures": [each.record() for each in done]}, indent=2)
        Path(json_file).write_text(text + "\n")
    if not all(each.met for each in done):
        sys.exit(1)


def _parse_names(only: str | None) -> list[str]:
    if only is None:
        return list(EXPERIMENTS)
    names = [name.strip().upper() for name in only.split(",")]
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise click.UsageError(f"no figure is named {', '.join(unknown)}; there are {', '.join(EXPERIMENTS)}")
    return names


def _head(base: Path, place: Place) -> dict[str, str]:
    """What the figures depend on, apart from agentbus."""
    return {
        "agentbus": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.system()} {platform.release()}",
        "filesystem": f"{filesystem(base)} ({base})",
        "load": f"{os.getloadavg()[0]:.1f} at the start: what else runs blurs the ratios",
        "long journal": f"{place.commits:,} commits",
    }


def _prepare(place: Place) -> None:
    """Make the long journals now, and not in the middle of the table."""
    for commits_ in (place.commits, place.commits // 10):
        if not place.shelf.has(Plan(commits_)):
            click.echo(f"making a journal of {commits_:,} commits; it is kept for the next time", err=True)
        place.shelf.get(Plan(commits_))


def _run(names: list[str], place: Place, rounds: int | None) -> list[Measured]:
    done = []
    click.echo(f"\n{HEAD}")
    for name in names:
        for measured in _measure(name, place, rounds):
            done.append(measured)
            click.echo(render(measured))
    return done


def _measure(name: str, place: Place, rounds: int | None) -> Iterator[Measured]:
    try:
        experiment = EXPERIMENTS[name](place)
    except NotMeasuredError as error:
        yield Measured(Figure(name, "", "", "", Bar(0)), (), str(error))
        return
    try:
        yield from measure(experiment, rounds)
    finally:
        experiment.close()


if __name__ == "__main__":
    main()
