"""What servers cost that do nothing, and what they keep after many calls: no write, no descriptor, thread or memory.

How often they wake is measured by tools/bench.py and bounded in test_server_life.py.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agentbus.hosts import call, open_at
from tests.agentbus.raw_server import MCP, WAIT_S, RawServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.agentbus.hosts import Result

IDLE_S = 3
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process wrote and holds")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "AGENTBUS_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture
def server(environ: dict[str, str]) -> Iterator[RawServer]:
    with RawServer(MCP, **environ) as started:
        started.initialize()
        yield started


def _ask(server: RawServer, tool: str, **arguments: object) -> Result:
    result: Result = server.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
    return result


def _written(server: RawServer) -> dict[str, str]:
    """What the process has written so far, by any system call and to the disk."""
    lines = Path(f"/proc/{server.process.pid}/io").read_text().splitlines()
    counts = dict(line.split(": ") for line in lines)
    return {name: counts[name] for name in ("wchar", "syscw", "write_bytes", "cancelled_write_bytes")}


def _files(data: Path) -> dict[str, tuple[int, int, int, int]]:
    """Every file and directory: inode, size, and when its content and its facts changed last."""
    found = {}
    for path in [data, *data.rglob("*")]:
        facts = path.stat()
        found[str(path)] = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    return found


def test_servers_that_idle_or_wait_write_nothing_anywhere(tmp_path: Path, environ: dict[str, str]) -> None:
    host = open_at(tmp_path / "data")
    call(host, "register", name="early")  # the log is kept where a journal is
    host.close(time.monotonic() + WAIT_S)
    with RawServer(MCP, **environ) as idle, RawServer(MCP, **environ) as waiting, RawServer(MCP, **environ) as empty:
        for server, name in ((idle, "idle"), (waiting, "waiting")):
            server.initialize()
            _ask(server, "register", name=name)
        empty.initialize()
        _ask(idle, "post", **{"as": "idle"}, channel="general", content="hello")
        token = _ask(waiting, "receive", **{"as": "waiting"})["structuredContent"]["token"]
        waiting.call("w", "receive", **{"as": "waiting"}, ack=token, wait_seconds=50)
        log = tmp_path / "data" / "agentbus.log"
        limit = time.monotonic() + WAIT_S  # each says once that it started, beside its first calls
        while not log.exists() or log.read_bytes().count(b"server started") < 3:
            assert time.monotonic() < limit
            threading.Event().wait(0.01)
        assert waiting.is_silent_for(0.3)
        servers = (idle, waiting, empty)
        before = _files(tmp_path), [_written(server) for server in servers]
        assert waiting.is_silent_for(IDLE_S)
        assert (_files(tmp_path), [_written(server) for server in servers]) == before
        _ask(idle, "post", **{"as": "idle"}, channel="general", content="at last")
        assert waiting.next()["result"]["structuredContent"]["messages"][0]["content"] == "at last"


CALLS = 2000
ROUND: tuple[tuple[str, dict[str, object]], ...] = (
    ("register", {"name": "sam"}),
    ("list_channels", {"as": "sam"}),
    ("subscribe", {"as": "sam", "channel": "general"}),
    ("receive", {"as": "sam"}),
    ("receive", {"as": "sam", "ack": "of no batch"}),
    ("history", {"as": "sam", "channel": "general"}),
    ("search", {"as": "sam", "query": "word"}),
    ("discover", {"as": "sam"}),
    ("post", {"as": "sam", "channel": "nowhere", "content": "x"}),
    ("post", {"as": "nobody", "channel": "general", "content": "x"}),
    ("get_memory", {"as": "sam", "id": 1}),
    ("unheard of", {}),
)


def _held(server: RawServer) -> tuple[int, int]:
    """Descriptors and threads of the process."""
    directory = Path(f"/proc/{server.process.pid}")
    return len(list((directory / "fd").iterdir())), len(list((directory / "task").iterdir()))


def _memory_kib(server: RawServer) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    (found,) = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
    return found


def _one_after_another(server: RawServer, count: int) -> None:
    for number in range(count):
        tool, arguments = ROUND[number % len(ROUND)]
        server.call(number, tool, **arguments)
        assert server.next()["id"] == number


def test_two_thousand_calls_leave_no_descriptor_no_thread_and_no_memory_behind(server: RawServer) -> None:
    _ask(server, "register", name="sam")
    for number in range(20):
        _ask(server, "post", **{"as": "sam"}, channel="general", content=f"word {number}")
    _one_after_another(server, 300)  # every path taken, every cache warm
    held, memory_kib = _held(server), _memory_kib(server)
    _one_after_another(server, CALLS)
    assert _held(server)[0] <= held[0]
    assert _held(server)[1] <= held[1] + 4  # a call may come before the thread of the last one is back
    assert _memory_kib(server) - memory_kib < 4096  # two bytes a call would be noise; a kept request is not


def test_waits_that_were_cancelled_or_ran_out_leave_no_descriptor_behind(server: RawServer) -> None:
    _ask(server, "register", name="sam")
    _ask(server, "receive", **{"as": "sam"}, wait_seconds=1)
    held = _held(server)[0]
    for number in range(200):
        server.call(f"w{number}", "receive", **{"as": "sam"}, wait_seconds=50)
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": f"w{number}"}})
    assert json.loads(_ask(server, "discover", **{"as": "sam"})["content"][0]["text"])["sessions"]
    limit = time.monotonic() + WAIT_S
    while _held(server)[0] > held:
        assert time.monotonic() < limit, f"{_held(server)[0]} descriptors, {held} before"
        threading.Event().wait(0.01)
    assert server.is_silent_for(0.1)
