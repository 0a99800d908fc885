"""What the tools do that send: post, edit_memory, delete_memory. Nothing beyond the rates, nothing twice by one key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, Struct, UnsetType

from agentbus import commands as cmd
from agentbus import names, queries, results
from agentbus.asking import identity_of, or_none, require
from agentbus.kinds import MEMORY
from agentbus.limits import KEY_BYTES_MAX, METADATA_ENTRIES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus import arguments as args
    from agentbus.bus import Done
    from agentbus.control import Control
    from agentbus.host import Host
    from agentbus.state import State

R = TypeVar("R")
T = TypeVar("T")
Result = dict[str, Any]


def post(given: args.PostArguments, host: Host, control: Control) -> Result:
    """Post, and say who will see it."""
    command = post_command(given)
    done = _send(command.as_, command, lambda state, _: _audience(state, command), host, control)
    sent, audience = done.result, done.seen
    record: Result = {"seq": sent.seq if done.seq is None else done.seq}
    if sent.repeated and sent.memory_id is not None:
        record |= {"memory_id": sent.memory_id, "revision": sent.revision}
    elif audience.memory and not sent.repeated:
        record["memory_id"] = done.seq
    record["subscribers"] = audience.subscribers
    gone = host.bus.owners.gone(audience.owners)
    record["live"] = sum(owner not in gone for owner in audience.owners)
    record |= {"repeated": True} if sent.repeated else {}
    lists: dict[str, results.Rows] = {"addressed": list(sent.addressed)}
    lists |= {"unknown": list(sent.unknown)} if sent.unknown else {}
    return results.fit_lists(record, lists, host.bus.policy.result_bytes_max)


def post_command(given: args.PostArguments) -> cmd.Post:
    """What a post asks of the bus. Raises BusError (validation) for what no State could make right."""
    require(given.content != "", '"content" is empty: post some text')
    return cmd.Post(
        as_=identity_of(given),
        channel=names.parse_channel_name(given.channel),
        content=given.content,
        label=None if given.label is UNSET else names.parse_label(given.label),
        reply_to=or_none(given.reply_to),
        metadata=_metadata(given.metadata),
        key=_key(given.idempotency_key),
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


def edit_memory(given: args.EditMemoryArguments, host: Host, control: Control) -> Result:
    """Make a new revision, and say which one it replaced."""
    require(given.content != "", '"content" is empty: give the whole text, or call delete_memory')
    command = cmd.EditMemory(
        as_=identity_of(given),
        id=given.id,
        content=given.content,
        label=None if given.label is UNSET else names.parse_label(given.label),
        metadata=_metadata(given.metadata),
        key=_key(given.idempotency_key),
    )
    done = _send(command.as_, command, _nothing, host, control)
    edit = done.result
    record: Result = {"seq": edit.seq if done.seq is None else done.seq, "memory_id": edit.memory_id}
    record |= {"revision": edit.revision, "replaced": edit.revision - 1}
    return record | ({"repeated": True} if edit.repeated else {})


def delete_memory(given: args.DeleteMemoryArguments, host: Host, control: Control) -> Result:
    """Take a memory away, and say which revision it had."""
    command = cmd.DeleteMemory(as_=identity_of(given), id=given.id, key=_key(given.idempotency_key))
    gone = _send(command.as_, command, _nothing, host, control).result
    record: Result = {"deleted": gone.memory_id, "revision": gone.revision}
    return record | ({"repeated": True} if gone.repeated else {})


def _send(
    as_: names.AgentName, command: cmd.Command[R], question: Callable[[State, R], T], host: Host, control: Control
) -> Done[R, T]:
    """Execute a command that its identity's rates must allow. What writes nothing, such as a repeat, costs nothing."""
    with host.rates.turn(as_) as turn:
        done = host.bus.execute_and_ask(command, question, control, turn.take)
        if done.seq is None:
            turn.give_back()
    return done


def _nothing(state: State, result: object) -> None:
    """No question."""


def _metadata(given: dict[str, str] | UnsetType) -> dict[str, str] | None:
    if given is UNSET:
        return None
    many = len(given)
    require(
        many <= METADATA_ENTRIES_MAX,
        f'"metadata" has {many} entries, more than {METADATA_ENTRIES_MAX}: send fewer',
    )
    return given


def _key(given: str | UnsetType) -> str | None:
    if given is UNSET:
        return None
    size = len(given.encode())
    require(
        0 < size <= KEY_BYTES_MAX,
        f'"idempotency_key" takes {size} bytes: it must take 1 to {KEY_BYTES_MAX}',
    )
    return given
