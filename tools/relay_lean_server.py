#!/usr/bin/env python3
"""What a delivery costs before there is a bus: agentbus's own door and watch, one file, and nothing decided or hashed.

Two of these servers share a directory. ``post`` appends a line under a lock and flushes it; ``receive`` sleeps until
the file grows, reads what came, appends a line of its own and answers.

    relay_lean_server.py DIRECTORY
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from agentbus.service import Service
from agentbus.stdio import serve
from agentbus.tools import Tool
from journal.watch import Watch
from tools.noop_lean_server import NoArguments, open_host, render_error

if TYPE_CHECKING:
    from agentbus.control import Control
    from agentbus.host import Host
    from agentbus.service import Table

LINE = b"x" * 423 + b"\n"
_CHUNK_BYTES = 64 << 10
_WAIT_S = 30.0


class Relay:
    """The file, and the two things done with it."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self._fd = os.open(f"{directory}/file", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._watch = Watch(directory)

    def call(self, name: str, raw: dict[str, Any], host: Host, control: Control) -> dict[str, Any]:  # noqa: ARG002  # a table's
        """One of the two tools."""
        if name == "post":
            self._append()
            os.fdatasync(self._fd)
            return {"seq": 1}
        received = self._follow()
        self._append()
        return {"messages": [received.decode()]}

    def _append(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.write(self._fd, LINE)
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _follow(self) -> bytes:
        size = os.fstat(self._fd).st_size
        deadline = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline:
            armed = self._watch.arm()
            if os.fstat(self._fd).st_size > size:
                break
            self._watch.sleep(armed, deadline - time.monotonic())
        return os.pread(self._fd, _CHUNK_BYTES, size)


def table(relay: Relay) -> Table:
    """The table of two tools."""
    tools = tuple(Tool(name, name, "", NoArguments, {}) for name in ("post", "receive"))
    return cast("Table", SimpleNamespace(TOOLS=tools, call=relay.call, render_error=render_error))


if __name__ == "__main__":
    only = table(Relay(sys.argv[1]))
    serve(Service(lambda: only, open_host), os.getppid())
