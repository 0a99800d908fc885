"""Where a server works: the identity it tells, and what it makes nowhere."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from agentbus.whereabouts import is_everybodys
from tests.agentbus.raw_server import MCP, WAIT_S, RawServer
from tests.agentbus.shell import environ

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A home with two repositories, and a directory that lies in none."""
    for name in ("shop", "bank"):
        (tmp_path / name / ".git").mkdir(parents=True)
    (tmp_path / "loose").mkdir()
    return tmp_path


def told(place: Path, cwd: str, *arguments: str, **more: str) -> str:
    """The identity that a server tells which was started in ``cwd``."""
    command = ("sh", "-c", f'cd "$0" && exec {" ".join(MCP)} "$@"', str(place / cwd), *arguments)
    with RawServer(command, **environ(place / "data", HOME=str(place), **more)) as server:
        instructions = server.initialize()["instructions"]
    identity: str = instructions.split('name parameter set to "')[1].split('"')[0]
    return identity


@pytest.mark.parametrize("form", [("--directory", "{}"), ("--directory={}",), ("--config", "x.json", "--directory={}")])
def test_the_directory_it_is_told_is_where_it_works(place: Path, form: tuple[str, ...]) -> None:
    (place / "x.json").write_text("{}")
    words = [word.replace("{}", str(place / "bank")).replace("x.json", str(place / "x.json")) for word in form]
    assert told(place, "shop", *words, CLAUDE_PROJECT_DIR=str(place / "shop")) == "bank"


def test_the_client_s_project_counts_only_where_the_working_directory_is_in_none(place: Path) -> None:
    project = {"CLAUDE_PROJECT_DIR": str(place / "bank")}
    assert told(place, "loose", **project) == "bank"
    assert told(place, "shop", **project) == "shop"
    assert told(place, "loose") == "loose"
    assert told(place, "loose", CLAUDE_PROJECT_DIR=str(place / "nowhere")) == "loose"
    assert told(place, "loose", CLAUDE_PROJECT_DIR="../bank") == "loose"


def test_a_directory_that_is_not_there_is_refused(place: Path) -> None:
    for engine in ([], ["--engine", "sdk"]):
        done = subprocess.run(
            [*MCP, "--directory", str(place / "nowhere"), *engine],
            env=environ(place / "data"), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT_S,
            check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"agentbus: --directory {place / 'nowhere'}: No such file or directory\n"


def test_an_agent_in_a_home_that_is_a_repository_makes_nothing_there(place: Path) -> None:
    (place / ".git").mkdir()
    with RawServer((*MCP, "--directory", str(place)), **environ(place / "data", HOME=str(place))) as server:
        server.initialize()
        server.ask("tools/call", {"name": "register", "arguments": {"name": "alpha"}})
        given = {"as": "alpha", "channel": "general", "persistent": True}
        answer = server.ask("tools/call", {"name": "subscribe", "arguments": given})["result"]["structuredContent"]
    assert answer["persistent"] is False
    assert "is no project" in answer["persistent_error"]
    assert not (place / ".local").exists()


def test_the_root_and_the_home_are_everybody_s(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place))
    assert is_everybodys("/")
    assert is_everybodys(str(place / "shop" / ".."))
    assert not is_everybodys(str(place / "shop"))
