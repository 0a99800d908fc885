"""Claude Code, as a user sets it up: connected, told of the bus, held and woken."""

from __future__ import annotations

import json
import time

import pytest

from agentbus.protocol import render_protocol
from tests.agentbus.hosts import call
from tests.harness.ground import Ground, Screen, require, told
from tests.harness.model import TOKEN, Call, Say

SETTINGS = """{
  "theme": "dark",
  "permissions": {"allow": ["mcp__agentbus"]}
}
"""


@pytest.fixture
def claude(ground: Ground) -> Ground:
    require("claude")
    ground.environ |= {
        "ANTHROPIC_BASE_URL": ground.model.url,
        "ANTHROPIC_API_KEY": "sk-ant-stand-in",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    ground.write(
        ".claude.json",
        {
            "hasCompletedOnboarding": True,
            "customApiKeyResponses": {"approved": ["sk-ant-stand-in"], "rejected": []},
            "projects": {str(ground.repository): trusted},
        },
    )
    ground.write(".claude/settings.json", SETTINGS)
    ground.init("claude")
    return ground


def test_it_connects(claude: Ground) -> None:
    assert "✔ Connected" in claude.run("claude", "mcp", "list").stdout.replace("✓", "✔")


def test_an_agent_registers_posts_and_receives_and_is_told_the_protocol(claude: Ground) -> None:
    claude.model.then(
        Call("register", name="alpha"),
        Call("post", as_="alpha", channel="general", content="hello"),
        Call("receive", as_="alpha", include_own=True),
        Call("receive", as_="alpha", ack=TOKEN),
        Say("done"),
    )
    done = claude.run("claude", "-p", "go", "--output-format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = claude.model.shown
    print("times told", [told(first.body[k]).count("call the register tool now") for k in first.body], list(first.body))
    assert "mcp__agentbus__register" in first.tools
    assert render_protocol("shop").rstrip("\n") in told(first.body)
    assert '"token"' in told(last.body)


def test_a_turn_is_held_once_for_what_is_new(claude: Ground) -> None:
    peer = claude.peer()
    call(peer, "register", name="beta")
    call(peer, "subscribe", as_="beta", channel="general")
    claude.model.then(Call("register", name="alpha"), Say("finished"))
    import threading
    def speak() -> None:
        claude.model.until(lambda each: '"resumed' in told(each.body))
        call(peer, "post", as_="beta", channel="general", content="swordfish")
    threading.Thread(target=speak, daemon=True).start()
    done = claude.run("claude", "-p", "go", "--output-format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    print(len(claude.model.shown), json.loads(done.stdout)["num_turns"])
    held = [each for each in claude.model.shown if "1 new message waits" in told(each.body)]
    assert held
    assert "swordfish" not in told(held[0].body)


def test_an_idle_session_is_woken(claude: Ground, tmp_path) -> None:
    claude.model.then(Call("register", name="alpha"), Say("idle now"))
    peer = claude.peer()
    call(peer, "register", name="beta")
    with Screen(claude, tmp_path, "claude") as screen:
        try:
            screen.until(lambda shown: "❯" in shown)
            screen.type("go to work")
            screen.until(lambda shown: "idle now" in shown)
            time.sleep(4)
            call(peer, "post", as_="beta", channel="general", content="nothing for you")
            at = time.monotonic()
            call(peer, "post", as_="beta", channel="general", content="@alpha swordfish")
            woken = claude.model.until(lambda each: "addressed to you waits" in told(each.body))
            print("woken after", woken.at - at)
        finally:
            print(screen.text())
            claude.write("requests.json", [e.body for e in claude.model.shown])
