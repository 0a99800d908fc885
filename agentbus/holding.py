"""Why a turn should go on, or an idle session wake: new messages nobody was handed. Told once of each; consumes none.

What a session was told of is kept in ``<data>/hooks/``, a file an owner: only that hook reads it, and deleting it
costs one more mention.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from agentbus import config, whose
from agentbus.errors import BusError
from agentbus.harness.forms import render_reason
from agentbus.host import open_journal, open_snapshots
from agentbus.owners import Owners
from agentbus.processes import Process
from agentbus.projection import Projection
from agentbus.unseen import by_channel, unseen
from agentbus.waiting import Seat, caught_up, watch_over
from agentbus.waiting import wait as sleep
from journal import Files, JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentbus.config import Settings
    from agentbus.state import Session
    from agentbus.unseen import Unseen
    from agentbus.waiting import End
    from journal import Journal

_HOUR_MS = 3600 * 1000
_TOLD_BYTES = 42
_LOCK_S = 0.2
_LOCK_TRY_S = 0.01
_FILES: Final = Files()
STOP_FIRST_S = 1.0
"""At a turn's end the hook that holds it goes first: it has answered by then, and a run that nobody watches has no
other."""


class Caller(Struct, frozen=True):
    """Who runs a hook.

    Attributes:
        harness: its process, as far as that can be told.
        directory: where its session works.
        thread: its own id of the session; None if it has none that its servers know as well.
    """

    harness: Process | None
    directory: str
    thread: str | None


class Told(NamedTuple):
    """What a session was told of: every message up to one seq, and the addressed ones up to another."""

    every: int
    addressed: int

    def leaves(self, message: Unseen, identity: str) -> bool:
        """Whether the session was not told of that message."""
        seq = message.at.seq
        return seq > self.every and not (seq <= self.addressed and identity in message.at.addressed)


class Mentioned:
    """What a session was told of; a small file, of two numbers."""

    def __init__(self, data: Path, owner: str) -> None:
        self._directory = data / "hooks"
        self._owners = data / "owners"
        self._path = self._directory / owner

    def claim(self, found: list[Unseen], identity: str, last_seq: int, *, addressed: bool) -> list[Unseen]:
        """Those of the messages that nobody has told yet: they are the caller's to tell now.

        Two hooks of one session may have found the same ones, at a turn's end, when a waiter begins as well.

        Args:
            found: all that wait for the identity; with ``addressed`` only those addressed to it.
            identity: the session's.
            last_seq: the journal's.
            addressed: see there.

        Raises:
            OSError: that cannot be noted. Then nothing may be told: it would be told for ever.
        """
        self._directory.mkdir(mode=0o700, exist_ok=True)
        with self._held() as fd:
            told = _parse_told(os.pread(fd, _TOLD_BYTES, 0), last_seq)
            new = [message for message in found if told.leaves(message, identity)]
            if new:
                last = new[-1].at.seq
                _write_told(fd, Told(told.every, last) if addressed else Told(last, told.addressed))
        self._sweep()
        return new

    def give_back(self, claimed: list[Unseen]) -> None:
        """Addressed messages that were claimed could not be told: whoever comes next may.

        Raises:
            OSError: that cannot be noted.
        """
        with self._held() as fd:
            told = _parse_told(os.pread(fd, _TOLD_BYTES, 0), claimed[-1].at.seq)
            _write_told(fd, Told(told.every, claimed[0].at.seq - 1))

    @contextmanager
    def _held(self) -> Iterator[int]:
        """The file, locked: for two system calls, so that whoever cannot have it meets a process that was stopped."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _LOCK_S
            while not _FILES.try_lock(fd):
                if time.monotonic() >= deadline:
                    raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), str(self._path))
                time.sleep(_LOCK_TRY_S)
            yield fd
        finally:
            os.close(fd)

    def told(self, last_seq: int) -> Told:
        """What it was told of in a journal that ends at ``last_seq``."""
        try:
            return _parse_told(self._path.read_bytes(), last_seq)
        except OSError:
            return Told(0, 0)

    def _sweep(self) -> None:
        """Unlink what was told to owners that are gone."""
        with suppress(OSError):  # the next one tries again; what was claimed is to be told in any case
            for file in self._directory.iterdir():
                if not (self._owners / f"{file.name}.lock").exists():
                    file.unlink()


