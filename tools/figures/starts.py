"""P5, P8 and P9: how long until something answers that was not running."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tools.figures import children
from tools.figures.child import SNAPSHOT_WAIT_S
from tools.figures.journals import Plan
from tools.figures.measuring import MIB, Bar, Figure, NotMeasuredError, Sample
from tools.figures.servers import AGENTBUS, INITIALIZE, INITIALIZED, MCP, NO_OP_SDK, Server, request

if TYPE_CHECKING:
    from pathlib import Path

    from tools.figures.places import Place

_TOOLS_LIST_ID = 2


class Opening:
    """P5."""

    rounds = 5

    def __init__(self, place: Place) -> None:
        many = f"{place.commits:,} commits and a snapshot"
        self.figures = (
            Figure("P5", f"open: {many}", "orjson.loads of its rows", "s", Bar(0.5)),
            Figure("P5", "the same: peak memory", "", "MiB", Bar(400)),
        )
        plan = Plan(place.commits)
        self._data = place.new("snapshot")
        self._rows = place.new("rows") / "rows.json"
        place.shelf.put(plan, self._data)
        if not children.run("snapshot", self._data)["made"]:
            raise NotMeasuredError(f"no snapshot was made within {SNAPSHOT_WAIT_S:.0f} s")
        children.run("rows", self._data, self._rows)

    def sample(self) -> list[Sample]:
        """A new process each."""
        opened = children.run("open", self._data)
        loaded = children.run("load", self._rows)
        return [Sample(opened["seconds"], loaded["seconds"]), Sample(opened["peak_bytes"] / MIB)]

    def close(self) -> None:
        """Nothing is left running."""


class Identity:
    """P8."""

    figures = (Figure("P8", "agentbus identity, whole process", "python -c pass", "s", Bar(2.5)),)
    rounds = 21

    def __init__(self, place: Place) -> None:
        self._place = place
        self._data = place.new("empty")

    def sample(self) -> list[Sample]:
        """One process each."""
        return [Sample(_whole([AGENTBUS, "identity"], self._place, self._data), _bare(self._place, self._data))]

    def close(self) -> None:
        """Nothing is left running."""


class Serving:
    """P9."""

    rounds = 21

    def __init__(self, place: Place) -> None:
        self.figures = (
            Figure("P9", "mcp: initialize, no journal", "python -c pass", "s", Bar(3)),
            Figure("P9", f"mcp: initialize, {place.commits:,} commits", "python -c pass", "s", Bar(3)),
            Figure("P9", "mcp: initialize, no journal", "no-op SDK server", "s", Bar(0.12)),
            Figure("P9", "mcp: tools/list, no journal", "python -c pass", "s", Bar(6)),
        )
        self._place = place
        self._empty, self._long = place.new("empty"), place.new("long")
        place.shelf.put(Plan(place.commits), self._long)

    def sample(self) -> list[Sample]:
        """One start each; `python -c pass` before every one that is measured beside it."""
        place, empty = self._place, self._empty
        bare, first = _bare(place, empty), _answered(MCP, place, empty)
        sdk = _answered(NO_OP_SDK, place, empty)
        bare_2, long = _bare(place, empty), _answered(MCP, place, self._long)
        bare_3, lists = _bare(place, empty), _answered(MCP, place, empty, lists=True)
        return [Sample(first, bare), Sample(long, bare_2), Sample(first, sdk), Sample(lists, bare_3)]

    def close(self) -> None:
        """Nothing is left running."""


def _bare(place: Place, data: Path) -> float:
    return _whole([sys.executable, "-c", "pass"], place, data)


def _whole(arguments: list[str], place: Place, data: Path) -> float:
    """Seconds from the start of a process to its end."""
    began = time.perf_counter()
    subprocess.run(
        arguments,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=place.repository,
        env=place.environment(data),
    )
    return time.perf_counter() - began


def _answered(argv: tuple[str, ...], place: Place, data: Path, *, lists: bool = False) -> float:
    """Seconds from the start of a server to its answer to ``initialize``, or to the ``tools/list`` after it."""
    asked = INITIALIZE + (INITIALIZED + request(_TOOLS_LIST_ID, "tools/list") if lists else b"")
    wanted = _TOOLS_LIST_ID if lists else 1
    began = time.perf_counter()
    server = Server(argv, place, data)
    server.send(asked)
    while json.loads(server.line()).get("id") != wanted:
        pass
    seconds = time.perf_counter() - began
    server.kill()
    return seconds
