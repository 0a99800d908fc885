"""A server process and the thinnest client there can be: lines of JSON-RPC, one call at a time."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.figures.measuring import NotMeasuredError

if TYPE_CHECKING:
    from tools.figures.places import Place

AGENTBUS = str(Path(sys.executable).with_name("agentbus"))
MCP = (AGENTBUS, "mcp")
NO_OP_LEAN = (sys.executable, str(Path(__file__).parents[1] / "noop_lean_server.py"))
RELAY_LEAN = (sys.executable, str(Path(__file__).parents[1] / "relay_lean_server.py"))
NO_OP_SDK = (sys.executable, str(Path(__file__).parents[1] / "noop_sdk_server.py"))

ANSWER_S = 60.0
"""Longer than any answer takes: a server that is silent so long has failed."""

_CHUNK_BYTES = 64 << 10
_HANDSHAKE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


def request(number: int, method: str, params: dict[str, Any] | None = None) -> bytes:
    """One request as a line."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}).encode() + b"\n"


INITIALIZE = request(1, "initialize", _HANDSHAKE)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


class Server:
    """One server process over its stdin and stdout."""

    def __init__(self, argv: tuple[str, ...], place: Place, data: Path) -> None:
        self._name = " ".join(argv)
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=place.repository,
            env=place.environment(data),
            bufsize=0,
        )
        assert self._process.stdin is not None  # noqa: S101  # PIPE
        assert self._process.stdout is not None  # noqa: S101  # PIPE
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._rest = b""
        self._last_id = 1

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def initialize(self) -> None:
        """The handshake."""
        self.send(INITIALIZE)
        self.line()
        self.send(INITIALIZED)

    def send(self, line: bytes) -> None:
        """Write one line."""
        os.write(self._stdin, line)

    def line(self) -> bytes:
        """The next line, as soon as it is there."""
        while b"\n" not in self._rest:
            if not select.select([self._stdout], [], [], ANSWER_S)[0]:
                raise NotMeasuredError(f"{self._name} gave no answer in {ANSWER_S:.0f} s")
            chunk = os.read(self._stdout, _CHUNK_BYTES)
            if not chunk:
                raise NotMeasuredError(f"{self._name} ended without an answer")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def begin(self, tool: str, **arguments: object) -> None:
        """Ask for a tool and do not wait; ``as_`` stands for the argument ``as``."""
        self._last_id += 1
        given = {name.rstrip("_"): value for name, value in arguments.items()}
        self.send(request(self._last_id, "tools/call", {"name": tool, "arguments": given}))

    def end(self) -> dict[str, Any]:
        """The result of what was asked for last; the call must have gone well."""
        answer = json.loads(self.line())
        result: dict[str, Any] = answer.get("result", {"isError": True})
        if result.get("isError"):
            raise NotMeasuredError(f"{self._name} refused: {answer}")
        return result.get("structuredContent") or {}

    def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        """One call and its result."""
        self.begin(tool, **arguments)
        return self.end()

    def cancel(self) -> None:
        """Take back what was asked for last: it gets no answer."""
        params = {"requestId": self._last_id}
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        self.send(json.dumps(message).encode() + b"\n")

    def timed(self, tool: str, times: int, **arguments: object) -> list[float]:
        """Seconds of each of some sequential calls, from the first byte sent to the last byte read."""
        given = {name.rstrip("_"): value for name, value in arguments.items()}
        line = request(self._last_id, "tools/call", {"name": tool, "arguments": given})
        found = []
        for _ in range(times):
            began = time.perf_counter()
            self.send(line)
            answer = self.line()
            found.append(time.perf_counter() - began)
            if b'"isError":true' in answer or b'"result"' not in answer:
                raise NotMeasuredError(f"{self._name} refused: {answer[:200]!r}")
        return found

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.communicate()
