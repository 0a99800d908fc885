"""A State for a journal whose first part is not there: empty, and never surprised. Pure.

Nothing may be asked of it but what the part that is there can answer. A subscription that the events prove to be older
is taken to begin just before that part: whatever was posted in it lies above that cursor, as it should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentbus import events as ev
from agentbus.kinds import ORDINARY
from agentbus.retained import Retained
from agentbus.state import Channel, State, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentbus.events import AnyEvent


def begin(first_seq: int) -> State:
    """What is known before a journal's first line, which has this seq; its own beginning is missing."""
    state = State()
    if first_seq > 1:
        state.lost = [1]  # so that the fold counts what it does not find, and goes on
        for made in ev.DEFAULT_CHANNELS:
            state.channels[made.channel] = Channel(made.channel, made.kind, Retained())
    return state


def admit(state: State, events: Iterable[AnyEvent], first_seq: int) -> None:
    """Take in what a commit's events prove to have been there before ``first_seq``."""
    for event in events:
        if isinstance(event, ev.Delivered):
            for channel in event.ends:
                state.channels.setdefault(channel, Channel(channel, ORDINARY, Retained()))
                mine = state.subscriptions.setdefault(event.as_, {})
                mine.setdefault(channel, Subscription(first_seq - 1, 0))
                state.identities.add(event.as_)
