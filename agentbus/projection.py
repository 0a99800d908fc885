"""The State of one journal, kept up to date by reading on; begun from a snapshot where there is one. Decides nothing.

Not for several threads at once: whoever owns it guards it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Struct

from agentbus import snapshot, wire
from agentbus.events import Repaired
from agentbus.fold import FoldError, fold
from agentbus.limits import SNAPSHOT_TAIL_LINES_MIN
from agentbus.state import State
from journal import Bookmark, BusyError

if TYPE_CHECKING:
    from agentbus.events import AnyEvent
    from journal import Journal, Snapshots

_RETAINED_PART: Final = 4
_LINES_BETWEEN_LOOKS: Final = 64  # at the clock: they are folded in less time than a caller could tell


class BehindError(Exception):
    """The State could not be brought up to date quickly under the writer lock: let go, catch up, try again."""


class Taken(Struct, frozen=True):
    """A State as it was at a place in the journal, ready to be kept."""

    bookmark: Bookmark
    payload: bytes


class Projection:
    """What a journal folds to, as far as it was read.

    Attributes:
        state: folded up to ``state.last_seq``.
    """

    def __init__(self, journal: Journal, snapshots: Snapshots | None) -> None:
        self._journal = journal
        self._snapshots = snapshots
        self._useless_seq = 0  # the newest snapshot there was when none could be used; 0 for none
        self._repairs: set[int] = set()
        self._begin(resumable=True)

    def _begin(self, *, resumable: bool) -> None:
        self.state = State()
        self._resumable = resumable  # the next fold may start at a snapshot
        self._kept_seq = 0  # up to here a snapshot is known, or somebody is at it

    def catch_up(self, deadline: float = float("inf"), lines_max: float = float("inf")) -> None:
        """Fold what stands in the journal beyond the State. Whatever this raises, what was folded is kept.

        Args:
            deadline: of time.monotonic(); the next call goes on from there.
            lines_max: how many lines at most.

        Raises:
            BehindError: there are more.
            BusyError: it took too long.
            ReplacedError: the files are others; `restart` before the next call.
            JournalError: corrupt, unsupported, not readable.
        """
        if not self.state.last_seq:
            self._resume()
        state, look_at = self.state, 0.0
        for lines, commit in enumerate(self._journal.read(state.last_seq)):
            if lines >= look_at:
                look_at = _look(lines, deadline, lines_max)
            try:
                events = wire.decode(commit.events)
            except wire.MalformedError as error:
                raise self._journal.corrupt_at(commit, error.cause) from error
            if type(events[0]) is Repaired and self._was_repaired(commit.seq, events):
                self.restart()
                self.catch_up(deadline, lines_max)
                return
            try:
                fold(state, commit, events)
            except BaseException as error:
                self.forget()  # half of a line must not be taken for the whole
                if isinstance(error, FoldError):
                    raise self._journal.corrupt_at(commit, error.cause) from error
                raise

    def restart(self) -> None:
        """Fold from seq 1 at the next `catch_up`: no snapshot of files that were exchanged is trusted."""
        self._begin(resumable=False)
        self._useless_seq = self._newest_seq()

    def _newest_seq(self) -> int:
        return 0 if self._snapshots is None else self._snapshots.newest_seq()

    def forget(self) -> None:
        """Start afresh, from a snapshot if there is one."""
        self._begin(resumable=True)

    def _resume(self) -> None:
        if self._snapshots is None or not self._resumable:
            return
        self._resumable = False
        self._useless_seq = self._snapshots.newest_seq()
        for kept in self._snapshots.load(snapshot.VERSION):
            try:
                state = snapshot.decode(kept.payload)
            except snapshot.MalformedSnapshotError:
                continue
            if self._journal.resume(kept.bookmark):
                self.state = state
                self._kept_seq = state.last_seq
                self._useless_seq = 0
                return

    def _was_repaired(self, seq: int, events: list[AnyEvent]) -> bool:
        """Whether lines folded here were taken out since, by a repair that ended at ``seq``; asked once of each."""
        lost = {event.lost for event in events if isinstance(event, Repaired) and event.lost is not UNSET}
        if lost <= set(self.state.lost) or seq in self._repairs:
            return False  # a later repair may have taken the lost line of this one
        self._repairs.add(seq)
        return True

    @property
    def snapshot_due(self) -> bool:
        """Whether so much was folded since the last snapshot that the next process deserves a new one."""
        tail = self.state.last_seq - self._kept_seq
        if self._snapshots is None or tail <= SNAPSHOT_TAIL_LINES_MIN:
            return False
        retained = sum(len(channel.retained) for channel in self.state.channels.values())
        return tail > retained // _RETAINED_PART

    def take(self) -> Taken | None:
        """What `keep` is to write; None if that is not possible here, or another process has done it.

        However that ends, this process does not try again before as many lines have come as made it due.
        """
        newest = self._newest_seq()
        if newest != self._useless_seq:
            self._kept_seq = max(self._kept_seq, newest)
        if not self.snapshot_due:
            return None
        self._kept_seq = self.state.last_seq
        bookmark = self._journal.bookmark(self.state.last_seq)
        return None if bookmark is None else Taken(bookmark, snapshot.encode(self.state))

    def keep(self, taken: Taken) -> None:
        """Write a snapshot, unless another process is at it. The State may move on meanwhile: any thread may do this.

        Raises:
            UnwritableError: the disk refused.
        """
        assert self._snapshots is not None  # noqa: S101  # something was taken
        self._snapshots.save(snapshot.VERSION, taken.bookmark, taken.payload)


def _look(lines: int, deadline: float, lines_max: float) -> float:
    """Whether to go on after so many lines, and after how many to ask again. Raises as `Projection.catch_up` says."""
    if lines >= lines_max:
        raise BehindError
    if time.monotonic() >= deadline:
        raise BusyError("the journal, which is still being read,")
    return min(lines + _LINES_BETWEEN_LOOKS, lines_max)
