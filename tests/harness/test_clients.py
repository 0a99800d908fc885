"""What agentbus promises of each client, shown with the client itself: connected, told of the bus, held, woken."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from agentbus.protocol import render_protocol
from tests.agentbus.hosts import call
from tests.harness.clients import CLAUDE, CODEX, EVERY, GEMINI, OPENCODE, Client
from tests.harness.ground import Ground, Screen, require, told
from tests.harness.model import TOKEN, After, Call, Say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentbus.host import Host

BODY = "swordfish, said the guard"
FIRST_START_S = 180.0  # opencode fetches what its plugins may use, for every new home


@pytest.fixture
def client(request: pytest.FixtureRequest, ground: Ground) -> Client:
    """A client of this machine, with our set-up in its user's settings."""
    found: Client = request.param
    require(found.name)
    found.prepare(ground)
    ground.init(found.name)
    return found


def peer_of(ground: Ground) -> Host:
    peer = ground.peer()
    call(peer, "register", name="beta")
    return peer


def says(peer: Host, content: str) -> Callable[[], object]:
    return lambda: call(peer, "post", as_="beta", channel="general", content=content)


def each(*clients: Client) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("client", clients, ids=[each.name for each in clients], indirect=True)


@each(CLAUDE, OPENCODE, GEMINI)
def test_it_connects(client: Client, ground: Ground) -> None:
    listed = ground.run(*client.list_servers)
    line = next(line for line in (listed.stdout + listed.stderr).lower().splitlines() if "agentbus" in line)
    assert re.search(r"(?<!dis)connected", line)


@each(*EVERY)
def test_an_agent_has_our_tools_in_its_first_turn_and_is_told_the_protocol(client: Client, ground: Ground) -> None:
    ground.model.then(
        Call("register", name="alpha"),
        Call("post", as_="alpha", channel="general", content="hello"),
        Call("receive", as_="alpha", include_own=True),
        Call("receive", as_="alpha", ack=TOKEN),
    )
    done = ground.run(*client.run)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = ground.model.shown
    assert client.register in first.tools
    protocol = render_protocol("shop").rstrip("\n")
    assert protocol in told(first.body)
    assert told(first.body).count(protocol.splitlines()[0]) >= 2  # by our hook, and by the server's instructions
    assert "ack_ignored" not in told(last.body)
    assert '"messages":[]' in told(last.body).replace('\\"', '"')


@each(CLAUDE, CODEX, GEMINI)
def test_a_turn_is_held_once_for_what_is_new(client: Client, ground: Ground) -> None:
    peer = peer_of(ground)
    ground.model.then(Call("register", name="alpha"), After(says(peer, BODY), Say("finished")))
    done = ground.run(*client.run)
    assert done.returncode == 0, done.stdout + done.stderr
    held = ground.model.shown[2]
    assert "1 new message waits" in told(held.body)
    assert BODY not in told(held.body)
    assert len(ground.model.shown) == 3


def opened(client: Client, ground: Ground, directory: Path) -> Screen:
    return Screen(ground, directory, *client.open)


@each(OPENCODE)
def test_a_turn_of_an_interactive_session_is_held_for_what_is_new(
    client: Client, ground: Ground, tmp_path: Path
) -> None:
    peer = peer_of(ground)
    ground.model.then(Call("register", name="alpha"), After(says(peer, BODY), Say("finished")))
    with opened(client, ground, tmp_path) as screen:
        screen.until(lambda shown: client.ready in shown, FIRST_START_S)
        screen.type("go to work")
        held = ground.model.until(lambda each: "1 new message waits" in told(each.body))
    assert BODY not in told(held.body)


@each(CLAUDE, CODEX, OPENCODE)
def test_an_idle_session_is_woken_by_what_is_addressed_to_it(
    client: Client, ground: Ground, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    peer = peer_of(ground)
    ground.model.then(Call("register", name="alpha"), Say("idle now"))
    with opened(client, ground, tmp_path) as screen:
        screen.until(lambda shown: client.ready in shown, FIRST_START_S)
        screen.type("go to work")
        screen.until(lambda shown: "idle now" in shown)
        ground.until_waiting()
        says(peer, "nothing for you")()
        says(peer, f"@alpha {BODY}")()
        posted = time.monotonic()
        woken = ground.model.until(lambda each: "addressed to you waits" in told(each.body))
        screen.until(lambda shown: "addressed to you waits" in shown or "done" in shown)
    record_property(client.name, f"woken {woken.at - posted:.2f} s after the post")
    assert BODY not in told(woken.body)
    assert "nothing for you" not in told(woken.body)
    assert len(ground.model.shown) == 3


@each(*EVERY)
def test_what_was_set_up_goes_without_a_trace(client: Client, ground: Ground) -> None:
    ground.init(client.name, "--uninstall")
    before = {name: (ground.home / name).read_bytes() for name in client.settings}
    ground.init(client.name)
    ground.run(*client.run)
    ground.init(client.name, "--uninstall")
    assert {name: (ground.home / name).read_bytes() for name in client.settings} == before
    theirs = (".local/share/agentbus", ".cache")  # the bus itself, and what clients log
    assert not [name for name in ground.files() if "agentbus" in name and not name.startswith(theirs)]
    ground.run(*client.run)
    assert client.register not in ground.model.shown[-1].tools
