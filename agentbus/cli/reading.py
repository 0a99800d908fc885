"""One pass through a journal for an auditor: verified commits with their events, and what no reader may miss.

Stops at the first fault. Writes nothing to stdout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import click

from agentbus import replay as auditor
from agentbus import wire
from agentbus.audit import late
from agentbus.cli import complain
from agentbus.cli.sources import MANGLED, NEXT_STEP, parse_line, render_lost, render_tail
from agentbus.columns import render_count
from agentbus.events import Lost
from agentbus.fold import FoldError, fold
from agentbus.state import State
from journal import Commit, CorruptError, Fault, LostRange, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentbus.cli.sources import Sources
    from agentbus.events import AnyEvent

_ORPHANS_SHOWN_MAX = 20


class Witness(Protocol):
    """Who sees a State being folded, and asks it something."""

    def before(self, state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:
        """A commit is about to be folded."""

    def after(self, state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:
        """A commit was folded."""

    def end(self, state: State) -> None:
        """Nothing follows that is wanted."""

    def is_done(self, seq: int) -> bool:
        """Whether what comes after a seq cannot matter."""


class Reading:
    """A pass, or several one after the other.

    Attributes:
        commits: how many were read so far. last: the last of them.
        first_seq: of the first of them; ``begin`` says the same in words, and when.
    """

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.commits = 0
        self.first_seq = 0
        self.begin = ""
        self.last: Commit | None = None
        self._lost: list[LostRange] = []
        self._verdict = Verdict()
        self._orphans: list[tuple[int, str]] = []

    @property
    def has_tail(self) -> bool:
        """Whether bytes were found behind the last line."""
        return self._verdict.tail is not None

    def pairs(self) -> Iterator[tuple[Commit, list[AnyEvent]]]:
        """Every commit with its events, in order, from the beginning.

        Raises:
            CorruptError: at the first fault, whether the journal found it or nobody can have written that.
            UnsupportedError: a newer agentbus wrote it.
        """
        self.commits, self.first_seq, self._lost = 0, 0, []
        for found in self.sources.walk():
            if isinstance(found, Commit):
                yield found, self.take(found)
            elif isinstance(found, Fault):
                raise CorruptError(found.file, found.line, found.offset, found.seq, found.cause)
            else:
                self._verdict = found

    def take(self, commit: Commit) -> list[AnyEvent]:
        """Count one commit; its events."""
        try:
            events = parse_line(commit)
        except wire.MalformedError as error:
            raise self.corrupt(commit, error.cause) from error
        self.commits, self.last = self.commits + 1, commit
        if not self.first_seq:
            self.first_seq, self.begin = commit.seq, f"with seq {commit.seq} at {commit.time}"
        if isinstance(events[0], Lost):
            self._lost.append(LostRange(commit.seq, commit.hash, events[0].last, events[0].reason))
        return events

    def is_lost(self, seq: int) -> bool:
        """Whether a seq is of a lost range that was met."""
        return any(lost.seq <= seq <= lost.last for lost in self._lost)

    def corrupt(self, commit: Commit, cause: str) -> CorruptError:
        """The error for a line that verifies and makes no sense."""
        fault = self.sources.fault_at(commit, cause)
        return CorruptError(fault.file, fault.line, fault.offset, fault.seq, fault.cause)

    def fold(self, witnesses: Sequence[Witness], *, whole: str = "") -> None:
        """Fold from the beginning, with witnesses, until none of them needs more.

        Args:
            witnesses: asked in order.
            whole: what cannot be told of a journal whose beginning is missing: then it is refused.

        Raises:
            click.ClickException: that.
            CorruptError, UnsupportedError: see `pairs`.
        """
        state = State()
        for commit, events in self.pairs():
            if self.commits == 1:
                self._check_begin(whole)
                state = late.begin(commit.seq)
            if self.first_seq > 1:
                late.admit(state, events, self.first_seq)
            for witness in witnesses:
                witness.before(state, commit, events)
            try:
                fold(state, commit, events)
            except FoldError as error:
                raise self.corrupt(commit, error.cause) from error
            for witness in witnesses:
                witness.after(state, commit, events)
            if all(witness.is_done(state.last_seq) for witness in witnesses):
                break
        for witness in witnesses:
            witness.end(state)
        self._orphans = [] if self.first_seq > 1 else state.orphans

    def tell(self, *, missing: str = "", ended: bool = True) -> None:
        """Say on stderr what a reader must not miss.

        Args:
            missing: what it means for the answer that the journal's beginning is not there.
            ended: whether nothing more will be read: else the next line may be on its way.
        """
        if self.first_seq > 1:
            complain(f"the journal begins with seq {self.first_seq}: nothing before that can be told{missing}")
        for lost in self._lost:
            complain(render_lost(lost))
        if self._verdict.tail is not None and ended:
            complain(render_tail(self._verdict.tail))
        _tell_orphans(self._orphans)

    def _check_begin(self, whole: str) -> None:
        if whole and self.first_seq != 1:
            raise click.ClickException(
                f"{whole} needs the journal from seq 1; this begins with seq {self.first_seq}: "
                "reading it, --message, --stats and --verify do without"
            )


def explain(error: CorruptError, reading: Reading) -> click.ClickException:
    """The first fault as one line, and where to go from there."""
    step = f". Next: {NEXT_STEP}" if reading.sources.own else ""
    if not reading.commits and not step:
        step = f". If {MANGLED}"
    return click.ClickException(f"{auditor.shorten_hashes(str(error))}; --verify lists every fault{step}")


def _tell_orphans(orphans: list[tuple[int, str]]) -> None:
    for seq, what in orphans[:_ORPHANS_SHOWN_MAX]:
        complain(f"seq {seq} is about something that was lost: {what}")
    if len(orphans) > _ORPHANS_SHOWN_MAX:
        complain(f"and so are {render_count(len(orphans) - _ORPHANS_SHOWN_MAX, 'more event')}")
