"""One process on the bus: its Bus, its settings and where it stands. Opens what the tools need; knows no protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentbus import __version__
from agentbus.bus import FIRST_EVENTS, Bus
from agentbus.commands import Policy
from agentbus.owners import Owners
from agentbus.rates import Rates
from agentbus.search.files import IndexFiles
from agentbus.search.index import SearchIndex
from agentbus.search.pages import Pages
from agentbus.upkeep import UpkeepSettings
from journal import Journal, Snapshots

if TYPE_CHECKING:
    from agentbus.config import Settings
    from agentbus.log import Log

_DAY_MS = 24 * 3600 * 1000
_HOUR_MS = 3600 * 1000
_MINUTE_MS = 60 * 1000


class Host:
    """What a tool is called with.

    Attributes:
        bus: this process's.
        settings: the user's.
        directory: the working directory; its repository's file holds the persistent channels.
        client: name and version of the client, as it said itself.
        rates: how much each of this process's identities may send.
        search_index: of that bus's texts; None: every search reads them all.
        pages: of this process's searches, to go on from.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        directory: str,
        client: str | None,
        search_index: SearchIndex | None = None,
    ) -> None:
        self.bus = bus
        self.settings = settings
        self.directory = directory
        self.client = client
        self.search_index = search_index
        self.pages = Pages()
        self.rates = Rates(settings.send_messages_per_second, settings.send_kib_per_second)

    def warm(self) -> None:
        """Fold the journal ahead of the first call. Raises JournalError, as the calls that follow will."""
        self.bus.warm()

    def end_waits(self) -> None:
        """End the calls that wait for news: nobody will ask for their answers."""
        self.bus.end_waits()

    def close(self, deadline: float) -> None:
        """End this process's sessions by a time.monotonic() deadline. Raises JournalError if that was not possible."""
        if self.search_index is not None:
            self.search_index.close()
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


def open_index_files(settings: Settings) -> IndexFiles:
    """The files of the search index. Touches none yet."""
    return IndexFiles(settings.data_directory / "search")


def open_host(settings: Settings, directory: str, client: str | None = None, log: Log | None = None) -> Host:
    """A process that may register and post. Touches no file yet."""
    policy = Policy(
        cursor_idle_ms=settings.cursor_idle_hours * _HOUR_MS,
        receipt_retention_ms=settings.receipt_retention_minutes * _MINUTE_MS,
        event_bytes_max=settings.max_message_kib << 10,
        result_bytes_max=settings.result_kib << 10,
        message_retention_ms=settings.message_retention_hours * _HOUR_MS,
        cleanup_interval_ms=settings.cleanup_interval_seconds * 1000,
    )

    def tell_search(cause: str) -> None:
        if log is not None:
            log.warning("the search index could not be kept: searches take longer", cause=cause)

    journal = open_journal(settings, log=log)
    owners = Owners(settings.data_directory / "owners")
    bus = Bus(journal, owners, policy, open_snapshots(settings), _upkeep(settings, log))
    index = SearchIndex(open_index_files(settings), journal, tell_search)
    return Host(bus, settings, directory, client, index)


def _upkeep(settings: Settings, log: Log | None) -> UpkeepSettings:
    keep_ms, interval_ms = settings.journal_keep_days * _DAY_MS, settings.cleanup_interval_seconds * 1000
    if log is None:
        return UpkeepSettings(keep_ms, interval_ms)
    return UpkeepSettings(
        keep_ms,
        interval_ms,
        lambda cause: log.warning("no snapshot was kept: the next start takes longer", cause=cause),
        lambda packed: log.info("archived what nobody needs", segments=len(packed), first=packed[0], last=packed[-1]),
        lambda cause: log.warning("segments could not be archived: they stay as they are", cause=cause),
    )
