"""What a process does for the journal beside its calls: keep snapshots, pack what nobody needs. Decides no command.

It begins when a call looks and something is due, and runs in a thread of its own. Calls wait for it only while the
State is copied. A process that nobody calls does nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from agentbus.limits import ARCHIVE_SEGMENTS_MAX, ARCHIVE_START_S, COMMAND_DEADLINE_S
from agentbus.queries import needed_segments
from journal import JournalError, Wanted

if TYPE_CHECKING:
    from agentbus.projection import Projection
    from journal import Journal


def _ignore(_: object) -> None:
    """Nobody wants to know."""


class UpkeepSettings(Struct, frozen=True):
    """What upkeep depends on, and who is told of it, from its threads.

    Attributes:
        keep_ms: how old a segment must be to be packed; 0 for never.
        interval_ms: how often it is looked for such.
        on_no_snapshot: told why the disk refused one.
        on_archived: told the first seqs of segments that were packed.
        on_not_archived: told why they could not be.
    """

    keep_ms: int = 0
    interval_ms: int = 3600 * 1000
    on_no_snapshot: Callable[[str], None] = _ignore
    on_archived: Callable[[list[int]], None] = _ignore
    on_not_archived: Callable[[str], None] = _ignore


class Upkeep:
    """The upkeep of one journal by one process; whoever owns the projection guards it by a mutex."""

    def __init__(self, journal: Journal, projection: Projection, settings: UpkeepSettings) -> None:
        self._journal = journal
        self._projection = projection
        self._settings = settings
        # Not at once: commands come and go in a moment.
        self._archive_at = time.monotonic() + min(settings.interval_ms / 1000, ARCHIVE_START_S)
        self._closing = False
        self._threads: dict[str, threading.Thread] = {}

    def look(self, mutex: threading.Lock) -> None:
        """Begin what is due. The mutex is held, and the State has caught up; the new thread waits for it."""
        if self._projection.snapshot_due:
            self._start("agentbus-snapshot", self._keep_snapshot, mutex)
        if self._settings.keep_ms and time.monotonic() >= self._archive_at:
            self._start("agentbus-archive", self._archive, mutex)

    def close(self, deadline: float) -> None:
        """Let what runs come to its end, or stop where it stands: nothing is lost by that."""
        self._closing = True
        for thread in list(self._threads.values()):
            thread.join(max(0.0, deadline - time.monotonic()))

    def forget(self) -> None:
        """In a child of a fork there are no other threads."""
        self._threads = {}

    def _start(self, name: str, work: Callable[[threading.Lock], None], mutex: threading.Lock) -> None:
        if name in self._threads:
            return

        def run() -> None:
            try:
                work(mutex)
            finally:
                self._threads.pop(name, None)

        thread = threading.Thread(target=run, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread is to be had now
            return
        self._threads[name] = thread

    def _keep_snapshot(self, mutex: threading.Lock) -> None:
        try:
            with mutex:
                taken = self._projection.take()
            if taken is not None:
                # A power cut must not leave a snapshot of lines that the journal lost.
                self._journal.flush(time.monotonic() + COMMAND_DEADLINE_S)
                self._projection.keep(taken)
        except (JournalError, MemoryError) as error:
            self._settings.on_no_snapshot(str(error) or "out of memory")

    def _archive(self, mutex: threading.Lock) -> None:
        try:
            with mutex:
                state = self._projection.state
                needed, through_seq = needed_segments(state), state.last_seq
                self._archive_at = time.monotonic() + self._settings.interval_ms / 1000
            before_ms = time.time_ns() // 1_000_000 - self._settings.keep_ms
            packed = self._journal.archive(
                Wanted(needed, through_seq, before_ms, ARCHIVE_SEGMENTS_MAX, lambda: self._closing)
            )
            if packed:
                self._settings.on_archived(packed)
        except (JournalError, MemoryError) as error:
            self._settings.on_not_archived(str(error) or "out of memory")
