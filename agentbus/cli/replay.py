"""``agentbus replay``: the auditor's command. Reads a journal of any size; takes no lock and creates nothing.

Reading and ``--state`` stop at the first fault; ``--verify`` goes on and names them all. What a line means is
agentbus/replay.py's, whether it is sound the journal's: there is no second parser here.
"""

from __future__ import annotations

import shutil
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentbus import queries, wire
from agentbus import replay as auditor
from agentbus.cli import bus, complain, proof
from agentbus.cli.output import escape_json
from agentbus.cli.sources import NEXT_STEP, Sources, render_lost, render_tail
from agentbus.columns import render_count
from agentbus.fold import FoldError, fold
from agentbus.state import State
from journal import Commit, CorruptError, Fault, Verdict, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

_COLUMNS_MIN = 100  # on a narrower terminal a line wraps: less of it would say nothing
_ORPHANS_SHOWN_MAX = 20


@click.command()
@click.argument("paths", nargs=-1, metavar="[JOURNAL]...", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object for each event.")
@click.option("--state", is_flag=True, help="The state after the last commit, as one line of canonical JSON.")
@click.option("--verify", is_flag=True, help="Check every line; end with an anchor, or list each fault and exit 1.")
@click.option("--utc", is_flag=True, help="Times in UTC, as the journal has them, instead of local ones.")
@bus.config_option()
def replay(
    paths: tuple[Path, ...],
    *,
    as_json: bool,
    state: bool,
    verify: bool,
    utc: bool,
    config_path: str | None,
) -> None:
    """Show everything that happened, event by event.

    JOURNAL is a data directory, a journal directory, or segment files in order; default: your own. Nothing is
    written, locked or created. Keep the anchor that --verify prints somewhere else: it shows any later change at or
    before it.
    """
    _refuse_mixed({"--json": as_json, "--state": state, "--verify": verify, "--utc": utc})
    named = paths or (bus.load_settings(config_path).data_directory,)
    try:
        sources = Sources(named, own=not paths)
        if verify:
            verdict = proof.verify(sources)
        elif state:
            verdict = _print_state(sources)
        else:
            verdict = _read(sources, _print_flat if as_json else _line_printer(utc=utc))
    except OSError as error:
        if error.filename is None:
            raise
        raise click.ClickException(f"{error.filename}: cannot read it: {error.strerror}") from error
    except CorruptError as error:
        step = "" if paths else f". Next: {NEXT_STEP}"
        raise click.ClickException(f"{auditor.shorten_hashes(str(error))}; --verify lists every fault{step}") from error
    if verdict.commits or verdict.tail is not None:
        return
    if paths:  # an auditor who names a journal must not take silence for a sound one
        raise click.ClickException(f"there is no commit in {', '.join(map(str, paths))}: name a journal directory")
    bus.say_no_journal(named[0], err=as_json or state)


def _refuse_mixed(options: dict[str, bool]) -> None:
    given = [name for name, is_given in options.items() if is_given]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other.")


# --- reading


def _read(sources: Sources, take: Callable[[Commit], None]) -> Verdict:
    """Hand over every commit, and say on stderr what a reader must not miss.

    Raises:
        CorruptError: at the first fault, whether the journal or ``take`` found it.
    """
    verdict = Verdict()
    try:
        for found in sources.walk():
            if isinstance(found, Commit):
                _take(sources, found, take)
            elif isinstance(found, Fault):
                raise CorruptError(found.file, found.line, found.offset, found.seq, found.cause)
            else:
                verdict = found
    finally:
        sys.stdout.flush()  # a reader of ours that is gone is met here by click, at exit by nobody
    for lost in verdict.lost:
        complain(render_lost(lost))
    if verdict.tail is not None:
        complain(render_tail(verdict.tail))
    return verdict


def _take(sources: Sources, commit: Commit, take: Callable[[Commit], None]) -> None:
    try:
        take(commit)
    except (wire.MalformedError, FoldError) as error:
        fault = sources.fault_at(commit, error.cause)
        raise CorruptError(fault.file, fault.line, fault.offset, fault.seq, fault.cause) from error


def _print_flat(commit: Commit) -> None:
    write = sys.stdout.buffer.write  # UTF-8, whatever the locale says
    for line in auditor.render_flat(commit):
        write(escape_json(line) + b"\n")


def _line_printer(*, utc: bool) -> Callable[[Commit], None]:
    columns = max(shutil.get_terminal_size().columns, _COLUMNS_MIN) if sys.stdout.isatty() else None

    def take(commit: Commit) -> None:
        lines = auditor.render_lines(commit, str if utc else _local_time, columns)
        sys.stdout.writelines(line + "\n" for line in lines)

    return take


def _print_state(sources: Sources) -> Verdict:
    state = State()

    def take(commit: Commit) -> None:
        if not state.last_seq and commit.seq != 1:
            raise click.ClickException(f"a state needs the journal from seq 1; this begins with seq {commit.seq}")
        fold(state, commit, auditor.parse_events(commit))

    verdict = _read(sources, take)
    if not verdict.commits:
        return verdict
    text = queries.encode_canonical(state)
    # Canonical bytes for a program, the same value in safer ones for eyes.
    sys.stdout.buffer.write((escape_json(text) if sys.stdout.isatty() else text) + b"\n")
    sys.stdout.flush()
    for seq, what in state.orphans[:_ORPHANS_SHOWN_MAX]:
        complain(f"seq {seq} is about something that was lost: {what}")
    if len(state.orphans) > _ORPHANS_SHOWN_MAX:
        complain(f"and so are {render_count(len(state.orphans) - _ORPHANS_SHOWN_MAX, 'more event')}")
    return verdict


def _local_time(text: str) -> str:
    return _local_second(text[:20]) + text[19:23]


@lru_cache(maxsize=8)
def _local_second(text: str) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(parse_time(text + "000Z") // 1000))
