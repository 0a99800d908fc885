"""The doors, and the official SDK's client in front of them. What a door writes is kept and read by the SDK's types.

A new door is one more entry of DOORS: every test of this folder then runs through it, unchanged. How their answers
differ, down to the last key, is test_differences.py's business.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp.types import Implementation, TextContent, jsonrpc_message_adapter

from agentbus.commands import Reset
from tests.agentbus.hosts import open_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from mcp.shared.dispatcher import ProgressFnT

MCP = (sys.executable, "-m", "agentbus", "mcp")
DOORS = [("stdio", MCP), ("sdk", (*MCP, "--engine", "sdk"))]
WAIT_S = 30.0
"""Longer than any answer should take on a loaded machine; a test that runs into it fails."""

# The server's stdout passes through a file on its way to the client, byte for byte.
_RECORDING = '"$@" | tee "$0"'


class Client:
    """One connected client.

    Attributes:
        session: the SDK's.
    """

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def call(self, tool: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        """The result object of a call that must succeed; ``as`` is spelt ``as_``, ``from`` is spelt ``from_``."""
        return await self.call_watched(tool, None, **arguments)

    async def call_watched(self, tool: str, watch: ProgressFnT | None, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        """The same, with its progress told to ``watch``."""
        answer = await self._call(tool, arguments, watch)
        (content,) = answer.content
        assert isinstance(content, TextContent)
        assert not answer.is_error, content.text
        assert json.loads(content.text) == answer.structured_content
        compact = json.dumps(answer.structured_content, ensure_ascii=False, separators=(",", ":"))
        assert (
            content.text.replace("\\u2028", "\u2028") == compact
        )  # a door may escape it, for clients that split there
        return answer.structured_content

    async def refused(self, tool: str, **arguments: object) -> dict[str, Any]:
        """The envelope of a call that must fail."""
        answer = await self._call(tool, arguments, None)
        assert answer.is_error
        assert answer.structured_content is None
        (content,) = answer.content
        assert isinstance(content, TextContent)
        envelope: dict[str, Any] = json.loads(content.text)
        assert set(envelope) == {"code", "message", "retryable"}
        return envelope

    async def protocol_error(self, tool: str, **arguments: object) -> MCPError:
        """The JSON-RPC error of a call that must not even reach a tool."""
        try:
            await self._call(tool, arguments, None)
        except MCPError as error:
            return error
        raise AssertionError(f"{tool} was answered")

    async def _call(self, tool: str, arguments: Mapping[str, object], progress: ProgressFnT | None) -> Any:  # noqa: ANN401 - the SDK's result
        named = {name.removesuffix("_") if name in {"as_", "from_"} else name: arguments[name] for name in arguments}
        return await self.session.call_tool(tool, named, progress_callback=progress)


class Door:
    """Starts servers of one kind on one data directory, each with a client in front of it.

    Doors of several kinds may share a directory: then they are on one bus.
    """

    def __init__(self, argv: tuple[str, ...], directory: Path) -> None:
        self.argv = argv
        self.directory = directory
        self.records: list[Path] = []
        (directory / "home").mkdir(exist_ok=True)
        (directory / "project" / ".git").mkdir(parents=True, exist_ok=True)

    @property
    def data(self) -> Path:
        """The data directory of all its servers."""
        return self.directory / "data"

    @property
    def environ(self) -> dict[str, str]:
        """What sets its servers apart from those of whoever runs the tests."""
        return {"HOME": str(self.directory / "home"), "AGENTBUS_DATA_DIR": str(self.data)}

    @property
    def project(self) -> Path:
        """The repository in which the servers start, unless told otherwise."""
        return self.directory / "project"

    def reset(self) -> None:
        """Empty the bus and the repository, for the next test: the servers live on."""
        if self.data.exists():
            host = open_at(self.data, self.project)
            host.bus.execute(Reset(by="test"))
            host.close(time.monotonic() + WAIT_S)
        shutil.rmtree(self.project / ".local", ignore_errors=True)

    @asynccontextmanager
    async def connect(self, cwd: Path | None = None) -> AsyncIterator[Client]:
        """A server and a client that has shaken hands with it; both end with the context."""
        parameters = self.parameters(cwd)
        record = self.records[-1]
        failures: list[Exception] = []

        async def keep(message: object) -> None:
            if isinstance(message, Exception):
                failures.append(message)

        info = Implementation(name="contract", version="1")
        async with (
            stdio_client(parameters) as streams,
            ClientSession(*streams, read_timeout_seconds=WAIT_S, message_handler=keep, client_info=info) as session,
        ):
            await session.initialize()
            yield Client(session)
        assert failures == []
        check_record(record)

    def parameters(self, cwd: Path | None = None) -> StdioServerParameters:
        """How to start one more server, for the SDK."""
        record = self.directory / f"stdout-{self.argv[-1]}-{len(self.records)}"
        self.records.append(record)
        environ = os.environ | self.environ
        arguments = ["-c", _RECORDING, str(record), *self.argv]
        return StdioServerParameters(command="sh", args=arguments, env=environ, cwd=cwd or self.project)


def check_record(record: Path) -> None:
    """Every line that a server wrote is one message to the SDK's types, and one line to every client."""
    data = record.read_bytes()
    assert data.endswith(b"\n")
    for line in data.decode().splitlines():
        jsonrpc_message_adapter.validate_json(line, by_name=False)
