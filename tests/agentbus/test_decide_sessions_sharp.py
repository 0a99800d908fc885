"""The rules of register at their edges: which name is free, and when a second register writes."""

from __future__ import annotations

import pytest

from agentbus import events as ev
from agentbus.commands import Register
from agentbus.errors import BusError
from agentbus.limits import DISPLAY_NAME_BYTES_MAX, SUFFIX_TRIES_MAX
from agentbus.names import AgentName, ChannelName
from agentbus.state import Session
from tests.agentbus.building import MINE, THEIRS, World


@pytest.fixture
def world() -> World:
    return World()


def ask(*channels: str, resume: bool = True, apart: bool = False) -> Register:
    return Register(
        name=AgentName("Sam"),
        parent=None,
        context="work",
        channels=tuple(map(ChannelName, channels)),
        resume=resume,
        apart=apart,
    )


def test_a_session_without_subscriptions_is_resumed_all_the_same(world: World) -> None:
    assert not world.run(ask()).resumed
    assert world.run(ask()).resumed
    assert not world.run(ask(resume=False)).resumed


def test_a_session_that_begins_anew_with_no_channels_gives_its_subscriptions_up(world: World) -> None:
    world.run(ask("general"))
    decision = world.decide(ask(resume=False))
    assert [type(event) for event in decision.events] == [ev.Unsubscribed, ev.Registered]


def test_the_last_suffix_is_tried_and_none_after_it(world: World) -> None:
    def hold(name: str) -> None:
        world.state.sessions[name] = Session(name, THEIRS, "Sam", None, "work", None, "2026-09-09T08:00:00.000Z")

    hold("Sam")
    for number in range(2, SUFFIX_TRIES_MAX):
        hold(f"Sam{number}")
    assert world.decide(ask()).result.as_ == f"Sam{SUFFIX_TRIES_MAX}"
    hold(f"Sam{SUFFIX_TRIES_MAX}")
    with pytest.raises(BusError, match=f"{SUFFIX_TRIES_MAX} live sessions hold the name"):
        world.decide(ask())


def test_who_must_stay_apart_gets_no_name_that_has_a_backlog(world: World) -> None:
    world.register("Sam", "general", owner=THEIRS)
    world.commit(ev.Ended("Sam", THEIRS, "exit"))
    assert world.decide(ask()).result.as_ == "Sam"
    assert world.decide(ask(apart=True)).result.as_ == "Sam2"
    world.register("Sam2", owner=MINE[::-1])
    assert world.decide(ask(apart=True)).result.as_ == "Sam3"


def test_a_display_name_may_be_just_as_long_as_the_limit(world: World) -> None:
    parent = "P" * (DISPLAY_NAME_BYTES_MAX - len("/Sam"))
    world.register(parent)
    child = Register(name=AgentName("Sam"), parent=AgentName(parent), context="work", channels=())
    assert world.run(child).as_ == f"{parent}/Sam"
    world.register(f"{parent}s")
    with pytest.raises(BusError, match=f"{DISPLAY_NAME_BYTES_MAX + 1} bytes of UTF-8, more than"):
        world.decide(Register(name=AgentName("Sam"), parent=AgentName(f"{parent}s"), context="work", channels=()))
