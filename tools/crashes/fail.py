"""Every system call of the scripted session fails, once or for a while, in every way that makes sense for it.

The session is played anew for each fault. A call that failed is made again, as an agent would. What must hold:

- every call has happened or has left nothing, and its caller was told which, or that it is not known;
- when a caller is told "done", the model disk has its line and all before it in every state a power cut may leave;
- when the fault has ended every call ends as it does without one;
- the journal verifies, and what each living process has folded is what a fold from seq 1 gives.

Faults are injected by the journal's Files; the calls are made for real but for the flushes, which the model stands for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentbus import queries, wire
from agentbus.errors import BusError
from agentbus.fold import fold
from agentbus.state import State
from journal import Fault, JournalError, audit, verify
from tools.crashes import Summary
from tools.crashes.disk import Disk
from tools.crashes.session import SENDING, Session, Told, call, compare, events_of, open_host, play
from tools.crashes.watched import MEMORY, Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentbus.host import Host
    from tools.crashes.session import Pattern, Result

_FLUSHES: Final = frozenset({"fsync", "fdatasync"})
_GROWS: Final = frozenset({"write", "create", "mkdir", "rename"}) | _FLUSHES
_TOUCHES: Final = _GROWS | {"open", "truncate", "unlink", "pread", "stat", "fstat", "listdir"}
WAYS: Final[dict[str, frozenset[str]]] = {
    "ENOSPC": _GROWS,
    "EDQUOT": _GROWS,
    "EFBIG": frozenset({"write"}),
    "EIO": _TOUCHES,
    "EINTR": frozenset({"open", "create", "write", "truncate", "pread", "lock"}) | _FLUSHES,
    "EMFILE": frozenset({"open", "create", "dup", "listdir"}),
    "ENOLCK": frozenset({"lock"}),
    "nothing written": frozenset({"write"}),
    "half written": frozenset({"write"}),
    "all but the last byte written": frozenset({"write"}),
}
"""What may go wrong, and for which calls that makes sense."""

_TRIES: Final = 4
_CALLS_FAULTY: Final = 2  # a lasting fault outlives one repetition of the call that met it
_DURABLE: Final = SENDING | {"register", "create_channel", "subscribe", "unsubscribe", "delete_memory", "close"}


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault: the n-th call fails in a way; if it lasts, so do all later calls for which that makes sense."""

    number: int
    way: str
    lasting: bool

    def __str__(self) -> str:
        """For people."""
        return f"system call {self.number}: {self.way}, {'from then on' if self.lasting else 'once'}"


