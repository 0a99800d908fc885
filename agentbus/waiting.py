"""Sleep until something waits for an identity. Reads the journal and writes nothing to it; prints nothing.

One process waits for an identity at a time: the newest puts its mark into a file, where the one before it finds it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from typing import TYPE_CHECKING, Literal, TypeAlias

from agentbus import processes
from journal import BusyError, ReplacedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentbus.processes import Process
    from agentbus.projection import Projection
    from agentbus.state import State
    from agentbus.unseen import Unseen
    from journal import Journal

LOOK_S = 1.0
"""How often a sleeping waiter looks whether it was replaced or its harness is gone."""

End: TypeAlias = Literal["replaced", "orphaned", "timeout"]
Ended: TypeAlias = "Callable[[], End | None]"
"""Why to give up now, if there is a reason."""


class Seat:
    """The seat of the one waiter of an identity: a file with the newest one's mark.

    It needs no lock: whoever was there before finds another's mark and leaves.
    """

    def __init__(self, directory: Path, identity: str) -> None:
        """``directory`` is ``<data>/waiters``; made when the seat is taken."""
        name = hashlib.sha256(identity.encode()).hexdigest()[:32]
        self._directory = directory
        self._path = directory / name
        self._mark = os.urandom(12).hex()

    def take(self) -> None:
        """Be the waiter from now on. Raises OSError."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        temporary = self._path.with_suffix(f".{self._mark}")
        temporary.touch(mode=0o600)
        temporary.write_text(self._mark)
        temporary.replace(self._path)

    def keep(self) -> bool:
        """Whether nobody else sits there now. One that was left, or deleted, is taken again: this one still waits."""
        try:
            return self._is_mine()
        except FileNotFoundError:
            with contextlib.suppress(OSError):  # where there is no data directory any more there is nothing to hold
                self.take()
            return True
        except OSError:
            return False

    def leave(self) -> None:
        """Leave no file, if it is still this one's."""
        with contextlib.suppress(OSError):
            if self._is_mine():
                self._path.unlink()

    def _is_mine(self) -> bool:
        return self._path.read_text() == self._mark


def watch_over(seat: Seat, harness: Process | None) -> Ended:
    """Why to give up: another waiter came, or the harness is gone; where that cannot be seen, this process's parent."""
    parent = os.getppid()

    def ended() -> End | None:
        if not seat.keep():
            return "replaced"
        gone = os.getppid() != parent if harness is None else not processes.lives(harness.pid, harness.started)
        return "orphaned" if gone else None

    return ended


def caught_up(projection: Projection) -> State:
    """The State now.

    Raises:
        JournalError: the journal cannot be read.
    """
    try:
        projection.catch_up()
    except ReplacedError:
        projection.restart()
        projection.catch_up()
    return projection.state


def wait(
    journal: Journal,
    look: Callable[[], tuple[int, list[Unseen]]],
    ended: Ended,
    deadline: float,
) -> list[Unseen] | End:
    """Sleep until ``look`` finds something, and give what it found; or say why that ended.

    Args:
        journal: wakes the sleeper when it grows.
        look: the last seq it has seen, and what waits.
        ended: asked at least once in LOOK_S: why to give up, if there is a reason.
        deadline: of time.monotonic().
    """
    seq = 0
    while True:
        reason = ended()
        if reason is not None:  # before the look: what it finds is another's to tell by now, or nobody's
            return reason
        # While a repair is at work lines are out of reach; it leaves others behind, read from the first one on.
        with contextlib.suppress(BusyError, ReplacedError):
            seq, found = look()
            if found:
                return found
        left_s = deadline - time.monotonic()
        while left_s > 0 and not journal.wait(seq, min(LOOK_S, left_s), lambda: False):
            reason = ended()
            if reason is not None:
                return reason
            left_s = deadline - time.monotonic()
        if left_s <= 0:
            return "timeout"
