"""One process on the bus: its Bus, its settings and where it stands. Opens what the tools need; knows no protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentbus import __version__
from agentbus.bus import FIRST_EVENTS, Bus
from agentbus.commands import Policy
from agentbus.owners import Owners
from journal import Journal, Snapshots

if TYPE_CHECKING:
    from agentbus.config import Settings
    from agentbus.log import Log

_HOUR_MS = 3600 * 1000
_MINUTE_MS = 60 * 1000


class Host:
    """What a tool is called with.

    Attributes:
        bus: this process's.
        settings: the user's.
        directory: the working directory; its repository's file holds the persistent channels.
        client: name and version of the client, as it said itself.
    """

    def __init__(self, bus: Bus, settings: Settings, directory: str, client: str | None) -> None:
        self.bus = bus
        self.settings = settings
        self.directory = directory
        self.client = client

    def warm(self) -> None:
        """Fold the journal ahead of the first call. Raises JournalError, as the calls that follow will."""
        self.bus.warm()

    def end_waits(self) -> None:
        """End the calls that wait for news: nobody will ask for their answers."""
        self.bus.end_waits()

    def close(self, deadline: float) -> None:
        """End this process's sessions by a time.monotonic() deadline. Raises JournalError if that was not possible."""
        self.bus.close(deadline)


def open_journal(settings: Settings, *, read_only: bool = False, log: Log | None = None) -> Journal:
    """The user's journal. Touches no file yet: a writer makes it at its first commit."""

    def tell(piece: str) -> None:
        if log is not None:
            log.warning("set a torn tail aside: it was never acknowledged", piece=piece)

    return Journal(
        settings.data_directory / "journal",
        first_events=FIRST_EVENTS,
        by=f"agentbus {__version__}",
        segment_bytes_max=settings.segment_mib << 20,
        on_set_aside=tell,
        read_only=read_only,
        allow_network_filesystem=settings.allow_network_filesystem,
    )


def open_snapshots(settings: Settings) -> Snapshots:
    """The snapshots of that journal's State. Touches no file yet."""
    return Snapshots(settings.data_directory / "snapshots")


def open_host(settings: Settings, directory: str, client: str | None = None, log: Log | None = None) -> Host:
    """A process that may register and post. Touches no file yet."""
    policy = Policy(
        cursor_idle_ms=settings.cursor_idle_hours * _HOUR_MS,
        receipt_retention_ms=settings.receipt_retention_minutes * _MINUTE_MS,
        event_bytes_max=settings.max_message_kib << 10,
        result_bytes_max=settings.result_kib << 10,
    )

    def tell(cause: str) -> None:
        if log is not None:
            log.warning("no snapshot was kept: the next start takes longer", cause=cause)

    journal = open_journal(settings, log=log)
    owners = Owners(settings.data_directory / "owners")
    return Host(Bus(journal, owners, policy, open_snapshots(settings), tell), settings, directory, client)
