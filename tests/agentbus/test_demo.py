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


def test_the_story_is_told_in_order_and_is_true(tmp_path: Path) -> None:
    done = run(tmp_path / "data", "demo", "--keep", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, b"")
    out = done.stdout.decode()
    at = 0
    for part in STORY:
        assert part in out[at:], part
        at = out.index(part, at) + len(part)
    (kept,) = tmp_path.glob("agentbus-demo-*")
    assert out.endswith(f"Kept: {kept}\n")
    assert not (tmp_path / "data").exists()
    verdict = run(tmp_path / "data", "replay", "--verify", str(kept / "data")).stdout.decode()
    assert f"  {verdict}" in out
    assert (kept / "stderr").read_text() == ""


def test_the_journal_of_the_story_says_what_the_story_says(tmp_path: Path) -> None:
    run(tmp_path / "data", "demo", "--keep", TMPDIR=str(tmp_path))
    (kept,) = tmp_path.glob("agentbus-demo-*")
    told = events(kept / "data")
    tokens = [event["token"] for event in told if event["type"] == "delivered"]
    assert [event["token"] for event in told if event["type"] == "acked"] == tokens
    owners = [event["owner"] for event in told if event["type"] == "registered" and event["as"] == "api"]
    assert len(set(owners)) == 2
    assert [event["reason"] for event in told if event["type"] == "ended" and event["owner"] == owners[0]] == ["gone"]
    file = json.loads((kept / "api" / ".local" / "agentbus.json").read_text())
    assert file == {"identity": "api", "channels": ["general", "memory", "deploys"]}


def test_nothing_is_left_behind_unless_asked(tmp_path: Path) -> None:
    done = run(tmp_path / "data", "demo", TMPDIR=str(tmp_path))
    assert done.returncode == 0
    assert b"Kept: " not in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_lines_are_short_enough_to_read(tmp_path: Path) -> None:
    out = run(tmp_path / "data", "demo", TMPDIR=str(tmp_path)).stdout.decode()
    told = re.sub(r"segment opened.*|anchor.*", "", out)
    assert max(map(len, told.splitlines())) <= 130


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
