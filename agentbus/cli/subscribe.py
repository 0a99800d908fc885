"""``agentbus subscribe`` and ``unsubscribe``: edit the persistent channels. Touches no running bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentbus import repoconfig
from agentbus.cli import complain, working_directory
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from agentbus.repoconfig import RepoFile


@click.command()
@click.argument("channel")
def subscribe(channel: str) -> None:
    """Add CHANNEL to this repository's persistent channels.

    Run it in the repository root; it edits .local/agentbus.json there, or makes it. Every session that
    registers here later is subscribed to the list. CHANNEL itself is made by `agentbus channel create`.
    """
    _show(repoconfig.add_channel_here(working_directory(), channel))


@click.command()
@click.argument("channel")
def unsubscribe(channel: str) -> None:
    """Remove CHANNEL from this repository's persistent channels.

    Run it in the repository root; it edits .local/agentbus.json there. Sessions that live now keep what they
    have.
    """
    _show(repoconfig.remove_channel_here(working_directory(), channel))


def _show(file: RepoFile) -> None:
    for warning in file.warnings:
        complain(warning)
    listed = ", ".join(file.channels) or "(none)"
    click.echo(render_visible(f"Agentbus: persistent channels for {file.identity}: {listed}"))
    click.echo("The change takes effect at the next register.")
