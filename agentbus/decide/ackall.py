"""The rule of ack-all: what waits for an identity that nobody will read for it again counts as read. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentbus.commands import AckAllResult, Backlog, Decision, Facts
from agentbus.decide.channels import nearest
from agentbus.errors import NOT_FOUND, VALIDATION, BusError, render_value
from agentbus.events import AckedAll

if TYPE_CHECKING:
    from agentbus.commands import AckAll
    from agentbus.state import State


def ack_all(state: State, command: AckAll, facts: Facts) -> Decision[AckAllResult]:  # noqa: ARG001  # a rule's shape
    """One ``acked_all``, if that changes anything. Whether the identity is live is for the person to weigh."""
    found = preview(state, command)
    if not found.anything:
        return Decision((), found)
    return Decision((AckedAll(as_=command.as_, before=command.before, by=command.by),), found)


def preview(state: State, command: AckAll) -> AckAllResult:
    """What would count as read.

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
        backlog for channel in sorted(mine) if (backlog := _backlog(state, command, channel)).messages or backlog.gaps
    )
    batch = state.batches.get(command.as_) if mine else None
    covered = batch is not None and all(end < command.before for end in batch.ends.values())
    return AckAllResult(backlogs, batch=covered)


def _backlog(state: State, command: AckAll, channel: str) -> Backlog:
    subscription = state.subscriptions[command.as_][channel]
    retained, own = state.channels[channel].retained, state.identities.find(command.as_)
    messages = retained.count_between(subscription.cursor, command.before, without=own)
    oldest = next(retained.walk(subscription.cursor, without=own)) if messages else None
    return Backlog(
        channel,
        messages,
        None if oldest is None else retained.times[oldest],
        sum(gap.to < command.before for gap in subscription.gaps),
    )
