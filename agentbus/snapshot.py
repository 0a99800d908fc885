"""A State as the payload of a snapshot, and back. Pure: no files, no clock; projection.py knows when one is due.

Messages are kept as the bytes of their columns, in this machine's layout: reading them back is a copy of memory.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from typing import Final

import msgspec
from msgspec import Struct

from agentbus import __version__
from agentbus.addressing import Identities
from agentbus.kinds import ChannelKind
from agentbus.retained import Columns, Retained
from agentbus.state import Batch, Channel, Memory, Receipt, Session, State, Subscription

FORM: Final = 3
"""Raised whenever the fold, or what a State holds, changes: an older snapshot would not be what a fold gives."""

VERSION: Final = f"agentbus {__version__} form {FORM} {sys.byteorder} {array('I').itemsize} {array('Q').itemsize}"
"""Only a snapshot of exactly this version is read."""


class MalformedSnapshotError(Exception):
    """The payload is none of this version's."""


class _Channel(Struct, frozen=True):
    name: str
    kind: ChannelKind
    last_seq: int
    columns: Columns


class _Saved(Struct, frozen=True):
    """A State, attribute by attribute."""

    last_seq: int
    channels: list[_Channel]
    sessions: dict[str, Session]
    subscriptions: dict[str, dict[str, Subscription]]
    batches: dict[str, Batch]
    memories: dict[int, Memory]
    revised: dict[int, int]
    receipts: list[tuple[str, str, Receipt]]
    identities: list[str]
    replies: dict[int, int]
    addressed: dict[int, tuple[str, ...]]
    orphans: list[tuple[int, str]]
    lost: list[int]
    resets: int
    evicted_ms: int
    oldest_ms: int


_decode = msgspec.msgpack.Decoder(_Saved).decode


def encode(state: State) -> bytes:
    """The payload; for a million messages some 50 MB. Nothing may change the State meanwhile."""
    channels = [
        _Channel(channel.name, channel.kind, channel.last_seq, channel.retained.columns())
        for channel in state.channels.values()
    ]
    saved = _Saved(
        last_seq=state.last_seq,
        channels=channels,
        sessions=state.sessions,
        subscriptions=state.subscriptions,
        batches=state.batches,
        memories=state.memories,
        revised=state.revised,
        receipts=[(identity, key, receipt) for (identity, key), receipt in state.receipts.items()],
        identities=state.identities.names,
        replies=state.replies,
        addressed=state.addressed,
        orphans=state.orphans,
        lost=state.lost,
        resets=state.resets,
        evicted_ms=state.evicted_ms,
        oldest_ms=state.oldest_ms,
    )
    return msgspec.msgpack.encode(saved)


def decode(payload: memoryview) -> State:
    """The State that was encoded.

    Raises:
        MalformedSnapshotError: it was none of this version's.
    """
    try:
        saved = _decode(payload)
        channels = {
            each.name: Channel(each.name, each.kind, Retained.restore(each.columns), each.last_seq)
            for each in saved.channels
        }
    except (msgspec.MsgspecError, ValueError) as error:
        raise MalformedSnapshotError(str(error)) from error
    state = State()
    state.last_seq = saved.last_seq
    state.channels = channels
    state.sessions = saved.sessions
    state.subscriptions = saved.subscriptions
    state.batches = saved.batches
    state.memories = saved.memories
    state.revised = saved.revised
    state.receipts = OrderedDict(((identity, key), receipt) for identity, key, receipt in saved.receipts)
    state.identities = Identities(saved.identities)
    state.replies = saved.replies
    state.addressed = saved.addressed
    state.orphans = saved.orphans
    state.lost = saved.lost
    state.resets = saved.resets
    state.evicted_ms = saved.evicted_ms
    state.oldest_ms = saved.oldest_ms
    return state
