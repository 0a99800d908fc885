"""``agentbus post``: a person speaks on the bus, in a session that ends with the command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agentbus import sending
from agentbus.arguments import PostArguments
from agentbus.cli import bus
from agentbus.cli.output import print_json
from agentbus.control import Control
from agentbus.decide.channels import require_channel
from agentbus.names import parse_agent_name
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from agentbus.config import Settings


@click.command()
@click.argument("channel")
@click.argument("text")
@click.option("--as", "name", metavar="NAME", help="Under which name to speak; default: the login name.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bus.settings_option
def post(channel: str, text: str, *, name: str | None, as_json: bool, settings: Settings) -> None:
    """Post TEXT to CHANNEL, as a person.

    TEXT - reads the text from stdin, less one newline at its end. @NAME in it addresses an agent. If an agent has
    your name you speak under the next free one, such as NAME2.
    """
    content = _read_stdin(settings.max_message_kib << 10) if text == "-" else text
    _require_utf8(content)
    asked = bus.login_name() if name is None else parse_agent_name(name)
    wanted = sending.post_command(PostArguments(as_=asked, channel=channel, content=content))
    with bus.person(settings, asked, lambda state: require_channel(state, wanted.channel)) as (host, as_):
        given = PostArguments(as_=as_, channel=channel, content=content)
        done = {"as": as_, **sending.post(given, host, Control(host.bus))}
    if as_json:
        print_json(done)
    else:
        click.echo(render_visible(_render(done, channel, asked)))


def _render(done: dict[str, Any], channel: str, asked: str) -> str:
    what = f"memory {done['memory_id']}" if "memory_id" in done else f"message {done['seq']}"
    taken = "" if done["as"] == asked else f' ("{asked}" is taken)'
    heard = f"{done['subscribers']} subscribed, {done['live']} of them live"
    addressed = f"; addressed to {', '.join(done['addressed'])}" if done["addressed"] else ""
    unknown = f"; nobody is called {' or '.join(done['unknown'])}" if "unknown" in done else ""
    return f'Agentbus: posted {what} to "{channel}" as "{done["as"]}"{taken}: {heard}{addressed}{unknown}.'


def _read_stdin(bytes_max: int) -> str:
    """The text on stdin, less one newline at its end: `echo` and editors put it there, nobody means it."""
    data = b"" if sys.stdin is None else sys.stdin.buffer.read(bytes_max + 2)
    if len(data) > bytes_max + 1:
        raise click.ClickException(f"stdin holds more than max_message_kib ({bytes_max >> 10} KiB) allows: send less")
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"stdin, byte {error.start + 1}: this is not UTF-8") from error


def _require_utf8(content: str) -> None:
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise click.ClickException(f"TEXT, character {error.start + 1}: this is not UTF-8") from error
