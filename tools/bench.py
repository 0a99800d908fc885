#!/usr/bin/env python3
"""Measure agentbus beside its yardsticks: ratios in one run, never bare seconds.

Every round takes one sample of a figure and one of its yardstick, in turn: a machine whose speed drifts slows both.
What is printed is the median of the rounds' ratios, with the smallest and the largest.

    tools/bench.py                 all figures
    tools/bench.py --only P8,P9    some of them
    tools/bench.py --quick         fewer rounds, a smaller journal: about a minute
    tools/bench.py --json FILE     keep the figures
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentbus.events import DEFAULT_CHANNELS, Posted, SegmentOpened
from agentbus.wire import encode
from journal import format_time, record

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON = sys.executable
AGENTBUS = str(Path(sys.executable).with_name("agentbus"))
NO_OP_SDK_SERVER = str(Path(__file__).with_name("noop_sdk_server.py"))

ROUNDS = 21
QUICK_ROUNDS = 5
COMMITS = 1_000_000
QUICK_COMMITS = 100_000
SEGMENT_BYTES = 16 << 20

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
TOOLS_LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


@dataclass(frozen=True)
class Figure:
    """One line of the table: what is measured, beside what, and the ratio that it must not pass."""

    name: str
    what: str
    yardstick: str
    bar: float
    measure: Callable[[], float]
    beside: Callable[[], float]


@dataclass(frozen=True)
class Measured:
    """A figure's rounds. Seconds are medians; ratios are taken round by round."""

    name: str
    what: str
    yardstick: str
    figure_s: float
    yardstick_s: float
    ratio: float
    ratio_min: float
    ratio_max: float
    bar: float

    @property
    def met(self) -> bool:
        """Whether the median ratio keeps the bar."""
        return self.ratio <= self.bar


