"""A server process driven by raw lines, for what no well-behaved client would do. Every wait is bounded."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mcp.types import jsonrpc_message_adapter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

TOY = (sys.executable, str(Path(__file__).with_name("toy_server.py")))
TOY_SDK = (*TOY, "", "sdk")
MCP = (sys.executable, "-m", "agentbus", "mcp")
WAIT_S = 20.0
"""Longer than any wait should take on a loaded machine; a test that runs into it fails."""


class RawServer:
    """One server, with its stdout and stderr read line by line; every line of stdout must be JSON-RPC."""

    def __init__(self, argv: Sequence[str], **environ: str) -> None:
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | environ,
        )
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self._stdin = self.process.stdin
        self._last_id = 0
        self._answers = _LineReader(self.process.stdout)
        self._says = _LineReader(self.process.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()  # not killed: it still has to write its coverage
        self.process.wait(WAIT_S)
        self._stdin.close()
        self._answers.close()
        self._says.close()

    def send(self, *messages: object) -> None:
        """Write messages, each as one line; bytes go out as they are."""
        lines = (item if isinstance(item, bytes) else json.dumps(item).encode() + b"\n" for item in messages)
        self._stdin.write(b"".join(lines))
        self._stdin.flush()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request and its answer, which must be the next line."""
        self._last_id += 1
        self.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}})
        answer: dict[str, Any] = self.next()
        assert answer["id"] == self._last_id
        return answer

    def initialize(self, revision: str = "2025-11-25") -> dict[str, Any]:
        """The result of a handshake."""
        info = {"name": "raw", "version": "7"}
        params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}
        result: dict[str, Any] = self.ask("initialize", params)["result"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def call(self, id_: object, tool: str, /, **arguments: object) -> None:
        """Ask for a tool; does not wait."""
        self.send(call(id_, tool, **arguments))

    def next(self) -> Any:  # noqa: ANN401 - whatever the server writes
        """The next line of stdout."""
        line = self._answers.next()
        assert line is not None, "stdout ended"
        return parse(line)

    def rest(self) -> list[Any]:
        """All further lines of stdout, up to its end."""
        return [parse(line) for line in iter(self._answers.next, None)]

    def heard(self, beginning: str) -> str:
        """The next line of stderr that begins so."""
        while (line := self._says.next()) is not None:
            if line.startswith(beginning.encode()):
                return line.decode().rstrip("\n")
        raise AssertionError(f"stderr ended without {beginning!r}")

    def errors(self) -> list[str]:
        """All further lines of stderr, up to its end."""
        return [line.decode() for line in iter(self._says.next, None)]

    def close_stdin(self) -> None:
        self._stdin.close()

    def is_silent_for(self, seconds: float) -> bool:
        """Whether stdout stays silent that long."""
        return self._answers.is_silent_for(seconds)

    def exit_status(self) -> int:
        """Wait for the end of the process."""
        return self.process.wait(WAIT_S)


class _LineReader:
    """Reads a pipe in a thread, so that a wait for its next line can be bounded."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def next(self) -> bytes | None:
        """The next line, with its LF; None at the end."""
        line = self._lines.get(timeout=WAIT_S)
        if line is None:
            self._lines.put(None)
        return line

    def is_silent_for(self, seconds: float) -> bool:
        try:
            self._lines.put(self._lines.get(timeout=seconds))
        except queue.Empty:
            return True
        return False

    def close(self) -> None:
        self._thread.join(WAIT_S)
        self._pipe.close()

    def _read(self) -> None:
        for line in self._pipe:
            self._lines.put(line)
        self._lines.put(None)


def call(id_: object, tool: str, /, **arguments: object) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}


def parse(line: bytes) -> Any:  # noqa: ANN401 - whatever the server writes
    """One line of a server's stdout, after the SDK's own types have read it."""
    assert line.endswith(b"\n")
    assert len(line.decode().splitlines()) == 1, "a client that splits lines as Python does would cut this one"
    message = json.loads(line)
    for entry in message if isinstance(message, list) else [message]:
        jsonrpc_message_adapter.validate_python(entry, by_name=False)
    return message
