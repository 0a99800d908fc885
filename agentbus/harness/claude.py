"""Claude Code: server by its own command, hooks and skill in ~/.claude."""

from __future__ import annotations

import os
from typing import Any

from agentbus.harness import entries
from agentbus.harness.setup import ByCommand, Harness, Made, Setup, server
from agentbus.protocol import PROTOCOL, render_skill

_WAKE_S = 7 * 24 * 3600
"""The client ends a waiter when its time is up, by default after ten minutes; nobody would come after it."""
_SIGN = PROTOCOL.splitlines()[0].partition("now")[0]


def harness(setup: Setup) -> Harness:
    """As it is set up here. Tried with 2.1.332, which ignores settings with comments as a whole."""
    moved = setup.named("CLAUDE_CONFIG_DIR")
    home = moved or setup.place(".claude")
    settings, state = f"{home}/settings.json", os.path.join(moved or setup.home, ".claude.json")
    path, value = ("mcpServers", entries.SERVER), server(setup, type="stdio")
    start = {"hooks": [_command(setup, "session-start")]}
    # The second is a waiter that the client runs beside the idle session, and again after every turn.
    wake = {"type": "command", "command": setup.hook("wake", "claude"), "asyncRewake": True, "timeout": _WAKE_S}
    stop = {"hooks": [_command(setup, "stop"), wake]}
    return Harness(
        name="claude",
        title="Claude Code",
        program="claude",
        directories=(home,),
        by_command=ByCommand(
            add=["mcp", "add-json", "-s", "user", entries.SERVER],
            remove=["mcp", "remove", "-s", "user", entries.SERVER],
            path=path,
            server=value,
            entry=entries.member(state, path, value, "server agentbus", reads="json"),
        ),
        entries=(
            entries.hook(settings, ("hooks", "SessionStart"), start, "hook SessionStart", reads="json"),
            entries.hook(settings, ("hooks", "Stop"), stop, "hook Stop, wake-up", reads="json"),
        ),
        made=(Made(f"{home}/skills/agentbus/SKILL.md", "skill agentbus", render_skill(), _SIGN),),
        todo=(
            "Restart Claude Code.",
            'To let it call the tools without asking, add "mcp__agentbus" to permissions.allow in settings.json.',
        ),
    )


def _command(setup: Setup, event: str) -> dict[str, Any]:
    return {"type": "command", "command": setup.hook(event, "claude"), "timeout": 10}
