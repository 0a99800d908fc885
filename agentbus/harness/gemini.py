"""Gemini CLI: server and hooks in ~/.gemini/settings.json, which its own command would lay out anew."""

from __future__ import annotations

import os

from agentbus.harness import entries
from agentbus.harness.setup import Harness, Setup, server

_TIMEOUT_MS = 10_000


def harness(setup: Setup) -> Harness:
    """As it is set up here. Tried with 0.61.0."""
    home = os.path.join(setup.named("GEMINI_CLI_HOME") or setup.home, ".gemini")
    settings = f"{home}/settings.json"
    return Harness(
        name="gemini",
        title="Gemini CLI",
        program="gemini",
        directories=(home,),
        entries=(
            entries.member(
                settings, ("mcpServers", entries.SERVER), server(setup), "server agentbus", reads="comments"
            ),
            _hook(setup, settings, "SessionStart", "session-start"),
            _hook(setup, settings, "AfterAgent", "stop"),
        ),
        todo=("Restart Gemini CLI.",),
        notes=("It has no way to be woken: an idle session sees a message at its next turn.",),
    )


def _hook(setup: Setup, settings: str, name: str, event: str) -> entries.Entry:
    command = {"type": "command", "command": setup.hook(event, "gemini"), "timeout": _TIMEOUT_MS}
    return entries.hook(settings, ("hooks", name), {"hooks": [command]}, f"hook {name}", reads="comments")
