"""Rules about delivery: what a receive acks, hands out again, or hands out new. Pure.

At most one batch of an identity is pending. Until it is acked it is handed out again as it was, whatever else the call
asks; only an ack moves a cursor.
"""

from __future__ import annotations

import heapq
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, json, structs

from agentbus.commands import Decision, Facts, Receive, ReceiveResult
from agentbus.decide.retention import passed_over
from agentbus.decide.sessions import idle_subscriptions, require_session
from agentbus.errors import NOT_FOUND, BusError, render_value
from agentbus.events import Acked, Active, Delivered, Expired, Gap, Unsubscribed
from agentbus.kinds import MEMORY
from agentbus.limits import ACTIVE_INTERVAL_MS, RESULT_FRAME_BYTES
from agentbus.state import Batch, handed_out, hidden_through, shown_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.events import AnyEvent
    from agentbus.names import ChannelName
    from agentbus.state import Channel, State


class _Room:
    """The bytes left in a result. The first record always goes in, or it could never be delivered."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._empty = True

    def takes(self, size: int) -> bool:
        """Whether a record of ``size`` bytes goes in; if so it is in."""
        if size > self._left and not self._empty:
            return False
        self._left -= size
        self._empty = False
        return True

    def takes_notice(self, notice: Gap | Expired) -> bool:
        """The same for a gap or an expired subscription, with its comma."""
        return self.takes(len(json.encode(notice)) + 1)


class _View(Struct, frozen=True):
    """What this receive may hand out: cursors as they stand behind its acked or pending batch."""

    cursors: dict[str, int]
    own: int | None
    behind: Batch | None


class _Notices(Struct, frozen=True):
    """What rides in a batch beside messages: gaps not told yet, and subscriptions just dropped."""

    gaps: list[Gap]
    expired: list[Expired]


def receive(state: State, command: Receive, facts: Facts) -> Decision[ReceiveResult]:
    """Ack, then the pending batch again or a new one. With nothing to hand out only the ack is written."""
    require_session(state, command.as_, facts.owner)
    batch = state.batches.get(command.as_)
    acked = batch is not None and command.ack == batch.token
    ignored = command.ack is not None and not acked
    if batch is not None and not acked:
        return Decision((), _again(state, command, batch, facts, ignored=ignored))
    events: list[AnyEvent] = []
    expired: list[Expired] = []
    room = _Room(facts.policy.result_bytes_max - RESULT_FRAME_BYTES)
    if batch is not None:
        events.append(Acked(as_=command.as_, token=batch.token))
    elif command.count:
        # What there is no room to tell is not dropped either.
        expired = list(takewhile(room.takes_notice, idle_subscriptions(state, command.as_, facts)))
        events += [Unsubscribed(as_=command.as_, channel=gone.channel, reason="expired") for gone in expired]
    view = _view(state, command, command.channels, batch, {gone.channel for gone in expired}, facts.horizon_ms)
    evicted, gaps = passed_over(state, command.as_, view.cursors, facts, own=command.include_own)
    notices = _Notices(_gaps(state, command, view, gaps), expired)
    result, delivered = _new_batch(state, command, view, notices, room, facts.token)
    if delivered is not None:
        events = [*evicted, *events, delivered]
    elif command.count and not events and _active_is_due(state, command.as_, facts):
        events.append(Active(as_=command.as_))
    return Decision(tuple(events), structs.replace(result, acked=acked, ack_ignored=ignored))


def _view(
    state: State,
    command: Receive,
    channels: tuple[ChannelName, ...] | None,
    behind: Batch | None,
    dropped: set[str],
    horizon_ms: int,
) -> _View:
    """The channels asked for (None: all), each with its cursor, or with the end of the batch or of what is over age.

    Raises:
        BusError: not_found; the identity is not subscribed to a channel it names.
    """
    mine = state.subscriptions.get(command.as_, {})
    for channel in channels or ():
        if channel not in mine:
            raise BusError(
                NOT_FOUND,
                f"{render_value(command.as_)} is not subscribed to {render_value(channel)}: call subscribe first,"
                ' or leave "channels" out',
            )
    ends = behind.ends if behind else {}
    cursors = {
        channel: max(subscription.cursor, ends.get(channel, 0), hidden_through(state.channels[channel], horizon_ms))
        for channel, subscription in mine.items()
        if channel not in dropped and (channels is None or channel in channels)
    }
    own = None if command.include_own else state.identities.find(command.as_)
    return _View(cursors, own, behind)


def _waiting(state: State, view: _View) -> int:
    """How many messages the view holds."""
    before = state.last_seq + 1
    return sum(
        state.channels[channel].retained.count_between(cursor, before, without=view.own)
        for channel, cursor in view.cursors.items()
    )


def _new_batch(
    state: State,
    command: Receive,
    view: _View,
    notices: _Notices,
    room: _Room,
    token: str,
) -> tuple[ReceiveResult, Delivered | None]:
    if command.count == 0:
        return ReceiveResult(more=_waiting(state, view)), None
    expired, gaps = notices.expired, list(takewhile(room.takes_notice, notices.gaps))
    # Nothing is delivered past a gap that has not been told.
    behind = _merged(state, view) if len(gaps) == len(notices.gaps) else iter(())
    messages = list(takewhile(lambda message: room.takes(message[2]), islice(behind, command.count)))
    waiting = _waiting(state, view)
    if not (messages or gaps or expired):
        return ReceiveResult(more=waiting), None
    more = waiting - len(messages)
    delivered = Delivered(
        as_=command.as_,
        token=token,
        ends=_ends(state, view, _through(state, messages, more)),
        include_own=command.include_own,
        gaps=gaps or UNSET,
        expired=expired or UNSET,
    )
    handed = tuple((seq, channel) for seq, channel, _ in messages)
    return ReceiveResult(token, handed, more, gaps=tuple(gaps), expired=tuple(expired)), delivered


def _merged(state: State, view: _View) -> Iterator[tuple[int, str, int]]:
    """(seq, channel, bytes when shown) of everything in the view, by seq."""
    return heapq.merge(
        *(_candidates(state.channels[channel], cursor, view.own) for channel, cursor in view.cursors.items())
    )


def _candidates(channel: Channel, cursor: int, own: int | None) -> Iterator[tuple[int, str, int]]:
    retained = channel.retained
    for index in retained.walk(cursor, without=own):
        yield retained.seqs[index], channel.name, shown_bytes(channel, index)


def _gaps(state: State, command: Receive, view: _View, changed: dict[str, list[Gap]]) -> list[Gap]:
    """The gaps of the view's subscriptions, some as evictions ``changed`` them, that the acked batch has not told."""
    told = view.behind.gaps if view.behind else []
    mine = state.subscriptions.get(command.as_, {})
    known = (changed.get(channel, mine[channel].gaps) for channel in view.cursors)
    return [gap for gaps in known for gap in gaps if gap not in told]


