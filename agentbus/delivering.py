"""What the `receive` tool does, from checked arguments and the host to a result object. The rules are not here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from agentbus import commands as cmd
from agentbus import names, queries, results
from agentbus.asking import identity_of, now_ms, or_none, require
from agentbus.errors import NOT_REGISTERED, BusError
from agentbus.limits import FILTER_ENTRIES_MAX, WAIT_SLICE_S
from agentbus.refusals import unread
from journal import JournalError

if TYPE_CHECKING:
    from agentbus import arguments as args
    from agentbus.control import Control
    from agentbus.host import Host
    from agentbus.state import State

Result = dict[str, Any]


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
    now = now_ms()
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
    require(
        count <= settings.receive_max_count,
        f'"count" {count} is more than receive_max_count ({settings.receive_max_count}) allows: ask for fewer',
    )
    require(
        given.wait_seconds <= settings.receive_max_wait_seconds,
        f'"wait_seconds" {given.wait_seconds} is more than receive_max_wait_seconds'
        f" ({settings.receive_max_wait_seconds}) allows: wait again instead",
    )
    channels: tuple[names.ChannelName, ...] | None = None
    if given.channels is not UNSET:
        many = len(given.channels)
        require(
            0 < many <= FILTER_ENTRIES_MAX,
            f'"channels" has {many} entries: name 1 to {FILTER_ENTRIES_MAX}, or leave it out for all',
        )
        channels = tuple(names.parse_channel_name(name) for name in given.channels)
    return cmd.Receive(
        as_=identity_of(given),
        count=count,
        ack=or_none(given.ack),
        channels=channels,
        include_own=given.include_own,
    )
