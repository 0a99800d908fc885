"""Rules about channels and subscriptions. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from agentbus.commands import (
    CreateChannel,
    CreateChannelResult,
    Decision,
    Facts,
    Subscribe,
    SubscribeResult,
    Unsubscribe,
)
from agentbus.decide.sessions import require_session
from agentbus.errors import CAPACITY_EXHAUSTED, CONFLICT, NOT_FOUND, BusError, render_value
from agentbus.events import ChannelCreated, Subscribed, Unsubscribed
from agentbus.limits import CHANNELS_MAX, NEAREST_NAMES_MAX
from agentbus.state import hidden_through

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentbus.state import Channel, State


def require_channel(state: State, name: str) -> Channel:
    """The channel of this name.

    Raises:
        BusError: not_found, naming the nearest existing channels.
    """
    channel = state.channels.get(name)
    if channel is None:
        near = nearest(name, state.channels)
        listed = "list_channels, at a shell `agentbus channel list`, shows those that do"
        hint = f"did you mean {near}?" if near else listed
        raise BusError(NOT_FOUND, f"channel {render_value(name)} does not exist: {hint}")
    return channel


def nearest(name: str, names: Iterable[str]) -> str:
    """Existing names like this one, case ignored, quoted and joined by "or"; empty if none is like it."""
    folded: dict[str, str] = {existing.casefold(): existing for existing in names}
    close = difflib.get_close_matches(name.casefold(), folded, n=NEAREST_NAMES_MAX)
    return " or ".join(render_value(folded[match]) for match in close)


def create_channel(state: State, command: CreateChannel, facts: Facts) -> Decision[CreateChannelResult]:
    """Creating what exists with the same kind is no fault; another kind, or a name that differs by case only, is."""
    require_session(state, command.as_, facts.owner)
    result = CreateChannelResult(command.channel, command.kind, created=not require_creatable(state, command))
    if not result.created:
        return Decision((), result)
    return Decision((ChannelCreated(channel=command.channel, kind=command.kind, as_=command.as_),), result)


def require_creatable(state: State, command: CreateChannel) -> bool:
    """Whether the channel exists already, as the command wants it.

    Raises:
        BusError: conflict; it exists in another kind or spelling. capacity_exhausted; there are too many.
    """
    existing = state.channels.get(command.channel)
    if existing is None:
        _require_room(state, command.channel)
        return False
    if existing.kind != command.kind:
        raise BusError(
            CONFLICT,
            f'channel {render_value(existing.name)} exists with kind "{existing.kind}", not "{command.kind}":'
            " use it as it is, or choose another name",
        )
    return True


def _require_room(state: State, name: str) -> None:
    folded = name.casefold()
    for existing in state.channels:
        if existing.casefold() == folded:
            raise BusError(
                CONFLICT,
                f"channel {render_value(name)} differs only by case from {render_value(existing)}: use that one",
            )
    if len(state.channels) >= CHANNELS_MAX:
        raise BusError(
            CAPACITY_EXHAUSTED,
            f"there are {CHANNELS_MAX} channels, the most a bus may have: use an existing one",
        )


def subscribe(state: State, command: Subscribe, facts: Facts) -> Decision[SubscribeResult]:
    """A new subscription at now or before the oldest; an existing one is untouched, ``oldest`` included."""
    require_session(state, command.as_, facts.owner)
    channel = require_channel(state, command.channel)
    if command.channel in state.subscriptions.get(command.as_, {}):
        return Decision((), SubscribeResult(already=True))
    cursor = state.last_seq
    oldest = channel.retained.first_after(hidden_through(channel, facts.horizon_ms))
    if command.oldest and oldest < len(channel.retained):
        cursor = channel.retained.seqs[oldest] - 1
    made = Subscribed(as_=command.as_, channel=command.channel, cursor=cursor)
    return Decision((made,), SubscribeResult(already=False))


def unsubscribe(state: State, command: Unsubscribe, facts: Facts) -> Decision[None]:
    """Succeeds whatever the channel: a stale entry must be removable."""
    require_session(state, command.as_, facts.owner)
    if command.channel not in state.subscriptions.get(command.as_, {}):
        return Decision((), None)
    return Decision((Unsubscribed(as_=command.as_, channel=command.channel, reason="asked"),), None)
