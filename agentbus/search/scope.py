"""Which texts a search may look at: filters, and what of a State passes them. Pure: reads a State, and no text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from agentbus.decide.channels import nearest, require_channel
from agentbus.errors import NOT_FOUND, BusError, render_value
from agentbus.kinds import MEMORY
from agentbus.queries import located
from agentbus.state import hidden_through, is_hidden

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.queries import Located
    from agentbus.state import Channel, State


class Scope(Struct, frozen=True):
    """Where to look: None leaves a filter out. ``since_ms`` and ``until_ms`` both count as inside."""

    channel: str | None = None
    kind: str | None = None
    sender: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    thread: int | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether it picks single messages, and not only whole channels."""
        return (self.sender, self.since_ms, self.until_ms, self.thread) != (None, None, None, None)


class View:
    """What a scope lets through of one State, which must not move on while this is used.

    Args:
        state: read only.
        scope: the filters.
        horizon_ms: what is older on ordinary channels is over age.
        upto: messages and memories made after this seq are left out; None for none.

    Attributes:
        channels: those it looks into, by name.

    Raises:
        BusError: not_found; there is no such channel or sender, or the thread's message cannot be read any more.
    """

    def __init__(self, state: State, scope: Scope, horizon_ms: int, upto: int | None = None) -> None:
        _require(state, scope, horizon_ms)
        self.channels = _channels(state, scope)
        self._state = state
        self._scope = scope
        self._upto = state.last_seq if upto is None else upto
        self._sender = None if scope.sender is None else state.identities.find(scope.sender)
        self._root = None if scope.thread is None else _root(state, scope.thread)
        self._hidden = {channel.name: hidden_through(channel, horizon_ms) for channel in self.channels}

    def locate(self, seq: int) -> Located | None:
        """The message or live revision with this seq, if it passes."""
        for channel in self.channels:
            index = channel.retained.find(seq)
            if index is not None:
                return self._pass(channel, index)
        return None

    def above(self, seq: int) -> Iterator[Located]:
        """All that pass above a seq; of each channel the oldest first."""
        for channel in self.channels:
            for index in range(channel.retained.first_after(seq), len(channel.retained)):
                found = self._pass(channel, index)
                if found is not None:
                    yield found

    def _pass(self, channel: Channel, index: int) -> Located | None:
        scope, retained = self._scope, channel.retained
        seq = retained.seqs[index]
        if seq <= self._hidden[channel.name] or (seq > self._upto and channel.kind != MEMORY):
            return None
        if scope.sender is not None and retained.authors[index] != self._sender:
            return None
        if not _is_within(scope, retained.times[index]):
            return None
        if self._root is not None and _root(self._state, seq) != self._root:
            return None
        found = located(self._state, channel, index)
        return found if key(found) <= self._upto else None


def key(at: Located) -> int:
    """What stays the same when a memory is edited: its id; of a message its seq."""
    return at.seq if at.memory is None else at.memory[0]


def _require(state: State, scope: Scope, horizon_ms: int) -> None:
    """Refuse a filter that names what is not there: finding nothing would be taken for an answer."""
    if scope.channel is not None:
        require_channel(state, scope.channel)
    if scope.sender is not None and state.identities.find(scope.sender) is None:
        near = nearest(scope.sender, state.identities.names)
        hint = f"did you mean {near}?" if near else "discover shows who is live, and each message who sent it"
        raise BusError(NOT_FOUND, f'"sender" {render_value(scope.sender)} is nobody who was ever here: {hint}')
    if scope.thread is not None and is_hidden(state, scope.thread, horizon_ms):
        raise BusError(
            NOT_FOUND,
            f'"thread" {scope.thread} is no message that can still be read: history shows those that can',
        )


def _channels(state: State, scope: Scope) -> list[Channel]:
    return [
        state.channels[name]
        for name in sorted(state.channels)
        if scope.channel in (None, name) and scope.kind in (None, state.channels[name].kind)
    ]


def _is_within(scope: Scope, time_ms: int) -> bool:
    return (scope.since_ms is None or scope.since_ms <= time_ms) and (
        scope.until_ms is None or time_ms <= scope.until_ms
    )


def _root(state: State, seq: int) -> int:
    """The message (of a memory: its id) a thread began with.

    A reply's seq is above what it replies to; in a journal that somebody wrote by hand it may not be, and this ends.
    """
    seq = state.revised.get(seq, seq)
    while (parent := state.replies.get(seq, seq)) < seq:
        seq = parent
    return seq
