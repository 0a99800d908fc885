"""``agentbus channel create`` and ``channel list``: so that a person can make what a persistent list names."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from agentbus import joining, queries
from agentbus.arguments import CreateChannelArguments
from agentbus.cli import bus
from agentbus.cli.output import print_json, print_rows
from agentbus.columns import render_count
from agentbus.commands import CreateChannel
from agentbus.control import Control
from agentbus.decide.channels import require_creatable
from agentbus.kinds import MEMORY, ORDINARY
from agentbus.names import parse_channel_name
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from agentbus.config import Settings


@click.group(no_args_is_help=False)
def channel() -> None:
    """Create and list channels."""


@channel.command()
@click.argument("name")
@click.option("--memory", is_flag=True, help="A memory channel: for lasting facts instead of chat.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bus.settings_option
def create(name: str, *, memory: bool, as_json: bool, settings: Settings) -> None:
    """Create the channel NAME.

    One that exists with this kind is left as it is. Nobody is subscribed by it: see `agentbus subscribe`.
    """
    person, kind = bus.login_name(), MEMORY if memory else ORDINARY
    wanted = CreateChannel(as_=person, channel=parse_channel_name(name), kind=kind)
    with bus.person(settings, person, lambda state: require_creatable(state, wanted)) as (host, as_):
        given = CreateChannelArguments(as_=as_, name=name, kind=kind)
        done = joining.create_channel(given, host, Control(host.bus))
    if as_json:
        print_json(done)
        return
    if done["created"]:
        text = f'created the {done["kind"]} channel "{done["channel"]}"'
    else:
        text = f'channel "{done["channel"]}" exists already ({done["kind"]})'
    click.echo(render_visible(f"Agentbus: {text}."))


@channel.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bus.settings_option
def list_(*, as_json: bool, settings: Settings) -> None:
    """List the channels. Only reads."""
    state, _ = bus.read_state(settings)
    if state.last_seq == 0:
        bus.say_no_journal(settings.data_directory, err=as_json)
    horizon_ms = time.time_ns() // 1_000_000 - settings.message_retention_hours * 3_600_000
    rows = queries.channel_rows(state, horizon_ms=horizon_ms)
    if as_json:
        print_json({"channels": rows})
    elif rows:
        print_rows(map(render_row, rows))


def render_row(row: dict[str, Any]) -> tuple[object, ...]:
    """A row of queries.channel_rows as cells."""
    what = ("memory", "memories") if row["kind"] == "memory" else ("message",)
    return (row["channel"], row["kind"], render_count(row["messages"], *what), f"last seq {row['last_seq']}")
