"""`agentbus demo`: the story a newcomer sees, and that it is true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from agentbus.cli import demo, main
from tests.agentbus.hosts import events
from tests.agentbus.shell import WAIT_S, environ, run

if TYPE_CHECKING:
    from pathlib import Path

STORY = (
    'subscribe_failed: {"deploys": "channel \\"deploys\\" does not exist"}',
    "$ agentbus channel create deploys",
    'addressed: ["api"]',
    "$ kill -9 ",
    "resumed: true",
    'subscribed: ["general", "memory", "deploys"]',
    "redelivered: true",
    'as: "api/schema"',
    "api/schema> post(",
    "from api/schema: ",
    "memory_id: ",
    "hits: ",
    "$ agentbus replay\n",
    "segment opened",
    "ended: its process was gone",
    "$ agentbus replay --verify\n",
    "ok: ",
)


class Told:
    """One demo with --keep, shared by the tests that only look at it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.done = run(directory / "data", "demo", "--keep", TMPDIR=str(directory))
        self.out = self.done.stdout.decode()
        (self.kept,) = directory.glob("agentbus-demo-*")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return Told(tmp_path_factory.mktemp("demo"))


def test_the_story_is_told_in_order(told: Told) -> None:
    assert (told.done.returncode, told.done.stderr) == (0, b"")
    at = 0
    for part in STORY:
        assert part in told.out[at:], part
        at = told.out.index(part, at) + len(part)
    assert told.out.endswith(f"Kept: {told.kept}\n")
    assert (told.kept / "stderr").read_text() == ""


def test_the_users_own_bus_is_not_touched(told: Told) -> None:
    assert not (told.directory / "data").exists()


def test_its_verdict_is_that_of_the_journal_it_leaves(told: Told) -> None:
    verdict = run(told.directory / "data", "replay", "--verify", str(told.kept / "data")).stdout.decode()
    assert f"  {verdict}" in told.out


def test_the_journal_says_what_the_story_says(told: Told) -> None:
    happened = events(told.kept / "data")
    tokens = [event["token"] for event in happened if event["type"] == "delivered"]
    assert [event["token"] for event in happened if event["type"] == "acked"] == tokens
    owners = [event["owner"] for event in happened if event["type"] == "registered" and event["as"] == "api"]
    assert len(set(owners)) == 2
    ended = [event["reason"] for event in happened if event["type"] == "ended" and event["owner"] == owners[0]]
    assert ended == ["gone"]
    file = json.loads((told.kept / "api" / ".local" / "agentbus.json").read_text())
    assert file == {"identity": "api", "channels": ["general", "memory", "deploys"]}


def test_lines_are_short_enough_to_read(told: Told) -> None:
    shown = re.sub(r"segment opened.*|anchor.*|Kept.*", "", told.out)
    assert max(map(len, shown.splitlines())) <= 130


def test_nothing_is_left_behind_unless_asked(tmp_path: Path) -> None:
    done = run(tmp_path / "data", "demo", TMPDIR=str(tmp_path))
    assert done.returncode == 0
    assert b"Kept: " not in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


@pytest.mark.parametrize("executable", ["/bin/false", "/nowhere/python"])
def test_what_does_not_happen_is_not_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: str) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(sys, "executable", executable)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert result.stderr.startswith("agentbus: the demo failed: ")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_room_for_a_directory_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    result = CliRunner().invoke(main, ["demo", "--keep"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("agentbus: the demo failed: [Errno 2] No such file")


def test_a_claim_that_does_not_hold_says_which() -> None:
    with pytest.raises(demo._ClaimError, match='it is not so that "pigs fly"'):
        demo._require(False, "pigs fly")


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    command = ["sh", "-c", f'"{sys.executable}" -m agentbus demo | head -3']
    environment = environ(tmp_path / "data", TMPDIR=str(tmp_path))
    done = subprocess.run(command, env=environment, capture_output=True, timeout=WAIT_S, check=True)
    assert done.stdout.count(b"\n") == 3
    assert done.stderr == b""
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]
