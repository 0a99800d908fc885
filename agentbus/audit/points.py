"""What a State was at some point of a journal: after a seq, or as of a time. Pure.

Order is seq; clocks step back. As of a time means: after the last commit whose time is at or before it. Only the end of
a journal tells which that is, and no State can be kept for later, so the question is asked each time it may be the one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentbus.events import AnyEvent
    from agentbus.state import State
    from journal import Commit

A = TypeVar("A")


class Point(Struct, frozen=True):
    """A place in a journal. ``text`` is how it was asked for; with neither a seq nor a time it is the end.

    Attributes:
        time: in the journal's form.
    """

    text: str = ""
    seq: int | None = None
    time: str | None = None


END = Point()


class Taken(Struct, Generic[A], frozen=True):
    """What was asked of a State, and the seq after which it was that."""

    seq: int
    answer: A


class Shot(Generic[A]):
    """Asks one question of the State at one point.

    Attributes:
        taken: None if the point was not reached.
    """

    def __init__(self, point: Point, question: Callable[[State], A]) -> None:
        self.taken: Taken[A] | None = None
        self._point = point
        self._question = question
        self._inside = False  # the last commit is at or before the point

    def before(self, state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:  # noqa: ARG002  # a witness
        """A commit is about to be folded."""
        inside = self._covers(commit)
        if self._inside and not inside:
            self._take(state)
        self._inside = inside

    def after(self, state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:
        """A commit was folded."""

    def end(self, state: State) -> None:
        """Nothing follows, or nothing that could matter."""
        if self._inside:
            self._take(state)

    def is_done(self, seq: int) -> bool:
        """Whether what comes after a seq cannot matter."""
        return self._point.seq is not None and seq >= self._point.seq

    def _covers(self, commit: Commit) -> bool:
        point = self._point
        if point.seq is not None:
            return commit.seq <= point.seq
        return point.time is None or commit.time <= point.time

    def _take(self, state: State) -> None:
        self.taken = Taken(state.last_seq, self._question(state))
