"""The rules of channels and subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentbus import events as ev
from agentbus.commands import (
    Command,
    CreateChannel,
    CreateChannelResult,
    Decision,
    Subscribe,
    SubscribeResult,
    Unsubscribe,
)
from agentbus.decide.channels import nearest
from agentbus.errors import BusError
from agentbus.limits import CHANNELS_MAX
from agentbus.names import AgentName, ChannelName
from agentbus.retained import Retained
from agentbus.state import Channel
from tests.agentbus.building import MINE, THEIRS, World

if TYPE_CHECKING:
    from agentbus.kinds import ChannelKind

SAM = AgentName("Sam")


@pytest.fixture
def world() -> World:
    made = World()
    made.register("Sam", "general")
    return made


def create(name: str, kind: ChannelKind = "ordinary") -> CreateChannel:
    return CreateChannel(as_=SAM, channel=ChannelName(name), kind=kind)


def subscribe(name: str, *, oldest: bool = False) -> Subscribe:
    return Subscribe(as_=SAM, channel=ChannelName(name), oldest=oldest)


def unsubscribe(name: str) -> Unsubscribe:
    return Unsubscribe(as_=SAM, channel=ChannelName(name))


EVERY: list[Command[Any]] = [create("reviews"), subscribe("general"), unsubscribe("general")]


@pytest.mark.parametrize("command", EVERY)
@pytest.mark.parametrize("owner", [THEIRS, MINE])
def test_each_asks_for_a_session_of_this_process(command: Command[Any], owner: str) -> None:
    world = World()
    if owner == THEIRS:
        world.register("Sam")
    with pytest.raises(BusError) as refusal:
        world.decide(command, owner=owner)
    assert refusal.value.code == "not_registered"
    assert refusal.value.message == (
        '"as" "Sam" is no session of this process: call register again and pass the "as" it returns'
    )


@pytest.mark.parametrize("kind", ["ordinary", "memory"])
def test_a_channel_is_made_once(world: World, kind: ChannelKind) -> None:
    decision = world.decide(create("reviews", kind))
    assert decision.events == (ev.ChannelCreated("reviews", kind, "Sam"),)
    assert decision.result == CreateChannelResult("reviews", kind, created=True)
    world.commit(*decision.events)
    assert world.decide(create("reviews", kind)) == Decision((), CreateChannelResult("reviews", kind, created=False))


REFUSED: list[tuple[str, ChannelKind, str]] = [
    (
        "memory",
        "ordinary",
        'channel "memory" exists with kind "memory", not "ordinary": use it as it is, or choose another name',
    ),
    ("General", "ordinary", 'channel "General" differs only by case from "general": use that one'),
    ("GENERAL", "memory", 'channel "GENERAL" differs only by case from "general": use that one'),
    ("STRASSE", "ordinary", 'channel "STRASSE" differs only by case from "straße": use that one'),
    ("ÉTÉ", "ordinary", 'channel "ÉTÉ" differs only by case from "été": use that one'),
]


@pytest.mark.parametrize(("name", "kind", "message"), REFUSED)
def test_a_channel_that_could_be_taken_for_another_is_a_conflict_that_names_it(
    world: World, name: str, kind: ChannelKind, message: str
) -> None:
    world.channel("straße")
    world.channel("été")
    with pytest.raises(BusError) as refusal:
        world.decide(create(name, kind))
    assert (refusal.value.code, refusal.value.message) == ("conflict", message)


def test_there_is_an_end_to_channels(world: World) -> None:
    many = CHANNELS_MAX - len(world.state.channels)
    world.state.channels |= {f"c{n}": Channel(f"c{n}", "ordinary", Retained()) for n in range(many)}
    with pytest.raises(BusError) as refusal:
        world.decide(create("one more"))
    assert refusal.value.code == "capacity_exhausted"
    assert not refusal.value.retryable
    assert refusal.value.message == (f"there are {CHANNELS_MAX} channels, the most a bus may have: use an existing one")
    assert world.decide(create("c1")).result == CreateChannelResult("c1", "ordinary", created=False)


def test_a_subscription_begins_now(world: World) -> None:
    world.post("Ann", "memory")
    decision = world.decide(subscribe("memory"))
    assert decision == Decision((ev.Subscribed("Sam", "memory", world.state.last_seq),), SubscribeResult(already=False))


def test_from_oldest_begins_just_before_the_oldest_retained(world: World) -> None:
    world.channel("reviews")
    first, second = world.post("Ann", "reviews"), world.post("Ann", "reviews")
    assert world.decide(subscribe("reviews", oldest=True)).events == (ev.Subscribed("Sam", "reviews", first - 1),)
    world.commit(ev.Evicted("reviews", second))
    assert world.decide(subscribe("reviews", oldest=True)).events == (ev.Subscribed("Sam", "reviews", second - 1),)


def test_from_oldest_in_an_empty_channel_is_now(world: World) -> None:
    memory = world.post("Ann", "memory")
    world.delete("Ann", memory)
    seq = world.state.last_seq
    assert world.decide(subscribe("memory", oldest=True)).events == (ev.Subscribed("Sam", "memory", seq),)


def test_subscribing_again_changes_nothing(world: World) -> None:
    world.post("Ann")
    for oldest in (False, True):
        assert world.decide(subscribe("general", oldest=oldest)) == Decision((), SubscribeResult(already=True))


NOT_FOUND = [
    ("genral", ': did you mean "general"?'),
    ("GENERAL", ': did you mean "general"?'),
    ("reviews-a", ': did you mean "reviews" or "reviews-of-ours"?'),
    ("検索", ": list_channels, at a shell `agentbus channel list`, shows those that do"),
]


@pytest.mark.parametrize(("name", "hint"), NOT_FOUND)
def test_a_missing_channel_is_not_found_and_the_nearest_names_are_offered(world: World, name: str, hint: str) -> None:
    world.channel("reviews")
    world.channel("reviews-of-ours")
    with pytest.raises(BusError) as refusal:
        world.decide(subscribe(name))
    assert refusal.value.code == "not_found"
    assert refusal.value.message == f'channel "{name}" does not exist{hint}'


def test_at_most_three_names_are_offered() -> None:
    assert nearest("abc1", ["abc2", "Abc3", "abc4", "abc5", "xyz"]).count(" or ") == 2
    assert nearest("abc", []) == ""


def test_unsubscribing_drops_the_subscription(world: World) -> None:
    assert world.decide(unsubscribe("general")).events == (ev.Unsubscribed("Sam", "general", "asked"),)


@pytest.mark.parametrize("name", ["memory", "no such channel"])
def test_unsubscribing_what_is_not_subscribed_succeeds_and_writes_nothing(world: World, name: str) -> None:
    assert world.decide(unsubscribe(name)) == Decision((), None)
