#!/usr/bin/env python3
"""Break agentbus in every way that can be staged, count what was tried and what was lost. Mends nothing.

    tools/crash.py kill --rounds 2000     processes killed while they write
    tools/crash.py MODE --help            what a mode tries

The last line is the summary, such as ``cut: 7002 cuts, 0 lost, 0 faults``.
What went wrong stands before it, a line each with how to try it again, and the exit code is 1.
"""

from __future__ import annotations

import importlib
import sys

import click

from tools.crashes import Summary, render

PROCESSES_ROUNDS = 200

TRIES = {
    "kill": (
        PROCESSES_ROUNDS,
        """Kill processes that write, and look at what is left.

        Four processes post with idempotency keys, receive and ack, each under its own name. Each round one of them is
        killed (SIGKILL): from outside, microseconds to milliseconds after something it did, or by its own hand at a
        chosen system call, a write cut short included. The next one comes back under the same name and asks again for
        what its predecessor was not answered. A fifth process is never killed.

        Every 50 rounds all stop, and it is checked: whatever was acknowledged is in the journal; no bad line, no gap
        in seq, nothing twice by key; no cursor moved but by an ack; and the State of each living process, and of one
        that opens the journal now, is that of a fold from seq 1. Then all are killed, and each comes back to its
        backlog.
        """,
    ),
    "cut": (
        0,
        """Cut the end of a journal at every byte, and go on writing.

        The journal of a scripted session that uses every tool; each of its segments in turn is the last one, and its
        last line, and its first, ends at each of its bytes, or holds NUL from each 512-byte border on. Then: read,
        append, open anew, append, verify. Every earlier line is there, the bytes that were no line are set aside, and
        the new lines follow. --rounds N tries N of the points.
        """,
    ),
    "flip": (
        0,
        """Change every byte of a journal, one at a time.

        Of the journal of a scripted session that uses every tool: each byte with one bit flipped, as another printable
        byte, as NUL, as a line feed, taken out, and with a line feed put before it. Each change is to be named by file,
        line and offset, by `journal.verify` and by `Journal.read`, and nothing is to be written after it; or, at the
        end of the last segment, it is a torn tail as FORMAT.md says. --rounds N tries N of the changes.
        """,
    ),
    "fail": (
        0,
        """Let a system call of the journal fail: each of a scripted session, in every way that makes sense for it.

        Once, or from there on for a while. Each call of the session has happened or has left nothing, and its caller
        was told which; what was called done is on a model disk, whatever a power cut would leave of it; when the fault
        ends everything works again. --rounds N tries N of the faults.
        """,
    ),
    "power": (
        0,
        """Let the power fail at every point of a scripted session.

        What the session wrote and flushed makes a model disk; of it every state that a cut may leave (writes that were
        not flushed absent, present, or cut at a 512-byte border; names that were not flushed absent) is opened by the
        real code: nothing acknowledged is missing, nothing refused is there, and it goes on. --rounds N tries N states.
        """,
    ),
    "history": (
        PROCESSES_ROUNDS,
        """Record what concurrent calls of four processes answer, and look for the one order that explains it.

        A round is one recorded history of about 160 calls. It is linearizable if each call's result is that of a plain
        sequential model at one point between its start and its end.
        """,
    ),
    "real": (
        0,
        """Faults that the system itself can stage, on real processes.

        A file size limit, a full tmpfs, a loop device on a full tmpfs (whose flush fails, and then lies), a directory
        that is read-only, a lock holder that is stopped. What this machine or user cannot stage is left out by name.
        """,
    ),
}
"""Each mode with its default of --rounds (0: every point of its space) and what it tries."""


def command(mode: str, rounds: int, tries: str) -> click.Command:
    """The command of one mode; its module is imported when it runs."""

    def run(rounds: int, seed: int) -> None:
        conclude(importlib.import_module(f"tools.crashes.{mode}").run(rounds, seed))

    options: list[click.Parameter] = [
        click.Option(
            ["--rounds"],
            type=click.IntRange(min=0 if rounds == 0 else 1),
            default=rounds,
            show_default=True,
            help="How much is tried" + ("; 0 is every point." if rounds == 0 else "."),
        ),
        click.Option(["--seed"], type=int, default=1, show_default=True, help="The source of chance."),
    ]
    return click.Command(mode, params=options, callback=run, help=tries)


def conclude(summary: Summary) -> None:
    """Print what came of a mode, and end with 1 if anything was wrong."""
    click.echo(render(summary))
    sys.exit(1 if summary.wrong else 0)


main = click.Group(
    "crash",
    help="Break agentbus in every way that can be staged; count what was tried and what was lost.",
    commands={mode: command(mode, *row) for mode, row in TRIES.items()},
)

if __name__ == "__main__":
    main()
