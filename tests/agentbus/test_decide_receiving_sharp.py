"""The rules of delivery at their edges: what goes into a result, in which order, and what a line says of it."""

from __future__ import annotations

import pytest
from msgspec import json

from agentbus import events as ev
from agentbus.commands import Receive
from agentbus.decide.receiving import _Room
from agentbus.names import AgentName
from tests.agentbus.building import HOUR_MS, World

GAP = ev.Gap("general", 3, 9, 4, "retention")


def test_a_notice_takes_its_json_and_a_comma() -> None:
    size = len(json.encode(GAP)) + 1
    assert [_Room(left).takes_notice(GAP) for left in (2 * size, 0)] == [True, True]
    for left, fits in ((2 * size, True), (2 * size - 1, False)):
        room = _Room(left)
        assert room.takes_notice(GAP)
        assert room.takes_notice(GAP) is fits


@pytest.fixture
def world() -> World:
    made = World()
    made.channel("reviews")
    made.register("Sam", "general", "reviews")
    return made


def ask(ack: str | None = None) -> Receive:
    return Receive(as_=AgentName("Sam"), count=100, ack=ack)


def test_a_line_names_the_channels_only_in_which_something_was_handed_out(world: World) -> None:
    world.post("Ann")
    first = world.run(ask())
    seq = world.post("Ann", "reviews")
    (_, delivered) = world.decide(ask(first.token)).events
    assert isinstance(delivered, ev.Delivered)
    assert delivered.ends == {"reviews": seq}


def test_a_batch_comes_again_in_the_order_of_its_messages_whatever_their_channels(world: World) -> None:
    for channel in ("reviews", "general", "reviews", "general"):
        world.post("Ann", channel)
    first = world.run(ask())
    assert world.run(ask()).messages == first.messages
    assert [channel for _, channel in first.messages] == ["reviews", "general", "reviews", "general"]


def test_an_empty_receive_renews_the_idle_clock_of_the_subscription_that_was_quiet_longest(world: World) -> None:
    world.now_ms += HOUR_MS
    world.channel("later")
    world.commit(ev.Subscribed("Sam", "later", world.state.last_seq))
    assert world.decide(ask()).events == (ev.Active(as_="Sam"),)
