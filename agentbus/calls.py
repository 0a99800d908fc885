"""What each tool does, from checked arguments and the host to a result object. Knows no protocol; see tools.py."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, Struct, UnsetType, structs

from agentbus import arguments as args
from agentbus import commands as cmd
from agentbus import names, queries, repoconfig, results
from agentbus import search as lookup
from agentbus.decide.channels import require_channel
from agentbus.decide.sessions import require_session
from agentbus.errors import BUSY, NOT_FOUND, NOT_REGISTERED, VALIDATION, BusError
from agentbus.kinds import MEMORY
from agentbus.limits import (
    FILTER_ENTRIES_MAX,
    HISTORY_COUNT_MAX,
    KEY_BYTES_MAX,
    LIST_ENTRIES_MAX,
    METADATA_ENTRIES_MAX,
    QUERY_CHARS_MAX,
    RESULT_FRAME_BYTES,
    SEARCH_TIME_S,
    WAIT_SLICE_S,
)
from agentbus.refusals import unread, unsynced
from journal import JournalError, UnsyncedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentbus.control import Control
    from agentbus.host import Host
    from agentbus.state import State

Result = dict[str, Any]
T = TypeVar("T")


def run(name: str, given: Any, host: Host, control: Control, *, repeatable: bool) -> Result:  # noqa: ANN401  # by name
    """What the tool of this name does with its checked arguments.

    Args:
        name: in the tool table.
        given: of the struct that the table names.
        host: whose call it is.
        control: the call's.
        repeatable: the call may be repeated after an unknown outcome without doing anything twice.

    Raises:
        BusError, JournalError, Cancelled
    """
    try:
        return _CALLS[name](given, host, control)
    except UnsyncedError as error:
        raise unsynced(error, retryable=repeatable) from error


def register(given: args.RegisterArguments, host: Host, control: Control) -> Result:
    """Join the bus, or come back to it; the repository's persistent list is applied."""
    file = repoconfig.read(host.directory)
    name = names.parse_agent_name(given.name)
    command = cmd.Register(
        name=name,
        parent=None if given.parent is UNSET else names.parse_display_name(given.parent, "parent"),
        context=_directory_name(host, name) if given.context is UNSET else names.parse_context(given.context),
        resume=given.resume,
        client=host.client,
        channels=tuple(file.channels),
        failed=dict(file.failed),
    )
    executed = host.bus.execute_and_ask(command, _pending, control)
    done = executed.result
    record: Result = {"as": done.as_, "resumed": done.resumed, "pending": executed.seen}
    record["subscribed"] = done.subscribed
    if done.failed:
        record["subscribe_failed"] = done.failed
    if done.expired:
        record["expired"] = [{"channel": gone.channel, "unread": gone.unread} for gone in done.expired]
    return record | ({"already": True} if done.already else {})


def _directory_name(host: Host, name: names.AgentName) -> str:
    """Where the agent works, unless it says so itself; its own name where the directory's breaks the name rule."""
    try:
        return names.parse_context(os.path.basename(host.directory))
    except BusError:
        return name


def _pending(state: State, done: cmd.RegisterResult) -> list[Result]:
    """What waits in the subscriptions that this register keeps: those it makes begin at now."""
    dropped = {gone.channel for gone in done.expired}
    rows = queries.pending(state, done.as_) if done.resumed else []
    return [row for row in rows if row["channel"] not in dropped]


def create_channel(given: args.CreateChannelArguments, host: Host, control: Control) -> Result:
    """Make a channel, once."""
    command = cmd.CreateChannel(as_=_identity(given), channel=names.parse_channel_name(given.name), kind=given.kind)
    done = host.bus.execute(command, control).result
    return {"channel": done.channel, "kind": done.kind, "created": done.created}


def list_channels(given: args.SessionArguments, host: Host, _: Control) -> Result:
    """Every channel, as far as a result holds them."""
    rows = _ask(given, host, lambda state: queries.channel_rows(state, _identity(given)))
    kept, cut = results.fit(rows[:LIST_ENTRIES_MAX], _room(host))
    return {"channels": kept, "truncated": cut or len(rows) > LIST_ENTRIES_MAX}


