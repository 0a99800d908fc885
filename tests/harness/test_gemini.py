"""Gemini CLI, as a user sets it up: connected, told of the bus, held at the end of a turn."""

from __future__ import annotations

import threading

import pytest

from agentbus.protocol import render_protocol
from tests.agentbus.hosts import call
from tests.harness.ground import Ground, require, told
from tests.harness.model import TOKEN, Call, Say

RUN = ("gemini", "-p", "go", "-y", "-m", "gemini-2.5-pro")


@pytest.fixture
def gemini(ground: Ground) -> Ground:
    require("gemini")
    ground.environ |= {
        "GOOGLE_GEMINI_BASE_URL": ground.model.url,
        "GEMINI_API_KEY": "x",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    ground.write(".gemini/settings.json", '{\n  // mine\n  "ui": {"theme": "Default"}, /* bright */\n  "security": {"auth": {"selectedType": "gemini-api-key"}}\n}\n')
    ground.init("gemini")
    return ground


def test_it_connects(gemini: Ground) -> None:
    listed = gemini.run("gemini", "mcp", "list")
    print(listed.stdout, listed.stderr)
    assert "Connected" in listed.stdout + listed.stderr


def test_an_agent_registers_posts_and_receives_and_is_told_the_protocol(gemini: Ground) -> None:
    gemini.model.then(
        Call("register", name="alpha"),
        Call("post", as_="alpha", channel="general", content="hello"),
        Call("receive", as_="alpha", include_own=True),
        Call("receive", as_="alpha", ack=TOKEN),
        Say("done"),
    )
    done = gemini.run(*RUN)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = gemini.model.shown
    assert "mcp_agentbus_register" in first.tools
    print("times told", [(k, told(first.body[k]).count("call the register tool now")) for k in first.body])
    assert render_protocol("shop").rstrip("\n") in told(first.body)
    assert "token" in told(last.body)


def test_a_turn_is_held_once_for_what_is_new(gemini: Ground) -> None:
    peer = gemini.peer()
    call(peer, "register", name="beta")
    gemini.model.then(Call("register", name="alpha"), Say("finished"))
    def speak() -> None:
        gemini.model.until(lambda each: "resumed" in told(each.body["contents"]))
        call(peer, "post", as_="beta", channel="general", content="swordfish")
    threading.Thread(target=speak, daemon=True).start()
    done = gemini.run(*RUN)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout, done.stderr[-1500:], len(gemini.model.shown))
    held = [each for each in gemini.model.shown if "1 new message waits" in told(each.body)]
    assert held
    assert "swordfish" not in told(held[0].body)
