"""One journal and one State: execute a command, answer a question, wait for news.

Nothing here is true of files only: the journal is ``read``, ``commit``, ``flush`` and ``wait``. Threads share a Bus. A
short mutex guards the State; it is never held while waiting for the writer lock or for a flush.
"""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from msgspec import Struct

from agentbus import wire
from agentbus.commands import Command, Decision, EndSessions, Facts, Policy, R, Receive, Register
from agentbus.decide import decide
from agentbus.errors import BUSY, BusError
from agentbus.events import DEFAULT_CHANNELS, Active, Delivered, MemoryEdited, Posted
from agentbus.fold import FoldError, fold
from agentbus.limits import CATCH_UP_LINES_MAX, COMMAND_DEADLINE_S
from agentbus.results import Body
from agentbus.state import State
from journal import BusyError, ReplacedError, UnwritableError, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentbus.owners import Owners
    from agentbus.queries import Located
    from journal import Commit, Journal

T = TypeVar("T")

FIRST_EVENTS = wire.encode(DEFAULT_CHANNELS)
"""Line 2 of a new journal."""


class Cancelled(Exception):  # noqa: N818  # the caller went away; no error
    """The call was cancelled before it wrote anything, and never will."""


class Control:
    """One call's line to the door it came through.

    Attributes:
        cancelled: the caller does not want the answer any more.
        progress: called by a waiting call with the seconds it has waited; None if nobody listens.
    """

    def __init__(self, bus: Interruptible, progress: Callable[[float], None] | None = None) -> None:
        self.cancelled = False
        self.progress = progress
        self._bus = bus

    def cancel(self) -> None:
        """Ask the call to end. It either has committed already, or never will."""
        self.cancelled = True
        self._bus.interrupt()

    def check(self) -> None:
        """Raise Cancelled if the call was cancelled."""
        if self.cancelled:
            raise Cancelled


class Interruptible(Protocol):
    """What a cancelled call may be waiting in."""

    def interrupt(self) -> None:
        """Wake all who wait, so that they look whether they still should."""


class Done(Struct, Generic[R], frozen=True):
    """A command's result; ``seq`` is the commit's, None if nothing was written."""

    result: R
    seq: int | None


class _NothingToWriteError(Exception):
    """Decided under the lock: what the command asked for is so already."""


class _BehindError(Exception):
    """Too many lines of others to fold under the writer lock: let go, catch up, try again."""


