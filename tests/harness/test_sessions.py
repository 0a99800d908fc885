"""Whose hook it is, shown with the clients: two sessions in one repository, and subagents."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tests.harness.clients import CLAUDE, CODEX
from tests.harness.ground import Screen, require, told
from tests.harness.model import AGENT, After, Call, Other, Say
from tests.harness.test_clients import FIRST_START_S, peer_of, says

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.ground import Ground
    from tests.harness.model import Shown

TASK = "help out"


def test_of_two_sessions_in_one_repository_the_addressed_one_is_woken(ground: Ground, tmp_path: Path) -> None:
    require("claude")
    CLAUDE.prepare(ground)
    ground.init("claude")
    peer = peer_of(ground)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    ground.model.then(Call("register", name="alpha"), Say("first is idle"))
    with Screen(ground, tmp_path / "one", *CLAUDE.open) as one, Screen(ground, tmp_path / "two", *CLAUDE.open) as two:
        one.until(lambda shown: CLAUDE.ready in shown, FIRST_START_S)
        one.type("go to work")
        one.until(lambda shown: "first is idle" in shown)
        ground.model.then(Call("register", name="alpha"), Say("second is idle"))
        two.until(lambda shown: CLAUDE.ready in shown, FIRST_START_S)
        two.type("go to work")
        two.until(lambda shown: "second is idle" in shown)
        ground.until_waiting(2)
        says(peer, "@alpha2 swordfish")()
        woken = ground.model.until(lambda each: "addressed to you waits" in told(each.body))
        two.until(lambda shown: "done" in shown)
    assert "second is idle" in told(woken.body)
    assert "first is idle" not in told(woken.body)
    assert len(ground.model.shown) == 5


def test_a_subagent_of_claude_code_shares_its_server_and_is_not_spoken_for(ground: Ground) -> None:
    require("claude")
    CLAUDE.prepare(ground)
    ground.init("claude")
    peer = peer_of(ground)
    task = {"description": "help", "prompt": TASK, "subagent_type": "general-purpose", "run_in_background": False}
    ground.model.then(Call("register", name="alpha"), Other("Agent", task))
    ground.model.others(
        is_helper, Call("register", name="helper", parent="alpha"), After(says(peer, "hello"), Say("helped"))
    )
    done = ground.run(*CLAUDE.run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"as":"alpha/helper"' in told(ground.model.until(lambda each: "alpha/helper" in told(each.body)).body)
    assert len(owners_of(ground)) == 1
    assert 'with "as" "alpha".' in told(ground.model.shown[-1].body)


def test_a_subagent_of_codex_has_a_server_of_its_own_and_is_not_spoken_for(ground: Ground) -> None:
    require("codex")
    CODEX.prepare(ground)
    ground.init("codex")
    peer = peer_of(ground)
    ground.model.then(
        Call("register", name="alpha"),
        Other("multi_agent_v1.spawn_agent", {"message": TASK}),
        Other("multi_agent_v1.wait_agent", {"targets": [AGENT], "timeout_ms": 30000}),
    )
    ground.model.others(is_helper, Call("register", name="helper"), After(says(peer, "hello"), Say("helped")))
    done = ground.run(*CODEX.run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(owners_of(ground)) == 2
    assert 'with "as" "alpha".' in told(ground.model.shown[-1].body)


def is_helper(shown: Shown) -> bool:
    """Whether a subagent asks: its task is what it was told first, and not what somebody told a tool."""
    return not re.search(r'"(text|content)": "go"', shown.text)


def owners_of(ground: Ground) -> set[str]:
    """The server processes that registered somebody, but the peer's."""
    segments = sorted((ground.data / "journal").glob("*.jsonl"))
    events = [
        event for path in segments for line in path.read_text().splitlines() for event in json.loads(line)["events"]
    ]
    return {event["owner"] for event in events if event["type"] == "registered" and event["as"] != "beta"}
