"""``agentbus mcp`` as click shows it; agentbus/__main__.py starts the usual forms of it without click."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from agentbus import service, stdio, whereabouts

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.sdk import SdkDoor
    from agentbus.service import Service


@click.command()
@click.option("--config", "config_path", metavar="FILE", help="Settings file; else AGENTBUS_CONFIG or the usual one.")
@click.option(
    "--directory",
    metavar="DIR",
    help="Where its agent works; default: the working directory; if that lies in no repository, the client's project.",
)
@click.option(
    "--engine",
    type=click.Choice(["stdio", "sdk"]),
    default="stdio",
    show_default=True,
    help="sdk: the same tools through the official MCP SDK; it starts in a second, and speaks the newest revision.",
)
def mcp(config_path: str | None, directory: str | None, engine: str) -> None:
    """Serve the bus over MCP on stdin and stdout, for one client.

    A harness starts this; it ends when its client does. Messages of its own go to stderr and to agentbus.log.
    """
    try:
        whereabouts.settle(directory, os.environ)
    except OSError as error:
        raise click.ClickException(f"--directory {directory}: {error.strerror}") from error
    open_door = _open_sdk if engine == "sdk" else stdio.open_plain
    stdio.serve(service.from_settings(config_path), os.getppid(), open_door)


def _open_sdk(served: Service, write: Callable[[bytes], None]) -> SdkDoor:
    from agentbus.sdk import SdkDoor  # noqa: PLC0415  # a second, in which stdout and signals are in hand already

    return SdkDoor(served, write)
