"""What a door serves: the tool table, the bus and the texts, each brought in when it is first asked for.

A client waits a few dozen milliseconds for ``initialize``: nothing heavy is imported before a method here is
called that needs it. It knows no protocol.
"""

from __future__ import annotations

import os
import threading

from agentbus import __version__
from agentbus.errors import BusError
from agentbus.protocol import render_protocol, render_setup
from agentbus.repoconfig import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from agentbus.control import Control
    from agentbus.host import Host
    from agentbus.log import Log
    from agentbus.tools import Tool
    from journal import JournalError

    class Table(Protocol):
        """agentbus/tools.py, or another table that is served the same way."""

        TOOLS: tuple[Tool, ...]

        def call(self, name: str, raw: dict[str, Any], host: Host, control: Control, /) -> dict[str, Any]:
            """One call of one tool."""

        def render_error(self, error: BusError | JournalError, /) -> dict[str, Any]:
            """The envelope of a failure."""


_STDERR = 2


class Service:
    """One table and one host, for one client, in the working directory of this process.

    Args:
        load_table: imports the table; called by several threads, and again.
        open_host: opens the host and its log for a client of that name. Its refusals are not kept: whoever
            corrects the settings need not restart the server.
    """

    def __init__(self, load_table: Callable[[], Table], open_host: Callable[[str | None], tuple[Host, Log]]) -> None:
        self.table = load_table
        self._open_host = open_host
        self._opened: tuple[Host, Log] | None = None
        self._opening = threading.Lock()

    def host(self, client: str | None) -> Host:
        """The host; opened by the first who asks.

        Raises:
            BusError: validation; the settings are wrong.
            JournalError: the data directory cannot be used.
        """
        with self._opening:
            if self._opened is None:
                self._opened = self._open_host(client)
            return self._opened[0]

    def warm(self, client: str | None) -> None:
        """Import the table and fold the journal, so that the first call finds both ready.

        Raises:
            BusError, JournalError: so will each call.
        """
        self.table()
        host = self.host(client)
        host.warm()
        self._log_anchor("server started")

    def end_waits(self) -> None:
        """End the calls that only wait for news."""
        if self._opened is not None:
            self._opened[0].end_waits()

    def close(self, deadline: float) -> None:
        """End the sessions of this process, if that can be done by ``deadline`` (monotonic). Never raises."""
        if self._opened is None:
            return
        try:
            try:
                self._opened[0].close(deadline)
            finally:
                self._log_anchor("server ended")
        except Exception as error:  # noqa: BLE001  # the outermost shell of a process that ends anyway
            self.report("close", error)

    def _log_anchor(self, what: str) -> None:
        """Log the journal's anchor: beside the journal it proves nothing, in a backup of the log it does."""
        if self._opened is not None:
            host, log = self._opened
            log.info(what, version=__version__, client=host.client, anchor=host.bus.anchor)

    def instructions(self) -> str:
        """The session protocol, with this directory's identity."""
        return render_protocol(identity(_directory())[0])

    def setup_text(self) -> str:
        """The setup steps and the session protocol, with this directory's identity."""
        return render_setup(identity(_directory())[0], os.environ)

    def complain(self, text: str) -> None:
        """Tell whoever reads stderr, mostly a harness's log, what keeps this server from working. Never raises."""
        try:
            os.write(_STDERR, f"agentbus: {text}\n".encode("utf-8", "replace"))
        except OSError:  # nobody reads it
            return

    def report(self, where: str, error: Exception) -> None:
        """Tell what failed and where: of a refusal what it says, of a bug where it is.

        A bug's own words stay out of the log: they may quote a message.
        """
        from journal import JournalError  # noqa: PLC0415  # heavy

        if isinstance(error, BusError | JournalError):
            says = self.table().render_error(error)["message"]
            if self._opened is not None:
                self._opened[1].warning(says, where=where)
            self.complain(says)
            return
        import traceback  # noqa: PLC0415  # a quarter of the start-up budget, for what should never happen

        kind = type(error).__name__
        if self._opened is None:
            self.complain(f"{where}: {kind}: {error}")
        else:
            frames = "".join(traceback.format_tb(error.__traceback__))
            self._opened[1].error("failed", where=where, error=kind, traceback=frames)


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it is gone; what is asked of its repository file then has no answer
        return "/"


def from_settings(config_path: str | None) -> Service:
    """The service of ``agentbus mcp``: the table of agentbus/tools.py on the user's bus.

    Args:
        config_path: the settings file that ``--config`` names; None for the usual one.
    """

    def open_host(client: str | None) -> tuple[Host, Log]:
        from agentbus import config, host, log  # noqa: PLC0415  # heavy

        settings = config.load(config_path, os.environ)
        lines = log.open_log(settings.data_directory, settings.log_level)
        return host.open_host(settings, _directory(), client, lines), lines

    return Service(_load_table, open_host)


def _load_table() -> Table:
    from agentbus import tools  # noqa: PLC0415  # heavy

    return tools
