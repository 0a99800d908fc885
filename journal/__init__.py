"""An append-only, hash-chained journal of JSON lines for many processes on one machine. Knows nothing of the bus.

The bytes are stated in FORMAT.md. Everything a user of the package needs is exported here.
"""

from journal.archiver import Wanted
from journal.clock import format_time, now, parse_time
from journal.directory import network_filesystem, require_own
from journal.errors import (
    BusyError,
    CorruptError,
    JournalError,
    ReplacedError,
    TooLargeError,
    UnreadableError,
    UnsupportedError,
    UnsyncedError,
    UnusableError,
    UnwritableError,
)
from journal.files import Files, render_place
from journal.findings import Damage, Fault, LostRange, Tail, Verdict
from journal.journal import SEGMENT_BYTES_MAX, Journal
from journal.plan import Plan
from journal.record import LINE_BYTES_MAX, Commit, Place
from journal.repair import ChangedError, Mended, Repair
from journal.snapshot import Bookmark, Snapshot, Snapshots
from journal.stream import stream
from journal.verify import audit, verify, walk
from journal.watch import open_source
from journal.writer import Appended

__all__ = [
    "LINE_BYTES_MAX",
    "SEGMENT_BYTES_MAX",
    "Appended",
    "Bookmark",
    "BusyError",
    "ChangedError",
    "Commit",
    "CorruptError",
    "Damage",
    "Fault",
    "Files",
    "Journal",
    "JournalError",
    "LostRange",
    "Mended",
    "Place",
    "Plan",
    "Repair",
    "ReplacedError",
    "Snapshot",
    "Snapshots",
    "Tail",
    "TooLargeError",
    "UnreadableError",
    "UnsupportedError",
    "UnsyncedError",
    "UnusableError",
    "UnwritableError",
    "Verdict",
    "Wanted",
    "audit",
    "format_time",
    "network_filesystem",
    "now",
    "open_source",
    "parse_time",
    "render_place",
    "require_own",
    "stream",
    "verify",
    "walk",
]
