#!/usr/bin/env python3
"""A server with one tool that does nothing, behind agentbus's own door: what a call costs before it does anything."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from agentbus.arguments import Arguments
from agentbus.service import Service
from agentbus.stdio import serve
from agentbus.tools import Tool

if TYPE_CHECKING:
    from agentbus.control import Control
    from agentbus.errors import BusError
    from agentbus.host import Host
    from agentbus.log import Log
    from agentbus.service import Table
    from journal import JournalError


class NoArguments(Arguments, frozen=True):
    """What the tool takes."""


class NoHost:
    """A host, and its bus, on which nothing happens."""

    anchor = ""
    client = None

    def __init__(self) -> None:
        self.bus = self

    def interrupt(self) -> None:
        """Nothing waits."""

    def end_waits(self) -> None:
        """Nothing waits."""

    def warm(self) -> None:
        """Nothing is cold."""

    def close(self, deadline: float) -> None:
        """Nothing was opened."""


def call(name: str, raw: dict[str, Any], host: Host, control: Control) -> dict[str, Any]:  # noqa: ARG001  # a table's
    """Nothing, done."""
    return {}


def render_error(error: BusError | JournalError) -> dict[str, Any]:
    """Nothing fails."""
    raise AssertionError(error)


def load_table() -> Table:
    """The table of one tool."""
    tool = Tool("noop", "Nothing", "Does nothing.", NoArguments, {})
    return cast("Table", SimpleNamespace(TOOLS=(tool,), call=call, render_error=render_error))


def open_host(client: str | None) -> tuple[Host, Log]:  # noqa: ARG001  # a service's
    """A host of nothing, and a log that keeps nothing."""
    log = SimpleNamespace(error=lambda *_, **__: None, warning=lambda *_, **__: None, info=lambda *_, **__: None)
    return cast("Host", NoHost()), cast("Log", log)


if __name__ == "__main__":
    serve(Service(load_table, open_host), os.getppid())
