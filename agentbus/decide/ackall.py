"""The rule of ack-all: what waits for an identity that nobody will read for it again counts as read. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentbus.commands import AckAllResult, Backlog, Decision, Facts
from agentbus.decide.channels import nearest
from agentbus.errors import NOT_FOUND, VALIDATION, BusError, render_value
from agentbus.events import AckedAll
from agentbus.state import gaps_after_eviction, hidden_through

if TYPE_CHECKING:
    from agentbus.commands import AckAll
    from agentbus.state import Channel, State


def ack_all(state: State, command: AckAll, facts: Facts) -> Decision[AckAllResult]:
    """One ``acked_all``, if that changes anything. Whether the identity is live is for the person to weigh."""
    found = preview(state, command, facts.horizon_ms)
    if not found.anything:
        return Decision((), found)
    return Decision((AckedAll(as_=command.as_, before=command.before, by=command.by),), found)


def preview(state: State, command: AckAll, horizon_ms: int) -> AckAllResult:
    """What would count as read. What is over age is shown to nobody any more: it counts as a gap, evicted yet or not.

    Raises:
        BusError: not_found, the identity is not known; validation, ``before`` lies beyond the journal's end, and what
            is posted later would count as read.
    """
    if state.identities.find(command.as_) is None:
        near = nearest(command.as_, state.identities.names)
        hint = f"did you mean {near}?" if near else "`agentbus status` shows which there are"
        raise BusError(NOT_FOUND, f"identity {render_value(command.as_)} is not known: {hint}")
    if command.before > state.last_seq + 1:
        raise BusError(
            VALIDATION,
            f"before {command.before} lies beyond the end of the journal, whose last seq is {state.last_seq}:"
            f" {state.last_seq + 1} is the most, and what it is unless told",
        )
    mine = state.subscriptions.get(command.as_, {})
    backlogs = tuple(
        backlog
        for channel in sorted(mine)
        if (backlog := _backlog(state, command, state.channels[channel], horizon_ms)).messages or backlog.gaps
    )
    batch = state.batches.get(command.as_) if mine else None
    covered = batch is not None and all(end < command.before for end in batch.ends.values())
    return AckAllResult(backlogs, batch=covered)


def _backlog(state: State, command: AckAll, channel: Channel, horizon_ms: int) -> Backlog:
    subscription, hidden = state.subscriptions[command.as_][channel.name], hidden_through(channel, horizon_ms)
    retained, own, after = channel.retained, state.identities.find(command.as_), max(subscription.cursor, hidden)
    messages = retained.count_between(after, command.before, without=own)
    oldest = next(retained.walk(after, without=own)) if messages else None
    return Backlog(
        channel.name,
        messages,
        None if oldest is None else retained.times[oldest],
        sum(gap.to < command.before for gap in gaps_after_eviction(state, command.as_, channel, hidden + 1)),
    )
