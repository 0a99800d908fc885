"""Claude Code: server by its own command, hooks and skill in ~/.claude."""

from __future__ import annotations

from typing import Any

from agentbus.harness import entries
from agentbus.harness.setup import ByCommand, Harness, Made, Setup, server
from agentbus.protocol import render_skill

_WAKE_S = 7 * 24 * 3600
"""The client ends a waiter when its time is up, by default after ten minutes; nobody would come after it."""


def harness(setup: Setup) -> Harness:
    """As it is set up here. Tried with 2.1.332, which ignores settings with comments as a whole."""
    home = setup.place(".claude", variable="CLAUDE_CONFIG_DIR")
    settings = f"{home}/settings.json"
    state = f"{home}/.claude.json" if setup.environ.get("CLAUDE_CONFIG_DIR") else f"{setup.home}/.claude.json"
    told = [word for key, value in setup.moved.items() for word in ("-e", f"{key}={value}")]
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
            add=["mcp", "add", "-s", "user", entries.SERVER, *told, "--", setup.command, *setup.arguments],
            remove=["mcp", "remove", "-s", "user", entries.SERVER],
            entry=entries.member(
                state, ("mcpServers", entries.SERVER), server(setup, type="stdio"), "server agentbus", reads="json"
            ),
        ),
        entries=(
            entries.hook(settings, ("hooks", "SessionStart"), start, "hook SessionStart", reads="json"),
            entries.hook(settings, ("hooks", "Stop"), stop, "hook Stop, wake-up", reads="json"),
        ),
        made=(Made(f"{home}/skills/agentbus/SKILL.md", "skill agentbus", render_skill()),),
        todo=(
            "Restart Claude Code.",
            'To let it call the tools without asking, add "mcp__agentbus" to permissions.allow in settings.json.',
        ),
    )


def _command(setup: Setup, event: str) -> dict[str, Any]:
    return {"type": "command", "command": setup.hook(event, "claude"), "timeout": 10}
