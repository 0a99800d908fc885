"""Why a turn should go on, or an idle session wake: new messages nobody was handed. Told once of each; consumes none.

What a session was told of is kept in ``<data>/hooks/``, a file an owner: only that hook reads it, and deleting it
costs one more mention.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

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
from journal import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentbus.config import Settings
    from agentbus.state import Session
    from agentbus.unseen import Unseen
    from journal import Journal

_HOUR_MS = 3600 * 1000
_TOLD_BYTES = 42
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

    def claim(self, found: list[Unseen], identity: str, *, addressed: bool) -> list[Unseen]:
        """Those of the messages that nobody has told yet: they are the caller's to tell now.

        Two hooks of one session may have found the same ones, at a turn's end, when a waiter begins as well.

        Args:
            found: all that wait for the identity; with ``addressed`` only those addressed to it.
            identity: the session's.
            addressed: see there.

        Raises:
            OSError: that cannot be noted. Then nothing may be told: it would be told for ever.
        """
        self._directory.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # held for two system calls
            told = _parse_told(os.pread(fd, _TOLD_BYTES, 0))
            new = [message for message in found if told.leaves(message, identity)]
            if new:
                last = new[-1].at.seq
                told = Told(told.every, last) if addressed else Told(last, told.addressed)
                os.pwrite(fd, b"%020d %020d\n" % told, 0)
        finally:
            os.close(fd)
        self._sweep()
        return new

    def told(self) -> Told:
        """What it was told of."""
        try:
            return _parse_told(self._path.read_bytes())
        except OSError:
            return Told(0, 0)

    def _sweep(self) -> None:
        """Unlink what was told to owners that are gone."""
        for file in self._directory.iterdir():
            if not (self._owners / f"{file.name}.lock").exists():
                with suppress(OSError):
                    file.unlink()


def _parse_told(data: bytes) -> Told:
    """What stands in such a file; nothing told where that makes no sense."""
    try:
        every, addressed = map(int, data.split())
    except ValueError:
        return Told(0, 0)
    return Told(every, addressed)


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
        state, told = caught_up(self._projection), self._mentioned.told()
        horizon_ms = time.time_ns() // 1_000_000 - self._retention_ms
        found = unseen(
            state, self._identity, horizon_ms=horizon_ms, after=told.every, only_addressed=only_addressed
        )  # fmt: skip
        found_out()
        if not any(told.leaves(message, self._identity) for message in found):
            return state.last_seq, []
        return state.last_seq, self._mentioned.claim(found, self._identity, addressed=only_addressed)

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


def wait_for_reason(config_path: str | None, caller: Caller) -> str | None:
    """Sleep until a message addressed to the session waits, and give what to tell it; None if it shall sleep on."""
    try:
        listener = _listener(config_path, caller)
        if listener is None:
            return None
        listener.seat.take()
        try:
            ended = watch_over(listener.seat, caller.harness)
            time.sleep(STOP_FIRST_S)
            found = sleep(listener.journal, lambda: listener.look(only_addressed=True), ended, float("inf"))
        finally:
            listener.seat.leave()
        return None if isinstance(found, str) else listener.render(found, addressed=True)
    except (BusError, JournalError, OSError):
        return None


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
