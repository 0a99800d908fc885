"""How everybody stands."""

from __future__ import annotations

import pytest

from agentbus import events as ev
from agentbus.commands import Receive
from agentbus.names import AgentName
from agentbus.overview import Audience, Standing, audiences, standings
from agentbus.state import ALWAYS_MS
from tests.agentbus.building import MINE, START_MS, THEIRS, World

SAM = AgentName("Sam")
GONE = frozenset({THEIRS})


@pytest.fixture
def world() -> World:
    """Sam lives, Tom's process is gone; both are subscribed to general."""
    made = World()
    made.register("Sam", "general", "memory", owner=MINE)
    made.register("Tom", "general", owner=THEIRS)
    return made


def standing(world: World, identity: str, horizon_ms: int = ALWAYS_MS) -> Standing:
    (found,) = (each for each in standings(world.state, GONE, horizon_ms) if each.identity == identity)
    return found


def test_who_lives_and_who_is_gone(world: World) -> None:
    sam, tom = standings(world.state, GONE, ALWAYS_MS)
    assert (sam.identity, sam.session) == ("Sam", world.state.sessions["Sam"])
    assert (tom.identity, tom.session) == ("Tom", None)
    assert (sam.unread, sam.total, sam.oldest_ms, sam.unasked_ms) == ({"general": 0, "memory": 0}, 0, None, None)


def test_a_live_identity_without_subscriptions_stands_there_too(world: World) -> None:
    world.register("Una")
    una = standing(world, "Una")
    assert (una.unread, una.seen_ms, una.idle_ms, una.handed_out) == ({}, START_MS + 4000, None, 0)


def test_one_that_ended_and_has_no_subscriptions_does_not(world: World) -> None:
    world.register("Una")
    world.commit(ev.Ended("Una", MINE, "exit"))
    assert [each.identity for each in standings(world.state, GONE, ALWAYS_MS)] == ["Sam", "Tom"]


def test_what_waits_and_since_when_with_its_own_left_out(world: World) -> None:
    world.post("Sam")
    world.post("Tom", "memory")
    world.post("Tom")
    sam = standing(world, "Sam")
    assert (sam.unread, sam.total) == ({"general": 1, "memory": 1}, 2)
    assert (sam.oldest_ms, sam.unasked_ms, sam.handed_out) == (START_MS + 5000, START_MS + 5000, 0)


def test_what_was_handed_out_is_unread_and_no_longer_unasked_for(world: World) -> None:
    world.post("Tom")
    world.run(Receive(as_=SAM, count=5))
    sam = standing(world, "Sam")
    assert (sam.total, sam.handed_out, sam.unasked_ms) == (1, 1, None)
    assert sam.seen_ms == START_MS + 5000
    world.post("Tom", "memory")
    sam = standing(world, "Sam")
    assert (sam.total, sam.handed_out) == (2, 1)
    assert (sam.oldest_ms, sam.unasked_ms) == (START_MS + 4000, START_MS + 6000)


def test_who_posts_was_there_but_that_keeps_no_subscription(world: World) -> None:
    world.post("Tom")
    world.post("Tom", "memory")
    world.post("Tom")
    tom = standing(world, "Tom")
    assert (tom.seen_ms, tom.idle_ms) == (START_MS + 6000, START_MS + 3000)


def test_what_is_addressed_to_whom_counts_as_long_as_it_is_unread_where_it_listens(world: World) -> None:
    world.channel("other")
    world.post("Tom", content="@Sam come")
    world.post("Tom", "other", content="@Sam here you do not listen")
    world.post("Tom", content="@Una is not known, @Tom is me")
    world.post("Sam", content="@Tom hello")
    assert (standing(world, "Sam").addressed, standing(world, "Tom").addressed) == (1, 1)
    world.commit(ev.AckedAll("Sam", world.state.last_seq + 1, "ann"))
    assert standing(world, "Sam").addressed == 0


def test_a_message_below_the_cursor_of_one_channel_counts_in_no_other(world: World) -> None:
    world.post("Tom", "memory", content="@Sam first")
    world.post("Tom", content="@Sam second")
    world.commit(
        ev.Delivered("Sam", "t", {"memory": 5}, include_own=False),
        ev.Acked("Sam", "t"),
    )
    assert standing(world, "Sam").addressed == 1


def test_what_is_over_age_waits_for_nobody(world: World) -> None:
    world.post("Tom", content="@Sam old")
    horizon_ms = world.now_ms
    world.post("Tom", content="@Sam new")
    sam = standing(world, "Sam", horizon_ms)
    assert (sam.total, sam.addressed, sam.oldest_ms) == (1, 1, START_MS + 5000)


def test_who_listens_on_a_channel(world: World) -> None:
    world.register("Una", "memory")
    world.commit(ev.Ended("Una", MINE, "exit"))
    world.post("Sam")
    assert audiences(world.state, GONE) == {"general": Audience(2, 1, START_MS + 6000), "memory": Audience(2, 1, None)}