def subscribe(given: args.SubscribeArguments, host: Host, control: Control) -> Result:
    """Subscribe; with ``persistent`` also in the repository's file."""
    channel = names.parse_channel_name(given.channel)
    command = cmd.Subscribe(as_=_identity(given), channel=channel, oldest=given.from_ == "oldest")
    already = host.bus.execute(command, control).result.already
    record: Result = {"subscribed": channel} | ({"already": True} if already else {})
    return record | (_persist(host, repoconfig.add_channel, channel) if given.persistent else {})


def unsubscribe(given: args.UnsubscribeArguments, host: Host, control: Control) -> Result:
    """Unsubscribe; with ``persistent`` also in the repository's file."""
    channel = names.parse_channel_name(given.channel)
    host.bus.execute(cmd.Unsubscribe(as_=_identity(given), channel=channel), control)
    record: Result = {"unsubscribed": channel}
    return record | (_persist(host, repoconfig.remove_channel, channel) if given.persistent else {})


def _persist(host: Host, edit: Callable[[str, str], object], channel: str) -> Result:
    """The repository file's part: the session's action stands whatever becomes of it, and the result says which."""
    try:
        edit(host.directory, channel)
    except repoconfig.RepoFileError as error:
        return {"persistent": False, "persistent_error": str(error)}
    return {"persistent": True}


def post(given: args.PostArguments, host: Host, control: Control) -> Result:
    """Post, and say who will see it."""
    command = post_command(given)
    done = host.bus.execute_and_ask(command, lambda state, _: _audience(state, command), control)
    post, audience = done.result, done.seen
    record: Result = {"seq": post.seq if done.seq is None else done.seq}
    if post.repeated and post.memory_id is not None:
        record |= {"memory_id": post.memory_id, "revision": post.revision}
    elif audience.memory and not post.repeated:
        record["memory_id"] = done.seq
    record["subscribers"] = audience.subscribers
    gone = host.bus.owners.gone(audience.owners)
    record["live"] = sum(owner not in gone for owner in audience.owners)
    record["addressed"] = list(post.addressed)
    return record | ({"repeated": True} if post.repeated else {})


def post_command(given: args.PostArguments) -> cmd.Post:
    """What a post asks of the bus. Raises BusError (validation) for what no State could make right."""
    _require(given.content != "", '"content" is empty: post some text')
    if given.metadata is not UNSET:
        many = len(given.metadata)
        _require(
            many <= METADATA_ENTRIES_MAX,
            f'"metadata" has {many} entries, more than {METADATA_ENTRIES_MAX}: send fewer',
        )
    if given.idempotency_key is not UNSET:
        size = len(given.idempotency_key.encode())
        _require(
            0 < size <= KEY_BYTES_MAX,
            f'"idempotency_key" takes {size} bytes: it must take 1 to {KEY_BYTES_MAX}',
        )
    return cmd.Post(
        as_=_identity(given),
        channel=names.parse_channel_name(given.channel),
        content=given.content,
        label=None if given.label is UNSET else names.parse_label(given.label),
        reply_to=_or_none(given.reply_to),
        metadata=_or_none(given.metadata),
        key=_or_none(given.idempotency_key),
    )


class _Audience(Struct, frozen=True):
    """How many others are subscribed, the owners of those who have sessions, and whether the channel keeps memories."""

    subscribers: int
    owners: list[str]
    memory: bool


def _audience(state: State, command: cmd.Post) -> _Audience:
    listeners = queries.subscribers(state, command.channel, command.as_)
    owners = [state.sessions[name].owner for name in listeners if name in state.sessions]
    channel = state.channels.get(command.channel)
    return _Audience(len(listeners), owners, memory=channel is not None and channel.kind == MEMORY)


