"""Gemini CLI: server and hooks in ~/.gemini/settings.json, which its own command would lay out anew."""

from __future__ import annotations

from typing import Any

from agentbus.harness import entries
from agentbus.harness.setup import Harness, Setup, server

_TIMEOUT_MS = 10_000


def harness(setup: Setup) -> Harness:
    """As it is set up here."""
    settings = setup.place(".gemini", "settings.json")
    return Harness(
        name="gemini",
        title="Gemini CLI",
        program="gemini",
        directories=(setup.place(".gemini"),),
        entries=(
            entries.member(settings, ("mcpServers", entries.SERVER), server(setup), "server agentbus"),
            entries.hook(settings, ("hooks", "SessionStart"), _group(setup, "session-start"), "hook SessionStart"),
            entries.hook(settings, ("hooks", "AfterAgent"), _group(setup, "stop"), "hook AfterAgent"),
        ),
        todo=("Restart Gemini CLI.",),
        notes=("It has no way to be woken: an idle session sees a message at its next turn.",),
    )


def _group(setup: Setup, event: str) -> dict[str, Any]:
    return {"hooks": [{"type": "command", "command": setup.hook(event, "gemini"), "timeout": _TIMEOUT_MS}]}