class Bus:
    """The bus as this process sees it.

    Attributes:
        owners: who lives; its token is this process's.
        policy: the settings rules depend on.
    """

    def __init__(self, journal: Journal, owners: Owners, policy: Policy) -> None:
        self.owners = owners
        self.policy = policy
        self._journal = journal
        self._state = State()
        self._mutex = threading.Lock()
        self._closing = False
        self._registered = False

    def ask(self, question: Callable[[State], T]) -> T:
        """Answer from a State that has caught up with the journal. The question must not keep the State, nor wait.

        Raises:
            JournalError: corrupt, unsupported, busy (the journal is still being folded).
        """
        deadline = _deadline()
        with self._caught_up(deadline):
            return question(self._state)

    def bodies(self, wanted: Iterable[Located]) -> Iterator[Body]:
        """The bodies of these messages, read from the journal one by one.

        Raises:
            BusError: busy; the journal's files were exchanged meanwhile.
        """
        for at in wanted:
            try:
                commit = self._journal.line_at(at.place, at.seq)
            except ReplacedError as error:
                self._start_anew()
                raise BusError(
                    BUSY, f"the journal was exchanged meanwhile ({error.cause}): call again", retryable=True
                ) from error
            yield _body(at, commit)

    def wait(self, after_seq: int, timeout_s: float, control: Control) -> None:
        """Sleep until the journal has grown past ``after_seq``, the time is over, or the call was cancelled."""
        self._journal.wait(after_seq, timeout_s, lambda: control.cancelled or self._closing)
        if self._closing:
            raise Cancelled
        control.check()

    def interrupt(self) -> None:
        """Wake the calls that wait, so that they look whether they were cancelled."""
        self._journal.interrupt()

    def execute(self, command: Command[R], control: Control | None = None, deadline: float | None = None) -> Done[R]:
        """Decide a command and append what follows from it; durable when this returns.

        A command that turns out to write nothing takes no writer lock. What is answered still rests on a flush, but for
        batches and idle looks: if a power cut takes those, the messages are handed out again.

        Args:
            command: parsed, within its bounds.
            control: the caller's; a cancel before the commit means that nothing is written.
            deadline: of time.monotonic(); COMMAND_DEADLINE_S from now if None.

        Raises:
            BusError: a refusal; nothing was written.
            Cancelled: nothing was written.
            JournalError: says what was written.
        """
        control = control or Control(self)
        deadline = _deadline() if deadline is None else deadline
        while True:
            decision = self._look(command, deadline)
            control.check()
            if not decision.events:
                return self._answer(decision, command, deadline)
            try:
                return self._commit(command, control, deadline)
            except (_BehindError, ReplacedError):
                if time.monotonic() >= deadline:
                    raise BusyError("the journal, which others write faster than it can be read,") from None

    def _look(self, command: Command[R], deadline: float) -> Decision[R]:
        """What the command would do now. Decided again under the lock if it would write."""
        with self._caught_up(deadline):
            return decide(self._state, command, self._facts(command, time.time_ns() // 1_000_000))

    def _answer(self, decision: Decision[R], command: Command[R], deadline: float) -> Done[R]:
        if not isinstance(command, Receive):
            self._journal.flush(deadline)
        return Done(decision.result, None)

    def _commit(self, command: Command[R], control: Control, deadline: float) -> Done[R]:
        decided: list[Decision[R]] = []

        def build(now: str) -> bytes:
            control.check()
            decided[:] = [self._decide_locked(command, parse_time(now), deadline)]
            if not decided[0].events:
                raise _NothingToWriteError
            return wire.encode(decided[0].events)

        if isinstance(command, Register):
            self._hold()
        try:
            appended = self._journal.commit(build, deadline=deadline, flush=False)
        except _NothingToWriteError:
            return self._answer(decided[0], command, deadline)
        if not all(isinstance(event, Delivered | Active) for event in decided[0].events):
            self._journal.flush(deadline)
        with self._caught_up(deadline):
            return Done(decided[0].result, appended.seq)

    def _decide_locked(self, command: Command[R], time_ms: int, deadline: float) -> Decision[R]:
        """Under the writer lock: fold the few lines written meanwhile, then decide on what is true now."""
        with self._held(deadline):
            if not self._catch_up(CATCH_UP_LINES_MAX):
                raise _BehindError
            decision = decide(self._state, command, self._facts(command, time_ms))
            if isinstance(command, Register):
                self.owners.sweep({session.owner for session in self._state.sessions.values()})
        return decision

    def _hold(self) -> None:
        """Become a live owner before the first register: from then on others look for this process's lock."""
        try:
            self.owners.hold()
        except OSError as error:
            raise UnwritableError(f"owner file: {error}") from error
        self._registered = True

    def _facts(self, command: Command[R], time_ms: int) -> Facts:
        gone: frozenset[str] = frozenset()
        if isinstance(command, Register):
            gone = self.owners.gone(session.owner for session in self._state.sessions.values())
        return Facts(time_ms, self.owners.token, secrets.token_hex(6), self.policy, gone)

    def warm(self) -> None:
        """Fold the journal, however long that takes; the calls that follow find a State that is ready.

        Raises:
            JournalError: the next call will say the same.
        """
        with self._caught_up(float("inf")):
            pass

    def close(self, deadline: float) -> None:
        """End this process's sessions if it can by the deadline, and let everything go. Waiting calls end as cancelled.

        Raises:
            JournalError: the sessions could not be ended; others will find them gone, for their owner's lock is.
        """
        self._closing = True
        self.interrupt()
        try:
            if self._registered:
                self.execute(EndSessions(), deadline=deadline)
        finally:
            self.owners.release()
            self._journal.close()

    @contextmanager
    def _held(self, deadline: float) -> Iterator[None]:
        """The State's mutex. Long only while a process folds a long journal for the first time."""
        timeout = max(0.0, min(deadline - time.monotonic(), threading.TIMEOUT_MAX))
        if not self._mutex.acquire(timeout=timeout):
            raise BusyError("the journal, which is still being read,")
        try:
            yield
        finally:
            self._mutex.release()

    @contextmanager
    def _caught_up(self, deadline: float) -> Iterator[None]:
        with self._held(deadline):
            try:
                self._catch_up()
            except ReplacedError:
                self._state = State()
                self._catch_up()
            yield

    def _catch_up(self, lines_max: float = float("inf")) -> bool:
        """Fold what stands in the journal beyond the State; false if more than ``lines_max`` lines did."""
        for lines, commit in enumerate(self._journal.read(self._state.last_seq)):
            if lines >= lines_max:
                return False
            self._fold(commit)
        return True

    def _fold(self, commit: Commit) -> None:
        try:
            fold(self._state, commit, wire.decode(commit.events))
        except (wire.MalformedError, FoldError) as error:
            # The State may hold half of the line: it is of no further use.
            self._state = State()
            raise self._journal.corrupt_at(commit, error.cause) from error

    def _start_anew(self) -> None:
        with self._held(_deadline()):
            self._state = State()


def _deadline() -> float:
    return time.monotonic() + COMMAND_DEADLINE_S


def _body(at: Located, commit: Commit) -> Body:
    """The one message in a line: a command writes at most one."""
    event = next(event for event in wire.decode(commit.events) if isinstance(event, Posted | MemoryEdited))
    return Body(at, commit.time, event)