def receive(given: args.ReceiveArguments, host: Host, control: Control) -> Result:
    """Ack, then hand out what is there, or wait for it."""
    command = _receive_command(given, host)
    started = time.monotonic()
    done = first = host.bus.execute_and_ask(command, _handed_out, control)
    again, progress_s = structs.replace(command, ack=None), WAIT_SLICE_S
    try:
        while done.result.token is None and command.count and time.monotonic() - started < given.wait_seconds:
            waited_s = time.monotonic() - started
            if waited_s >= progress_s:
                progress_s = waited_s + WAIT_SLICE_S
                if control.progress is not None:
                    control.progress(waited_s)
            host.bus.wait(done.seq or done.seen[0], min(given.wait_seconds, progress_s) - waited_s, control)
            done = host.bus.execute_and_ask(again, _handed_out, control)
    except (BusError, JournalError) as error:
        registered = not isinstance(error, BusError) or error.code != NOT_REGISTERED
        if not (first.result.acked and registered):
            raise  # else "nothing was written" would be untrue; the next call meets what is wrong again
    acked = structs.replace(done.result, acked=first.result.acked, ack_ignored=first.result.ack_ignored)
    now = _now_ms()
    try:
        messages = [results.message(body, now, command.as_) for body in host.bus.bodies(done.seen[1])]
    except JournalError as error:
        if first.seq is None and done.seq is None:
            raise
        raise unread(error) from error
    return results.receive(acked, messages)


def _handed_out(state: State, result: cmd.ReceiveResult) -> tuple[int, list[queries.Located]]:
    """How far this receive has seen, and where what it hands out lies."""
    return state.last_seq, queries.locate(state, result.messages)


def _receive_command(given: args.ReceiveArguments, host: Host) -> cmd.Receive:
    settings = host.settings
    count = settings.receive_default_count if given.count is UNSET else given.count
    _require(
        count <= settings.receive_max_count,
        f'"count" {count} is more than receive_max_count ({settings.receive_max_count}) allows: ask for fewer',
    )
    _require(
        given.wait_seconds <= settings.receive_max_wait_seconds,
        f'"wait_seconds" {given.wait_seconds} is more than receive_max_wait_seconds'
        f" ({settings.receive_max_wait_seconds}) allows: wait again instead",
    )
    channels: tuple[names.ChannelName, ...] | None = None
    if given.channels is not UNSET:
        many = len(given.channels)
        _require(
            0 < many <= FILTER_ENTRIES_MAX,
            f'"channels" has {many} entries: name 1 to {FILTER_ENTRIES_MAX}, or leave it out for all',
        )
        channels = tuple(names.parse_channel_name(name) for name in given.channels)
    return cmd.Receive(
        as_=_identity(given),
        count=count,
        ack=_or_none(given.ack),
        channels=channels,
        include_own=given.include_own,
    )


def history(given: args.HistoryArguments, host: Host, _: Control) -> Result:
    """A page of a channel; nothing counts as read."""
    _require_count(given.count)

    def look(state: State) -> queries.Page:
        channel = require_channel(state, names.parse_channel_name(given.channel))
        before, after = _or_none(given.before), _or_none(given.after)
        return queries.history(state, channel, before=before, after=after, count=given.count, bytes_max=_room(host))

    page = _ask(given, host, look)
    now = _now_ms()
    messages = [results.message(body, now, _identity(given)) for body in host.bus.bodies(page.messages)]
    return {"messages": messages, "truncated": page.truncated}


def search(given: args.SearchArguments, host: Host, control: Control) -> Result:
    """Texts that hold every word, the best first."""
    _require_count(given.count)
    _require(
        len(given.query) <= QUERY_CHARS_MAX,
        f'"query" has {len(given.query)} characters, more than {QUERY_CHARS_MAX}: search for fewer words',
    )
    words, scope, now = lookup.parse_query(given.query), _scope(given), _now_ms()
    after = None if given.cursor is UNSET else lookup.parse_cursor(given.cursor)
    last_seq, looked_in, found = _ask(given, host, lambda state: lookup.look(state, scope, after))
    hits = lookup.ranked(_hits(words, found, host, control), after)
    kept, cut = results.fit([results.hit(*hit, now) for hit in hits[: given.count]], _room(host))
    record: Result = {"hits": kept}
    if cut or len(hits) > given.count:
        record["next"] = lookup.render_cursor(lookup.After(last_seq, kept[-1]["score"], kept[-1]["seq"]))
    return record | {"searched": results.searched(looked_in, scope)}


