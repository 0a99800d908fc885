"""The table of the harnesses that agentbus can be set up in; each stands in a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentbus.harness import claude, codex, cursor, gemini, opencode, vscode

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.harness.setup import Harness, Setup

HARNESSES: dict[str, Callable[[Setup], Harness]] = {
    "claude": claude.harness,
    "codex": codex.harness,
    "gemini": gemini.harness,
    "opencode": opencode.harness,
    "cursor": cursor.harness,
    "vscode": vscode.harness,
}
