"""What the tools do that only look: history, get_memory, list_channels, discover. They write nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentbus import names, queries, results
from agentbus.asking import ask, identity_of, now_ms, or_none, require_count, room
from agentbus.decide.channels import require_channel
from agentbus.decide.memories import require_memory
from agentbus.limits import LIST_ENTRIES_MAX

if TYPE_CHECKING:
    from agentbus import arguments as args
    from agentbus.control import Control
    from agentbus.host import Host
    from agentbus.state import State

Result = dict[str, Any]


def history(given: args.HistoryArguments, host: Host, _: Control) -> Result:
    """A page of a channel; nothing counts as read."""
    require_count(given.count)

    def look(state: State) -> queries.Page:
        channel = require_channel(state, names.parse_channel_name(given.channel))
        before, after = or_none(given.before), or_none(given.after)
        return queries.history(
            state,
            channel,
            before=before,
            after=after,
            count=given.count,
            bytes_max=room(host),
            horizon_ms=host.bus.horizon_ms(),
        )

    page = ask(given, host, look)
    now = now_ms()
    messages = [results.message(body, now, identity_of(given)) for body in host.bus.bodies(page.messages)]
    return {"messages": messages, "truncated": page.truncated}


def get_memory(given: args.GetMemoryArguments, host: Host, _: Control) -> Result:
    """One memory, whole."""

    def look(state: State) -> list[queries.Located]:
        memory = require_memory(state, given.id)
        return queries.locate(state, [(memory.seq, memory.channel)])

    (body,) = host.bus.bodies(ask(given, host, look))
    return results.memory(body, now_ms())


def list_channels(given: args.SessionArguments, host: Host, _: Control) -> Result:
    """Every channel, as far as a result holds them."""
    horizon_ms = host.bus.horizon_ms()
    rows = ask(given, host, lambda state: queries.channel_rows(state, identity_of(given), horizon_ms=horizon_ms))
    kept, cut = results.fit(rows[:LIST_ENTRIES_MAX], room(host))
    return {"channels": kept, "truncated": cut or len(rows) > LIST_ENTRIES_MAX}


def discover(given: args.SessionArguments, host: Host, _: Control) -> Result:
    """The sessions whose process lives."""
    sessions = ask(given, host, lambda state: queries.live_sessions(state, ()))
    gone = host.bus.owners.gone(session.owner for session in sessions)
    rows = [results.session(session) for session in sessions if session.owner not in gone]
    kept, cut = results.fit(rows[:LIST_ENTRIES_MAX], room(host))
    return {"sessions": kept, "truncated": cut or len(rows) > LIST_ENTRIES_MAX}
