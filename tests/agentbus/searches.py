"""What the tests of search share: texts by the hundred, and a search that reads them all and knows no index."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from agentbus import events as ev
from agentbus import wire
from agentbus.search import matching
from tests.agentbus.hosts import call, events

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agentbus.host import Host


def fill(host: Host, texts: Iterable[str], channel: str = "general", label: str | None = None) -> None:
    """Post texts as "filler", by a line each as a server writes them; not durable, and so a hundred times as fast."""
    for text in texts:
        posted = ev.Posted(
            as_="filler", channel=channel, content=text, context="x", label=UNSET if label is None else label
        )
        write(host, wire.encode([posted]))


def write(host: Host, line: bytes) -> None:
    """A line with these events, written as they are."""
    host.bus._journal.commit(lambda _: line, deadline=time.monotonic() + 5, flush=False)


def naive(data: Path, query: str, channel: str | None = None) -> set[int]:
    """Seqs of what stands in the journal, is not edited, deleted or evicted since, and holds every word."""
    texts: dict[int, tuple[int, str, dict[str, Any]]] = {}  # by seq, of a memory by its id
    memories = set()
    kinds = {}
    for event in events(data):
        match event["type"]:
            case "channel_created":
                kinds[event["channel"]] = event["kind"]
            case "posted":
                texts[event["seq"]] = (event["seq"], event["channel"], event)
                if kinds[event["channel"]] == "memory":
                    memories.add(event["seq"])
            case "memory_edited":
                texts[event["id"]] = (event["seq"], texts[event["id"]][1], event)
            case "memory_deleted":
                del texts[event["id"]]
            case "evicted":
                gone = [seq for seq, (_, where, _) in texts.items() if where == event["channel"]]
                for seq in gone:
                    if seq < event["before"] and seq not in memories:
                        del texts[seq]
    words = matching.parse_query(query)
    return {
        seq
        for seq, where, event in texts.values()
        if channel in (None, where) and all(matching.count(words, matching.whole(event["content"], event.get("label"))))
    }


def found(host: Host, as_: str, query: str, **arguments: Any) -> list[int]:  # noqa: ANN401  # JSON
    """Seqs of all hits, page by page in their order; each page's ``searched`` must be the same."""
    seqs: list[int] = []
    cursor: dict[str, Any] = {}
    while True:
        result = call(host, "search", as_=as_, query=query, **arguments, **cursor)
        seqs += [hit["seq"] for hit in result["hits"]]
        if "next" not in result:
            return seqs
        assert result["hits"], "a page that has a next one is not empty"
        cursor = {"cursor": result["next"]}


def index_files(data: Path) -> list[str]:
    """Names of the finished files of the index."""
    try:
        return sorted(name for name in os.listdir(data / "search") if name[:20].isdigit())
    except FileNotFoundError:
        return []
