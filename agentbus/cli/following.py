"""``agentbus replay --follow``: what is in a journal, then what comes, as it comes. Takes no lock."""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from agentbus.cli import complain
from journal import CorruptError, Files, Journal, ReplacedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agentbus.audit.selection import Sieve
    from agentbus.cli.printing import Output
    from agentbus.cli.reading import Reading
    from agentbus.events import AnyEvent
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
        for commit, events in reading.pairs():
            if _put(sieve, output, commit, events):
                return
            if directory is None:
                sys.stdout.flush()
        reading.tell(ended=directory is None)
        if directory is not None:
            _follow(directory, reading, sieve, output)
    except KeyboardInterrupt:  # how it is meant to end
        return


def _put(sieve: Sieve, output: Output, commit: Commit, events: Sequence[AnyEvent]) -> bool:
    """Print what is wanted of a commit; whether that was enough."""
    to_seq = sieve.selection.to_seq
    output.put(commit, events, sieve.wanted(commit, events))
    return output.is_full or (to_seq is not None and commit.seq >= to_seq)


def _follow(directory: Path, reading: Reading, sieve: Sieve, output: Output) -> None:
    journal = Journal(directory, first_events=b"", files=_Lockless(), read_only=True)
    if not journal.exists:
        complain(f"no journal yet in {directory.parent}: waiting for one")
    try:
        for commit in _coming(journal, reading):
            if _put(sieve, output, commit, reading.take(commit)):
                return
    except ReplacedError as error:
        raise click.ClickException(
            f"{error}: the journal was repaired, or another one was put in its place; run the command again to read it"
        ) from error
    finally:
        journal.close()


def _coming(journal: Journal, reading: Reading) -> Iterator[Commit]:
    """Commits after the last one read, for as long as somebody reads what is printed."""
    failing_since: float | None = None
    if reading.last is not None:
        _check_same(journal, reading.last, str(reading.sources.directory))
    while True:
        seq = reading.last.seq if reading.last is not None else 0
        try:
            yield from journal.read(seq)
            failing_since = None
        except CorruptError:  # it may be a line that is being written, or taken back
            failing_since = failing_since or time.monotonic()
            if time.monotonic() - failing_since > _SETTLE_S:
                raise
            time.sleep(_PAUSE_S)
        sys.stdout.flush()
        if not _is_heard():
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        journal.wait(reading.last.seq if reading.last is not None else 0, _LOOK_S, lambda: False)


def _check_same(journal: Journal, last: Commit, place: str) -> None:
    """Make sure that what is followed is what was read so far."""
    found = next(iter(journal.read(last.seq - 1)), None)
    if found is None or found.hash != last.hash:
        raise ReplacedError(place, f"seq {last.seq} is another line now")


def _is_heard() -> bool:
    """Whether anybody can still read stdout: a pipe without a reader is not met until something is written to it."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # no file, so no pipe
        return True
    return not any(what & (select.POLLERR | select.POLLHUP) for _, what in poll.poll(0))
