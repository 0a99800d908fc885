"""``agentbus replay``: the auditor's command. Reads a journal of any size; takes no lock and creates nothing.

Reading and ``--state`` stop at the first fault; ``--verify`` goes on and names them all. What a line means is
agentbus/replay.py's, whether it is sound the journal's: there is no second parser here.
"""

from __future__ import annotations

import errno
import shutil
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentbus import queries, wire
from agentbus import replay as auditor
from agentbus.cli import bus, complain
from agentbus.cli.output import escape_json
from agentbus.columns import render_count
from agentbus.fold import FoldError, fold
from agentbus.state import State
from agentbus.visible import render_visible
from journal import Commit, CorruptError, Fault, Verdict, parse_time, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from journal import LostRange, Tail

_COLUMNS_MIN = 100  # on a narrower terminal a line wraps: less of it would say nothing
_ORPHANS_SHOWN_MAX = 20
_NEXT = "put a good copy back if you have one; else run `agentbus repair`, which shows what it will do, and asks"


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
        sources = [_source(path) for path in named if paths or path.exists()]
        if verify:
            verdict = _verify(sources, own=not paths)
        elif state:
            verdict = _print_state(sources)
        else:
            verdict = _read(sources, _print_flat if as_json else _line_printer(utc=utc))
    except OSError as error:
        if error.filename is None:
            raise
        raise click.ClickException(f"{error.filename}: cannot read it: {error.strerror}") from error
    except CorruptError as error:
        step = "" if paths else f". Next: {_NEXT}"
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


def _source(path: Path) -> Path:
    """The journal directory or segment file that a path stands for."""
    if not path.exists():
        raise click.ClickException(f"{path}: there is no such file or directory")
    inside = path / "journal"
    if not path.is_dir() and not path.is_file():
        raise click.ClickException(f"{path}: this cannot be read twice: save it to a file first")
    return inside if inside.is_dir() else path


# --- reading


def _read(sources: list[Path], take: Callable[[Commit], None]) -> Verdict:
    """Hand over every commit, and say on stderr what a reader must not miss.

    Raises:
        CorruptError: at the first fault, whether the journal or ``take`` found it.
    """
    verdict = Verdict()
    try:
        for found in _walk(sources):
            if isinstance(found, Commit):
                _take(sources, found, take)
            elif isinstance(found, Fault):
                raise CorruptError(found.file, found.line, found.offset, found.seq, found.cause)
            else:
                verdict = found
    finally:
        sys.stdout.flush()  # a reader of ours that is gone is met here by click, at exit by nobody
    for lost in verdict.lost:
        complain(_render_lost(lost))
    if verdict.tail is not None:
        complain(_render_tail(verdict.tail))
    return verdict


def _take(sources: list[Path], commit: Commit, take: Callable[[Commit], None]) -> None:
    try:
        take(commit)
    except (wire.MalformedError, FoldError) as error:
        fault = _fault_at(sources, commit, error.cause)
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


def _print_state(sources: list[Path]) -> Verdict:
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


# --- proof


def _verify(sources: list[Path], *, own: bool) -> Verdict:
    verdict, faults = Verdict(), 0
    for found in _walk(sources):
        if isinstance(found, Verdict):
            verdict = found
            continue
        fault = _check(sources, found) if isinstance(found, Commit) else found
        if fault is not None:
            faults += 1
            _say(f"fault: {fault.file} line {fault.line} (byte {fault.offset}, seq {fault.seq}): {fault.cause}")
    for lost in verdict.lost:
        _say(_render_lost(lost))
    if verdict.unchecked:
        _say(f"note: seq {', '.join(map(str, verdict.unchecked))}: taken on trust, the hash before it is gone")
    if verdict.tail is not None:
        _say(f"note: {_render_tail(verdict.tail)}")
    what = f"{render_count(verdict.commits, 'commit')} in {render_count(verdict.segments, 'segment')}"
    extent = f"{what}, {auditor.render_seqs(verdict.first_seq, verdict.last_seq)}"
    if faults or verdict.lost:
        wrong = f"{render_count(faults, 'fault')} and {render_count(len(verdict.lost), 'lost range')}"
        _say(f"failed: {wrong}; the rest verifies: {extent}")
        if faults and own:
            _say(f"Next: {_NEXT}")
        click.get_current_context().exit(1)
    if verdict.commits:
        _say(f"ok: {extent}, anchor {verdict.last_seq}:{verdict.hash}")
    return verdict


def _check(sources: list[Path], commit: Commit) -> Fault | None:
    """What the chain cannot see in a line that verifies: whether a bus can have written it."""
    try:
        auditor.parse_events(commit)
    except wire.MalformedError as error:
        return _fault_at(sources, commit, error.cause)
    return None


def _say(text: str) -> None:
    click.echo(render_visible(text))


# --- both


def _walk(sources: list[Path]) -> Iterator[Commit | Fault | Verdict]:
    try:
        yield from walk(sources)
    except OSError as error:
        cause = f"{error.filename or 'the journal'}: cannot read it: {error.strerror}"
        step = "; remove it, it is no segment" if error.errno in (errno.EISDIR, errno.EINVAL, errno.ENXIO) else ""
        raise click.ClickException(cause + step) from error


def _fault_at(sources: list[Path], commit: Commit, cause: str) -> Fault:
    """Where a commit stands. Looked for only now, as hardly any journal needs it."""
    begin, offset = b'{"seq":%d,' % commit.seq, commit.place.offset
    files = [file for path in sources for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    for file in files:
        data = file.read_bytes()
        if data.startswith(begin, offset):
            return Fault(str(file), data.count(b"\n", 0, offset) + 1, offset, commit.seq, cause)
    return Fault("a file that is gone", 0, offset, commit.seq, cause)


def _render_lost(lost: LostRange) -> str:
    seqs, place = auditor.render_seqs(lost.seq, lost.last), "its" if lost.seq == lost.last else "their"
    return f"LOST: {seqs} ({lost.reason}); in {place} place stands {lost.seq}:{lost.hash}"


def _render_tail(tail: Tail) -> str:
    what = "a whole line without its end" if tail.unfinished_line else "a torn tail, or a line that is being written"
    size = render_count(tail.bytes, "byte")
    return f"{what}: {size} of {tail.file} from byte {tail.offset}; never acknowledged, so not counted"


def _local_time(text: str) -> str:
    return _local_second(text[:20]) + text[19:23]


@lru_cache(maxsize=8)
def _local_second(text: str) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(parse_time(text + "000Z") // 1000))
