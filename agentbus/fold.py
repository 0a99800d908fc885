"""The fold: the only code that changes a ``State``. Pure: no files, no clock.

The same ``fold`` takes in a process's own commits and everybody else's, so live and replayed state cannot differ. It
never refuses: what a command may do was decided before its events were written. An event about something that is not
there is a fault of the journal (``FoldError``), unless a ``lost`` line before it may have taken that something away:
then it is counted in ``State.orphans``.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Struct

from agentbus import events as ev
from agentbus.addressing import Identities
from agentbus.kinds import MEMORY, ORDINARY
from agentbus.limits import RECEIPT_AGE_MS_MAX
from agentbus.retained import Retained
from agentbus.state import (
    NEVER_MS,
    Batch,
    Channel,
    Memory,
    Receipt,
    Session,
    State,
    Subscription,
    addressed_by,
    gaps_after_eviction,
    handed_out,
)
from journal import Commit, Place, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentbus.events import AnyEvent


DEFAULT_CHANNELS_SEQ: Final = 2
"""The line of every journal that makes the default channels: if it is lost, it is known all the same."""


class FoldError(Exception):
    """A verified line holds an event that cannot have happened. ``cause`` names it."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


def fold(state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:
    """Take one commit in.

    Args:
        state: folded up to the commit before.
        commit: verified by the journal.
        events: wire.decode(commit.events).

    Raises:
        FoldError: an event about something absent, with no lost line before, or a time that is none; the State must
            not be used any more.
    """
    try:
        now = _Moment(commit.seq, parse_time(commit.time), commit.time, commit.place)
    except ValueError as error:
        raise FoldError(f'the time "{commit.time}" is none') from error
    state.last_seq = commit.seq
    for event in events:
        _APPLY[type(event)](state, event, now)
    if type(events[0]) is ev.Evicted:  # all of a line's stand in front
        state.oldest_ms = min((_oldest_ms(channel) for channel in state.channels.values()), default=NEVER_MS)


class _Moment(Struct, frozen=True, gc=False):
    """When and where an event happened."""

    seq: int
    time_ms: int
    time: str
    place: Place


def _absent(state: State, now: _Moment, cause: str) -> None:
    """An event about something that is not there: an orphan after a lost line, else a fault of the journal."""
    if not state.lost:
        raise FoldError(cause)
    state.orphans.append((now.seq, cause))


def _nothing(state: State, event: AnyEvent, now: _Moment) -> None:
    pass


def _channel(state: State, name: str, now: _Moment) -> Channel:
    channel = state.channels.get(name)
    if channel is None:
        _absent(state, now, f'channel "{name}" does not exist')
        channel = state.channels[name] = Channel(name, ORDINARY, Retained())
    return channel


def _channel_created(state: State, event: ev.ChannelCreated, now: _Moment) -> None:
    if event.channel in state.channels:
        _absent(state, now, f'channel "{event.channel}" exists already')
        return
    state.channels[event.channel] = Channel(event.channel, event.kind, Retained())


def _registered(state: State, event: ev.Registered, now: _Moment) -> None:
    held = state.sessions.get(event.as_)
    again = held is not None and held.owner == event.owner
    state.sessions[event.as_] = Session(
        event.as_,
        event.owner,
        event.name,
        event.parent or None,
        event.context,
        event.client or None,
        held.registered_at if again and held else now.time,
    )
    state.identities.add(event.as_)
    _renew(state, event.as_, now)


def _ended(state: State, event: ev.Ended, now: _Moment) -> None:
    held = state.sessions.get(event.as_)
    if held is None or held.owner != event.owner:
        _absent(state, now, f'"{event.as_}" has no session of owner {event.owner}')
        return
    del state.sessions[event.as_]


def _subscribed(state: State, event: ev.Subscribed, now: _Moment) -> None:
    _channel(state, event.channel, now)
    mine = state.subscriptions.setdefault(event.as_, {})
    state.identities.add(event.as_)
    if event.channel not in mine:
        mine[event.channel] = Subscription(event.cursor, now.time_ms)
    mine[event.channel].active_ms = now.time_ms


def _subscription(state: State, identity: str, channel: str, now: _Moment) -> Subscription | None:
    subscription = state.subscriptions.get(identity, {}).get(channel)
    if subscription is None:
        _absent(state, now, f'"{identity}" is not subscribed to "{channel}"')
    return subscription


def _unsubscribed(state: State, event: ev.Unsubscribed, now: _Moment) -> None:
    if _subscription(state, event.as_, event.channel, now) is None:
        return
    del state.subscriptions[event.as_][event.channel]
    if not state.subscriptions[event.as_]:
        del state.subscriptions[event.as_]
    batch = state.batches.get(event.as_)
    if batch is None:
        return
    batch.ends.pop(event.channel, None)
    batch.starts.pop(event.channel, None)
    batch.gone = [entry for entry in batch.gone if entry[1] != event.channel]
    batch.gaps = [gap for gap in batch.gaps if gap.channel != event.channel]
    untold = event.reason != "fresh" and (batch.gaps or batch.expired)
    if not (batch.ends or untold):
        del state.batches[event.as_]


def _posted(state: State, event: ev.Posted, now: _Moment) -> None:
    channel = state.channels.get(event.channel) or _channel(state, event.channel, now)
    seq, reply_to = now.seq, event.reply_to
    if reply_to is not UNSET or "@" in event.content:
        _address(state, event.as_, event.content, None if reply_to is UNSET else reply_to, seq, event.channel)
    _retain(state, channel, event.as_, now)
    if channel.kind == MEMORY:
        state.memories[seq] = Memory(seq, event.channel, seq, 1)
        _keep_receipt(state, event, now, seq, 1)
    elif event.key is not UNSET:
        _keep_receipt(state, event, now, None, None)


def _address(state: State, author: str, content: str, reply_to: int | None, seq: int, channel: str) -> None:
    if reply_to is not None:
        reply_to = state.revised.get(reply_to, reply_to)
        state.replies[seq] = state.replies.get(reply_to, reply_to)  # so a thread outlives what is evicted in its middle
    addressed = addressed_by(state, author, content, reply_to, channel)
    if addressed:
        state.addressed[seq] = addressed


def _retain(state: State, channel: Channel, author: str, now: _Moment) -> None:
    seq, time_ms = now.seq, now.time_ms
    channel.retained.append(seq, state.identities.add(author), time_ms, now.place)
    channel.last_seq = seq
    if time_ms < state.oldest_ms and channel.kind == ORDINARY:
        state.oldest_ms = time_ms


def _keep_receipt(state: State, event: ev.Keyed, now: _Moment, memory_id: int | None, revision: int | None) -> None:
    if event.key is UNSET:
        return
    # Oldest first. One that a clock stepping back left out of order only waits for its elders; one from the far future
    # would keep all that follow.
    while state.receipts and abs(now.time_ms - next(iter(state.receipts.values())).time_ms) > RECEIPT_AGE_MS_MAX:
        state.receipts.popitem(last=False)
    key = (event.as_, event.key)
    state.receipts.pop(key, None)
    state.receipts[key] = Receipt(now.time_ms, ev.payload_digest(event), now.seq, memory_id, revision)


def _memory_edited(state: State, event: ev.MemoryEdited, now: _Moment) -> None:
    memory = state.memories.get(event.id)
    if memory is None:
        _absent(state, now, f"memory {event.id} does not exist")
        return
    channel = state.channels[memory.channel]
    _address(state, event.as_, event.content, None, now.seq, memory.channel)
    _forget(state, channel, memory.seq)
    _retain(state, channel, event.as_, now)
    state.revised.pop(memory.seq, None)
    state.revised[now.seq] = memory.id
    memory.seq = now.seq
    memory.revision = event.replaces + 1
    _keep_receipt(state, event, now, memory.id, memory.revision)


def _memory_deleted(state: State, event: ev.MemoryDeleted, now: _Moment) -> None:
    memory = state.memories.pop(event.id, None)
    if memory is None:
        _absent(state, now, f"memory {event.id} does not exist")
        return
    _forget(state, state.channels[memory.channel], memory.seq)
    state.revised.pop(memory.seq, None)
    state.replies.pop(memory.id, None)  # an edited one stays in its thread
    _keep_receipt(state, event, now, memory.id, memory.revision)


def _forget(state: State, channel: Channel, seq: int) -> None:
    _note_gone(state, channel, seq, seq)
    channel.retained.remove(seq)
    state.addressed.pop(seq, None)


def _delivered(state: State, event: ev.Delivered, now: _Moment) -> None:
    starts = {}
    mine = state.subscriptions.get(event.as_, {})
    for name in event.ends:
        subscription = mine.get(name) or _subscription(state, event.as_, name, now)
        if subscription is not None:
            starts[name] = subscription.cursor
    gaps = [] if event.gaps is UNSET else event.gaps
    expired = [] if event.expired is UNSET else event.expired
    state.batches[event.as_] = Batch(
        event.token, dict(event.ends), starts, event.include_own, list(gaps), list(expired)
    )
    _renew(state, event.as_, now)


def _note_gone(state: State, channel: Channel, first: int, last: int) -> None:
    """Messages are about to leave the State: a batch they are in remembers them."""
    seqs = channel.retained.seqs
    for identity, batch in state.batches.items():
        if batch.starts.get(channel.name, last) < last and batch.ends[channel.name] >= first:
            left = [seqs[index] for index in handed_out(state, identity, channel)]
            batch.gone += [(seq, channel.name) for seq in left if first <= seq <= last]


def _acked(state: State, event: ev.Acked, now: _Moment) -> None:
    batch = state.batches.get(event.as_)
    if batch is None or batch.token != event.token:
        _absent(state, now, f'"{event.as_}" has no pending batch {event.token}')
        return
    del state.batches[event.as_]
    mine = state.subscriptions.get(event.as_, {})
    for channel, end in batch.ends.items():
        subscription = mine.get(channel)
        if subscription is not None and subscription.cursor < end:
            subscription.cursor = end
    for gap in batch.gaps:
        if gap.channel in mine and gap in mine[gap.channel].gaps:
            mine[gap.channel].gaps.remove(gap)
    _renew(state, event.as_, now)


def _acked_all(state: State, event: ev.AckedAll, now: _Moment) -> None:
    batch = state.batches.pop(event.as_, None)
    mine = state.subscriptions.get(event.as_)
    if mine is None:
        _absent(state, now, f'"{event.as_}" has no subscription')
        return
    for name, subscription in mine.items():
        subscription.cursor = max(subscription.cursor, event.before - 1)
        subscription.gaps = [gap for gap in subscription.gaps if gap.to >= event.before]
        if batch is not None and state.channels[name].kind == ORDINARY:
            # What is left of the batch above comes again; what was evicted out of it must be told.
            gone = [seq for seq, channel in batch.gone if channel == name and seq >= event.before]
            subscription.gaps += [ev.Gap(name, gone[0], gone[-1], len(gone), "retention")] if gone else []


def _active(state: State, event: ev.Active, now: _Moment) -> None:
    _renew(state, event.as_, now)


def _renew(state: State, identity: str, now: _Moment) -> None:
    for subscription in state.subscriptions.get(identity, {}).values():
        subscription.active_ms = now.time_ms


def _evicted(state: State, event: ev.Evicted, now: _Moment) -> None:
    channel = _channel(state, event.channel, now)
    retained = channel.retained
    for identity, mine in state.subscriptions.items():
        if channel.name in mine:
            mine[channel.name].gaps = gaps_after_eviction(state, identity, channel, event.before)
    _note_gone(state, channel, 1, event.before - 1)
    gone = retained.seqs[: retained.first_after(event.before - 1)]
    for known in (state.addressed, state.replies):
        for seq in known.keys() & gone:  # of a million messages few are in there
            del known[seq]
    retained.remove_before(event.before)
    state.evicted_ms = now.time_ms


def _oldest_ms(channel: Channel) -> int:
    times = channel.retained.times
    return times[0] if channel.kind == ORDINARY and times else NEVER_MS


def _reset(state: State, event: ev.Reset, now: _Moment) -> None:  # noqa: ARG001  # one shape for all of _APPLY
    state.channels = {made.channel: Channel(made.channel, made.kind, Retained()) for made in ev.DEFAULT_CHANNELS}
    state.sessions, state.subscriptions, state.batches = {}, {}, {}
    state.memories, state.receipts, state.identities = {}, OrderedDict(), Identities()
    state.replies, state.addressed, state.revised = {}, {}, {}
    state.oldest_ms = NEVER_MS
    state.resets += 1


def _lost(state: State, event: ev.Lost, now: _Moment) -> None:  # noqa: ARG001  # one shape for all of _APPLY
    state.lost.append(event.first)
    state.last_seq = event.last
    if event.first <= DEFAULT_CHANNELS_SEQ <= event.last:
        for made in ev.DEFAULT_CHANNELS:
            state.channels.setdefault(made.channel, Channel(made.channel, made.kind, Retained()))
    for mine in state.subscriptions.values():
        for channel, subscription in mine.items():
            if subscription.cursor < event.last:
                subscription.gaps.append(ev.Gap(channel, event.first, event.last, cause=event.reason))


_APPLY: dict[type[AnyEvent], Callable[[State, Any, _Moment], None]] = {
    ev.SegmentOpened: _nothing,
    ev.ChannelCreated: _channel_created,
    ev.Registered: _registered,
    ev.Ended: _ended,
    ev.Subscribed: _subscribed,
    ev.Unsubscribed: _unsubscribed,
    ev.Posted: _posted,
    ev.MemoryEdited: _memory_edited,
    ev.MemoryDeleted: _memory_deleted,
    ev.Delivered: _delivered,
    ev.Acked: _acked,
    ev.AckedAll: _acked_all,
    ev.Active: _active,
    ev.Evicted: _evicted,
    ev.Reset: _reset,
    ev.Lost: _lost,
    ev.Repaired: _nothing,
}