def _scope(given: args.SearchArguments) -> lookup.Scope:
    now = _now_ms()
    return lookup.Scope(
        channel=None if given.channel is UNSET else names.parse_channel_name(given.channel),
        kind=_or_none(given.kind),
        sender=None if given.sender is UNSET else names.parse_display_name(given.sender, "sender"),
        since_ms=None if given.since is UNSET else lookup.parse_when(given.since, "since", now),
        until_ms=None if given.until is UNSET else lookup.parse_when(given.until, "until", now),
        thread=_or_none(given.thread),
    )


def _hits(
    words: tuple[lookup.Word, ...], found: list[queries.Located], host: Host, control: Control
) -> Iterator[tuple[queries.Body, lookup.Match]]:
    deadline = time.monotonic() + SEARCH_TIME_S
    for body in host.bus.bodies(found):
        control.check()
        if time.monotonic() > deadline:
            raise BusError(
                BUSY,
                f"{len(found)} texts are too many to read in time: narrow the search by channel or since",
                retryable=True,
            )
        match = lookup.match(words, body.event.content)
        if match is not None:
            yield body, match


def get_memory(given: args.GetMemoryArguments, host: Host, _: Control) -> Result:
    """One memory, whole."""

    def look(state: State) -> list[queries.Located]:
        memory = state.memories.get(given.id)
        if memory is None:
            raise BusError(NOT_FOUND, f"memory {given.id} does not exist, or was deleted: search shows those that do")
        return queries.locate(state, [(memory.seq, memory.channel)])

    (body,) = host.bus.bodies(_ask(given, host, look))
    return results.memory(body, _now_ms())


def discover(given: args.SessionArguments, host: Host, _: Control) -> Result:
    """The sessions whose process lives."""
    sessions = _ask(given, host, lambda state: queries.live_sessions(state, ()))
    gone = host.bus.owners.gone(session.owner for session in sessions)
    rows = [results.session(session) for session in sessions if session.owner not in gone]
    kept, cut = results.fit(rows[:LIST_ENTRIES_MAX], _room(host))
    return {"sessions": kept, "truncated": cut or len(rows) > LIST_ENTRIES_MAX}


def _ask(given: args.SessionArguments, host: Host, question: Callable[[State], T]) -> T:
    """A question of a registered session."""
    identity = _identity(given)

    def asked(state: State) -> T:
        require_session(state, identity, host.bus.owners.token)
        return question(state)

    return host.bus.ask(asked)


def _identity(given: args.SessionArguments) -> names.AgentName:
    return names.parse_display_name(given.as_)


def _require(holds: bool, message: str) -> None:  # noqa: FBT001  # reads as a sentence
    if not holds:
        raise BusError(VALIDATION, message)


def _require_count(count: int) -> None:
    _require(count <= HISTORY_COUNT_MAX, f'"count" {count} is more than {HISTORY_COUNT_MAX}: ask for fewer')


def _or_none(value: T | UnsetType) -> T | None:
    return None if isinstance(value, UnsetType) else value


def _room(host: Host) -> int:
    return host.bus.policy.result_bytes_max - RESULT_FRAME_BYTES


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


_CALLS: dict[str, Callable[[Any, Host, Control], Result]] = {
    "register": register,
    "create_channel": create_channel,
    "list_channels": list_channels,
    "subscribe": subscribe,
    "unsubscribe": unsubscribe,
    "post": post,
    "receive": receive,
    "history": history,
    "search": search,
    "get_memory": get_memory,
    "discover": discover,
}
