"""VS Code: server in the user's mcp.json. By its documentation; it has no hooks for a user."""

from __future__ import annotations

import sys

from agentbus.harness import entries
from agentbus.harness.setup import Harness, Setup, server


def harness(setup: Setup) -> Harness:
    """As it is set up here."""
    user = f"{_place_of_settings(setup)}/Code/User"
    return Harness(
        name="vscode",
        title="VS Code",
        program="code",
        directories=(user,),
        entries=(
            entries.member(
                f"{user}/mcp.json", ("servers", entries.SERVER), server(setup, type="stdio"), "server agentbus"
            ),
        ),
        todo=("Restart VS Code.",),
        notes=(
            "Set up by its documentation, and not tried with it.",
            "It has no hook at a session's start: its agents know the bus by the server's instructions alone.",
        ),
    )


def _place_of_settings(setup: Setup) -> str:
    if sys.platform == "darwin":
        return setup.place("Library", "Application Support")
    return setup.named("XDG_CONFIG_HOME") or setup.place(".config")
