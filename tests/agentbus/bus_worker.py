"""A process on the bus for tests that need several: ``bus_worker.py MODE DATA ...``. Prints one JSON value a line.

Modes: ``posts`` posts to general and ends; ``state`` drives random commands and prints its own canonical state.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.agentbus.hosts import call, live, open_at
from tests.agentbus.random_calls import RandomCalls


def _say(value: Any) -> None:  # noqa: ANN401  # JSON
    """One write a line: a kill must not cut one."""
    os.write(1, json.dumps(value).encode() + b"\n")


def posts(data: Path, name: str, count: int) -> None:
    """``count`` posts, each seq said once it was answered."""
    host = open_at(data)
    as_ = call(host, "register", name=name)["as"]
    _say(as_)
    sys.stdin.readline()
    for number in range(count):
        _say(call(host, "post", as_=as_, channel="general", content=f"{as_} {number}")["seq"])
    _say(live(host).decode())


def state(data: Path, name: str, seed: int) -> None:
    """Random commands of one process, then its state when told that all others have ended too."""
    host = open_at(data)
    calls = RandomCalls(host, name, random.Random(seed))  # noqa: S311  # repeatable, not secret
    for _ in range(120):
        calls.step()
    _say("done")
    sys.stdin.readline()
    _say(live(host).decode())


def main() -> None:
    """Dispatch."""
    mode, data, name, number = sys.argv[1:]
    {"posts": posts, "state": state}[mode](Path(data), name, int(number))


if __name__ == "__main__":
    main()
