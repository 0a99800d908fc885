"""What was unread for one identity. Pure: reads a State; the texts stand in the journal, and are filled in later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, to_builtins

from agentbus.events import MemoryEdited, Posted
from agentbus.queries import located
from agentbus.state import handed_out, hidden_through, unread_messages
from journal import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentbus.events import AnyEvent
    from agentbus.state import State

    Record = dict[str, Any]


def is_known(state: State, identity: str) -> bool:
    """Whether the bus has seen an identity since it was last reset."""
    return state.identities.find(identity) is not None


def unread(state: State, identity: str, horizon_ms: int) -> Record:
    """Where an identity stood in each of its channels, and which messages lay above that, its own left out.

    As the journal counts: what was handed out and not acknowledged is unread, too, and so is what was over age by then
    and not yet evicted, though nobody is handed that any more.

    Args:
        state: as it was.
        identity: one that is known.
        horizon_ms: what was posted before is over age, as far as the retention that it comes from is the true one.
    """
    mine = state.subscriptions.get(identity, {})
    batch = state.batches.get(identity)
    found: Record = {
        "as": identity,
        "seq": state.last_seq,
        "live": identity in state.sessions,
        "channels": [
            {
                "channel": name,
                "cursor": mine[name].cursor,
                "unread": (count := unread_messages(state, identity, name)),
                "over_age": count - unread_messages(state, identity, name, horizon_ms),
            }
            for name in sorted(mine)
        ],
        "messages": sorted(_messages(state, identity, horizon_ms), key=lambda row: int(row["seq"])),
        "gaps": [to_builtins(gap) for name in sorted(mine) for gap in mine[name].gaps],
    }
    if batch is not None:
        found["batch"] = batch.token
    return found


def _messages(state: State, identity: str, horizon_ms: int) -> Iterable[Record]:
    own = state.identities.find(identity)
    for name, subscription in state.subscriptions.get(identity, {}).items():
        channel = state.channels[name]
        hidden = hidden_through(channel, horizon_ms)
        handed = set(handed_out(state, identity, channel)) if identity in state.batches else set()
        for index in channel.retained.walk(subscription.cursor, without=own):
            at = located(state, channel, index)
            row: Record = {
                "seq": at.seq,
                "time": format_time(channel.retained.times[index]),
                "channel": name,
                "from": state.identities.names[channel.retained.authors[index]],
                "addressed": identity in at.addressed,
                "handed_out": index in handed,
                "over_age": at.seq <= hidden,
            }
            if at.memory is not None:
                row["memory_id"], row["revision"] = at.memory
            yield row


def fill(row: Record, events: Iterable[AnyEvent]) -> None:
    """Put the texts of its line into a message's row."""
    for event in events:
        if isinstance(event, Posted | MemoryEdited):
            row["content"] = event.content
            row |= {name: text for name in ("label", "metadata") if (text := getattr(event, name)) is not UNSET}
            if isinstance(event, Posted) and event.reply_to is not UNSET:
                row["reply_to"] = event.reply_to
