"""What people and clients have got used to: the help texts and the list of tools, to the letter.

A wanted change is taken over by `AGENTBUS_RENEW=1 pytest tests/test_expected.py`, and then read in the diff.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.testing import CliRunner

from agentbus import tools
from agentbus.cli import main

if TYPE_CHECKING:
    import pytest

EXPECTED = Path(__file__).parent / "expected"


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path]
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        found += commands(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]
    return found


def check(name: str, text: str) -> None:
    file = EXPECTED / name
    if os.environ.get("AGENTBUS_RENEW"):
        file.write_text(text)
    assert file.read_text() == text


def test_each_command_explains_itself_in_these_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    texts = []
    for command in commands(main):
        done = CliRunner().invoke(main, [*command, "--help"])
        assert done.exit_code == 0, command
        texts.append(f"$ agentbus {' '.join((*command, '--help'))}\n{done.output}")
    check("help.txt", "\n".join(texts))


def test_the_list_of_tools_is_this() -> None:
    listed = [
        {"name": tool.name, "title": tool.title, "description": tool.description, "schema": tool.schema}
        | {"hints": tool.hints, "meta": tool.meta}
        for tool in tools.TOOLS
    ]
    check("tools.json", json.dumps(listed, indent=2, ensure_ascii=False) + "\n")
