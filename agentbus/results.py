"""Result objects as tools answer them: messages, memories, and how old they are in words. Pure.

A peer's text is always a JSON string value here; who wrote it, when and under which seq stand outside of it.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET

from agentbus.events import MemoryEdited, Posted
from agentbus.limits import SEARCHED_NAMES_BYTES_MAX
from journal import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import TypeAlias

    from agentbus.commands import ReceiveResult
    from agentbus.queries import Body
    from agentbus.search.scope import Scope
    from agentbus.state import Session

    Rows: TypeAlias = list[Any] | dict[str, Any]

T = TypeVar("T")

_COUNT_BYTES = 32
"""What a list in a result takes beside itself and twice its name: quotes, colons, commas, and how many are left out."""


def encoded_bytes(result: object) -> int:
    """How many UTF-8 bytes a result's text takes."""
    return len(msgspec.json.encode(result))


def age(time: str, now_ms: int) -> str:
    """How long ago a time was, in the largest unit that fits: "now", "3 min", "5 h", "2 d". Never negative."""
    seconds = max(0, now_ms - parse_time(time)) // 1000
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return "now"


def message(body: Body, now_ms: int, reader: str) -> dict[str, Any]:
    """A message as receive and history show it to ``reader``; a memory's id and revision stand in front."""
    record = _memory_first(body) | {
        "seq": body.at.seq,
        "channel": body.at.channel,
        "from": body.event.as_,
        "context": body.event.context,
        "time": body.time,
        "age": age(body.time, now_ms),
        "content": body.event.content,
    }
    if reader in body.at.addressed:
        record["addressed"] = True
    return record | optional_fields(body.event)


def _memory_first(body: Body) -> dict[str, Any]:
    """What stands in front of a memory's own text; nothing for a message."""
    return {} if body.at.memory is None else dict(zip(("memory_id", "revision"), body.at.memory, strict=True))


def memory(body: Body, now_ms: int) -> dict[str, Any]:
    """A memory as get_memory shows it."""
    assert body.at.memory is not None  # noqa: S101  # the caller located a live revision
    number, revision = body.at.memory
    return {
        "id": number,
        "channel": body.at.channel,
        "seq": body.at.seq,
        "revision": revision,
        "from": body.event.as_,
        "time": body.time,
        "age": age(body.time, now_ms),
        "content": body.event.content,
        **optional_fields(body.event),
    }


def optional_fields(event: Posted | MemoryEdited) -> dict[str, Any]:
    """label, reply_to and metadata, where they are set."""
    fields: dict[str, object] = {"label": event.label, "metadata": event.metadata}
    if isinstance(event, Posted):
        fields["reply_to"] = event.reply_to
    return {name: value for name, value in fields.items() if value is not UNSET}


def hit(body: Body, snippet: str, weight: float, now_ms: int) -> dict[str, Any]:
    """A search hit: where it is and what it looks like, not its whole text."""
    record = _memory_first(body) | {
        "seq": body.at.seq,
        "channel": body.at.channel,
        "from": body.event.as_,
        "time": body.time,
        "age": age(body.time, now_ms),
        "snippet": snippet,
        # Three decimals tell hits apart; a word that most texts hold weighs less than shows, and is a hit all the same.
        "score": max(0.001, round(weight, 3)),
    }
    return record if body.event.label is UNSET else record | {"label": body.event.label}


def searched(channels: list[str], scope: Scope) -> dict[str, Any]:
    """Where a search looked; ``since`` and ``until`` are null where it had no such bound.

    Of very many channels the first are named, and ``more_channels`` counts the rest.
    """
    since, until = (None if ms is None else format_time(ms) for ms in (scope.since_ms, scope.until_ms))
    named, cut = fit(channels, SEARCHED_NAMES_BYTES_MAX)
    record = {"channels": named, "since": since, "until": until}
    return record | ({"more_channels": len(channels) - len(named)} if cut else {})


def session(held: Session) -> dict[str, Any]:
    """A session as discover shows it."""
    record = {"as": held.as_, "context": held.context, "registered_at": held.registered_at}
    return record if held.client is None else record | {"client": held.client}


def receive(result: ReceiveResult, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What receive answers. Without a token there is nothing to ack."""
    record: dict[str, Any] = {"messages": messages}
    if result.token is not None:
        record["token"] = result.token
    if result.redelivered:
        record["redelivered"] = True
    if result.ack_ignored:
        record["ack_ignored"] = True
    if result.gaps:
        record["gaps"] = msgspec.to_builtins(list(result.gaps))
    if result.expired:
        record["expired"] = msgspec.to_builtins(list(result.expired))
    record["more"] = result.more
    record["instruction"] = _instruction(result)
    return record


def _instruction(result: ReceiveResult) -> str:
    if result.token is not None:
        more = "; more messages wait" if result.more else ""
        return f'Pass "{result.token}" as ack on your next receive{more}.'
    waiting = f"{result.more} more wait: call receive." if result.more else "Nothing new."
    return f"Acknowledged. {waiting}" if result.acked else waiting


def fit_lists(record: dict[str, Any], lists: dict[str, Rows], bytes_max: int) -> dict[str, Any]:
    """A result with lists, or objects, behind its other fields, cut so that it takes at most ``bytes_max`` bytes.

    The short ones stay whole. Of one that is cut the first rows are there, maybe none, and ``more_NAME`` counts the
    rest. No room at all is no fault: then all is counted.
    """
    whole = record | lists
    if encoded_bytes(whole) <= bytes_max:
        return whole
    left = bytes_max - encoded_bytes(record) - sum(2 * len(name) + _COUNT_BYTES for name in lists)
    kept: dict[str, Rows] = {}
    for done, name in enumerate(sorted(lists, key=lambda name: encoded_bytes(lists[name]))):
        kept[name] = _first(lists[name], left // (len(lists) - done))
        left -= encoded_bytes(kept[name])
    cut = dict(record)
    for name, rows in lists.items():
        cut[name] = kept[name]
        if len(kept[name]) < len(rows):
            cut[f"more_{name}"] = len(rows) - len(kept[name])
    return cut


def _first(rows: Rows, bytes_max: int) -> Rows:
    """The first rows, or entries, that take at most ``bytes_max`` bytes with commas and brackets."""
    if encoded_bytes(rows) <= bytes_max:
        return rows
    if isinstance(rows, dict):
        sizes = [encoded_bytes({name: row}) - 1 for name, row in rows.items()]
    else:
        sizes = [encoded_bytes([row]) - 1 for row in rows]
    many = bisect_right(list(accumulate(sizes, initial=1)), bytes_max) - 1
    return dict(islice(rows.items(), max(0, many))) if isinstance(rows, dict) else rows[: max(0, many)]


def fit(rows: Collection[T], bytes_max: int) -> tuple[list[T], bool]:
    """The first rows that fit into a result of ``bytes_max`` bytes (one always does), and whether any were cut off."""
    kept: list[T] = []
    for row in rows:
        bytes_max -= encoded_bytes(row) + 1
        if kept and bytes_max < 0:
            return kept, True
        kept.append(row)
    return kept, False
