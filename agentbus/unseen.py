"""What waits for an identity that no receive has handed out yet: whom it is from, and where. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from agentbus.queries import Located, located
from agentbus.state import hidden_through

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from agentbus.state import Channel, State


class Unseen(Struct, frozen=True):
    """One message: where it lies, and who wrote it."""

    at: Located
    sender: str


def unseen(
    state: State,
    identity: str,
    *,
    horizon_ms: int,
    after: int = 0,
    channels: Collection[str] | None = None,
    only_addressed: bool = False,
) -> list[Unseen]:
    """The messages that no batch of the identity holds and no ack covers, its own left out, by seq.

    Args:
        state: the bus.
        identity: of whom; without subscriptions nothing waits.
        horizon_ms: what was written before is shown to nobody.
        after: only what has a higher seq.
        channels: only these; None for all it is subscribed to.
        only_addressed: only what is addressed to it.
    """
    batch = state.batches.get(identity)
    found: list[Unseen] = []
    for name, subscription in state.subscriptions.get(identity, {}).items():
        if channels is not None and name not in channels:
            continue
        channel = state.channels[name]
        handed = batch.ends.get(name, 0) if batch else 0
        start = max(subscription.cursor, handed, after, hidden_through(channel, horizon_ms))
        found += _walk(state, channel, start, identity, only_addressed=only_addressed)
    return sorted(found, key=lambda each: each.at.seq)


def _walk(state: State, channel: Channel, after: int, identity: str, *, only_addressed: bool) -> Iterator[Unseen]:
    retained = channel.retained
    for index in retained.walk(after, without=state.identities.find(identity)):
        if not only_addressed or identity in state.addressed.get(retained.seqs[index], ()):
            yield Unseen(located(state, channel, index), state.identities.names[retained.authors[index]])


def by_channel(messages: Collection[Unseen]) -> list[tuple[str, int, list[str]]]:
    """(channel, how many, from whom) of messages, the fullest channel first; senders with the most messages first."""
    counted: dict[str, Counter[str]] = {}
    for message in messages:
        counted.setdefault(message.at.channel, Counter())[message.sender] += 1
    rows = [(name, each.total(), [sender for sender, _ in each.most_common()]) for name, each in counted.items()]
    return sorted(rows, key=lambda row: (-row[1], row[0]))
