"""Searches measured in a process of its own: ``python -m tools.figures.search_child MODE ...``. Prints JSON lines.

``index DATA`` has the product index a journal. ``warm DATA TABLE`` answers each query on stdin, a JSON string a line,
by the product and by FTS5 alone, in turn. ``first DATA QUERY`` and ``first_alone TABLE QUERY`` search once and end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from agentbus.host import Host

HITS = 20
_INDEX_S = 300.0
_PAUSE_S = 0.2
_ALONE = """
SELECT rowid, snippet(texts, 0, '**', '**', '…', 32), rank FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?
"""


def main() -> None:
    """Dispatch."""
    mode, *arguments = sys.argv[1:]
    modes: dict[str, Callable[..., None]] = {"index": index, "warm": warm, "first": first, "first_alone": first_alone}
    modes[mode](*arguments)


def index(data: str) -> None:
    """Search until the index has every text."""
    from agentbus.search.files import IndexFiles  # noqa: PLC0415  # the yardstick's mode needs no agentbus

    host, as_ = _registered(data)
    last_seq = host.bus.ask(lambda state: max(channel.last_seq for channel in state.channels.values()))
    limit = time.monotonic() + _INDEX_S
    size = None
    while (size is None or size[0] < last_seq) and time.monotonic() < limit:
        _try_search(host, as_, "word")
        time.sleep(_PAUSE_S)
        size = IndexFiles(Path(data) / "search").size()
    _say(made=size is not None and size[0] >= last_seq)
    host.close(time.monotonic() + 5)


def warm(data: str, table: str) -> None:
    """Both ways in turn, in one process."""
    (host, as_), connection = _registered(data), _open(table)
    _say(ready=True)
    for line in sys.stdin:
        query = json.loads(line)
        began = time.perf_counter()
        hits = _search(host, as_, query)
        found = time.perf_counter()
        rows = _search_alone(connection, query)
        _say(seconds=found - began, alone_s=time.perf_counter() - found, hits=hits, rows=rows)
    host.close(time.monotonic() + 5)


def first(data: str, query: str) -> None:
    """The first search of a process: by itself, and with all that comes before it."""
    began = time.perf_counter()
    host, as_ = _registered(data)
    ready = time.perf_counter()
    hits = _search(host, as_, query)
    ended = time.perf_counter()
    _say(seconds=ended - ready, whole_s=ended - began, hits=hits)
    host.close(time.monotonic() + 5)


def first_alone(table: str, query: str) -> None:
    """The same by FTS5 alone, its import included."""
    began = time.perf_counter()
    rows = _search_alone(_open(table), query)
    _say(seconds=time.perf_counter() - began, rows=rows)


def _registered(data: str) -> tuple[Host, str]:
    from agentbus.config import Settings  # noqa: PLC0415  # as above
    from agentbus.host import open_host  # noqa: PLC0415  # as above

    host = open_host(Settings(data_directory=Path(data)), os.getcwd(), "bench")
    host.warm()
    return host, _call(host, "register", name="bench")["as"]


def _call(host: Host, tool: str, **arguments: object) -> dict[str, Any]:
    from agentbus import tools  # noqa: PLC0415  # as above
    from agentbus.control import Control  # noqa: PLC0415  # as above

    return tools.call(tool, arguments, host, Control(host.bus))


def _search(host: Host, as_: str, query: str) -> int:
    return len(_call(host, "search", **{"as": as_}, query=query, count=HITS)["hits"])


def _try_search(host: Host, as_: str, query: str) -> None:
    from agentbus.errors import BusError  # noqa: PLC0415  # as above

    try:
        _search(host, as_, query)
    except BusError as error:
        if not error.retryable:
            raise


def _open(table: str) -> sqlite3.Connection:
    import sqlite3  # noqa: PLC0415  # a part of what is measured

    return sqlite3.connect(table)


def _search_alone(connection: sqlite3.Connection, query: str) -> int:
    return len(connection.execute(_ALONE, (query, HITS)).fetchall())


def _say(**values: object) -> None:
    os.write(1, json.dumps(values).encode() + b"\n")


if __name__ == "__main__":
    main()
