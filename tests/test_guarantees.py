"""docs/guarantees.md points at what shows each promise: every test it names is there, and so is every mode."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools.crash import TRIES

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "guarantees.md").read_text()
TESTS = sorted(set(re.findall(r"`(tests/[^`]*)`", TEXT)) - {"tests/test_guarantees.py"})
MODES = sorted(set(re.findall(r"`tools/crash\.py ([^`]*)`", TEXT)))
UNPROMISED = "What is not promised"


def sections() -> dict[str, list[str]]:
    """The items of each section, each with what stands under it."""
    found = {}
    for section in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        title, _, rest = section.partition("\n")
        found[title] = re.split(r"^- ", rest, flags=re.MULTILINE)[1:]
    return found


def functions(path: Path) -> dict[str, str]:
    """The functions of a module, each with its decorators as text."""
    found = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {node.name: " ".join(map(ast.unparse, node.decorator_list)) for node in found}


@pytest.mark.parametrize("named", TESTS)
def test_a_test_that_a_promise_rests_on_is_there_and_is_expected_to_pass(named: str) -> None:
    path, _, name = named.partition("::")
    assert name.startswith("test_")
    assert name in functions(ROOT / path)
    assert "xfail" not in functions(ROOT / path)[name]


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_that_a_promise_rests_on_is_there(mode: str) -> None:
    assert mode in TRIES
    assert (ROOT / "tools" / "crashes" / f"{mode}.py").is_file()


def test_each_mode_of_the_tool_shows_something() -> None:
    assert sorted(TRIES) == MODES


@pytest.mark.parametrize("title", [title for title in sections() if title != UNPROMISED])
def test_each_promise_points_at_what_shows_it(title: str) -> None:
    assert sections()[title]
    for item in sections()[title]:
        promise, *shown = re.split(r"^  - ", item, flags=re.MULTILINE)
        assert shown, promise
        assert "`tests/" not in promise


def test_what_is_not_promised_is_said() -> None:
    assert len(sections()[UNPROMISED]) > 5
