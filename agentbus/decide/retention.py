"""The rule of retention: which messages leave the State because of their age, and when that is written. Pure.

Memories have no age. What is over age is shown to nobody from that moment on, evicted yet or not (`hidden_through`);
the event frees the room it takes, and tells those of it who had not been handed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentbus.events import Evicted
from agentbus.limits import EVICTED_CHANNELS_MAX
from agentbus.state import gaps_after_eviction, handed_through, hidden_through

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentbus.commands import Facts
    from agentbus.events import Gap
    from agentbus.state import State


def due(state: State, facts: Facts) -> list[Evicted]:
    """What the next line has to begin with: once an interval, if there is anything.

    The interval is counted from the last eviction in the journal, so that one process does it for all. Counted in both
    directions: where the clock was set back since, the next one is not an age away.
    """
    if state.oldest_ms >= facts.horizon_ms:
        return []
    if abs(facts.time_ms - state.evicted_ms) < facts.policy.cleanup_interval_ms:
        return []
    return _evictions(state, facts, [])


def passed_over(
    state: State, identity: str, channels: Iterable[str], facts: Facts, *, own: bool
) -> tuple[list[Evicted], dict[str, list[Gap]]]:
    """What must be evicted before an identity is handed anything that lies behind it in these channels.

    Whatever the interval says: a batch that passes over messages which are still in the State would hand them out when
    it is repeated, and once it is acked nobody would ever learn of them.

    Args:
        state: of now.
        identity: it is subscribed to all of the channels.
        channels: those it is to be handed something of.
        facts: of now.
        own: whether it is to be handed its own messages too.

    Returns:
        The events, and by channel the gaps of its subscription as they are then, where that changes them.
    """
    if state.oldest_ms >= facts.horizon_ms:
        return [], {}
    without, gaps = None if own else state.identities.find(identity), {}
    for name in channels:
        channel = state.channels[name]
        before = hidden_through(channel, facts.horizon_ms) + 1
        if channel.retained.count_between(handed_through(state, identity, name), before, without=without):
            gaps[name] = gaps_after_eviction(state, identity, channel, before)
    return (_evictions(state, facts, list(gaps)), gaps) if gaps else ([], {})


def _evictions(state: State, facts: Facts, needed: list[str]) -> list[Evicted]:
    """One event for each channel with something over age: those that are ``needed``, then as many as go in a line."""
    events = []
    for name in dict.fromkeys((*needed, *state.channels)):
        through = hidden_through(state.channels[name], facts.horizon_ms)
        if through:
            events.append(Evicted(channel=name, before=through + 1))
    return events[: max(EVICTED_CHANNELS_MAX, len(needed))]