class Place:
    """A throw-away home with a repository, an empty data directory and one with a long journal."""

    def __init__(self, root: Path, commits: int) -> None:
        self.commits = commits
        self.repository = root / "repository"
        (self.repository / ".git").mkdir(parents=True)
        self.home = root / "home"
        self.home.mkdir()
        self._long = root / "long"
        self._empty = root / "empty"

    def environment(self, data: Path) -> dict[str, str]:
        """What a harness gives its server, and nothing of this machine's own settings.

        PYTHONDONTWRITEBYTECODE would have every start compile agentbus anew: what pip installs is compiled once.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTBUS_", "PYTHON"))}
        return kept | {"HOME": str(self.home), "AGENTBUS_DATA_DIR": str(data)}

    def empty(self) -> Path:
        """A data directory without a journal."""
        return self._empty

    def long(self) -> Path:
        """A data directory with a journal of ``commits`` posts; made once."""
        if not self._long.exists():
            write_journal(self._long / "journal", self.commits)
        return self._long


def write_journal(directory: Path, commits: int) -> None:
    """A sound journal of many 200-byte posts, written without a flush: it only has to be read."""
    directory.mkdir(parents=True, mode=0o700)
    digest, seq, size, segment = "0" * 64, 0, SEGMENT_BYTES, None
    posted = encode([Posted(as_="alice", channel="general", content="x" * 200, context="bench")])
    for number in range(commits):
        if size >= SEGMENT_BYTES:
            seq, size = seq + 1, 0
            opened = SegmentOpened(format=1, journal="00000000-0000-4000-8000-000000000000", prev=digest)
            if segment is not None:
                segment.close()
            segment = (directory / f"{seq:020d}.jsonl").open("wb")
            line, digest = record.encode(seq, format_time(number), 1, encode([opened]), digest)
            size += segment.write(line)
        assert segment is not None  # noqa: S101  # the first turn opens one
        seq += 1
        events = encode(DEFAULT_CHANNELS) if seq == 2 else posted
        line, digest = record.encode(seq, format_time(number), 1, events, digest)
        size += segment.write(line)
    if segment is not None:
        segment.close()


def whole_process(arguments: list[str], place: Place) -> float:
    """Seconds from the start of a process to its end."""
    began = time.perf_counter()
    subprocess.run(
        arguments,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=place.repository,
        env=place.environment(place.empty()),
    )
    return time.perf_counter() - began


def until_answered(arguments: list[str], place: Place, data: Path, *, lists: bool) -> float:
    """Seconds from the start of a server to its answer to ``initialize``, or to the ``tools/list`` after it."""
    messages = [INITIALIZE, *([INITIALIZED, TOOLS_LIST] if lists else [])]
    asked = "".join(json.dumps(message) + "\n" for message in messages).encode()
    began = time.perf_counter()
    with subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=place.repository,
        env=place.environment(data),
    ) as server:
        assert server.stdin is not None  # noqa: S101  # PIPE
        assert server.stdout is not None  # noqa: S101  # PIPE
        server.stdin.write(asked)
        server.stdin.flush()
        for line in server.stdout:
            if json.loads(line).get("id") == (2 if lists else 1):
                seconds = time.perf_counter() - began
                break
        else:
            raise click.ClickException(f"{arguments} ended without an answer")
        server.kill()
        return seconds


def figures(place: Place) -> list[Figure]:
    """The figures of quality.md that this tool measures so far."""
    mcp, sdk = [AGENTBUS, "mcp"], [PYTHON, NO_OP_SDK_SERVER]

    def bare() -> float:
        return whole_process([PYTHON, "-c", "pass"], place)

    def sdk_initialize() -> float:
        return until_answered(sdk, place, place.empty(), lists=False)

    def initialize(data: Callable[[], Path]) -> Callable[[], float]:
        return lambda: until_answered(mcp, place, data(), lists=False)

    many = f"{place.commits:,} commits"
    return [
        Figure(
            "P8", "agentbus identity", "python -c pass", 2.5, lambda: whole_process([AGENTBUS, "identity"], place), bare
        ),
        Figure("P9", "mcp: initialize, no journal", "python -c pass", 3.0, initialize(place.empty), bare),
        Figure("P9", f"mcp: initialize, {many}", "python -c pass", 3.0, initialize(place.long), bare),
        Figure("P9", "mcp: initialize, no journal", "no-op SDK server", 0.12, initialize(place.empty), sdk_initialize),
        Figure(
            "P9",
            "mcp: tools/list, no journal",
            "python -c pass",
            6.0,
            lambda: until_answered(mcp, place, place.empty(), lists=True),
            bare,
        ),
    ]


def measure(figure: Figure, rounds: int) -> Measured:
    """One warm-up, then ``rounds`` pairs."""
    figure.measure()
    figure.beside()
    pairs = [(figure.measure(), figure.beside()) for _ in range(rounds)]
    ratios = [one / other for one, other in pairs]
    return Measured(
        name=figure.name,
        what=figure.what,
        yardstick=figure.yardstick,
        figure_s=statistics.median(one for one, _ in pairs),
        yardstick_s=statistics.median(other for _, other in pairs),
        ratio=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        bar=figure.bar,
    )


def render(measured: Measured) -> str:
    """One line of the table."""
    ratio = f"{measured.ratio:6.2f} ({measured.ratio_min:.2f} to {measured.ratio_max:.2f})"
    times = f"{measured.figure_s * 1000:7.1f} ms {measured.yardstick_s * 1000:8.1f} ms"
    verdict = "met" if measured.met else "NOT MET"
    row = f"{measured.name:4} {measured.what:38} {measured.yardstick:18} {times}  {ratio:24}"
    return f"{row} <= {measured.bar:<5} {verdict}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
@click.option("--only", metavar="NAMES", help="Figures to measure, such as P8,P9.")
@click.option("--quick", is_flag=True, help="Fewer rounds and a smaller journal.")
@click.option("--rounds", type=click.IntRange(min=1), help=f"Rounds of each figure; {ROUNDS} unless told.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, writable=True), help="Write the figures there.")
def main(only: str | None, rounds: int | None, json_file: str | None, *, quick: bool) -> None:
    """Measure, print, and fail if a bar is not met."""
    rounds = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    root = Path(tempfile.mkdtemp(prefix="agentbus-bench-"))
    try:
        place = Place(root, QUICK_COMMITS if quick else COMMITS)
        names = set(only.split(",")) if only else None
        chosen = [figure for figure in figures(place) if names is None or figure.name in names]
        if not chosen:
            raise click.UsageError(f"no figure is named {only}")
        click.echo(f"{rounds} rounds; medians; ratio = figure / yardstick, round by round")
        done = []
        for figure in chosen:
            done.append(measure(figure, rounds))
            click.echo(render(done[-1]))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if json_file:
        Path(json_file).write_text(json.dumps([asdict(each) | {"met": each.met} for each in done], indent=2) + "\n")
    if not all(each.met for each in done):
        sys.exit(1)


if __name__ == "__main__":
    main()
