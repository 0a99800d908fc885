"""``agentbus reset``: an empty bus, once a person has said so. Destroys nothing: the journal goes on."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from agentbus import queries
from agentbus.cli import bus, working_directory
from agentbus.commands import Reset
from agentbus.host import open_host
from agentbus.limits import COMMAND_DEADLINE_S
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from agentbus.config import Settings


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@bus.settings_option
def reset(*, yes: bool, settings: Settings) -> None:
    """Empty the bus, and keep the journal.

    No sessions, subscriptions, messages or memories are left, and no channels but general and memory. Nothing is
    destroyed: the journal goes on, and `agentbus replay` still shows what was.
    """
    state, _ = bus.read_state(settings)
    if state.last_seq == 0:
        bus.say_no_journal(settings.data_directory)
        return
    for held in queries.live_sessions(state, bus.gone_owners(settings, state)):
        click.echo(render_visible(f"Agentbus: {held.as_} is live; it will have to register again."))
    if not yes:
        _ask(state.last_seq)
    host = open_host(settings, working_directory())
    try:
        seq = host.bus.execute(Reset(by=bus.login_name())).seq
    finally:
        host.close(time.monotonic() + COMMAND_DEADLINE_S)
    click.echo(f"Agentbus: reset at seq {seq}. Nothing is destroyed: `agentbus replay` still shows what was.")


def _ask(last_seq: int) -> None:
    click.echo(f"Agentbus: this empties the bus. The journal keeps everything up to seq {last_seq}.")
    click.echo("Type yes to go on.")
    if sys.stdin is None or sys.stdin.readline().strip() != "yes":
        raise click.ClickException("not reset: the answer was not yes")
