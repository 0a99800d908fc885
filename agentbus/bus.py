"""One journal and one State: execute a command, answer a question, wait for news.

Nothing here is true of files only: the journal is ``read``, ``commit``, ``flush`` and ``wait``. Threads share a Bus. A
short mutex guards the State; it is never held while waiting for the writer lock or for a flush.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from agentbus import wire
from agentbus.commands import Command, Decision, EndSessions, Facts, Policy, R, Receive, Register
from agentbus.control import Cancelled, Control
from agentbus.decide import decide
from agentbus.events import DEFAULT_CHANNELS, Active, AnyEvent, Delivered
from agentbus.limits import CATCH_UP_LINES_MAX, COMMAND_DEADLINE_S, LOCKED_WAIT_S, LOOK_MS_MAX
from agentbus.projection import BehindError, Projection
from agentbus.queries import body_of
from agentbus.state import State
from agentbus.upkeep import Upkeep, UpkeepSettings
from journal import BusyError, ReplacedError, UnwritableError, parse_time, render_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentbus.owners import Owners
    from agentbus.queries import Body, Located
    from journal import Journal, Snapshots

T = TypeVar("T")

FIRST_EVENTS = wire.encode(DEFAULT_CHANNELS)
"""Line 2 of a new journal."""


class Done(Struct, Generic[R, T], frozen=True):
    """A command's result, what was asked with it, and the commit's seq; None if nothing was written."""

    result: R
    seen: T
    seq: int | None


class _Call(Struct, Generic[R, T], frozen=True):
    """One command on its way, until ``deadline`` of time.monotonic()."""

    command: Command[R]
    question: Callable[[State, R], T]
    control: Control
    deadline: float
    gate: Callable[[tuple[AnyEvent, ...]], None] = lambda _: None


class _Look(Struct, Generic[R], frozen=True):
    """What the rules say at a seq of a State and at a time."""

    state: Any
    seq: int
    time_ms: int
    decision: Decision[R]


class _Decided(Struct, Generic[R, T], frozen=True):
    events: tuple[AnyEvent, ...]
    result: R
    seen: T

    @property
    def durable(self) -> bool:
        """Whether "done" must rest on a flush: a batch or an idle look that a power cut takes is handed out again."""
        return not all(isinstance(event, Delivered | Active) for event in self.events)


class _NothingToWriteError(Exception):
    """Decided under the lock: what the command asked for is so already."""


class Bus:
    """The bus as this process sees it.

    Attributes:
        owners: who lives; its token is this process's.
        policy: the settings rules depend on.

    Args:
        journal: where it all stands.
        snapshots: of that journal; without them a new process folds all of it.
        upkeep: what is done beside the calls.
    """

    def __init__(
        self,
        journal: Journal,
        owners: Owners,
        policy: Policy,
        snapshots: Snapshots | None = None,
        upkeep: UpkeepSettings | None = None,
    ) -> None:
        self.owners = owners
        self.policy = policy
        self._journal = journal
        self._projection = Projection(journal, snapshots)
        self._mutex = threading.Lock()  # guards the projection
        self._upkeep = Upkeep(journal, self._projection, upkeep or UpkeepSettings())
        self._closing = False
        self._waits_ended = False
        self._registered = False
        forked = weakref.WeakMethod(self._after_fork)
        os.register_at_fork(after_in_child=lambda: (method := forked()) and method())

    def ask(self, question: Callable[[State], T]) -> T:
        """Answer from a State that has caught up with the journal. The question must not keep the State, nor wait.

        Raises:
            JournalError: corrupt, unsupported, busy (the journal is still being folded).
        """
        with self._caught_up(_deadline()):
            return question(self._projection.state)

    def bodies(self, wanted: Iterable[Located]) -> Iterator[Body]:
        """The bodies of these messages, read from the journal one by one.

        Raises:
            ReplacedError: the journal's files were exchanged meanwhile; the next call folds anew.
        """
        for at in wanted:
            yield body_of(at, self._journal.line_at(at.place, at.seq))

    def wait(self, after_seq: int, timeout_s: float, control: Control) -> None:
        """Sleep until the journal has grown past ``after_seq`` or the time is over.

        Raises:
            Cancelled: the call was cancelled, or the bus is being closed.
        """
        self._journal.wait(after_seq, timeout_s, lambda: control.cancelled or self._waits_ended)
        self._check(control)
        if self._waits_ended:
            raise Cancelled

    def horizon_ms(self) -> int:
        """What was written on ordinary channels before this time is over age now, and shown to nobody."""
        return time.time_ns() // 1_000_000 - self.policy.message_retention_ms

    @property
    def anchor(self) -> str:
        """``seq:hash`` of the last line this process has read or written; empty if there is none."""
        return self._journal.anchor

    def end_waits(self) -> None:
        """End the calls that wait, as cancelled, from here on; other calls are done as ever."""
        self._waits_ended = True
        self.interrupt()

    def interrupt(self) -> None:
        """Wake the calls that wait, so that they look whether they were cancelled."""
        self._journal.interrupt()

    def execute(self, command: Command[R], control: Control | None = None) -> Done[R, None]:
        """Decide a command and append what follows from it; see ``execute_and_ask``."""
        return self.execute_and_ask(command, _nothing, control)

    def execute_and_ask(
        self,
        command: Command[R],
        question: Callable[[State, R], T],
        control: Control | None = None,
        gate: Callable[[tuple[AnyEvent, ...]], None] = lambda _: None,
    ) -> Done[R, T]:
        """Decide a command and append what follows from it; durable when this returns.

        A command that turns out to write nothing takes no writer lock. What is answered still rests on a flush, but for
        batches and idle looks: if a power cut takes those, the messages are handed out again.

        Args:
            command: parsed, within its bounds.
            question: of the State on which the command was decided, and of the result. Asked there because after the
                commit nothing may come between, or fail with "nothing was written".
            control: the caller's; a cancel before the commit means that nothing is written.
            gate: told what is about to be written, before any lock is taken for it; may refuse. Each try asks it.

        Raises:
            BusError: a refusal; nothing was written.
            Cancelled: nothing was written.
            JournalError: says what was written.
        """
        return self._execute(_Call(command, question, control or Control(self), _deadline(), gate))

    def _execute(self, call: _Call[R, T]) -> Done[R, T]:
        while True:
            self._check_call(call)
            with self._caught_up(call.deadline):
                looked = self._decide(call, time.time_ns() // 1_000_000)
                decided = None if looked.decision.events else self._decided(call, looked)
            if decided is not None:  # no line is needed
                return self._answer(call, decided)
            call.gate(looked.decision.events)
            try:
                return self._commit(call, looked)
            except (BehindError, ReplacedError):
                if time.monotonic() >= call.deadline:
                    raise BusyError("the journal, which others write faster than it can be read,") from None

    def _answer(self, call: _Call[R, T], decided: _Decided[R, T]) -> Done[R, T]:
        """What needs no line; it may rest on lines of others that no flush of this process covers yet."""
        if isinstance(call.command, Register):
            self._hold()
        if not isinstance(call.command, Receive):
            self._journal.flush(call.deadline)
        return Done(decided.result, decided.seen, None)

    def _commit(self, call: _Call[R, T], looked: _Look[R]) -> Done[R, T]:
        latest: list[_Decided[R, T]] = []

        def build(now: str) -> bytes:
            self._check_call(call)
            latest[:] = [self._decide_locked(call, looked, parse_time(now))]
            if not latest[0].events:
                raise _NothingToWriteError
            return wire.encode(latest[0].events)

        try:
            appended = self._journal.commit(build, deadline=call.deadline, flush=False)
        except _NothingToWriteError:
            return self._answer(call, latest[0])
        if latest[0].durable:  # known only now: what was decided before the lock may have been something else
            self._journal.confirm(appended, call.deadline)
        return Done(latest[0].result, latest[0].seen, appended.seq)

    def _decide_locked(self, call: _Call[R, T], looked: _Look[R], time_ms: int) -> _Decided[R, T]:
        """Under the writer lock: fold the few lines written meanwhile, then decide on what is true now.

        Where nothing was written since the look, and it was a moment ago, what it said is true now.
        """
        register = isinstance(call.command, Register)
        if register:
            self._hold()
        # Whoever has the State may be folding a long journal, or waiting for the very lock that is held here.
        if not self._mutex.acquire(timeout=LOCKED_WAIT_S):
            raise BehindError
        try:
            self._projection.catch_up(call.deadline, CATCH_UP_LINES_MAX)
            state = self._projection.state
            same = state is looked.state and state.last_seq == looked.seq and not register
            if not (same and 0 <= time_ms - looked.time_ms <= LOOK_MS_MAX):
                looked = self._decide(call, time_ms)
            decided = self._decided(call, looked)
            if register:
                self.owners.sweep({session.owner for session in state.sessions.values()})
        finally:
            self._mutex.release()
        return decided

    def _decide(self, call: _Call[R, T], time_ms: int) -> _Look[R]:
        state = self._projection.state
        gone: frozenset[str] = frozenset()
        if isinstance(call.command, Register):
            gone = self.owners.gone(session.owner for session in state.sessions.values())
        facts = Facts(time_ms, self.owners.token, os.urandom(6).hex(), self.policy, gone)
        return _Look(state, state.last_seq, time_ms, decide(state, call.command, facts))

    def _decided(self, call: _Call[R, T], look: _Look[R]) -> _Decided[R, T]:
        decision = look.decision
        return _Decided(decision.events, decision.result, call.question(look.state, decision.result))

    def _hold(self) -> None:
        """Be a live owner before the first register is written: from then on others look for this process's lock."""
        try:
            self.owners.hold()
        except OSError as error:
            raise UnwritableError(render_place(error)) from error
        self._registered = True

    def _check_call(self, call: _Call[R, T]) -> None:
        if not isinstance(call.command, EndSessions):
            self._check(call.control)

    def _check(self, control: Control) -> None:
        control.check()
        if self._closing:
            raise Cancelled

    def warm(self) -> None:
        """Fold the journal, however long that takes; the calls that follow find a State that is ready.

        Raises:
            JournalError: the next call will say the same.
        """
        with self._caught_up(float("inf")):
            pass

    def close(self, deadline: float) -> None:
        """End this process's sessions if it can by the deadline, and let everything go. Other calls end as cancelled.

        Raises:
            JournalError: the sessions could not be ended; others will find them gone, for their owner's lock is.
        """
        self._closing = True
        self.end_waits()
        try:
            if self._registered:
                self._execute(_Call(EndSessions(), _nothing, Control(self), deadline))
            self._upkeep.close(deadline)
        finally:
            self.owners.release()
            self._journal.close()

    @contextmanager
    def _caught_up(self, deadline: float) -> Iterator[None]:
        """Hold the State's mutex, and the State up to date. Long only while a process folds a long journal."""
        if not self._mutex.acquire(timeout=max(0.0, min(deadline - time.monotonic(), threading.TIMEOUT_MAX))):
            raise BusyError("the journal, which is still being read,")
        try:
            try:
                self._projection.catch_up(deadline)
            except ReplacedError:
                self._projection.restart()
                self._projection.catch_up(deadline)
            self._upkeep.look(self._mutex)
            yield
        finally:
            self._mutex.release()

    def _after_fork(self) -> None:
        """In a child: another thread of the parent may have had the State, and half of a line in it."""
        self._projection.forget()
        self._upkeep.forget()
        self._mutex = threading.Lock()


def _deadline() -> float:
    return time.monotonic() + COMMAND_DEADLINE_S


def _nothing(state: State, result: object) -> None:
    """No question."""
