"""The rules of register, and of the end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentbus import events as ev
from agentbus.commands import Decision, EndSessions, Register, RegisterResult, Reset
from agentbus.errors import BusError
from agentbus.names import AgentName, ChannelName
from tests.agentbus.building import HOUR_MS, MINE, THEIRS, World

DEFAULTS = (ChannelName("general"), ChannelName("memory"))


@pytest.fixture
def world() -> World:
    return World()


def ask(name: str, parent: str | None = None, **fields: Any) -> Register:  # noqa: ANN401  # fields
    given = {"context": "shop", "channels": DEFAULTS} | fields
    return Register(name=AgentName(name), parent=None if parent is None else AgentName(parent), **given)


def registered(world: World, name: str, parent: str | None = None, owner: str = MINE, **facts: Any) -> str:  # noqa: ANN401  # fields
    return world.run(ask(name, parent), owner, **facts).as_


def types(decision: Decision[RegisterResult]) -> list[str]:
    return [str(event.__struct_config__.tag) for event in decision.events]


def test_a_first_register_is_one_commit_with_its_subscriptions_from_now_on(world: World) -> None:
    decision = world.decide(ask("Sam", client="codex 1"))
    assert decision.events == (
        ev.Registered(as_="Sam", owner=MINE, name="Sam", context="shop", client="codex 1"),
        ev.Subscribed("Sam", "general", 2),
        ev.Subscribed("Sam", "memory", 2),
    )
    assert decision.result == RegisterResult(
        as_=AgentName("Sam"), resumed=False, already=False, subscribed=["general", "memory"], failed={}, expired=[]
    )


def test_registering_again_in_one_process_is_the_same_session_and_no_line(world: World) -> None:
    registered(world, "Sam", owner=THEIRS)
    assert registered(world, "Sam") == "Sam2"
    again = world.decide(ask("Sam"))
    assert again.events == ()
    assert (again.result.as_, again.result.already, again.result.resumed) == ("Sam2", True, True)
    assert again.result.subscribed == ["general", "memory"]
    world.commit(ev.Ended("Sam", THEIRS, "exit"))
    assert world.decide(ask("Sam")).result.as_ == "Sam2"


CHANGES: list[tuple[dict[str, Any], list[str]]] = [
    ({"context": "elsewhere"}, ["registered"]),
    ({"channels": (*DEFAULTS, ChannelName("reviews"))}, ["registered", "subscribed"]),
    ({"resume": False}, ["unsubscribed", "unsubscribed", "registered", "subscribed", "subscribed"]),
    ({"channels": ()}, []),
    ({"channels": (ChannelName("none"),)}, []),
    ({"client": "other"}, []),
]


@pytest.mark.parametrize(("change", "written"), CHANGES)
def test_a_second_register_writes_a_line_only_for_what_it_changes(
    world: World, change: dict[str, Any], written: list[str]
) -> None:
    world.channel("reviews")
    registered(world, "Sam")
    decision = world.decide(ask("Sam", **change))
    assert types(decision) == written
    assert (decision.result.as_, decision.result.already) == ("Sam", True)


def test_the_first_free_suffix_is_taken(world: World) -> None:
    owners = [format(number, "024x") for number in range(4)]
    assert [registered(world, "Sam", owner=owner) for owner in owners] == ["Sam", "Sam2", "Sam3", "Sam4"]
    world.commit(ev.Ended("Sam2", owners[1], "exit"))
    assert registered(world, "Sam") == "Sam2"
    assert [registered(world, "x", "Sam", owner=owner) for owner in owners[:1]] == ["Sam/x"]
    assert registered(world, "x", "Sam") == "Sam/x-2"
    assert registered(world, "x", "Sam/x-2") == "Sam/x-2/x"
    assert registered(world, "x-2", "Sam", owner=owners[3]) == "Sam/x-2-2"


def test_a_process_may_hold_one_name_under_several_parents(world: World) -> None:
    parents = [registered(world, name) for name in ("Ann", "Bob")]
    assert [registered(world, "x", parent) for parent in parents] == ["Ann/x", "Bob/x"]
    assert registered(world, "x") == "x"
    assert [registered(world, "x", parent) for parent in parents] == ["Ann/x", "Bob/x"]
    assert world.decide(ask("x", "Ann")).events == ()


def test_a_parent_may_be_a_session_of_any_process(world: World) -> None:
    registered(world, "Sam", owner=THEIRS)
    decision = world.decide(ask("x", "Sam"))
    assert decision.events[0] == ev.Registered(as_="Sam/x", owner=MINE, name="x", parent="Sam", context="shop")


@pytest.mark.parametrize("gone", [True, False])
def test_a_parent_that_is_no_live_session_is_not_found(world: World, *, gone: bool) -> None:
    registered(world, "Sam", owner=THEIRS)
    if not gone:
        world.commit(ev.Ended("Sam", THEIRS, "exit"))
    with pytest.raises(BusError) as refusal:
        world.decide(ask("x", "Sam"), gone=frozenset([THEIRS] if gone else []))
    assert refusal.value.code == "not_found"
    assert refusal.value.message == (
        'parent "Sam" is not a live session: register the parent first, or leave "parent" out'
    )


def test_a_crashed_agent_gets_its_name_and_backlog_back_at_once(world: World) -> None:
    registered(world, "Sam", owner=THEIRS)
    registered(world, "x", "Sam", owner=THEIRS)
    world.post("Ann")
    decision = world.decide(ask("Sam"), gone=frozenset([THEIRS]))
    assert decision.events == (
        ev.Ended("Sam", THEIRS, "gone"),
        ev.Ended("Sam/x", THEIRS, "gone"),
        ev.Registered(as_="Sam", owner=MINE, name="Sam", context="shop"),
    )
    assert (decision.result.as_, decision.result.resumed, decision.result.already) == ("Sam", True, False)
    world.commit(*decision.events)
    assert world.state.subscriptions["Sam"]["general"].cursor == 2


def test_a_live_session_of_another_process_keeps_its_name_and_backlog(world: World) -> None:
    registered(world, "Sam", owner=THEIRS)
    world.post("Ann")
    decision = world.decide(ask("Sam"))
    assert (decision.result.as_, decision.result.resumed) == ("Sam2", False)
    assert decision.events[1] == ev.Subscribed("Sam2", "general", world.state.last_seq)


def test_a_gone_session_without_a_subscription_is_nothing_to_resume(world: World) -> None:
    world.register("Sam", owner=THEIRS)
    decision = world.decide(ask("Sam", channels=()), gone=frozenset([THEIRS]))
    assert types(decision) == ["ended", "registered"]
    assert not decision.result.resumed


def test_the_list_leaves_a_subscription_where_it_stands(world: World) -> None:
    world.register("Sam", "general")
    world.post("Ann")
    world.commit(ev.Ended("Sam", MINE, "exit"))
    decision = world.decide(ask("Sam"))
    assert types(decision) == ["registered", "subscribed"]
    assert decision.events[1] == ev.Subscribed("Sam", "memory", world.state.last_seq)
    assert decision.result.subscribed == ["general", "memory"]
    assert decision.result.resumed


def test_entries_that_fail_are_told_and_fail_nothing_else(world: World) -> None:
    channels = (ChannelName("reviews"), ChannelName("general"), ChannelName("General"))
    decision = world.decide(ask("Sam", channels=channels, failed={"a/b": "no name"}))
    assert decision.result.subscribed == ["general"]
    assert decision.result.failed == {
        "a/b": "no name",
        "reviews": 'channel "reviews" does not exist',
        "General": 'channel "General" does not exist',
    }
    assert types(decision) == ["registered", "subscribed"]


def test_without_resume_everything_is_dropped_first_in_the_same_commit(world: World) -> None:
    world.channel("reviews")
    world.register("Sam", "general", "reviews")
    seq = world.post("Ann")
    world.commit(ev.Delivered("Sam", "t", {"general": seq}, include_own=False))
    world.commit(ev.Ended("Sam", MINE, "exit"))
    decision = world.decide(ask("Sam", resume=False))
    assert decision.events[:2] == (
        ev.Unsubscribed("Sam", "general", "fresh"),
        ev.Unsubscribed("Sam", "reviews", "fresh"),
    )
    assert types(decision)[2:] == ["registered", "subscribed", "subscribed"]
    assert not decision.result.resumed
    world.commit(*decision.events)
    assert world.state.batches == {}
    assert {name: held.cursor for name, held in world.state.subscriptions["Sam"].items()} == {
        "general": seq + 2,
        "memory": seq + 2,
    }


def test_without_resume_an_own_session_is_returned_and_not_resumed(world: World) -> None:
    world.register("Sam")
    decision = world.decide(ask("Sam", channels=(), context="work", resume=False))
    assert decision.events == ()
    assert (decision.result.already, decision.result.resumed) == (True, False)


def test_subscriptions_idle_too_long_are_dropped_and_named_and_the_list_begins_anew(world: World) -> None:
    world.channel("reviews")
    world.register("Sam", "general", "reviews")
    world.post("Ann")
    world.post("Sam")
    world.now_ms += 72 * HOUR_MS
    world.commit(ev.Unsubscribed("Sam", "reviews", "asked"), ev.Subscribed("Sam", "reviews", 3))
    decision = world.decide(ask("Sam"))
    assert types(decision) == ["unsubscribed", "registered", "subscribed", "subscribed"]
    assert decision.events[0] == ev.Unsubscribed("Sam", "general", "expired")
    assert decision.result.expired == [ev.Expired("general", 1)]
    assert decision.result.resumed
    world.commit(*decision.events)
    assert world.state.subscriptions["Sam"]["reviews"].cursor == 3
    assert world.state.subscriptions["Sam"]["general"].cursor > 3


def test_a_display_name_that_would_be_too_long_is_refused(world: World) -> None:
    parent = "p" * 128
    world.register(parent)
    for _ in range(6):
        parent = registered(world, "p" * 128, parent)
    last = registered(world, "p" * 120, parent)
    assert len(last) == 1023
    with pytest.raises(BusError) as refusal:
        world.decide(ask("p" * 120, parent), owner=THEIRS)
    assert refusal.value.code == "validation"
    assert refusal.value.message.endswith("would take 1025 bytes of UTF-8, more than 1024: choose a shorter name")


def test_a_runaway_launcher_is_stopped(world: World) -> None:
    world.register("Sam", owner=THEIRS)
    held = world.state.sessions["Sam"]
    world.state.sessions |= {f"Sam{number}": held for number in range(2, 10_001)}
    with pytest.raises(BusError) as refusal:
        world.decide(ask("Sam"))
    assert refusal.value.code == "conflict"
    assert refusal.value.message == ('10000 live sessions hold the name "Sam": end some, or choose another name')


def test_the_sessions_of_a_process_end_children_first(world: World) -> None:
    world.register("Zoe")
    world.register("Ann")
    world.register("Ann/x")
    world.register("Bob", owner=THEIRS)
    decision = world.decide(EndSessions())
    assert decision.events == tuple(ev.Ended(name, MINE, "exit") for name in ("Ann/x", "Ann", "Zoe"))
    world.commit(*decision.events)
    assert list(world.state.sessions) == ["Bob"]
    assert world.decide(EndSessions()).events == ()


def test_a_reset_is_written_whatever_there_is(world: World) -> None:
    assert world.decide(Reset(by="me")) == Decision((ev.Reset(by="me"),), None)


def test_deciding_changes_nothing_and_may_be_done_twice(world: World) -> None:
    world.register("Sam", "general", owner=THEIRS)
    before = world.canonical(), msgspec.json.encode(world.state.subscriptions)
    command, gone = ask("Sam", resume=False), frozenset([THEIRS])
    assert world.decide(command, gone=gone) == world.decide(command, gone=gone)
    assert (world.canonical(), msgspec.json.encode(world.state.subscriptions)) == before