def _through(state: State, messages: list[tuple[int, str, int]], more: int) -> int:
    """Up to which seq the view lies behind this batch. With everything handed out, what is left is the reader's own."""
    if not messages:
        return 0
    return messages[-1][0] if more else state.last_seq


def _ends(state: State, view: _View, through: int) -> dict[str, int]:
    """For each channel in which something was handed out or passed over, the highest seq of it."""
    ends = {channel: state.channels[channel].retained.last_before(through + 1) for channel in view.cursors}
    return {channel: end for channel, end in ends.items() if end > view.cursors[channel]}


def _again(state: State, command: Receive, batch: Batch, facts: Facts, *, ignored: bool) -> ReceiveResult:
    """The pending batch as it was; what was evicted, replaced or deleted since is left out and named as a gap."""
    waiting = _waiting(state, _view(state, command, None, batch, set(), facts.horizon_ms))
    left: list[tuple[int, str]] = []
    for name in batch.starts:
        channel = state.channels[name]
        left += [(channel.retained.seqs[index], name) for index in handed_out(state, command.as_, channel)]
    left.sort()
    gaps = list(batch.gaps)
    for seq, name in sorted(batch.gone):
        cause = "superseded or deleted" if state.channels[name].kind == MEMORY else "retention"
        gaps.append(Gap(channel=name, from_=seq, to=seq, count=1, cause=cause))
    if command.count == 0:
        return ReceiveResult(more=waiting + len(left), ack_ignored=ignored)
    return ReceiveResult(
        batch.token,
        tuple(left),
        waiting,
        redelivered=True,
        ack_ignored=ignored,
        gaps=tuple(gaps),
        expired=tuple(batch.expired),
    )


def _active_is_due(state: State, identity: str, facts: Facts) -> bool:
    """Whether an empty receive must renew the idle clock: at most once an hour, and well before it runs out."""
    mine = state.subscriptions.get(identity)
    if not mine:
        return False
    interval_ms = min(ACTIVE_INTERVAL_MS, facts.policy.cursor_idle_ms // 2)
    return facts.time_ms - min(subscription.active_ms for subscription in mine.values()) >= interval_ms
