"""Why a turn should go on, or an idle session wake: new messages nobody was handed. Told once of each; consumes none.

What a session was told of is kept in ``<data>/hooks/``, a file an owner: only that hook reads it, and deleting it
costs one more mention.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from agentbus import config, whose
from agentbus.errors import BusError
from agentbus.harness.forms import render_reason
from agentbus.host import open_journal, open_snapshots
from agentbus.owners import Owners
from agentbus.projection import Projection
from agentbus.unseen import by_channel, unseen
from agentbus.waiting import Seat, caught_up, watch_over
from agentbus.waiting import wait as sleep
from journal import JournalError

if TYPE_CHECKING:
    from pathlib import Path

    from agentbus.processes import Process
    from agentbus.state import Session
    from agentbus.unseen import Unseen

_HOUR_MS = 3600 * 1000


class Mentioned:
    """Up to which seq a session was told of what waits for it."""

    def __init__(self, data: Path, owner: str) -> None:
        self._directory = data / "hooks"
        self._owners = data / "owners"
        self._path = self._directory / owner

    def seq(self) -> int:
        """The seq; 0 if it was told of nothing."""
        try:
            return int(self._path.read_text())
        except (OSError, ValueError):
            return 0

    def note(self, seq: int) -> bool:
        """Remember that everything up to ``seq`` was told. False if that is not possible: then nothing may be told."""
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            temporary = self._path.with_suffix(f".{os.getpid()}")
            temporary.touch(mode=0o600)
            temporary.write_text(str(seq))
            temporary.replace(self._path)
            self._sweep()
        except OSError:
            return False
        return True

    def _sweep(self) -> None:
        """Unlink what was told to owners that are gone."""
        for file in self._directory.iterdir():
            if not (self._owners / f"{file.stem}.lock").exists():
                with suppress(OSError):
                    file.unlink()


class _Session:
    """The session a hook speaks for, and what it may be told."""

    def __init__(self, config_path: str | None, harness: Process | None, directory: str) -> None:
        self.settings = config.load(config_path, os.environ)
        self.journal = open_journal(self.settings, read_only=True)
        self._projection = Projection(self.journal, open_snapshots(self.settings))
        owners = whose.owners_here(Owners(self.settings.data_directory / "owners"), harness, directory)
        # Without an owner there is no session: the journal need not be read.
        self.session: Session | None = whose.session_of(caught_up(self._projection), owners) if owners else None

    def mentioned(self) -> Mentioned:
        """What it was told of."""
        assert self.session is not None  # noqa: S101  # asked by whoever found one
        return Mentioned(self.settings.data_directory, self.session.owner)

    def look(self, *, only_addressed: bool) -> tuple[int, list[Unseen]]:
        """The last seq, and what waits that it was not told of."""
        assert self.session is not None  # noqa: S101  # as above
        state = caught_up(self._projection)
        horizon_ms = time.time_ns() // 1_000_000 - self.settings.message_retention_hours * _HOUR_MS
        after = self.mentioned().seq()
        found = unseen(state, self.session.as_, horizon_ms=horizon_ms, after=after, only_addressed=only_addressed)
        return state.last_seq, found

    def tell(self, found: list[Unseen], *, addressed: bool) -> str | None:
        """The sentence about what was found, once."""
        assert self.session is not None  # noqa: S101  # as above
        if not found or not self.mentioned().note(found[-1].at.seq):
            return None
        return render_reason(self.session.as_, by_channel(found), addressed=addressed)


def reason_to_go_on(config_path: str | None, harness: Process | None, directory: str) -> str | None:
    """What a turn that is about to end should be told; None to let it end. Whatever is wrong lets it end."""
    try:
        session = _Session(config_path, harness, directory)
        if session.session is None:
            return None
        return session.tell(session.look(only_addressed=False)[1], addressed=False)
    except (BusError, JournalError, OSError):
        return None


def wait_for_reason(config_path: str | None, harness: Process | None, directory: str) -> str | None:
    """Sleep until a message addressed to the session waits, and give what to tell it; None if it shall sleep on."""
    try:
        session = _Session(config_path, harness, directory)
        if session.session is None:
            return None
        seat = Seat(session.settings.data_directory / "waiters", session.session.as_)
        seat.take()
        try:
            ended = watch_over(seat, harness)
            found = sleep(session.journal, lambda: session.look(only_addressed=True), ended, float("inf"))
        finally:
            seat.leave()
        return None if isinstance(found, str) else session.tell(found, addressed=True)
    except (BusError, JournalError, OSError):
        return None
