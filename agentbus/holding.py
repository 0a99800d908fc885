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

    from agentbus.state import Session
    from agentbus.unseen import Unseen

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


class _Session:
    """The session a hook speaks for, and what it may be told."""

    def __init__(self, config_path: str | None, caller: Caller) -> None:
        self.settings = config.load(config_path, os.environ)
        self.journal = open_journal(self.settings, read_only=True)
        self._projection = Projection(self.journal, open_snapshots(self.settings))
        held = Owners(self.settings.data_directory / "owners")
        owners = whose.owners_here(held, caller.harness, caller.directory, caller.thread)
        # Without an owner there is no session: the journal need not be read.
        self.session: Session | None = whose.session_of(caught_up(self._projection), owners) if owners else None

    def mentioned(self) -> Mentioned:
        """What it was told of."""
        assert self.session is not None  # noqa: S101  # asked by whoever found one
        return Mentioned(self.settings.data_directory, self.session.owner)

    def look(self, *, only_addressed: bool, found_out: Callable[[], object] = lambda: None) -> tuple[int, list[Unseen]]:
        """The last seq, and what waits that nobody has told: it is told from here on.

        Raises:
            OSError: as `Mentioned.claim`.
        """
        assert self.session is not None  # noqa: S101  # as above
        state = caught_up(self._projection)
        horizon_ms = time.time_ns() // 1_000_000 - self.settings.message_retention_hours * _HOUR_MS
        mentioned, identity = self.mentioned(), self.session.as_
        told = mentioned.told()
        found = unseen(state, identity, horizon_ms=horizon_ms, after=told.every, only_addressed=only_addressed)
        found_out()
        if not any(told.leaves(message, identity) for message in found):
            return state.last_seq, []
        return state.last_seq, mentioned.claim(found, identity, addressed=only_addressed)

    def render(self, found: list[Unseen], *, addressed: bool) -> str:
        """The sentence about what was found."""
        assert self.session is not None  # noqa: S101  # as above
        return render_reason(self.session.as_, by_channel(found), addressed=addressed)


def reason_to_go_on(config_path: str | None, caller: Caller, found_out: Callable[[], object]) -> str | None:
    """What a turn that is about to end should be told; None to let it end. Whatever is wrong lets it end.

    ``found_out`` is called when all that may take long is done: what is told from then on must not be cut off.
    """
    try:
        session = _Session(config_path, caller)
        if session.session is None:
            return None
        _, found = session.look(only_addressed=False, found_out=found_out)
        return session.render(found, addressed=False) if found else None
    except (BusError, JournalError, OSError, ValueError):
        return None


def wait_for_reason(config_path: str | None, caller: Caller) -> str | None:
    """Sleep until a message addressed to the session waits, and give what to tell it; None if it shall sleep on."""
    try:
        session = _Session(config_path, caller)
        if session.session is None:
            return None
        seat = Seat(session.settings.data_directory / "waiters", session.session.as_)
        seat.take()
        try:
            ended = watch_over(seat, caller.harness)
            time.sleep(STOP_FIRST_S)
            found = sleep(session.journal, lambda: session.look(only_addressed=True), ended, float("inf"))
        finally:
            seat.leave()
        return None if isinstance(found, str) else session.render(found, addressed=True)
    except (BusError, JournalError, OSError, ValueError):
        return None
