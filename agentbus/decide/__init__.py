"""The rules: State + command + facts -> a Decision, or a refusal. Pure; nothing here changes the State.

Rules run under the writer lock on a State that has caught up, so what they check is still true when their events are
written. A rule may run twice for one command: it only reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from agentbus import commands as cmd
from agentbus.decide import ackall, channels, memories, messages, receiving, retention, sessions
from agentbus.events import Evicted, Reset

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.commands import Command, Decision, Facts, R
    from agentbus.state import State


def decide(state: State, command: Command[R], facts: Facts) -> Decision[R]:
    """What follows from a command at this State. What retention has to evict stands in front of its events.

    Raises:
        BusError: a refusal; the message names what was given and the next step.
    """
    rule = _RULES[type(command)]
    decision = cast("Decision[R]", rule(state, command, facts))
    if not decision.events or type(decision.events[0]) is Evicted:
        return decision
    evicted = retention.due(state, facts)
    return cmd.Decision((*evicted, *decision.events), decision.result) if evicted else decision


def _reset(state: State, command: cmd.Reset, facts: Facts) -> Decision[None]:  # noqa: ARG001  # one shape for all rules
    return cmd.Decision((Reset(by=command.by),), None)


_RULES: dict[type, Callable[[State, Any, Facts], Decision[Any]]] = {
    cmd.Register: sessions.register,
    cmd.EndSessions: sessions.end_sessions,
    cmd.CreateChannel: channels.create_channel,
    cmd.Subscribe: channels.subscribe,
    cmd.Unsubscribe: channels.unsubscribe,
    cmd.Post: messages.post,
    cmd.EditMemory: memories.edit_memory,
    cmd.DeleteMemory: memories.delete_memory,
    cmd.Receive: receiving.receive,
    cmd.AckAll: ackall.ack_all,
    cmd.Reset: _reset,
}
