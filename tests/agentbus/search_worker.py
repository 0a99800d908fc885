"""A process that brings the search index up to date again and again, to be killed: ``search_worker.py DATA NAME``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from agentbus.search import index as index_room
from tests.agentbus.hosts import call, open_at
from tests.agentbus.searches import fill


def main() -> None:
    """Post a text, search, say so, and so on."""
    data, name = Path(sys.argv[1]), sys.argv[2]
    host = open_at(data)
    call(host, "register", name=name)
    vars(index_room)["SEARCH_BEHIND_MIN"] = 0
    os.write(1, b"ready\n")
    while True:
        fill(host, [f"common text of {name}"])
        call(host, "search", as_=name, query="common")
        os.write(1, b"again\n")


if __name__ == "__main__":
    main()
