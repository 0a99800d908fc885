"""``agentbus status``: who is here, what waits, and what the journal weighs. Opens to read and creates nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from agentbus import queries, results
from agentbus.cli import bus
from agentbus.cli.channel import render_row
from agentbus.cli.output import print_json, print_rows
from agentbus.columns import render_count
from agentbus.host import open_snapshots
from journal import format_time

if TYPE_CHECKING:
    from agentbus.config import Settings
    from agentbus.state import State


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bus.settings_option
def status(*, as_json: bool, settings: Settings) -> None:
    """Show who is here, what waits, and what there is.

    Live sessions, channels, subscriptions with what is unread, and the journal with its size and anchor. Keep the
    anchor somewhere else: with it, any later change at or before its seq can be shown.
    """
    found = _look(settings)
    if not found["last_seq"]:
        bus.say_no_journal(settings.data_directory, err=as_json)
    if as_json:
        print_json(found)
    elif found["last_seq"]:
        _print(found, time.time_ns() // 1_000_000)


def _look(settings: Settings) -> dict[str, Any]:
    state, journal = bus.read_state(settings)
    sizes = journal.sizes()
    return {
        "data_directory": str(settings.data_directory),
        "last_seq": state.last_seq,
        "anchor": journal.anchor or None,
        "sessions": list(map(results.session, queries.live_sessions(state, bus.gone_owners(settings, state)))),
        "channels": queries.channel_rows(state),
        "subscriptions": _subscriptions(state),
        "snapshot": open_snapshots(settings).newest_seq() or None,
        "torn_bytes": journal.torn_bytes(),
        "set_aside": journal.set_aside(),
        "segments": len(sizes),
        "bytes": sum(sizes),
    }


def _subscriptions(state: State) -> list[dict[str, Any]]:
    """The auditor's rows, each with the time of its oldest unread message if there is one."""
    rows: list[dict[str, Any]] = queries.canonical(state)["subscriptions"]
    for row in rows:
        oldest_ms = queries.oldest_unread_ms(state, row["as"], row["channel"])
        if oldest_ms is not None:
            row["oldest"] = format_time(oldest_ms)
    return rows


def _print(found: dict[str, Any], now_ms: int) -> None:
    size = f"{render_count(found['bytes'], 'byte')} in {render_count(found['segments'], 'segment')}"
    rows = [
        ("data directory", found["data_directory"]),
        ("journal", f"last seq {found['last_seq']}, {size}"),
        ("anchor", found["anchor"]),
        ("snapshot", "none" if found["snapshot"] is None else f"at seq {found['snapshot']}"),
    ]
    if found["torn_bytes"]:
        rows.append(("torn tail", f"{render_count(found['torn_bytes'], 'byte')}, never acknowledged"))
    if found["set_aside"]:
        pieces = render_count(len(found["set_aside"]), "piece")
        rows.append(("set aside", f"{pieces} in {found['data_directory']}/journal/set-aside"))
    print_rows(rows)
    _print_table("live sessions", [_session_row(row) for row in found["sessions"]])
    _print_table("channels", [render_row(row) for row in found["channels"]])
    _print_table("subscriptions", [_subscription_row(row, now_ms) for row in found["subscriptions"]])


def _print_table(title: str, rows: list[tuple[object, ...]]) -> None:
    click.echo(f"\n{title}")
    print_rows(rows, indent="  ")


def _session_row(row: dict[str, Any]) -> tuple[object, ...]:
    return (row["as"], f"in {row['context']}", f"since {row['registered_at']}", row.get("client", ""))


def _subscription_row(row: dict[str, Any], now_ms: int) -> tuple[object, ...]:
    oldest = f"oldest: {results.age(row['oldest'], now_ms)}" if "oldest" in row else ""
    return (row["as"], row["channel"], f"{row['unread']} unread", oldest)