class Failing(Watched):
    """System calls of which some fail.

    Attributes:
        verbs: of the calls made so far.
        failed: how many failed.
    """

    def __init__(self, disk: Disk, blow: Blow | None) -> None:
        super().__init__(disk)
        self.verbs: list[str] = []
        self.failed = 0
        self.lifted = False
        self.begun = False
        self._blow = blow
        self._short = False
        self._rests = False

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Nothing fails and nothing is counted meanwhile."""
        self._rests = True
        yield
        self._rests = False

    def meet(self, verb: str, fd: int = -1) -> None:
        """Fail if it is the call's turn."""
        if self._rests:
            return
        self.verbs.append(verb)
        self._short = False
        blow = self._blow
        if blow is None or self.lifted or not self._hits(blow, verb):
            return
        self.begun = True
        self.failed += 1
        if blow.way.endswith("written"):
            self._short = True
            return
        if verb in _FLUSHES:
            self.disk.not_flushed(fd)
        code = getattr(errno, blow.way)
        raise OSError(code, os.strerror(code))

    def share(self, data: bytes) -> bytes:
        """Less than all of a write that is short."""
        if not self._short or self._blow is None:
            return data
        taken = {"nothing written": 0, "half written": len(data) // 2}.get(self._blow.way, len(data) - 1)
        return data[:taken]

    def _hits(self, blow: Blow, verb: str) -> bool:
        number = len(self.verbs)
        return verb in WAYS[blow.way] and (number == blow.number or (blow.lasting and number > blow.number))


class Observed(Session):
    """A session whose every answer is judged when it is given.

    Attributes:
        steps: how each call of the script ended, after its repetitions.
        wrong: what was not as promised.
    """

    def __init__(self, data: Path, files: Failing) -> None:
        super().__init__(lambda: open_host(data, files), _TRIES)
        self.steps: list[Told] = []
        self.wrong: list[str] = []
        self._data = data
        self._files = files
        self._calls_faulty = 0

    def close(self, name: str) -> None:
        """End a process, after a look at what it has folded."""
        if not self._files.begun or self._files.lifted:
            with self._files.resting():
                self.wrong += differs(self.hosts[name], self._data)
        super().close(name)
        self.steps.append(self.told[-1])

    def _attempt(self, host: Host, tool: str, given: Result, leaves: tuple[Pattern, ...]) -> Result:
        result = super()._attempt(host, tool, given, leaves)
        self.steps.append(self.told[-1])
        return result

    def _finish(self, work: Callable[[], Result]) -> Told:
        told = super()._finish(work)
        if told.outcome == "done" and not self.wrong and (told.tool in _DURABLE or _acked(told)):
            self.wrong += [f"{told}, but not safe: {unsafe}" for unsafe in self._files.disk.unsafe()]
        self._calls_faulty += self._files.begun
        self._files.lifted = self._calls_faulty >= _CALLS_FAULTY
        return told


def _acked(told: Told) -> bool:
    return told.tool == "receive" and "ack" in told.arguments and not (told.result or {}).get("ack_ignored")


def differs(host: Host, data: Path) -> list[str]:
    """Whether what a process has folded is something else than a fold from seq 1."""
    state = State()
    for commit in audit([data / "journal"]):
        fold(state, commit, wire.decode(commit.events))
    if host.bus.ask(queries.encode_canonical) != queries.encode_canonical(state):
        return [f"a process's state at seq {state.last_seq} is not what the journal folds to"]
    return []


def run(rounds: int, seed: int) -> Summary:
    """Every fault, or so many chosen by chance."""
    unharmed = play_unharmed()
    verbs = unharmed.verbs
    blows = list(_blows(verbs))
    if rounds:
        blows = random.Random(seed).sample(blows, min(rounds, len(blows)))  # noqa: S311  # repeatable, not secret
    again = f" (tools/crash.py fail --rounds {rounds} --seed {seed})"
    failed, wrong = 0, [f"undisturbed: {each}{again}" for each in unharmed.wrong[:1]]
    for blow in blows:
        files, found = strike(blow, unharmed.outcomes)
        failed += files.failed
        wrong += [f"{blow} ({verbs[blow.number - 1]}): {each}{again}" for each in found[:1]]
    counts = {"rounds": len(blows), "calls failed": failed, "system calls in the session": len(verbs)}
    return Summary("fail", {**counts, "faults": len(wrong)}, wrong)


def _blows(verbs: list[str]) -> Iterator[Blow]:
    for number, verb in enumerate(verbs, 1):
        for way, sensible in WAYS.items():
            if verb in sensible:
                yield Blow(number, way, lasting=False)
                yield Blow(number, way, lasting=True)


@dataclass(frozen=True, slots=True)
class Unharmed:
    """A session in which nothing fails.

    Attributes:
        outcomes: how each call of the script ends.
        verbs: of the system calls it makes.
        wrong: what even then was not as promised.
    """

    outcomes: list[str]
    verbs: list[str]
    wrong: list[str]


def play_unharmed() -> Unharmed:
    """Play the session without a fault."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        data = Path(place) / "data"
        files = Failing(Disk(place), None)
        session = Observed(data, files)
        play(session)
        wrong = session.wrong + compare(session.told, events_of(data))
        return Unharmed([told.outcome for told in session.steps], files.verbs, wrong)


def strike(blow: Blow, outcomes: list[str]) -> tuple[Failing, list[str]]:
    """Play the session with one fault; its system calls, and what was not as promised.

    Args:
        blow: the fault.
        outcomes: how each call of the script ends without one.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        data = Path(place) / "data"
        files = Failing(Disk(place), blow)
        session = Observed(data, files)
        try:
            play(session)
        except OSError as error:
            return files, [f"{session.told[-1]}: {error!r} came out of it"]
        files.lifted = True
        wrong = session.wrong + compare(session.told, events_of(data))
        wrong += _not_recovered(session.steps, outcomes)
        return files, wrong + _goes_on(data, files)


def _not_recovered(steps: list[Told], outcomes: list[str]) -> list[str]:
    """Calls that ended otherwise than without the fault; what sends without a key is not repeated by anybody."""
    return [
        f"{told} ({told.error}), without the fault it is {outcome}"
        for told, outcome in zip(steps, outcomes, strict=True)
        if told.outcome != outcome
        and told.tool != "close"
        and not (told.outcome == "unknown" and told.tool in SENDING and "idempotency_key" not in told.arguments)
    ]


def _goes_on(data: Path, files: Failing) -> list[str]:
    """Another process comes when the fault has ended: it can write, what it wrote is safe, and all verifies."""
    host = open_host(data, files)
    try:
        call(host, "register", name="late")
        call(host, "post", as_="late", channel="general", content="after all that")
        wrong = [f"not safe in the end: {unsafe}" for unsafe in files.disk.unsafe()]
        wrong += differs(host, data)
    except (BusError, JournalError) as error:
        wrong = [f"a new process meets: {error}"]
    finally:
        host.bus._journal.close()  # noqa: SLF001  # its sessions need not be ended
        host.bus.owners.release()
    return wrong + [f"{found}" for found in verify([data / "journal"]) if isinstance(found, Fault)]
