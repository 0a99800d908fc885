"""Claude Code: server by its own command, hooks and skill in ~/.claude."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from agentbus.harness import entries, jsonc
from agentbus.harness.setup import ByCommand, Harness, Made, Setup, server
from agentbus.protocol import render_skill
from agentbus.repository import read_regular

_STATE_BYTES_MAX = 64 << 20


def harness(setup: Setup) -> Harness:
    """As it is set up here."""
    home = setup.place(".claude", variable="CLAUDE_CONFIG_DIR")
    settings = f"{home}/settings.json"
    wanted = server(setup, type="stdio")
    state = f"{home}/.claude.json" if setup.environ.get("CLAUDE_CONFIG_DIR") else f"{setup.home}/.claude.json"
    told = [word for key, value in setup.moved.items() for word in ("-e", f"{key}={value}")]
    return Harness(
        name="claude",
        title="Claude Code",
        program="claude",
        directories=(home,),
        by_command=ByCommand(
            present=partial(_is_present, state, wanted),
            add=["mcp", "add", "-s", "user", entries.SERVER, *told, "--", setup.command, *setup.arguments],
            remove=["mcp", "remove", "-s", "user", entries.SERVER],
            instead=entries.member(state, ("mcpServers", entries.SERVER), wanted, "server agentbus"),
        ),
        entries=(
            entries.hook(settings, ("hooks", "SessionStart"), _group(setup, "session-start"), "hook SessionStart"),
            entries.hook(settings, ("hooks", "Stop"), _stop(setup), "hook Stop, wake-up"),
        ),
        made=(Made(f"{home}/skills/agentbus/SKILL.md", "skill agentbus", render_skill()),),
        todo=(
            "Restart Claude Code.",
            'To let it call the tools without asking, add "mcp__agentbus" to permissions.allow in settings.json.',
        ),
    )


def _group(setup: Setup, event: str) -> dict[str, Any]:
    return {"hooks": [{"type": "command", "command": setup.hook(event, "claude"), "timeout": 10}]}


def _stop(setup: Setup) -> dict[str, Any]:
    """At a turn's end: hold it for what is new; and a waiter, which the client runs beside the idle session."""
    wake = {"type": "command", "command": setup.hook("wake", "claude"), "asyncRewake": True}
    return {"hooks": [*_group(setup, "stop")["hooks"], wake]}


def _is_present(state: str, wanted: dict[str, Any]) -> bool:
    """Whether the client's state has the server as wanted; it adds members of its own."""
    try:
        found = jsonc.get(json.loads(read_regular(state, _STATE_BYTES_MAX)), ("mcpServers", entries.SERVER))
    except (OSError, ValueError, KeyError):
        return False
    return isinstance(found, dict) and {"env": {}} | wanted == {"env": {}} | found