def _parse_told(data: bytes, last_seq: int) -> Told:
    """What stands in such a file; nothing told where that makes no sense, as after a journal was put back."""
    try:
        every, addressed = map(int, data.split())
    except ValueError:
        return Told(0, 0)
    return Told(every, addressed) if max(every, addressed) <= last_seq else Told(0, 0)


def _write_told(fd: int, told: Told) -> None:
    os.pwrite(fd, b"%020d %020d\n" % told, 0)


class _Listener:
    """A session a hook speaks for, and what it may be told."""

    def __init__(self, settings: Settings, journal: Journal, projection: Projection, session: Session) -> None:
        self.journal = journal
        self.seat = Seat(settings.data_directory / "waiters", session.as_)
        self._identity = session.as_
        self._mentioned = Mentioned(settings.data_directory, session.owner)
        self._retention_ms = settings.message_retention_hours * _HOUR_MS
        self._projection = projection

    def look(self, *, only_addressed: bool, found_out: Callable[[], object] = lambda: None) -> tuple[int, list[Unseen]]:
        """The last seq, and what waits that nobody has told: it is told from here on.

        Raises:
            OSError: as `Mentioned.claim`.
        """
        state = caught_up(self._projection)
        told = self._mentioned.told(state.last_seq)
        horizon_ms = time.time_ns() // 1_000_000 - self._retention_ms
        found = unseen(
            state, self._identity, horizon_ms=horizon_ms, after=told.every, only_addressed=only_addressed
        )  # fmt: skip
        found_out()
        if any(told.leaves(message, self._identity) for message in found):
            claimed = self._mentioned.claim(found, self._identity, state.last_seq, addressed=only_addressed)
            return state.last_seq, claimed
        return state.last_seq, []

    def give_back(self, claimed: list[Unseen]) -> None:
        """Addressed messages that were claimed could not be told. Raises OSError, as `Mentioned.give_back`."""
        self._mentioned.give_back(claimed)

    def keep(self) -> None:
        """Keep a snapshot where one is due: the hooks that come after this process have less time than it."""
        taken = self._projection.take()
        if taken is not None:
            with suppress(JournalError):  # it only takes longer without
                self._projection.keep(taken)

    def render(self, found: list[Unseen], *, addressed: bool) -> str:
        """The sentence about what was found."""
        return render_reason(self._identity, by_channel(found), addressed=addressed)


def reason_to_go_on(config_path: str | None, caller: Caller, found_out: Callable[[], object]) -> str | None:
    """What a turn that is about to end should be told; None to let it end. Whatever is wrong lets it end.

    ``found_out`` is called when all that may take long is done: what is told from then on must not be cut off.
    """
    try:
        listener = _listener(config_path, caller)
        if listener is None:
            return None
        _, found = listener.look(only_addressed=False, found_out=found_out)
        return listener.render(found, addressed=False) if found else None
    except (BusError, JournalError, OSError):
        return None


def wait_and_tell(config_path: str | None, caller: Caller, tell: Callable[[str], bool]) -> bool:
    """Sleep until a message addressed to the session waits, and ``tell`` it; whether it took that.

    False if it shall sleep on, too.
    """
    try:
        listener = _listener(config_path, caller)
        if listener is None:
            return False
        found = _wait(listener, caller)
        if isinstance(found, str):
            return False
        is_told = tell(listener.render(found, addressed=True))
        if not is_told:
            listener.give_back(found)
    except (BusError, JournalError, OSError):
        return False
    return is_told


def _wait(listener: _Listener, caller: Caller) -> list[Unseen] | End:
    listener.seat.take()
    try:
        ended = watch_over(listener.seat, caller.harness)
        listener.keep()
        time.sleep(STOP_FIRST_S)
        return sleep(listener.journal, lambda: listener.look(only_addressed=True), ended, float("inf"))
    finally:
        listener.seat.leave()


def _listener(config_path: str | None, caller: Caller) -> _Listener | None:
    """The session the caller speaks for; None if it has none, for which the journal need not even be read.

    Raises:
        BusError: the settings are wrong.
        JournalError: the journal cannot be read.
    """
    settings = config.load(config_path, os.environ)
    held = Owners(settings.data_directory / "owners")
    owners = whose.owners_here(held, caller.harness, caller.directory, caller.thread)
    if not owners:
        return None
    journal = open_journal(settings, read_only=True)
    projection = Projection(journal, open_snapshots(settings))
    session = whose.session_of(caught_up(projection), owners)
    return None if session is None else _Listener(settings, journal, projection, session)
