"""Rules about who is here: register, and the end of a process's sessions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from agentbus.commands import Decision, EndSessions, Facts, Register, RegisterResult
from agentbus.errors import CONFLICT, NOT_FOUND, NOT_REGISTERED, VALIDATION, BusError, render_value
from agentbus.events import Ended, Expired, Registered, Subscribed, Unsubscribed
from agentbus.kinds import ORDINARY
from agentbus.limits import DISPLAY_NAME_BYTES_MAX, SUFFIX_TRIES_MAX
from agentbus.names import AgentName
from agentbus.state import unread_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.events import AnyEvent
    from agentbus.state import Session, State


def require_session(state: State, identity: str, owner: str) -> Session:
    """The live session ``as`` names, which must be of ``owner``, the calling process.

    Raises:
        BusError: not_registered.
    """
    session = state.sessions.get(identity)
    if session is None or session.owner != owner:
        raise BusError(
            NOT_REGISTERED,
            f'"as" {render_value(identity)} is no session of this process:'
            ' call register again and pass the "as" it returns',
        )
    return session


def register(state: State, command: Register, facts: Facts) -> Decision[RegisterResult]:
    """One commit: dead sessions, dropped subscriptions, ``registered``, then the persistent list's ``subscribed``.

    Nothing is written when the same session registers again and neither context, list nor ``resume`` changes anything.
    """
    if command.parent is not None:
        _require_parent(state, command.parent, facts)
    own = _own_session(state, command, facts)
    display = AgentName(own.as_) if own else _free_name(state, command, facts)
    dropped, expired = _dropped(state, display, command, facts)
    kept = set(state.subscriptions.get(display, {})) - {event.channel for event in dropped}
    subscribed, failed, new = _persistent(state, display, command, kept)
    result = RegisterResult(
        as_=display,
        resumed=command.resume and (bool(state.subscriptions.get(display)) or own is not None),
        already=own is not None,
        subscribed=subscribed,
        failed=failed,
        expired=expired,
    )
    if own and own.context == command.context and not dropped and not new:
        return Decision((), result)
    events: list[AnyEvent] = list(_gone_sessions(state, facts))
    events += [*dropped, _registered(display, command, facts), *new]
    return Decision(tuple(events), result)


def _require_parent(state: State, parent: str, facts: Facts) -> None:
    session = state.sessions.get(parent)
    if session is None or session.owner in facts.gone:
        raise BusError(
            NOT_FOUND,
            f'parent {render_value(parent)} is not a live session: register the parent first, or leave "parent" out',
        )


def _own_session(state: State, command: Register, facts: Facts) -> Session | None:
    """The session this owner registered under the same name and parent, whatever suffix it got."""
    for session in state.sessions.values():
        if (session.owner, session.name, session.parent) == (facts.owner, command.name, command.parent):
            return session
    return None


def _free_name(state: State, command: Register, facts: Facts) -> AgentName:
    """The display name, with the first suffix that no live session holds: Sam, Sam2; Sam/x, Sam/x-2 for children."""
    base = f"{command.parent}/{command.name}" if command.parent else command.name
    joint = "-" if command.parent else ""
    for number in range(1, SUFFIX_TRIES_MAX + 1):
        display = base if number == 1 else f"{base}{joint}{number}"
        held = state.sessions.get(display)
        taken = command.apart and display in state.subscriptions
        if not taken and (held is None or held.owner in facts.gone):
            return _checked_length(display)
    raise BusError(
        CONFLICT,
        f"{SUFFIX_TRIES_MAX} live sessions hold the name {render_value(base)}: end some, or choose another name",
    )


def _checked_length(display: str) -> AgentName:
    size = len(display.encode())
    if size > DISPLAY_NAME_BYTES_MAX:
        raise BusError(
            VALIDATION,
            f"the display name {render_value(display)} would take {size} bytes of UTF-8,"
            f" more than {DISPLAY_NAME_BYTES_MAX}: choose a shorter name",
        )
    return AgentName(display)


def _gone_sessions(state: State, facts: Facts) -> Iterator[Ended]:
    for session in state.sessions.values():
        if session.owner in facts.gone:
            yield Ended(as_=session.as_, owner=session.owner, reason="gone")


def _dropped(state: State, display: str, command: Register, facts: Facts) -> tuple[list[Unsubscribed], list[Expired]]:
    """Subscriptions that end with this register: all of them without ``resume``, else those idle too long."""
    mine = state.subscriptions.get(display, {})
    if not command.resume:
        return [Unsubscribed(as_=display, channel=channel, reason="fresh") for channel in mine], []
    expired = idle_subscriptions(state, display, facts)
    return [Unsubscribed(as_=display, channel=gone.channel, reason="expired") for gone in expired], expired


def idle_subscriptions(state: State, identity: str, facts: Facts) -> list[Expired]:
    """The identity's subscriptions whose idle clock has run out, with what is unread in each.

    Their gaps go with them: what retention took, or is about to, counts as unread here, or nobody would tell of it.
    """
    oldest = facts.time_ms - facts.policy.cursor_idle_ms
    return [
        Expired(channel=channel, unread=unread_messages(state, identity, channel) + _taken(state, identity, channel))
        for channel, subscription in state.subscriptions.get(identity, {}).items()
        if subscription.active_ms < oldest
    ]


def _taken(state: State, identity: str, channel: str) -> int:
    """How many messages of a channel, as far as that is known, were taken before the identity had acked them."""
    batch, gaps = state.batches.get(identity), state.subscriptions[identity][channel].gaps
    handed = batch.gone if batch is not None and state.channels[channel].kind == ORDINARY else []
    return sum(gap.count or 0 for gap in gaps) + sum(name == channel for _, name in handed)


def _persistent(
    state: State, display: str, command: Register, kept: set[str]
) -> tuple[list[str], dict[str, str], list[Subscribed]]:
    """The persistent list applied: channels subscribed now, entries that failed with why, and the new subscriptions."""
    subscribed: list[str] = []
    failed = dict(command.failed)
    new: list[Subscribed] = []
    for channel in command.channels:
        if channel not in state.channels:
            failed[channel] = f'channel "{channel}" does not exist'
            continue
        subscribed.append(channel)
        if channel not in kept:
            new.append(Subscribed(as_=display, channel=channel, cursor=state.last_seq))
    return subscribed, failed, new


def _registered(display: str, command: Register, facts: Facts) -> Registered:
    return Registered(
        as_=display,
        owner=facts.owner,
        name=command.name,
        context=command.context,
        parent=command.parent or UNSET,
        client=command.client or UNSET,
    )


def end_sessions(state: State, command: EndSessions, facts: Facts) -> Decision[None]:  # noqa: ARG001  # a rule's shape
    """Every session of this process ends, children first."""
    mine = [session.as_ for session in state.sessions.values() if session.owner == facts.owner]
    mine.sort(key=lambda identity: (-identity.count("/"), identity))
    return Decision(tuple(Ended(as_=identity, owner=facts.owner, reason="exit") for identity in mine), None)
