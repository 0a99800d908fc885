"""The events of a journal on stdout: a line, an object or the journal's own line each; some of them, or the last first.

Knows no question.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import click

from agentbus import replay as auditor
from agentbus.audit.selection import Sieve
from agentbus.cli.output import escape_json
from agentbus.cli.times import local_time, utc_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from agentbus.audit.selection import Selection
    from agentbus.audit.threads import Threads
    from agentbus.cli.reading import Reading
    from agentbus.events import AnyEvent
    from journal import Commit

    _Wanted = tuple[Commit, Sequence[AnyEvent], Sequence[int]]
    Show = Callable[[Commit, Sequence[AnyEvent], Sequence[int]], None]

_COLUMNS_MIN = 100  # on a narrower terminal a line wraps: less of it would say nothing


def show_flat(commit: Commit, events: Sequence[AnyEvent], wanted: Sequence[int]) -> None:
    """One flat JSON object an event; UTF-8, whatever the locale says."""
    lines = auditor.render_flat(commit, events, wanted)
    sys.stdout.buffer.write(b"".join(escape_json(line) + b"\n" for line in lines))


def show_raw(commit: Commit, events: Sequence[AnyEvent], wanted: Sequence[int]) -> None:  # noqa: ARG001  # one shape
    """The line as it stands; on a terminal with nothing in it that the terminal would obey."""
    line = auditor.render_raw(commit)
    sys.stdout.buffer.write(escape_json(line) if sys.stdout.isatty() else line)


def show_lines(*, utc: bool) -> Show:
    """One aligned line an event, cut to the width of a terminal, if it is one."""
    columns = max(shutil.get_terminal_size().columns, _COLUMNS_MIN) if sys.stdout.isatty() else None
    clock = utc_time if utc else local_time

    room = auditor.IDENTITY_COLUMNS

    def show(commit: Commit, events: Sequence[AnyEvent], wanted: Sequence[int]) -> None:
        nonlocal room
        if columns is not None:
            room = auditor.widen(room, events, wanted, columns)
        lines = auditor.render_lines(commit, events, wanted, clock, columns, room)
        sys.stdout.writelines(line + "\n" for line in lines)

    return show


class Output:
    """What is left to print: the wanted events, at most so many.

    Args:
        show: prints them.
        limit: at most so many lines; None: all.
    """

    def __init__(self, show: Show, limit: int | None) -> None:
        self.shown = 0
        self._show = show
        self._whole = show is show_raw
        self._left = limit

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be printed."""
        return self._left == 0

    def put(self, commit: Commit, events: Sequence[AnyEvent], wanted: Sequence[int]) -> None:
        """Print what is wanted of a commit, as far as there is room."""
        if not wanted:
            return
        if self._left is not None:
            wanted = wanted[: 1 if self._whole else self._left]
            self._left -= len(wanted)
        self.shown += 1
        self._show(commit, events, wanted)


def print_forward(reading: Reading, sieve: Sieve, output: Output) -> None:
    """Print what is wanted, in order, while it is read."""
    to_seq = sieve.selection.to_seq
    for commit, events in reading.pairs():
        output.put(commit, events, sieve.wanted(commit, events))
        if output.is_full or (to_seq is not None and commit.seq >= to_seq):
            break


def print_backward(reading: Reading, selection: Selection, threads: Threads | None, output: Output) -> None:
    """Print what is wanted, the last first.

    Reads everything once to verify it, and to know at each segment what its events refer to; then the segments once
    more from the last one. No more than what is wanted of one segment is held.
    """
    if reading.sources.stdin:
        raise click.UsageError("--reverse has to go back, which stdin cannot: save it to a file and name that.")
    sieve = Sieve(selection, threads)
    begun: dict[int, Sieve] = {}
    for commit, events in reading.pairs():
        if commit.place.segment not in begun:
            begun[commit.place.segment] = sieve.branch()
        sieve.wanted(commit, events)
    last_seq = reading.last.seq if reading.last is not None else 0
    left = reading.commits
    for file in reversed(reading.sources.files()):  # as they are by now: a writer goes on
        commits, wanted = _wanted_of(reading, file, begun, last_seq)
        left -= commits
        for found in reversed(wanted):
            output.put(found[0], found[1], found[2][::-1])
            if output.is_full:
                return
    if left:
        raise click.ClickException(
            f"the journal changed while it was read: of {reading.commits} commits {left} are gone"
        )


def _wanted_of(reading: Reading, file: Path, begun: dict[int, Sieve], last_seq: int) -> tuple[int, list[_Wanted]]:
    """How many commits one segment has up to where the first pass ended, and what is wanted of them, in order."""
    commits = 0
    found: list[_Wanted] = []
    for commit in reading.sources.walk_file(file):
        if commit.seq > last_seq:
            break
        commits += 1
        events = auditor.parse_events(commit)
        indexes = begun[commit.place.segment].wanted(commit, events)
        if indexes:
            found.append((commit, events, indexes))
    return commits, found
