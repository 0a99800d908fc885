"""server.json, by which the MCP registry knows us, says what the package says."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from agentbus import __version__

ROOT = Path(__file__).parent.parent
SERVER = json.loads((ROOT / "server.json").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_name_version_and_package_are_those_of_the_project() -> None:
    (package,) = SERVER["packages"]
    assert SERVER["version"] == package["version"] == __version__ == PROJECT["version"]
    assert package["identifier"] == PROJECT["name"]
    assert package["transport"] == {"type": "stdio"}
    assert [argument["value"] for argument in package["packageArguments"]] == ["mcp"]
    assert {each["name"] for each in package["environmentVariables"]} == {"AGENTBUS_DATA_DIR", "AGENTBUS_CONFIG"}


def test_the_registry_s_bounds_are_kept() -> None:
    """Source: the schema that the file names, of 2025-12-11."""
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", SERVER["name"])
    assert len(SERVER["name"]) <= 200
    assert 1 <= len(SERVER["description"]) <= 100
    assert 1 <= len(SERVER["title"]) <= 100


def test_a_client_that_runs_the_package_by_its_name_finds_a_command_of_that_name() -> None:
    """As ``uvx agentbus-journal mcp`` does."""
    assert PROJECT["scripts"][PROJECT["name"]] == PROJECT["scripts"]["agentbus"]
