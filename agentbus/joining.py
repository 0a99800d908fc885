"""What the tools do that join the bus and choose what to hear: register, create_channel, subscribe, unsubscribe."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from agentbus import commands as cmd
from agentbus import names, queries, repoconfig, results
from agentbus.asking import identity_of
from agentbus.errors import BusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus import arguments as args
    from agentbus.control import Control
    from agentbus.host import Host
    from agentbus.state import State

Result = dict[str, Any]


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
    horizon_ms = host.bus.horizon_ms()
    executed = host.bus.execute_and_ask(command, lambda state, done: _pending(state, done, horizon_ms), control)
    done = executed.result
    record: Result = {"as": done.as_, "resumed": done.resumed} | ({"already": True} if done.already else {})
    lists: dict[str, results.Rows] = {"pending": executed.seen, "subscribed": done.subscribed}
    if done.failed:
        lists["subscribe_failed"] = done.failed
    if done.expired:
        lists["expired"] = [{"channel": gone.channel, "unread": gone.unread} for gone in done.expired]
    return results.fit_lists(record, lists, host.bus.policy.result_bytes_max)


def _directory_name(host: Host, name: names.AgentName) -> str:
    """Where the agent works, unless it says so itself; its own name where the directory's breaks the name rule."""
    try:
        return names.parse_context(os.path.basename(host.directory))
    except BusError:
        return name


def _pending(state: State, done: cmd.RegisterResult, horizon_ms: int) -> list[Result]:
    """What waits in the subscriptions that this register keeps: those it makes begin at now."""
    dropped = {gone.channel for gone in done.expired}
    rows = queries.pending(state, done.as_, horizon_ms=horizon_ms) if done.resumed else []
    return [row for row in rows if row["channel"] not in dropped]


def create_channel(given: args.CreateChannelArguments, host: Host, control: Control) -> Result:
    """Make a channel, once."""
    command = cmd.CreateChannel(as_=identity_of(given), channel=names.parse_channel_name(given.name), kind=given.kind)
    done = host.bus.execute(command, control).result
    return {"channel": done.channel, "kind": done.kind, "created": done.created}


def subscribe(given: args.SubscribeArguments, host: Host, control: Control) -> Result:
    """Subscribe; with ``persistent`` also in the repository's file."""
    channel = names.parse_channel_name(given.channel)
    command = cmd.Subscribe(as_=identity_of(given), channel=channel, oldest=given.from_ == "oldest")
    already = host.bus.execute(command, control).result.already
    record: Result = {"subscribed": channel} | ({"already": True} if already else {})
    return record | (_persist(host, repoconfig.add_channel, channel) if given.persistent else {})


def unsubscribe(given: args.UnsubscribeArguments, host: Host, control: Control) -> Result:
    """Unsubscribe; with ``persistent`` also in the repository's file."""
    channel = names.parse_channel_name(given.channel)
    host.bus.execute(cmd.Unsubscribe(as_=identity_of(given), channel=channel), control)
    record: Result = {"unsubscribed": channel}
    return record | (_persist(host, repoconfig.remove_channel, channel) if given.persistent else {})


def _persist(host: Host, edit: Callable[[str, str], object], channel: str) -> Result:
    """The repository file's part: the session's action stands whatever becomes of it, and the result says which."""
    try:
        edit(host.directory, channel)
    except repoconfig.RepoFileError as error:
        return {"persistent": False, "persistent_error": str(error)}
    return {"persistent": True}
