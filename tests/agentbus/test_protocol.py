"""The session protocol text: one constant, two callers."""

from __future__ import annotations

import json
from pathlib import Path

from agentbus.protocol import PROTOCOL, render_protocol, render_setup

_BLOCK = Path(__file__).with_name("protocol-block.txt").read_text(encoding="utf-8")


def test_the_protocol_is_the_block_to_the_letter() -> None:
    assert PROTOCOL == _BLOCK


def test_the_name_stands_where_the_block_says_name_and_nowhere_else_is_touched() -> None:
    assert render_protocol("review") == _BLOCK.replace("NAME", "review")
    assert render_protocol("review").startswith(
        'Agentbus: call the register tool now with the name parameter set to "review",\n'
    )
    assert render_protocol("NAME") == _BLOCK


def test_the_protocol_fits_where_a_client_cuts_a_server_s_instructions() -> None:
    """Claude Code shows 2,048 characters of them; a name has 200 bytes at most."""
    assert len(render_protocol("n" * 200)) <= 2_048


def test_the_setup_text_ends_with_the_same_block() -> None:
    assert render_setup("review", {}).endswith("\n" + render_protocol("review"))


def test_the_setup_text_holds_the_exact_lines_that_add_the_server() -> None:
    lines = render_setup("review", {}).splitlines()
    assert "claude mcp add -s user agentbus -- agentbus mcp" in lines
    assert "codex mcp add agentbus -- agentbus mcp" in lines
    assert not any("NAME" in line for line in lines)


def test_the_setup_text_begins_with_the_one_command_that_does_it_all() -> None:
    lines = render_setup("review", {}).splitlines()
    assert lines.index("agentbus init --global") < lines.index("claude mcp add -s user agentbus -- agentbus mcp")


def test_the_hooks_in_the_setup_text_are_json_as_it_stands() -> None:
    hooks = [json.loads(line)["hooks"] for line in render_setup("review", {}).splitlines() if line.startswith("{")]
    commands = [[hook["command"] for group in each["SessionStart"] for hook in group["hooks"]] for each in hooks]
    assert commands == [["agentbus identity"], ["agentbus identity --format json"]]
