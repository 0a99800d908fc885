"""The rules: State + command + facts -> a Decision, or a refusal. Pure; nothing here changes the State.

Rules run under the writer lock on a State that has caught up, so what they check is still true when their events are
written. A rule may run twice for one command: it only reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from agentbus import commands as cmd
from agentbus.decide import channels, messages, receiving, sessions
from agentbus.events import Reset

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.commands import Command, Decision, Facts, R
    from agentbus.state import State


def decide(state: State, command: Command[R], facts: Facts) -> Decision[R]:
    """What follows from a command at this State.

    Raises:
        BusError: a refusal; the message names what was given and the next step.
    """
    rule = _RULES[type(command)]
    return cast("Decision[R]", rule(state, command, facts))


def _reset(state: State, command: cmd.Reset, facts: Facts) -> Decision[None]:  # noqa: ARG001  # one shape for all rules
    return cmd.Decision((Reset(by=command.by),), None)


_RULES: dict[type, Callable[[State, Any, Facts], Decision[Any]]] = {
    cmd.Register: sessions.register,
    cmd.EndSessions: sessions.end_sessions,
    cmd.CreateChannel: channels.create_channel,
    cmd.Subscribe: channels.subscribe,
    cmd.Unsubscribe: channels.unsubscribe,
    cmd.Post: messages.post,
    cmd.Receive: receiving.receive,
    cmd.Reset: _reset,
}
