"""``agentbus ack-all``: what waits for an identity counts as read, once a person has said so. Deletes nothing."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from agentbus import queries, results
from agentbus.cli import bus, working_directory
from agentbus.cli.output import print_json
from agentbus.columns import align, render_count
from agentbus.commands import AckAll
from agentbus.decide.ackall import preview
from agentbus.errors import render_value
from agentbus.host import open_host
from agentbus.limits import COMMAND_DEADLINE_S
from agentbus.names import parse_display_name
from agentbus.visible import render_visible
from journal import format_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.commands import AckAllResult, Backlog
    from agentbus.config import Settings

    Say = Callable[[str], None]


_HOUR_MS = 3600 * 1000


@click.command("ack-all")
@click.argument("identity")
@click.option(
    "--before", type=click.IntRange(min=1), metavar="SEQ", help="Only what was posted before; default: all there is."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as one JSON object; all else on stderr.")
@bus.settings_option
def ack_all(identity: str, *, before: int | None, yes: bool, as_json: bool, settings: Settings) -> None:
    """Count all that waits for IDENTITY as read.

    For an agent that will not come back: `agentbus status` lists those. Shows what waits, and asks. No message is
    deleted: each stays in its channel for everybody else, and the journal says who did this and when.
    """

    def say(text: str) -> None:
        click.echo(render_visible(text), err=as_json)

    state, _ = bus.read_state(settings)
    if state.last_seq == 0:
        bus.say_no_journal(settings.data_directory, err=as_json)
        return
    # What is posted from here on was not shown to whoever says yes.
    end = state.last_seq + 1 if before is None else before
    command = AckAll(as_=parse_display_name(identity, "IDENTITY"), before=end, by=bus.login_name())
    waits = preview(state, command, _horizon_ms(settings))
    sessions = queries.live_sessions(state, bus.gone_owners(settings, state))
    live = any(held.as_ == command.as_ for held in sessions)
    seq = None
    if waits.anything:
        _tell(command, waits, say, live=live, cuts=command.as_ in state.batches and not waits.batch)
        if not yes:
            _ask(say)
        waits, seq = _execute(command, settings)
    if as_json:
        print_json(_record(command, waits, seq, live=live))
    elif seq is None:
        say(f"Agentbus: nothing to do: nothing waits for {_quote(command)} before seq {end}.")
    else:
        say(f"Agentbus: acknowledged {_render_waits(waits)} for {_quote(command)} (seq {seq}).")


def _horizon_ms(settings: Settings) -> int:
    return time.time_ns() // 1_000_000 - settings.message_retention_hours * _HOUR_MS


def _execute(command: AckAll, settings: Settings) -> tuple[AckAllResult, int | None]:
    """What was done, which may be less than what was shown, and the seq of the line that says so."""
    host = open_host(settings, working_directory())
    try:
        done = host.bus.execute(command)
    finally:
        host.close(time.monotonic() + COMMAND_DEADLINE_S)
    return done.result, done.seq


def _tell(command: AckAll, waits: AckAllResult, say: Say, *, live: bool, cuts: bool) -> None:
    say(f"Agentbus: this counts as read for {_quote(command)} all that was posted before seq {command.before}:")
    now_ms = time.time_ns() // 1_000_000
    rows = [[render_visible(cell) for cell in _row(each, now_ms)] for each in waits.backlogs]
    for line in align(rows) if rows else []:
        say(f"  {line}")
    if waits.batch:
        say("  what was handed out and not acknowledged is among it" if rows else "  a batch of notices, no message")
    if cuts:
        say(f"  of the batch it was handed, what lies at seq {command.before} or above is handed out anew")
    if live:
        say(f"{_quote(command)} is LIVE: it will not see any of this, and may be at work on what it was handed.")
    say("No message is deleted: each stays in its channel, in history and in search.")


def _row(backlog: Backlog, now_ms: int) -> tuple[str, str, str, str]:
    oldest = "" if backlog.oldest_ms is None else f"oldest: {results.age(format_time(backlog.oldest_ms), now_ms)}"
    gaps = f"and {render_count(backlog.gaps, 'gap')} it was not told of" if backlog.gaps else ""
    return (backlog.channel, render_count(backlog.messages, "message"), oldest, gaps)


def _ask(say: Say) -> None:
    say("Type yes to go on.")
    if sys.stdin is None or sys.stdin.readline().strip() != "yes":
        raise click.ClickException("nothing was acknowledged: the answer was not yes")


def _render_waits(waits: AckAllResult) -> str:
    channels = render_count(len(waits.backlogs), "channel")
    return f"{render_count(sum(each.messages for each in waits.backlogs), 'message')} in {channels}"


def _quote(command: AckAll) -> str:
    return render_value(command.as_)


def _record(command: AckAll, waits: AckAllResult, seq: int | None, *, live: bool) -> dict[str, Any]:
    return {
        "as": command.as_,
        "before": command.before,
        "by": command.by,
        "seq": seq,
        "live": live,
        "messages": sum(each.messages for each in waits.backlogs),
        "channels": [_channel_record(each) for each in waits.backlogs],
    }


def _channel_record(backlog: Backlog) -> dict[str, Any]:
    row: dict[str, Any] = {"channel": backlog.channel, "messages": backlog.messages, "gaps": backlog.gaps}
    return row if backlog.oldest_ms is None else row | {"oldest": format_time(backlog.oldest_ms)}
