"""A journal as an auditor reads it: each event in words, or as one flat JSON object. Pure: no files, no clock.

It needs no State, so it reads any part of a journal in constant memory. Other people's text is made visible; who did
it, when and under which seq stand before that text and cannot be forged by it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from agentbus import events as ev
from agentbus import wire
from agentbus.columns import cut, pad, render_count, width
from agentbus.visible import render_visible
from journal import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agentbus.events import AnyEvent
    from journal import Commit

_SEQ_WIDTH = 6
IDENTITY_COLUMNS = 18
_IDENTITY_COLUMNS_MAX = 40  # a longer name moves its own line only
_IDENTITY_PART = 4  # of a terminal's width: the rest is for what happened
_PLAIN_NAME = re.compile(r"[^\s\"',:]+")
_HASH = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")


def parse_events(commit: Commit) -> list[AnyEvent]:
    """What happened in a commit.

    Raises:
        UnsupportedError: an event of a later version; a reader never skips what it does not know.
        MalformedError: the line verifies, and no bus wrote it.
    """
    try:
        parse_time(commit.time)
    except ValueError as error:
        raise wire.MalformedError(str(error)) from error
    return wire.decode(commit.events)


def render_flat(commit: Commit, events: Sequence[AnyEvent], wanted: Iterable[int]) -> Iterator[bytes]:
    """One compact JSON object for each wanted event of a commit: seq, index in it, time, pid, then the event's fields.

    Args:
        commit: verified by the journal.
        events: parse_events of it.
        wanted: which of them, by index.
    """
    time = msgspec.json.encode(commit.time)
    for index in wanted:
        head = b'{"seq":%d,"index":%d,"time":%b,"pid":%d,' % (commit.seq, index, time, commit.pid)
        yield head + msgspec.json.encode(events[index])[1:]


def render_lines(
    commit: Commit,
    events: Sequence[AnyEvent],
    wanted: Iterable[int],
    render_time: Callable[[str], str],
    columns: int | None = None,
    identity_columns: int = IDENTITY_COLUMNS,
) -> Iterator[str]:
    """One aligned line for each wanted event of a commit: seq, time, identity, what happened.

    Args:
        commit: verified by the journal.
        events: parse_events of it.
        wanted: which of them, by index.
        render_time: from the journal's form of a time to the reader's.
        columns: longer lines are cut there, visibly; None: nothing is cut.
        identity_columns: room for the identity, from `widen`.
    """
    time = render_time(commit.time)
    for index in wanted:
        identity = pad(render_name(_actor(events[index])), identity_columns)
        line = f"{commit.seq:>{_SEQ_WIDTH}}  {time}  {identity}  {render_words(events[index])}"
        yield line if columns is None else cut(line, columns)


def widen(identity_columns: int, events: Sequence[AnyEvent], wanted: Iterable[int], columns: int) -> int:
    """The room for identities from a commit on: as much as before, or what its longest name takes, up to a limit.

    For a terminal of so many columns: nobody knows the longest name beforehand, so the room grows where one is met. In
    a pipe it must not: there a line does not depend on those before it.
    """
    most = min(_IDENTITY_COLUMNS_MAX, columns // _IDENTITY_PART)
    taken = (width(render_name(_actor(events[index]))) for index in wanted)
    return max(identity_columns, *(each for each in taken if each <= most), 0)


def render_raw(commit: Commit) -> bytes:
    """The line that a commit was read from, its line feed included: a line spelt in another way is no commit."""
    parts = commit.seq, commit.time.encode(), commit.pid, commit.events, commit.hash.encode()
    return b'{"seq":%d,"time":"%b","pid":%d,"events":%b,"hash":"%b"}\n' % parts


def render_words(event: AnyEvent) -> str:
    """What happened, on one line."""
    return _WORDS[type(event)](event)


def render_lost(event: ev.Lost) -> str:
    """What a lost line says, loudly enough that nobody reads over it."""
    what = "redacted" if event.reason == "redacted" else "damaged, gone, and set aside by repair"
    blind = "" if event.next_prev else "; the line after is taken on trust"
    return f"LOST: {render_seqs(event.first, event.last)} ({render_count(event.bytes, 'byte')}): {what}{blind}"


def render_seqs(first: int, last: int) -> str:
    """A range of seqs in words."""
    return f"seq {first}" if first == last else f"seq {first} to {last}"


def shorten_hashes(text: str) -> str:
    """A cause in which hashes do not bury the rest."""
    return _HASH.sub(r"\1...", text)


def _actor(event: AnyEvent) -> str:
    if isinstance(event, ev.Reset):
        return event.by
    identity = getattr(event, "as_", UNSET)
    return "-" if identity is UNSET else str(identity)


def render_name(text: str) -> str:
    """A name; in quotes if it could be taken for more than one word of the line."""
    shown = render_visible(text)
    return shown if _PLAIN_NAME.fullmatch(shown) else '"' + shown.replace('"', '\\"') + '"'


def _segment_opened(event: ev.SegmentOpened) -> str:
    by = f", by {render_name(event.by)}" if event.by else ""
    host = f", on {render_name(event.host)}" if event.host else ""
    return f"segment opened: format {event.format}, journal {render_name(event.journal)}{by}{host}"


def _registered(event: ev.Registered) -> str:
    parent = f", child of {render_name(event.parent)}" if event.parent else ""
    client = f", client {render_name(event.client)}" if event.client else ""
    return f"registered, working in {render_name(event.context)}{parent}{client}"


def _ended(event: ev.Ended) -> str:
    return "ended" if event.reason == "exit" else "ended: its process was gone"


def _unsubscribed(event: ev.Unsubscribed) -> str:
    why = {"asked": "as asked", "fresh": "for a fresh start", "expired": "idle too long"}[event.reason]
    return f"unsubscribed from {render_name(event.channel)}, {why}"


def _posted(event: ev.Posted) -> str:
    reply = f", in reply to {event.reply_to}" if event.reply_to is not UNSET else ""
    return f"posted to {render_name(event.channel)}{reply}{_extras(event)}: {render_visible(event.content)}"


def _memory_edited(event: ev.MemoryEdited) -> str:
    replaced = f"edited memory {event.id}, replacing revision {event.replaces}"
    return f"{replaced}{_extras(event)}: {render_visible(event.content)}"


def _extras(event: ev.Posted | ev.MemoryEdited) -> str:
    label = f", label {render_name(event.label)}" if event.label else ""
    pairs = " ".join(f"{render_name(key)}={render_name(value)}" for key, value in (event.metadata or {}).items())
    key = f", key {render_name(event.key)}" if event.key else ""
    return label + (f", metadata {pairs}" if pairs else "") + key


def _memory_deleted(event: ev.MemoryDeleted) -> str:
    return f"deleted memory {event.id}, which had revision {event.replaces}"


def _delivered(event: ev.Delivered) -> str:
    ends = ", ".join(f"{render_name(channel)} up to {end}" for channel, end in event.ends.items())
    own = ", its own included" if event.include_own else ""
    gaps = "".join(f"; told of a gap: {_gap(gap)}" for gap in event.gaps or ())
    expired = "".join(
        f"; told that it was idle too long for {render_name(gone.channel)}, {gone.unread} unread"
        for gone in event.expired or ()
    )
    return f"was handed {ends or 'no messages'}{own}, batch {render_name(event.token)}{gaps}{expired}"


def _gap(gap: ev.Gap) -> str:
    count = "" if gap.count is UNSET else f"{render_count(gap.count, 'message')}, "
    return f"{render_name(gap.channel)} {gap.from_} to {gap.to} ({count}{render_visible(gap.cause)})"


def _acked_all(event: ev.AckedAll) -> str:
    return f"had everything before {event.before} acknowledged by {render_name(event.by)}"


def _repaired(event: ev.Repaired) -> str:
    lost = "nothing was lost" if event.lost is UNSET else f"the line seq {event.lost} says what was lost there"
    return f"repaired: {lost}"


_WORDS: dict[type[AnyEvent], Callable[[Any], str]] = {
    ev.SegmentOpened: _segment_opened,
    ev.ChannelCreated: lambda event: f"created {event.kind} channel {render_name(event.channel)}",
    ev.Registered: _registered,
    ev.Ended: _ended,
    ev.Subscribed: lambda event: f"subscribed to {render_name(event.channel)} after {event.cursor}",
    ev.Unsubscribed: _unsubscribed,
    ev.Posted: _posted,
    ev.MemoryEdited: _memory_edited,
    ev.MemoryDeleted: _memory_deleted,
    ev.Delivered: _delivered,
    ev.Acked: lambda event: f"acknowledged batch {render_name(event.token)}",
    ev.AckedAll: _acked_all,
    ev.Active: lambda _: "looked, nothing was new",
    ev.Evicted: lambda event: (
        f"{render_name(event.channel)}: agents are no longer shown messages before {event.before}"
    ),
    ev.Reset: lambda _: "reset the bus",
    ev.Lost: render_lost,
    ev.Repaired: _repaired,
}
