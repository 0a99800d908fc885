"""``agentbus wait``: sleeps until a message is there that nobody was handed yet. Consumes nothing."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from agentbus import processes, queries, waiting, whose
from agentbus.cli import bus, working_directory
from agentbus.cli.output import print_json
from agentbus.errors import NOT_FOUND, NOT_REGISTERED, BusError, render_value
from agentbus.host import open_journal, open_snapshots
from agentbus.names import parse_channel_name, parse_display_name
from agentbus.owners import Owners
from agentbus.projection import Projection
from agentbus.unseen import unseen

if TYPE_CHECKING:
    from agentbus.config import Settings
    from agentbus.state import State
    from agentbus.unseen import Unseen
    from agentbus.waiting import End
    from journal import Journal

_STATUS: dict[End, int] = {"timeout": 3, "replaced": 4, "orphaned": 1}
_HOUR_MS = 3600 * 1000


class Wanted(Struct, frozen=True):
    """What ends the wait: an addressed message, or any; in these channels (None: all), with a text that matches."""

    identity: str
    every: bool
    channels: tuple[str, ...] | None
    pattern: re.Pattern[str] | None


def _parse_pattern(_: click.Context, __: click.Parameter, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{render_value(text)} is no regular expression: {error}") from error


@click.command()
@click.option("--as", "identity", metavar="NAME", help="Who waits; default: the session of this harness.")
@click.option("--channel", "channels", metavar="CHANNEL", multiple=True, help="Only there; repeatable.")
@click.option("--all", "every", is_flag=True, help="Any new message, not only one addressed to NAME.")
@click.option("--filter", "pattern", metavar="RE", callback=_parse_pattern, help="Only a text in which RE is found.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), metavar="S", help="Give up after S seconds.")
@click.option("--bodies", is_flag=True, help="Print the texts as well.")
@bus.settings_option
@click.pass_context
def wait(  # noqa: PLR0913  # one option each
    ctx: click.Context,
    identity: str | None,
    channels: tuple[str, ...],
    *,
    every: bool,
    pattern: re.Pattern[str] | None,
    timeout_s: float | None,
    bodies: bool,
    settings: Settings,
) -> None:
    """Sleep until a message is there that NAME was not handed yet; print it as JSON lines.

    Nothing counts as read: receive hands it out as ever. A message is addressed to NAME if its text holds @NAME or it
    replies to one of NAME's. One process waits for a NAME at a time: a newer one takes the place of the older.

    Exit status: 0 a message is there, 1 failed, 2 usage, 3 time-out, 4 another wait took this one's place.
    """
    journal = open_journal(settings, read_only=True)
    projection = Projection(journal, open_snapshots(settings))
    state = waiting.caught_up(projection)
    wanted = Wanted(
        identity=_identity(state, settings, identity),
        every=every,
        channels=tuple(map(parse_channel_name, channels)) or None,
        pattern=pattern,
    )
    _require_subscriptions(state, wanted)
    seat = waiting.Seat(settings.data_directory / "waiters", wanted.identity)
    seat.take()
    try:
        found = waiting.wait(
            journal,
            lambda: _look(projection, journal, wanted, settings),
            waiting.watch_over(seat, processes.harness()),
            float("inf") if timeout_s is None else time.monotonic() + timeout_s,
        )
    finally:
        seat.leave()
    if isinstance(found, str):
        ctx.exit(_STATUS[found])
    for message in found:
        print_json(_render(message, journal, bodies=bodies))


def _identity(state: State, settings: Settings, named: str | None) -> str:
    if named is not None:
        return parse_display_name(named, "--as")
    owners = Owners(settings.data_directory / "owners")
    session = whose.session_of(state, whose.owners_here(owners, processes.harness(), working_directory()))
    if session is None:
        raise BusError(
            NOT_REGISTERED, "this harness has no session on the bus: call register there, or say who waits with --as"
        )
    return session.as_


def _require_subscriptions(state: State, wanted: Wanted) -> None:
    mine = state.subscriptions.get(wanted.identity, {})
    if not mine:
        raise BusError(
            NOT_FOUND, f"{render_value(wanted.identity)} has no subscriptions: nothing would ever wait for it"
        )
    for channel in wanted.channels or ():
        if channel not in mine:
            raise BusError(
                NOT_FOUND,
                f"{render_value(wanted.identity)} is not subscribed to {render_value(channel)}: it is to"
                f" {', '.join(sorted(mine))}",
            )


def _look(projection: Projection, journal: Journal, wanted: Wanted, settings: Settings) -> tuple[int, list[Unseen]]:
    state = waiting.caught_up(projection)
    horizon_ms = time.time_ns() // 1_000_000 - settings.message_retention_hours * _HOUR_MS
    found = unseen(
        state,
        wanted.identity,
        horizon_ms=horizon_ms,
        channels=wanted.channels,
        only_addressed=not wanted.every,
    )
    if wanted.pattern is not None:
        found = [each for each in found if wanted.pattern.search(_body(each, journal).event.content)]
    return state.last_seq, found


def _body(message: Unseen, journal: Journal) -> queries.Body:
    return queries.body_of(message.at, journal.line_at(message.at.place, message.at.seq))


def _render(message: Unseen, journal: Journal, *, bodies: bool) -> dict[str, Any]:
    body = _body(message, journal)
    record: dict[str, Any] = {
        "seq": message.at.seq,
        "channel": message.at.channel,
        "from": message.sender,
        "time": body.time,
        "addressed": list(message.at.addressed),
    }
    return record | ({"content": body.event.content} if bodies else {})
