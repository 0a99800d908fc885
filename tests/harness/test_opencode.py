"""opencode, as a user sets it up: connected, told of the bus, held and woken by our plugin."""

from __future__ import annotations

import threading
import time

import pytest

from agentbus.protocol import render_protocol
from tests.agentbus.hosts import call
from tests.harness.ground import Ground, Screen, require, told
from tests.harness.model import TOKEN, Call, Say

CONFIG = """{
  // mine
  "$schema": "https://opencode.ai/config.json",
  "provider": {
    "stand-in": {
      "npm": "@ai-sdk/openai-compatible",
      "options": {"baseURL": "MODEL/v1", "apiKey": "x"},
      "models": {"m": {"name": "m"}},
    },
  },
  "model": "stand-in/m",
  "small_model": "stand-in/m",
  "autoupdate": false, // by hand
  "share": "disabled",
}
"""


@pytest.fixture
def opencode(ground: Ground) -> Ground:
    require("opencode")
    ground.environ |= {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    ground.write(".config/opencode/opencode.jsonc", CONFIG.replace("MODEL", ground.model.url))
    ground.init("opencode")
    return ground


def test_it_connects(opencode: Ground) -> None:
    listed = opencode.run("opencode", "mcp", "list")
    print(listed.stdout, listed.stderr)
    assert "agentbus" in listed.stdout + listed.stderr
    assert "connected" in listed.stdout + listed.stderr


def test_an_agent_registers_posts_and_receives_and_is_told_the_protocol(opencode: Ground) -> None:
    opencode.model.then(
        Call("register", name="alpha"),
        Call("post", as_="alpha", channel="general", content="hello"),
        Call("receive", as_="alpha", include_own=True),
        Call("receive", as_="alpha", ack=TOKEN),
        Say("done"),
    )
    done = opencode.run("opencode", "run", "go")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = opencode.model.shown
    assert "agentbus_register" in first.tools
    print("times told", [(k, told(first.body[k]).count("call the register tool now")) for k in first.body])
    print(told([m for m in first.body["messages"] if m["role"] == "system"])[-3000:])
    assert render_protocol("shop").rstrip("\n") in told(first.body)
    assert "token" in told(last.body)


def test_a_turn_is_held_once_for_what_is_new(opencode: Ground, tmp_path) -> None:
    peer = opencode.peer()
    call(peer, "register", name="beta")
    opencode.model.then(Call("register", name="alpha"), Say("finished"))
    def speak() -> None:
        opencode.model.until(lambda each: "resumed" in told(each.body["messages"]))
        call(peer, "post", as_="beta", channel="general", content="swordfish")
    threading.Thread(target=speak, daemon=True).start()
    with Screen(opencode, tmp_path, "opencode") as screen:
        try:
            screen.until(lambda shown: "Ask anything" in shown, 150)
            screen.type("go to work")
            held = opencode.model.until(lambda each: "1 new message waits" in told(each.body))
        finally:
            print(screen.text())
            opencode.write("requests.json", [e.body for e in opencode.model.shown])
    assert "swordfish" not in told(held.body)


def test_an_idle_session_is_woken(opencode: Ground, tmp_path) -> None:
    opencode.model.then(Call("register", name="alpha"), Say("idle now"))
    peer = opencode.peer()
    call(peer, "register", name="beta")
    with Screen(opencode, tmp_path, "opencode") as screen:
        try:
            screen.until(lambda shown: "Ask anything" in shown, 150)
            screen.type("go to work")
            screen.until(lambda shown: "idle now" in shown)
            time.sleep(4)
            call(peer, "post", as_="beta", channel="general", content="nothing for you")
            at = time.monotonic()
            call(peer, "post", as_="beta", channel="general", content="@alpha swordfish")
            woken = opencode.model.until(lambda each: "addressed to you waits" in told(each.body))
            print("woken after", woken.at - at)
        finally:
            print(screen.text())
