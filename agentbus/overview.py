"""How everybody stands: who is live, what waits for whom and since when, who listens where. Pure: no clock."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from agentbus.state import Session, hidden_through
from journal import parse_time

if TYPE_CHECKING:
    from collections.abc import Collection

    from agentbus.state import State


class Standing(Struct, frozen=True, kw_only=True):
    """One identity that is live or has subscriptions.

    Attributes:
        session: its live one.
        unread: by channel it is subscribed to, what was handed out and not acknowledged included.
        handed_out: so many of them were.
        addressed: so many of them are addressed to it.
        oldest_ms: the time of the oldest of them.
        unasked_ms: the time of the oldest that it has not even been handed: it has not called receive since.
        seen_ms: when it last registered, subscribed, posted, received or acknowledged. Of one that waits in receive and
            is sent nothing that is noted once an hour.
        idle_ms: the same without its posts, which do not keep a subscription from expiring; None without any.
    """

    identity: str
    session: Session | None
    unread: dict[str, int]
    handed_out: int
    addressed: int
    oldest_ms: int | None
    unasked_ms: int | None
    seen_ms: int
    idle_ms: int | None

    @property
    def total(self) -> int:
        """Unread messages in all its channels."""
        return sum(self.unread.values())


class Audience(Struct, frozen=True):
    """Who listens on a channel: how many are subscribed, how many of them live; and the time of its newest message."""

    subscribers: int
    live: int
    newest_ms: int | None


def standings(state: State, gone: Collection[str], horizon_ms: int) -> list[Standing]:
    """Everybody who is live or has subscriptions, by identity.

    Args:
        state: as it is now.
        gone: the owners with a session that live no more.
        horizon_ms: what was posted before is too old to be shown.
    """
    hidden = {name: hidden_through(channel, horizon_ms) for name, channel in state.channels.items()}
    live = {name: session for name, session in state.sessions.items() if session.owner not in gone}
    cursors = {
        identity: {channel: max(each.cursor, hidden[channel]) for channel, each in mine.items()}
        for identity, mine in state.subscriptions.items()
    }
    addressed, posted = _addressed(state, cursors), _posted(state)
    return [
        _standing(
            state,
            identity,
            live.get(identity),
            cursors.get(identity, {}),
            _Texts(addressed[identity], posted.get(identity)),
        )
        for identity in sorted({*live, *cursors})
    ]


def audiences(state: State, gone: Collection[str]) -> dict[str, Audience]:
    """Every channel's, by name; ``gone`` as above."""
    subscribed: Counter[str] = Counter()
    live: Counter[str] = Counter()
    for identity, mine in state.subscriptions.items():
        session = state.sessions.get(identity)
        subscribed.update(mine.keys())
        if session is not None and session.owner not in gone:
            live.update(mine.keys())
    return {
        name: Audience(subscribed[name], live[name], channel.retained.times[-1] if len(channel.retained) else None)
        for name, channel in state.channels.items()
    }


class _Texts(Struct, frozen=True):
    """Unread ones addressed to an identity, and when it wrote its last one that is retained."""

    addressed: int
    posted_ms: int | None


def _standing(state: State, identity: str, session: Session | None, cursors: dict[str, int], texts: _Texts) -> Standing:
    batch = state.batches.get(identity)
    ends = batch.ends if batch else {}
    behind = {channel: max(cursor, ends.get(channel, 0)) for channel, cursor in cursors.items()}
    unread = {channel: _unread(state, identity, channel, cursor) for channel, cursor in cursors.items()}
    waiting = sum(_unread(state, identity, channel, cursor) for channel, cursor in behind.items())
    actives = [subscription.active_ms for subscription in state.subscriptions.get(identity, {}).values()]
    registered = [] if session is None else [parse_time(session.registered_at)]
    posted = [] if texts.posted_ms is None else [texts.posted_ms]
    return Standing(
        identity=identity,
        session=session,
        unread=unread,
        handed_out=sum(unread.values()) - waiting,
        addressed=texts.addressed,
        oldest_ms=_oldest_ms(state, identity, cursors),
        unasked_ms=_oldest_ms(state, identity, behind),
        seen_ms=max(actives + registered + posted),
        idle_ms=max(actives, default=None),
    )


def _unread(state: State, identity: str, channel: str, cursor: int) -> int:
    own = state.identities.find(identity)
    return state.channels[channel].retained.count_between(cursor, state.last_seq + 1, without=own)


def _oldest_ms(state: State, identity: str, cursors: dict[str, int]) -> int | None:
    """The time of the first message above the cursors; None if there is none."""
    own = state.identities.find(identity)
    firsts = []
    for channel, cursor in cursors.items():
        retained = state.channels[channel].retained
        index = next(retained.walk(cursor, without=own), None)
        if index is not None:
            firsts.append((retained.seqs[index], retained.times[index]))
    return min(firsts)[1] if firsts else None


def _addressed(state: State, cursors: dict[str, dict[str, int]]) -> Counter[str]:
    """How many of the messages above the cursors are addressed to each identity."""
    lowest = {identity: min(mine.values()) for identity, mine in cursors.items()}
    found: Counter[str] = Counter()
    for seq, identities in state.addressed.items():
        for identity in identities:
            if seq > lowest.get(identity, seq) and _is_above(state, cursors[identity], seq):
                found[identity] += 1
    return found


def _is_above(state: State, cursors: dict[str, int], seq: int) -> bool:
    at = state.locate(seq)
    assert at is not None, seq  # noqa: S101  # addressees are remembered of retained messages only
    return seq > cursors.get(at[0].name, seq)


def _posted(state: State) -> dict[str, int]:
    """When each author wrote last, as far as that is retained."""
    latest: dict[int, int] = {}
    for channel in state.channels.values():
        # The last of each author's stays; a loop of Python over a million messages would take its time.
        for author, time_ms in dict(zip(channel.retained.authors, channel.retained.times, strict=True)).items():
            latest[author] = max(latest.get(author, time_ms), time_ms)
    return {state.identities.names[author]: time_ms for author, time_ms in latest.items()}
