"""``agentbus replay``: the auditor's command. Reads a journal of any size; takes no lock and creates nothing.

Reading and questions stop at the first fault; ``--verify`` (proof.py) goes on and names them all. What the command line
asks is asked.py's, what a line means agentbus/replay.py's, whether it is sound the journal's.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentbus.audit.selection import Sieve
from agentbus.cli import asked, bus, complain, proof
from agentbus.cli.following import follow
from agentbus.cli.grouped import GroupedCommand, Number, option
from agentbus.cli.printing import Output, print_backward, print_forward, show_flat, show_lines, show_raw
from agentbus.cli.questions import answer, find_threads
from agentbus.cli.reading import Reading, explain
from agentbus.cli.sources import Sources
from agentbus.cli.times import local_time, utc_time
from agentbus.config import Settings
from journal import CorruptError

if TYPE_CHECKING:
    from agentbus.cli.asked import Asked

    Options = dict[str, Any]

_HOW, _WHICH, _ASK, _PROOF = "How it is printed", "Which events", "Questions", "Proof"
_NUMBER = Number()


@click.command(cls=GroupedCommand, short_help="Show everything that happened, or answer a question about it.")
@click.argument("paths", nargs=-1, metavar="[JOURNAL]...", type=click.Path(path_type=Path))
@option(_HOW, "--utc", is_flag=True, help="Times, shown or given, are in UTC and not local.")
@option(_HOW, "--json", is_flag=True, help="One flat JSON object an event; of a question, one object.")
@option(_HOW, "--raw", is_flag=True, help="The journal's lines as they are.")
@option(_HOW, "--follow", is_flag=True, help="Go on with what comes, until interrupted.")
@option(_HOW, "--reverse", is_flag=True, help="The last first.")
@option(_HOW, "--limit", type=_NUMBER, metavar="N", help="The first N of what would be printed.")
@option(_WHICH, "--channel", multiple=True, metavar="NAME", help="On a channel.")
@option(_WHICH, "--as", multiple=True, metavar="IDENTITY", help="Of an identity.")
@option(_WHICH, "--children", is_flag=True, help="And of its subagents.")
@option(_WHICH, "--type", multiple=True, metavar="TYPE", help="Such as posted, delivered or acked.")
@option(_WHICH, "--since", multiple=True, metavar="TIME", help="RFC 3339, a day, or how long ago: 2h, 3d.")
@option(_WHICH, "--until", multiple=True, metavar="TIME", help="Likewise; a day until its end.")
@option(_WHICH, "--from-seq", multiple=True, type=_NUMBER, metavar="SEQ", help="From here on.")
@option(_WHICH, "--to-seq", multiple=True, type=_NUMBER, metavar="SEQ", help="Up to here.")
@option(_WHICH, "--grep", multiple=True, metavar="REGEX", help="With this in one of its texts; (?i) ignores case.")
@option(_WHICH, "--thread", multiple=True, type=_NUMBER, metavar="SEQ", help="Of the thread that this message is in.")
@option(_ASK, "--message", type=_NUMBER, metavar="SEQ", help="Who was shown a message, when, and who acknowledged it.")
@option(_ASK, "--inbox", metavar="IDENTITY", help="What was unread for it.")
@option(_ASK, "--state", is_flag=True, help="The state of the bus, as one line of canonical JSON.")
@option(_ASK, "--digest", is_flag=True, help="The SHA-256 of that line, without its line feed.")
@option(_ASK, "--at", metavar="SEQ|TIME", help="Of --inbox, --state and --digest: as it was then, not at the end.")
@option(_ASK, "--diff", nargs=2, metavar="FROM TO", help="What changed between two points, each a SEQ or a TIME.")
@option(_ASK, "--stats", is_flag=True, help="Totals, latency, backlog.")
@option(_PROOF, "--verify", is_flag=True, help="Check every line; end with an anchor, or list each fault and exit 1.")
@option(_PROOF, "--anchor", multiple=True, metavar="SEQ:HASH|FILE", help="Is history up to there the same as then?")
@option(_PROOF, "--accept-lost", multiple=True, metavar="SEQ:HASH", help="Known: a lost line, by its own hash.")
@bus.config_option()
def replay(paths: tuple[Path, ...], config_path: str | None, **options: Any) -> None:  # noqa: ANN401  # many options
    """Show everything that happened, event by event, or answer a question about it.

    JOURNAL is a data directory, a journal directory, segment files (.jsonl or .jsonl.gz), or - for stdin; default: your
    own. Nothing is written, locked or created. Filters are combined; one given twice means either. Keep the anchor that
    --verify prints somewhere else: it shows any later change at or before it.
    """
    theirs = bool(paths) and config_path is None
    settings = Settings(data_directory=paths[0]) if theirs else bus.load_settings(config_path)
    given = {name.replace("_", "-"): value for name, value in options.items()}
    what = asked.parse(given, time.time_ns() // 1_000_000, settings.message_retention_hours)
    sources = Sources(paths or (settings.data_directory,), own=not paths)
    if what.question == "verify":
        verdict = proof.verify(sources, options["anchor"], options["accept_lost"], as_json=options["json"])
        is_empty = not verdict.commits and verdict.tail is None
    else:
        reading = Reading(sources)
        _run(reading, what, options)
        is_empty = not reading.commits and not reading.has_tail
    if is_empty and not options["follow"]:
        _say_empty(sources, quiet=options["json"] or options["raw"] or what.question in ("state", "digest"))


def _run(reading: Reading, what: Asked, options: Options) -> None:
    clock = utc_time if options["utc"] else local_time
    try:
        if what.question != asked.READING:
            answer(reading, what, options, clock)
        else:
            _read(reading, what, options)
    except OSError as error:
        if error.filename is None:
            raise  # of stdout
        raise click.ClickException(f"{error.filename}: cannot read it: {error.strerror}") from error
    except CorruptError as error:
        raise explain(error, reading) from error
    finally:
        sys.stdout.flush()  # a reader of ours that is gone is met here by click, at exit by nobody


def _read(reading: Reading, what: Asked, options: Options) -> None:
    threads = find_threads(reading, what.selection.threads)
    show = show_flat if options["json"] else show_raw if options["raw"] else show_lines(utc=options["utc"])
    output = Output(show, options["limit"])
    if options["follow"]:
        follow(reading, Sieve(what.selection, threads), output)
        return
    if options["reverse"]:
        print_backward(reading, what.selection, threads, output)
    else:
        print_forward(reading, Sieve(what.selection, threads), output)
    reading.tell()
    if reading.commits and not output.shown:
        complain("nothing matches")


def _say_empty(sources: Sources, *, quiet: bool) -> None:
    if sources.own:
        bus.say_no_journal(sources.named[0], err=quiet)
        return
    # An auditor who names a journal must not take silence for a sound one.
    if sources.stdin:
        raise click.ClickException("there is no commit in stdin: pipe a journal in")
    names = ", ".join(map(str, sources.named))
    raise click.ClickException(f"there is no commit in {names}: name a journal directory, or its files")
