"""The MCP Inspector, the protocol's own judge of servers, on every method that it can ask of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentbus.tools import TOOLS
from tests.harness.ground import Ground, require

if TYPE_CHECKING:
    import subprocess

ARGUMENTS: dict[str, list[str]] = {
    "create_channel": ["name=reviews"],
    "subscribe": ["channel=general"],
    "unsubscribe": ["channel=general"],
    "post": ["channel=general", "content=hello"],
    "history": ["channel=general"],
    "search": ["query=hello"],
    "get_memory": ["id=1"],
    "edit_memory": ["id=1", "content=hello"],
    "delete_memory": ["id=1"],
}


@pytest.fixture(autouse=True)
def inspector() -> None:
    require("mcp-inspector")


def ask(ground: Ground, method: str, *more: str) -> subprocess.CompletedProcess[str]:
    return ground.run("mcp-inspector", "--cli", "agentbus", "mcp", "--method", method, *more)


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_lists_our_tools_and_finds_nothing_to_complain_of(ground: Ground) -> None:
    done = ask(ground, "tools/list", "--strict")
    assert done.returncode == 0, done.stderr
    assert [tool["name"] for tool in answer(done)["tools"]] == [tool.name for tool in TOOLS]


def test_it_reads_our_prompt(ground: Ground) -> None:
    assert [prompt["name"] for prompt in answer(ask(ground, "prompts/list"))["prompts"]] == ["init"]
    prompt = answer(ask(ground, "prompts/get", "--prompt-name", "init"))
    assert "agentbus init --global" in prompt["messages"][0]["content"]["text"]


@pytest.mark.parametrize("tool", [tool.name for tool in TOOLS])
def test_it_reads_what_each_tool_answers(ground: Ground, tool: str) -> None:
    """Each call has a server of its own: but for register, there is no session that it could speak for."""
    given = ["name=alpha"] if tool == "register" else ["as=alpha", *ARGUMENTS.get(tool, [])]
    words = [word for pair in given for word in ("--tool-arg", pair)]
    result = answer(ask(ground, "tools/call", "--tool-name", tool, *words))
    if tool == "register":
        assert result["structuredContent"]["as"] == "alpha"
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    else:
        assert result["isError"]
        assert json.loads(result["content"][0]["text"])["code"] == "not_registered"
