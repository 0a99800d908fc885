"""Cursor: server in ~/.cursor/mcp.json, hooks in ~/.cursor/hooks.json. By its documentation; not tried."""

from __future__ import annotations

from agentbus.harness import entries
from agentbus.harness.setup import Harness, Setup, server


def harness(setup: Setup) -> Harness:
    """As it is set up here."""
    home = setup.place(".cursor")
    hooks, version = f"{home}/hooks.json", {"version": 1}
    start, stop = ({"command": setup.hook(event, "cursor")} for event in ("session-start", "stop"))
    return Harness(
        name="cursor",
        title="Cursor",
        program="cursor",
        directories=(home,),
        entries=(
            entries.member(f"{home}/mcp.json", ("mcpServers", entries.SERVER), server(setup), "server agentbus"),
            entries.hook(hooks, ("hooks", "sessionStart"), start, "hook sessionStart", defaults=version),
            entries.hook(hooks, ("hooks", "stop"), stop, "hook stop", defaults=version),
        ),
        todo=("Restart Cursor.",),
        notes=("Set up by its documentation, and not tried with it.", "It has no way to be woken."),
    )
