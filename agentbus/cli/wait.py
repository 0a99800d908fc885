"""``agentbus wait``: sleeps until a message is there that nobody was handed yet. Consumes nothing."""

from __future__ import annotations

import math
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from agentbus import processes, queries, waiting, whose
from agentbus.cli import bus, working_directory
from agentbus.cli.output import print_json
from agentbus.errors import NOT_FOUND, NOT_REGISTERED, VALIDATION, BusError, render_value
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
_MATCH_S = 1
"""There are patterns that never come to an end with some texts; the one who wrote the text is somebody else."""


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


def _parse_timeout(_: click.Context, __: click.Parameter, timeout_s: float | None) -> float:
    if timeout_s is not None and math.isnan(timeout_s):
        raise click.BadParameter("nan is no time: name a number of seconds")
    return math.inf if timeout_s is None else timeout_s


@click.command()
@click.option("--as", "identity", metavar="NAME", help="Who waits; default: the session of this harness.")
@click.option("--channel", "channels", metavar="CHANNEL", multiple=True, help="Only there; repeatable.")
@click.option("--all", "every", is_flag=True, help="Any new message, not only one addressed to NAME.")
@click.option("--filter", "pattern", metavar="RE", callback=_parse_pattern, help="Only a text in which RE is found.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    metavar="S",
    callback=_parse_timeout,
    help="Give up after S seconds.",
)
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
    timeout_s: float,
    bodies: bool,
    settings: Settings,
) -> None:
    """Sleep until a message waits for NAME, and print it.

    One line of JSON for each that NAME was not handed yet. Nothing counts as read: receive hands it out as ever. A
    message is addressed to NAME if its text holds @NAME or it replies to one of NAME's. One process waits for a NAME at
    a time: a newer one takes the place of the older.

    Exit status: 0 a message is there, 1 failed, 2 usage, 3 time-out, 4 another wait took this one's place.
    """
    journal = open_journal(settings, read_only=True)
    if not journal.exists:
        raise BusError(NOT_FOUND, f"no journal yet in {settings.data_directory}: nobody has registered there")
    projection = Projection(journal, open_snapshots(settings))
    state = waiting.caught_up(projection)
    wanted = Wanted(
        identity=_identity(state, settings, identity),
        every=every,
        channels=tuple(map(parse_channel_name, channels)) or None,
        pattern=pattern,
    )
    watcher = Watcher(projection, journal, settings, wanted)
    _require_subscriptions(state, wanted)
    seat = waiting.Seat(settings.data_directory / "waiters", wanted.identity)
    _take(seat)
    try:
        ended = waiting.watch_over(seat, processes.harness())
        found = waiting.wait(journal, watcher.look, ended, time.monotonic() + timeout_s)
    finally:
        seat.leave()
    if isinstance(found, str):
        ctx.exit(_STATUS[found])
    for message in found:
        print_json(_render(message, journal, bodies=bodies))


def _take(seat: waiting.Seat) -> None:
    try:
        seat.take()
    except OSError as error:
        where = render_value(str(error.filename))
        raise click.ClickException(f"cannot be the one who waits: {where}: {error.strerror}") from error


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
            NOT_FOUND,
            f"{render_value(wanted.identity)} has no subscriptions: nothing would ever wait for it; `agentbus status`"
            " shows who has some",
        )
    for channel in wanted.channels or ():
        if channel not in mine:
            raise BusError(
                NOT_FOUND,
                f"{render_value(wanted.identity)} is not subscribed to {render_value(channel)}: it is to"
                f" {', '.join(sorted(mine))}",
            )


class Watcher:
    """Looks for what is wanted, each time there may be something new. A text is tried once."""

    def __init__(self, projection: Projection, journal: Journal, settings: Settings, wanted: Wanted) -> None:
        self._projection = projection
        self._journal = journal
        self._retention_ms = settings.message_retention_hours * _HOUR_MS
        self._wanted = wanted
        self._passed = set[int]()

    def look(self) -> tuple[int, list[Unseen]]:
        """The last seq, and what is there of it.

        Raises:
            BusError: not found, nothing could come any more: another has ended its subscriptions, or all there was;
                validation, the pattern takes too long.
            JournalError: the journal cannot be read.
        """
        state = waiting.caught_up(self._projection)
        _require_subscriptions(state, self._wanted)
        found = unseen(
            state,
            self._wanted.identity,
            horizon_ms=time.time_ns() // 1_000_000 - self._retention_ms,
            channels=self._wanted.channels,
            only_addressed=not self._wanted.every,
        )
        return state.last_seq, found if self._wanted.pattern is None else self._matching(found, self._wanted.pattern)

    def _matching(self, found: list[Unseen], pattern: re.Pattern[str]) -> list[Unseen]:
        new = [message for message in found if message.at.seq not in self._passed]
        matching = [each for each in new if _finds(pattern, each, _body(each, self._journal).event.content)]
        if not matching:
            self._passed.update(message.at.seq for message in new)
        return matching


def _finds(pattern: re.Pattern[str], message: Unseen, text: str) -> bool:
    def give_up(*_: object) -> None:
        raise BusError(
            VALIDATION,
            f"--filter {render_value(pattern.pattern)} takes longer than {_MATCH_S} s on the message {message.at.seq}:"
            " write it without a repetition inside a repetition",
        )

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, _MATCH_S)  # the matching looks at signals, at nothing else
    try:
        return pattern.search(text) is not None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


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
