"""``agentbus status``: who is here, what waits for whom, and what it all weighs. Opens to read and creates nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from agentbus import disk, overview, queries, results
from agentbus.cli import bus, page
from agentbus.cli.output import print_json
from agentbus.host import open_snapshots
from agentbus.owners import Owners
from agentbus.search.files import IndexFiles
from agentbus.state import ALWAYS_MS, hidden_through, unread_messages
from journal import format_time

if TYPE_CHECKING:
    from agentbus.config import Settings
    from agentbus.overview import Standing
    from agentbus.state import State
    from journal import Journal

    Record = dict[str, Any]

_HOUR_MS = 3600 * 1000


@click.command()
@click.option("--all", "whole", is_flag=True, help="Every row, and every name in full.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bus.settings_option
def status(*, whole: bool, as_json: bool, settings: Settings) -> None:
    """Show who is here, what waits for whom, and what there is.

    Live sessions with what they have not read; dead letters, which nobody is there to read; channels and who listens;
    the journal and its anchor, retention, the disk. Keep the anchor somewhere else: with it, any later change at or
    before its seq can be shown.
    """
    now_ms = time.time_ns() // 1_000_000
    found = _look(settings, now_ms)
    if not found["last_seq"]:
        bus.say_no_journal(settings.data_directory, err=as_json)
    if as_json:
        print_json(found)
    elif found["last_seq"]:
        page.show(found, now_ms, whole=whole)


def _look(settings: Settings, now_ms: int) -> Record:
    state, journal = bus.read_state(settings)
    gone = bus.gone_owners(settings, state)
    horizon_ms = now_ms - settings.message_retention_hours * _HOUR_MS
    expired_ms = now_ms - settings.cursor_idle_hours * _HOUR_MS
    pids = {each["owner"]: each.get("pid") for each in Owners(settings.data_directory / "owners").living()}
    identities = [_identity(each, pids, expired_ms) for each in overview.standings(state, gone, horizon_ms)]
    return {
        "data_directory": str(settings.data_directory),
        "last_seq": state.last_seq,
        "anchor": journal.anchor or None,
        "identities": identities,
        "dead_letters": [each["as"] for each in identities if each["unread"] and not each["live"]],
        "sessions": list(map(results.session, queries.live_sessions(state, gone))),
        "channels": _channels(state, gone, horizon_ms),
        "subscriptions": _subscriptions(state, horizon_ms),
        "retention": _retention(state, settings, horizon_ms),
        **_journal(journal, settings),
        "lost": state.lost,
        "search": _search(settings),
        "disk": _disk(settings),
    }


def _identity(standing: Standing, pids: dict[object, object], expired_ms: int) -> Record:
    record: Record = {
        "as": standing.identity,
        "live": standing.session is not None,
        "unread": standing.total,
        "handed_out": standing.handed_out,
        "addressed": standing.addressed,
        "last_active": format_time(standing.seen_ms),
        "channels": dict(sorted(standing.unread.items())),
    }
    if standing.oldest_ms is not None:
        record["oldest"] = format_time(standing.oldest_ms)
    if standing.unasked_ms is not None:
        record["unasked_since"] = format_time(standing.unasked_ms)
    if standing.idle_ms is not None and standing.idle_ms < expired_ms:
        record["expired"] = True
    if standing.session is not None:
        record |= {"context": standing.session.context, "client": standing.session.client}
        record["pid"] = pids.get(standing.session.owner)
    return record


def _channels(state: State, gone: frozenset[str], horizon_ms: int) -> list[Record]:
    audiences = overview.audiences(state, gone)
    rows = queries.channel_rows(state, horizon_ms=horizon_ms)
    for row in rows:
        audience = audiences[row["channel"]]
        row |= {"subscribers": audience.subscribers, "live": audience.live}
        if audience.newest_ms is not None:
            row["newest"] = format_time(audience.newest_ms)
    return rows


def _subscriptions(state: State, horizon_ms: int) -> list[Record]:
    """The auditor's rows without what is too old to be shown, each with the time of its oldest unread message."""
    rows: list[Record] = queries.canonical(state)["subscriptions"]
    for row in rows:
        row["unread"] = unread_messages(state, row["as"], row["channel"], horizon_ms)
        oldest_ms = queries.oldest_unread_ms(state, row["as"], row["channel"], horizon_ms=horizon_ms)
        if oldest_ms is not None:
            row["oldest"] = format_time(oldest_ms)
    return rows


def _retention(state: State, settings: Settings, horizon_ms: int) -> Record:
    over_age = sum(
        channel.retained.first_after(hidden_through(channel, horizon_ms)) for channel in state.channels.values()
    )
    record: Record = {
        "message_retention_hours": settings.message_retention_hours,
        "over_age": over_age,
        "journal_keep_days": settings.journal_keep_days,
    }
    return record if state.evicted_ms == ALWAYS_MS else record | {"last_cleanup": format_time(state.evicted_ms)}


def _journal(journal: Journal, settings: Settings) -> Record:
    sizes = journal.sizes()
    return {
        "snapshot": open_snapshots(settings).newest_seq() or None,
        "torn_bytes": journal.torn_bytes(),
        "set_aside": journal.set_aside(),
        "segments": len(sizes),
        "bytes": sum(sizes),
        "archives": len(journal.archive_sizes()),
    }


def _search(settings: Settings) -> Record | None:
    """Up to where the search index goes; None: the first search makes one."""
    found = IndexFiles(settings.data_directory / "search").size()
    return None if found is None else {"indexed_seq": found[0], "bytes": found[1]}


def _disk(settings: Settings) -> Record:
    used = disk.measure(settings.data_directory)
    return {"total": used.total, **msgspec.structs.asdict(used)}
