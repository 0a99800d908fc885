"""Codex, as a user sets it up: connected in its first turn, told of the bus, held and woken."""

from __future__ import annotations

import threading
import time

import pytest

from agentbus.protocol import render_protocol
from tests.agentbus.hosts import call
from tests.harness.ground import Ground, Screen, require, told
from tests.harness.model import TOKEN, Call, Say

CONFIG = """# mine
model_provider = "stand-in"
model = "gpt-5"  # as long as it lasts

[model_providers.stand-in]
name = "stand-in"
base_url = "MODEL/v1"
wire_api = "responses"
env_key = "STAND_IN_KEY"

[projects."REPOSITORY"]
trust_level = "trusted"
"""
EXEC = ("codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-hook-trust")


@pytest.fixture
def codex(ground: Ground) -> Ground:
    require("codex")
    ground.environ["STAND_IN_KEY"] = "x"
    text = CONFIG.replace("MODEL", ground.model.url).replace("REPOSITORY", str(ground.repository))
    ground.write(".codex/config.toml", text)
    ground.write(".codex/hooks.json", {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "cat >> ~/stop.json"}]}], "SessionStart": [{"hooks": [{"type": "command", "command": "cat >> ~/start.json"}]}]}})
    ground.init("codex")
    return ground


def test_an_agent_registers_posts_and_receives_in_its_first_turn_and_is_told_the_protocol(codex: Ground) -> None:
    codex.model.then(
        Call("register", name="alpha"),
        Call("post", as_="alpha", channel="general", content="hello"),
        Call("receive", as_="alpha", include_own=True),
        Call("receive", as_="alpha", ack=TOKEN),
        Say("done"),
    )
    done = codex.run(*EXEC, "go")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = codex.model.shown
    print(first.tools)
    print("times told", [(k, told(first.body[k]).count("call the register tool now")) for k in first.body])
    for name in ("stop", "start"):
        print((codex.home / f"{name}.json").read_text())
    assert render_protocol("shop").rstrip("\n") in told(first.body)
    assert "token" in told(last.body)


def test_a_turn_is_held_once_for_what_is_new(codex: Ground) -> None:
    peer = codex.peer()
    call(peer, "register", name="beta")
    codex.model.then(Call("register", name="alpha"), Say("finished"))
    def speak() -> None:
        codex.model.until(lambda each: 'resumed' in told(each.body["input"]))
        call(peer, "post", as_="beta", channel="general", content="swordfish")
    threading.Thread(target=speak, daemon=True).start()
    done = codex.run(*EXEC, "go")
    assert done.returncode == 0, done.stdout + done.stderr
    print(len(codex.model.shown))
    held = [each for each in codex.model.shown if "1 new message waits" in told(each.body)]
    print(done.stdout, done.stderr)
    assert held
    assert "swordfish" not in told(held[0].body)


def test_an_idle_session_is_woken(codex: Ground, tmp_path) -> None:
    codex.model.then(Call("register", name="alpha"), Say("idle now"))
    peer = codex.peer()
    call(peer, "register", name="beta")
    with Screen(codex, tmp_path, "codex", "--dangerously-bypass-hook-trust") as screen:
        try:
            screen.until(lambda shown: "›" in shown)
            time.sleep(3)
            print(screen.text())
            screen.type("go to work")
            screen.until(lambda shown: "idle now" in shown)
            time.sleep(4)
            call(peer, "post", as_="beta", channel="general", content="nothing for you")
            at = time.monotonic()
            call(peer, "post", as_="beta", channel="general", content="@alpha swordfish")
            woken = codex.model.until(lambda each: "addressed to you waits" in told(each.body))
            print("woken after", woken.at - at)
        finally:
            print(screen.text())
            codex.write("requests.json", [e.body for e in codex.model.shown])
            print((codex.home / "stop.json").read_text())
