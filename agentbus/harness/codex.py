"""Codex: server in config.toml, hooks in hooks.json, both in ~/.codex."""

from __future__ import annotations

from typing import Any

from agentbus.harness import entries
from agentbus.harness.setup import Harness, Setup, server


def harness(setup: Setup) -> Harness:
    """As it is set up here. Tried with 0.171.0. A hook that changes in any way has to be trusted again."""
    home = setup.named("CODEX_HOME") or setup.place(".codex")
    hooks = f"{home}/hooks.json"
    stop = {"hooks": [_command(setup, "stop"), _command(setup, "wake")]}
    return Harness(
        name="codex",
        title="Codex",
        program="codex",
        directories=(home,),
        entries=(
            entries.table(f"{home}/config.toml", "mcp_servers", server(setup), "server agentbus"),
            entries.hook(
                hooks,
                ("hooks", "SessionStart"),
                {"hooks": [_command(setup, "session-start")]},
                "hook SessionStart",
                reads="json",
            ),
            entries.hook(hooks, ("hooks", "Stop"), stop, "hook Stop, wake-up", reads="json"),
        ),
        todo=("Restart Codex, and trust the new hooks in /hooks: until then it skips them.",),
    )


def _command(setup: Setup, event: str) -> dict[str, Any]:
    return {"type": "command", "command": setup.hook(event, "codex"), "timeout": 10}
