"""``agentbus mcp`` as click shows it; agentbus/__main__.py starts the usual forms of it without click."""

from __future__ import annotations

import os

import click

from agentbus import service, stdio


@click.command()
@click.option("--config", "config_path", metavar="FILE", help="Settings file; else AGENTBUS_CONFIG or the usual one.")
def mcp(config_path: str | None) -> None:
    """Serve the bus over MCP on stdin and stdout, for one client.

    A harness starts this; it ends when its client does. Messages of its own go to stderr and to agentbus.log.
    """
    stdio.serve(service.from_settings(config_path), os.getppid())
