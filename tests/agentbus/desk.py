"""An agent's session and what its harness runs beside it: hooks and waiters as real processes, and a peer that writes.

Knows no rule of its own; the tests ask.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.agentbus.hosts import call, open_at
from tests.agentbus.raw_server import MCP, RawServer
from tests.agentbus.shell import environ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentbus.host import Host

WAIT_S = 30.0


@contextmanager
def sitting(tmp_path: Path) -> Iterator[Desk]:
    """A desk whose server runs until the block ends."""
    with RawServer(MCP, **environ(tmp_path / "data")) as server:
        made = Desk(tmp_path, server)
        yield made
        made.peer.close(float("inf"))


class Desk:
    """An agent's session, whose server this process started as a harness does, and a peer that writes to it."""

    def __init__(self, tmp_path: Path, server: RawServer) -> None:
        self.data = tmp_path / "data"
        self.repository = tmp_path / "shop"
        (self.repository / ".git").mkdir(parents=True)
        self.environ = environ(self.data)
        self.peer: Host = open_at(self.data)
        call(self.peer, "register", name="beta")
        # The peer lives in this process, and this process's harness is another; but no server runs there.
        self.server = server
        self.server.initialize()
        self.tool("register", name="alpha")
        self.tool("subscribe", as_="alpha", channel="general")

    def tool(self, name: str, /, **arguments: object) -> dict[str, Any]:
        given = {key.rstrip("_"): value for key, value in arguments.items()}
        answer = self.server.ask("tools/call", {"name": name, "arguments": given})
        assert "result" in answer, answer
        assert not answer["result"].get("isError"), answer
        found: dict[str, Any] = answer["result"]["structuredContent"]
        return found

    def says(self, content: str) -> int:
        """The peer posts to general."""
        return int(call(self.peer, "post", as_="beta", channel="general", content=content)["seq"])

    def command(self, *arguments: str) -> list[str]:
        """As a harness runs a hook: through a shell."""
        return ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-m", "agentbus", *arguments]

    def hook(self, event: str, harness: str, given: object = None, **more: str) -> subprocess.CompletedProcess[str]:
        return self.fed(json.dumps({} if given is None else given), event, harness, **more)

    def fed(self, text: str, event: str, harness: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A hook whose client writes that to it."""
        return subprocess.run(
            self.command("hook", event, "--for", harness),
            input=text,
            env=self.environ | more,
            cwd=self.repository,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def reason(self, harness: str, **given: object) -> str:
        """Why the turn should go on, as the client's model reads it; "" to let it end."""
        held = self.hook("stop", harness, given).stdout
        return reason_in(harness, held) if held else ""

    def is_waited_for(self) -> bool:
        """Whether a waiter has taken a seat."""
        return any(not seat.suffix for seat in (self.data / "waiters").glob("*"))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that goes on for a while."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environ,
            cwd=self.repository,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def reason_in(harness: str, held: str) -> str:
    """What the client takes for the reason to go on."""
    if harness == "opencode":
        return held.rstrip("\n")
    answer = json.loads(held)
    if harness == "cursor":
        assert set(answer) == {"followup_message"}
        return str(answer["followup_message"])
    assert answer["decision"] == ("deny" if harness == "gemini" else "block")
    return str(answer["reason"])


def until(is_it: Callable[[], object]) -> None:
    """Wait until that is true."""
    deadline = time.monotonic() + WAIT_S
    while not is_it():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)
