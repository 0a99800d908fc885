"""Answers read from a State: what waits, which channels and sessions there are, pages, the auditor's view. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from agentbus import wire
from agentbus.events import MemoryEdited, Posted
from agentbus.kinds import MEMORY
from agentbus.state import ALWAYS_MS, hidden_through, shown_bytes, unread_messages
from journal import Place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from agentbus.state import Channel, Session, State
    from journal import Commit


def pending(state: State, identity: str, *, horizon_ms: int = ALWAYS_MS) -> list[dict[str, Any]]:
    """[{channel, count}] for each of the identity's channels with unread messages, unacked ones included."""
    counted = [
        {"channel": channel, "count": unread_messages(state, identity, channel, horizon_ms)}
        for channel in state.subscriptions.get(identity, {})
    ]
    return [row for row in counted if row["count"]]


def channel_rows(state: State, identity: str | None = None, *, horizon_ms: int = ALWAYS_MS) -> list[dict[str, Any]]:
    """[{channel, kind, messages, last_seq}] by name; with an identity also whether it is ``subscribed``."""
    rows = []
    for name in sorted(state.channels):
        row = _channel_row(state.channels[name], horizon_ms)
        if identity is not None:
            row["subscribed"] = name in state.subscriptions.get(identity, {})
        rows.append(row)
    return rows


def _channel_row(channel: Channel, horizon_ms: int) -> dict[str, Any]:
    return {
        "channel": channel.name,
        "kind": channel.kind,
        "messages": len(channel.retained) - channel.retained.first_after(hidden_through(channel, horizon_ms)),
        "last_seq": channel.last_seq,
    }


def live_sessions(state: State, gone: Collection[str]) -> list[Session]:
    """Sessions whose owner lives, by identity; ``gone`` is the owners that do not."""
    return [state.sessions[name] for name in sorted(state.sessions) if state.sessions[name].owner not in gone]


def subscribers(state: State, channel: str, author: str) -> list[str]:
    """Identities subscribed to the channel, its author left out."""
    return [identity for identity, mine in state.subscriptions.items() if channel in mine and identity != author]


class Located(msgspec.Struct, frozen=True, gc=False):
    """A retained message or live revision: where its body lies, and what the State knows that the body does not."""

    seq: int
    channel: str
    place: Place
    memory: tuple[int, int] | None
    addressed: tuple[str, ...]


class Body(msgspec.Struct, frozen=True, gc=False):
    """A message or memory revision: where it stands, and what its line in the journal says."""

    at: Located
    time: str
    event: Posted | MemoryEdited


def body_of(at: Located, commit: Commit) -> Body:
    """The one message in the line that lies there: a command writes at most one."""
    event = next(event for event in wire.decode(commit.events) if isinstance(event, Posted | MemoryEdited))
    return Body(at, commit.time, event)


def located(state: State, channel: Channel, index: int) -> Located:
    """The message at an index of a channel; ``memory`` is (id, revision) on a memory channel."""
    seq = channel.retained.seqs[index]
    memory = state.memory_at(seq) if channel.kind == MEMORY else None
    return Located(
        seq,
        channel.name,
        channel.retained.place(index),
        (memory.id, memory.revision) if memory else None,
        state.addressed.get(seq, ()),
    )


def locate(state: State, messages: Iterable[tuple[int, str]]) -> list[Located]:
    """Those of the (seq, channel) messages that are retained. A reset may have taken the channel itself."""
    found = []
    for seq, name in messages:
        channel = state.channels.get(name)
        index = None if channel is None else channel.retained.find(seq)
        if channel is not None and index is not None:
            found.append(located(state, channel, index))
    return found


class Page(msgspec.Struct, frozen=True):
    """Messages next to an anchor, oldest first; ``truncated``: there are more of them on the far side."""

    messages: list[Located]
    truncated: bool


def history(  # noqa: PLR0913  # a page has so many bounds, each named where it is asked for
    state: State,
    channel: Channel,
    *,
    before: int | None,
    after: int | None,
    count: int,
    bytes_max: int,
    horizon_ms: int = ALWAYS_MS,
) -> Page:
    """At most ``count`` messages that take at most ``bytes_max`` together; the one next to the anchor always.

    ``before`` and ``after`` are exclusive seqs. With ``after`` the page begins there and goes up; else it ends at
    ``before``, or at the newest message, and goes down.
    """
    retained = channel.retained
    start = retained.first_after(max(after or 0, hidden_through(channel, horizon_ms)))
    stop = len(retained) if before is None else retained.first_after(before - 1)
    upwards = after is not None
    indexes = range(start, stop) if upwards else range(stop - 1, start - 1, -1)
    found: list[Located] = []
    for index in indexes[:count]:
        bytes_max -= shown_bytes(channel, index)
        if found and bytes_max < 0:
            break
        found.append(located(state, channel, index))
    return Page(found if upwards else found[::-1], truncated=len(found) < len(indexes))


def oldest_unread_ms(state: State, identity: str, channel: str, *, horizon_ms: int = ALWAYS_MS) -> int | None:
    """The time of the oldest unread message, in ms since 1970 UTC; None if nothing is unread."""
    found = state.channels[channel]
    after = max(state.subscriptions[identity][channel].cursor, hidden_through(found, horizon_ms))
    for index in found.retained.walk(after, without=state.identities.find(identity)):
        return found.retained.times[index]
    return None


def needed_segments(state: State) -> frozenset[int]:
    """First seqs of the journal's segments in which a body lies that may still be read."""
    return frozenset(first for channel in state.channels.values() for first in channel.retained.segments())


def canonical(state: State) -> dict[str, Any]:
    """The State as auditors see it; each list sorted by its first keys."""
    return {
        "last_seq": state.last_seq,
        "channels": channel_rows(state),
        "sessions": [_session_row(state.sessions[name]) for name in sorted(state.sessions)],
        "subscriptions": [
            {
                "as": identity,
                "channel": channel,
                "cursor": state.subscriptions[identity][channel].cursor,
                "unread": unread_messages(state, identity, channel),
            }
            for identity in sorted(state.subscriptions)
            for channel in sorted(state.subscriptions[identity])
        ],
        "batches": [
            {"as": identity, "token": state.batches[identity].token, "ends": state.batches[identity].ends}
            for identity in sorted(state.batches)
        ],
        "memories": [_memory_row(state, number) for number in sorted(state.memories)],
    }


def encode_canonical(state: State) -> bytes:
    """canonical() as one line of JSON: keys sorted, compact, UTF-8, without a line end."""
    return msgspec.json.encode(canonical(state), order="deterministic")


def _session_row(session: Session) -> dict[str, Any]:
    row = {
        "as": session.as_,
        "name": session.name,
        "owner": session.owner,
        "context": session.context,
        "registered_at": session.registered_at,
    }
    if session.parent is not None:
        row["parent"] = session.parent
    return row


def _memory_row(state: State, number: int) -> dict[str, Any]:
    memory = state.memories[number]
    return {
        "id": memory.id,
        "channel": memory.channel,
        "seq": memory.seq,
        "revision": memory.revision,
        "from": state.author_of(memory.id),
    }
