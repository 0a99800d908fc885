"""The fold at its edges: what a lost line may have taken away, and what stays."""

from __future__ import annotations

import pytest

from agentbus import events as ev
from agentbus.fold import FoldError, fold
from agentbus.state import State
from journal import Commit, Place
from tests.agentbus.building import World

TIME = "2026-09-09T08:00:07.049Z"


@pytest.fixture
def world() -> World:
    return World()


def lost(first: int, last: int) -> ev.Lost:
    return ev.Lost(first=first, last=last, bytes=0, next_prev=None, reason="damage")


def test_the_line_that_makes_the_default_channels_need_not_be_there() -> None:
    state = State()
    fold(state, Commit(2, TIME, 1, b"", "", Place(1, 0, 1)), [lost(2, 2)])
    assert list(state.channels) == ["general", "memory"]
    state = State()
    fold(state, Commit(3, TIME, 1, b"", "", Place(1, 0, 1)), [lost(3, 9)])
    assert list(state.channels) == []


def test_a_channel_made_twice_after_a_lost_line_keeps_its_messages(world: World) -> None:
    seq = world.post("Ann")
    world.commit(lost(seq + 1, seq + 1))
    world.channel("general")
    assert world.state.locate(seq) is not None
    assert [cause for _, cause in world.state.orphans] == ['channel "general" exists already']


def test_a_fault_of_the_fold_says_what_it_is(world: World) -> None:
    with pytest.raises(FoldError, match='channel "general" exists already') as caught:
        world.channel("general")
    assert caught.value.cause == 'channel "general" exists already'


def test_a_subscriber_whose_register_was_lost_can_be_addressed(world: World) -> None:
    world.commit(lost(3, 3))
    world.commit(ev.Subscribed("Sam", "general", 3))
    seq = world.post("Ann", content="@Sam: look")
    assert world.state.addressed == {seq: ("Sam",)}


def test_who_unsubscribes_is_told_no_more_of_what_went_from_that_channel(world: World) -> None:
    world.register("Sam", "general", "memory")
    kept, gone = world.post("Ann"), world.post("Ann", "memory")
    world.commit(ev.Delivered("Sam", "token", {"general": kept, "memory": gone}, include_own=False))
    world.delete("Ann", gone)
    assert world.state.batches["Sam"].gone == [(gone, "memory")]
    world.commit(ev.Unsubscribed("Sam", "memory", "asked"))
    assert world.state.batches["Sam"].ends == {"general": kept}
    assert world.state.batches["Sam"].gone == []


def test_of_a_memory_that_is_deleted_no_reply_is_left(world: World) -> None:
    asked = world.post("Ann")
    answer = world.post("Bob", "memory", reply_to=asked)
    assert world.state.replies == {answer: asked}
    world.delete("Bob", answer)
    assert world.state.replies == {}


def test_what_is_evicted_from_a_batch_is_what_lies_below_that_seq(world: World) -> None:
    world.register("Sam", "general")
    first, second = world.post("Ann"), world.post("Ann")
    world.commit(ev.Delivered("Sam", "token", {"general": second}, include_own=False))
    world.commit(ev.Evicted("general", second))
    assert world.state.batches["Sam"].gone == [(first, "general")]
    world.commit(ev.Evicted("general", second + 1))
    assert world.state.batches["Sam"].gone == [(first, "general"), (second, "general")]


def test_to_ack_a_gap_that_is_not_open_any_more_is_no_fault(world: World) -> None:
    world.register("Sam", "general")
    gap = ev.Gap("general", 3, 3, 1, "retention")
    world.commit(ev.Delivered("Sam", "token", {}, include_own=False, gaps=[gap]))
    world.commit(ev.Acked("Sam", "token"))
    assert world.state.batches == {}


def test_an_eviction_takes_what_is_known_of_the_messages_below_it_and_of_no_other(world: World) -> None:
    world.register("Sam", "general")
    asked = world.post("Sam")
    first, second = (world.post("Ann", content="@Sam", reply_to=asked) for _ in range(2))
    world.commit(ev.Evicted("general", second))
    assert world.state.replies == {second: asked}
    assert world.state.addressed == {second: ("Sam",)}
    assert world.state.locate(first) is None


def test_a_gap_begins_with_the_first_message_of_somebody_else(world: World) -> None:
    world.register("Sam", "general")
    world.post("Sam")
    first, last = world.post("Ann"), world.post("Ann")
    world.commit(ev.Evicted("general", last + 1))
    (gap,) = world.state.subscriptions["Sam"]["general"].gaps
    assert (gap.from_, gap.to, gap.count) == (first, last, 2)
