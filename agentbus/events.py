"""What happened: one frozen struct for each event type that may stand in a journal line. Pure; no rules, no state.

Field names are the journal's own; ``as_`` and ``from_`` stand for ``as`` and ``from``, which Python keeps for itself.
Unset optional fields are left out of the line. Seqs are integers from 1; a cursor may be 0.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from agentbus.kinds import MEMORY, ORDINARY, ChannelKind

_RENAME = {"as_": "as", "from_": "from"}


class Event(
    Struct,
    frozen=True,
    gc=False,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename=_RENAME,
    tag_field="type",
):
    """The common shape of all events. Never made itself."""


class Gap(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True, rename=_RENAME):
    """Messages a subscriber can no longer be shown: ``count`` of them between two seqs, both included.

    ``count`` is left out where nobody can know it: in a lost range of the journal.
    """

    channel: str
    from_: int
    to: int
    count: int | UnsetType = UNSET
    cause: str = ""


class Expired(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A subscription dropped because its owner was idle too long, with what was unread in it."""

    channel: str
    unread: int


class SegmentOpened(Event, frozen=True, gc=False, tag="segment_opened"):
    """The first line of every segment; of the journal, not of the bus."""

    format: int
    journal: str
    prev: str
    by: str | UnsetType = UNSET
    host: str | UnsetType = UNSET


class ChannelCreated(Event, frozen=True, gc=False, tag="channel_created"):
    """A channel exists from here on."""

    channel: str
    kind: ChannelKind
    as_: str | UnsetType = UNSET


class Registered(Event, frozen=True, gc=False, kw_only=True, tag="registered"):
    """A session: a live identity held by one server process, its owner."""

    as_: str
    owner: str
    name: str
    parent: str | UnsetType = UNSET
    context: str
    client: str | UnsetType = UNSET


class Ended(Event, frozen=True, gc=False, tag="ended"):
    """A session is over; the identity's subscriptions stay."""

    as_: str
    owner: str
    reason: Literal["exit", "gone"]


class Subscribed(Event, frozen=True, gc=False, tag="subscribed"):
    """A subscription that has everything up to ``cursor`` behind it."""

    as_: str
    channel: str
    cursor: int


class Unsubscribed(Event, frozen=True, gc=False, tag="unsubscribed"):
    """A subscription is gone, and its share of a pending batch."""

    as_: str
    channel: str
    reason: Literal["asked", "fresh", "expired"]


class Posted(Event, frozen=True, gc=False, tag="posted"):
    """A message with this commit's seq; on a memory channel a memory, revision 1."""

    as_: str
    channel: str
    content: str
    context: str
    label: str | UnsetType = UNSET
    reply_to: int | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    key: str | UnsetType = UNSET


class MemoryEdited(Event, frozen=True, gc=False, kw_only=True, tag="memory_edited"):
    """A new revision of memory ``id`` at this commit's seq; ``replaces`` is the revision it takes the place of."""

    as_: str
    id: int
    content: str
    context: str
    label: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    key: str | UnsetType = UNSET
    replaces: int


class MemoryDeleted(Event, frozen=True, gc=False, kw_only=True, tag="memory_deleted"):
    """Memory ``id`` has no live revision any more; ``replaces`` is the one it had."""

    as_: str
    id: int
    key: str | UnsetType = UNSET
    replaces: int


class Delivered(Event, frozen=True, gc=False, tag="delivered"):
    """A batch was handed out: in each channel of ``ends`` everything above the cursor up to that seq."""

    as_: str
    token: str
    ends: dict[str, int]
    include_own: bool
    gaps: list[Gap] | UnsetType = UNSET
    expired: list[Expired] | UnsetType = UNSET


class Acked(Event, frozen=True, gc=False, tag="acked"):
    """The pending batch was acknowledged: its ends are the cursors now."""

    as_: str
    token: str


class AckedAll(Event, frozen=True, gc=False, tag="acked_all"):
    """A person acknowledged everything below ``before`` for an identity that will not come back."""

    as_: str
    before: int
    by: str


class Active(Event, frozen=True, gc=False, tag="active"):
    """An identity looked and found nothing: its subscriptions are not idle."""

    as_: str


class Evicted(Event, frozen=True, gc=False, tag="evicted"):
    """Messages of an ordinary channel below ``before`` are no longer shown to agents."""

    channel: str
    before: int


class Reset(Event, frozen=True, gc=False, tag="reset"):
    """The bus is empty again but for its two default channels; the journal goes on."""

    by: str


class Lost(Event, frozen=True, gc=False, kw_only=True, tag="lost"):
    """Stands where damaged commits ``first`` to ``last`` stood; of the journal, written by repair only."""

    first: int
    last: int
    bytes: int
    sha256: str | UnsetType = UNSET
    next_prev: str | None
    reason: Literal["damage", "redacted"]


class Repaired(Event, frozen=True, gc=False, tag="repaired"):
    """A repair ended here; ``lost`` and ``hash`` name its lost line, if there is one."""

    lost: int | UnsetType = UNSET
    hash: str | UnsetType = UNSET


AnyEvent = (
    SegmentOpened
    | ChannelCreated
    | Registered
    | Ended
    | Subscribed
    | Unsubscribed
    | Posted
    | MemoryEdited
    | MemoryDeleted
    | Delivered
    | Acked
    | AckedAll
    | Active
    | Evicted
    | Reset
    | Lost
    | Repaired
)

Keyed = Posted | MemoryEdited | MemoryDeleted
"""The events that may carry an idempotency key."""


_ASKED = {
    kind: tuple(name for name in kind.__struct_fields__ if name not in {"context", "replaces"})
    for kind in (Posted, MemoryEdited, MemoryDeleted)
}


def payload_digest(event: Keyed) -> bytes:
    """16 bytes that are equal for two events with the same idempotency key exactly if they ask for the same thing.

    The context is left out: an agent that retries from another directory still retries. So is the revision replaced,
    which is what the bus found, not what the caller asked.
    """
    asked = {name: value for name in _ASKED[type(event)] if (value := getattr(event, name)) is not UNSET}
    text = type(event).__name__.encode() + msgspec.json.encode(asked, order="deterministic")
    return hashlib.sha256(text).digest()[:16]


DEFAULT_CHANNELS: tuple[ChannelCreated, ...] = (
    ChannelCreated(channel="general", kind=ORDINARY),
    ChannelCreated(channel="memory", kind=MEMORY),
)
"""Line 2 of every journal, and what a reset leaves."""
