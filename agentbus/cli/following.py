"""``agentbus replay --follow``: what is in a journal, then what comes, as it comes. Takes no lock, disturbs no writer."""

from __future__ import annotations

import select
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from agentbus.cli import complain
from journal import CorruptError, Files, Journal, ReplacedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.audit.selection import Sieve
    from agentbus.cli.printing import Output
    from agentbus.cli.reading import Reading
    from journal import Commit

_LOOK_S: Final = 1.0  # so often it is asked whether anybody still reads what is printed
_SETTLE_S: Final = 5.0  # a line that fails for so long is damage, and not one that is being written
_PAUSE_S: Final = 0.1


class _Lockless(Files):
    """An auditor's files: he keeps no writer waiting, and looks again instead."""

    def try_share(self, fd: int) -> bool:  # noqa: ARG002  # as the journal calls it
        """The lock of a writer is not asked for."""
        return True


def follow(reading: Reading, sieve: Sieve, output: Output) -> None:
    """Print what is wanted until the reader goes away, an interrupt comes, or there was enough.

    Raises:
        click.ClickException: the journal was replaced by another.
        CorruptError, UnsupportedError: it is damaged, or a newer agentbus wrote it.
    """
    directory = reading.sources.directory
    if directory is None and not reading.sources.stdin:
        raise click.UsageError("--follow wants one data or journal directory, or - for what is piped in.")
    try:
        _take(reading, sieve, output, (commit for commit, _ in reading.pairs()))
        reading.tell()
        if directory is not None and not output.is_full:
            if not directory.exists():
                complain(f"no journal yet in {directory.parent}; waiting for one")
            _follow(Journal(directory, first_events=b"", files=_Lockless(), read_only=True), reading, sieve, output)
    except KeyboardInterrupt:  # how it is meant to end
        return
