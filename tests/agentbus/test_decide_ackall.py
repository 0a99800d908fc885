"""The rule of ack-all: what it counts, what it writes, and what it refuses."""

from __future__ import annotations

import pytest

from agentbus import events as ev
from agentbus.commands import AckAll, AckAllResult, Backlog, Decision, Receive
from agentbus.decide.ackall import preview
from agentbus.errors import BusError
from agentbus.names import AgentName
from agentbus.state import ALWAYS_MS, unread_messages
from tests.agentbus.building import HOUR_MS, START_MS, World

SAM = AgentName("Sam")


@pytest.fixture
def world() -> World:
    """Sam is subscribed to two channels; Ann has posted twice on one and once on the other, Sam once."""
    made = World()
    made.register("Sam", "general", "memory")
    for channel in ("general", "memory", "general"):
        made.post("Ann", channel)
    made.post("Sam")
    return made


def ack_all(world: World, before: int | None = None, identity: str = "Sam") -> AckAll:
    end = world.state.last_seq + 1 if before is None else before
    return AckAll(as_=AgentName(identity), before=end, by="ann")


def test_everything_below_a_seq_counts_as_read_in_one_line(world: World) -> None:
    decision = world.decide(ack_all(world))
    assert decision.events == (ev.AckedAll("Sam", 8, "ann"),)
    assert decision.result == AckAllResult(
        (Backlog("general", 2, START_MS + 3000, 0), Backlog("memory", 1, START_MS + 4000, 0)), batch=False
    )
    world.commit(*decision.events)
    assert [unread_messages(world.state, "Sam", channel) for channel in ("general", "memory")] == [0, 0]
    assert world.decide(ack_all(world)) == Decision((), AckAllResult((), batch=False))


def test_what_was_posted_at_the_seq_or_later_stays_unread(world: World) -> None:
    assert world.run(ack_all(world, 6)).backlogs == (
        Backlog("general", 1, START_MS + 3000, 0),
        Backlog("memory", 1, START_MS + 4000, 0),
    )
    assert unread_messages(world.state, "Sam", "general") == 1
    assert world.decide(ack_all(world, 6)).events == ()


def test_what_is_over_age_and_not_evicted_yet_counts_as_a_gap_as_it_does_once_it_is(world: World) -> None:
    world.now_ms += 168 * HOUR_MS + HOUR_MS
    world.post("Ann")
    result = preview(world.state, ack_all(world), world.now_ms - 168 * HOUR_MS)
    assert result.backlogs == (
        Backlog("general", 1, world.now_ms - 1000, 1),
        Backlog("memory", 1, START_MS + 4000, 0),
    )
    assert world.decide(ack_all(world)).result == result
    assert [gap.count for gap in world.state.subscriptions["Sam"]["general"].gaps] == []
    world.run(ack_all(world))
    assert world.state.subscriptions["Sam"]["general"].gaps == []
    assert not preview(world.state, ack_all(world), world.now_ms - 168 * HOUR_MS).anything


def test_what_an_identity_posted_itself_does_not_wait_for_it(world: World) -> None:
    world.run(ack_all(world))
    world.post("Sam")
    assert not preview(world.state, ack_all(world), ALWAYS_MS).anything


def test_a_batch_that_was_handed_out_and_never_acknowledged_is_gone_with_it(world: World) -> None:
    world.run(Receive(as_=SAM, count=10))
    result = world.run(ack_all(world))
    assert (result.batch, [each.messages for each in result.backlogs]) == (True, [2, 1])
    assert "Sam" not in world.state.batches


def test_a_batch_that_reaches_beyond_the_seq_is_not_acknowledged_by_itself(world: World) -> None:
    world.run(Receive(as_=SAM, count=10))
    result = preview(world.state, ack_all(world, 4), ALWAYS_MS)
    assert result == AckAllResult((), batch=False)
    assert not result.anything
    assert not preview(world.state, ack_all(world, 6), ALWAYS_MS).batch
    assert world.decide(ack_all(world, 6)).events == (ev.AckedAll("Sam", 6, "ann"),)


def test_a_batch_of_notices_alone_is_reason_enough(world: World) -> None:
    world.run(ack_all(world))
    world.commit(ev.Delivered("Sam", "t", {}, include_own=False, expired=[ev.Expired("x", 3)]))
    assert world.decide(ack_all(world)).events == (ev.AckedAll("Sam", 10, "ann"),)
    assert preview(world.state, ack_all(world), ALWAYS_MS) == AckAllResult((), batch=True)


def test_gaps_below_the_seq_are_told_no_more(world: World) -> None:
    world.commit(ev.Evicted("general", 6))
    world.run(ack_all(world, 4))
    assert preview(world.state, ack_all(world, 6), ALWAYS_MS).backlogs[0] == Backlog("general", 0, None, 1)
    world.run(ack_all(world))
    assert world.state.subscriptions["Sam"]["general"].gaps == []


def test_a_seq_beyond_the_end_is_refused_because_later_messages_would_count_as_read(world: World) -> None:
    with pytest.raises(BusError) as refusal:
        world.decide(ack_all(world, 9))
    assert refusal.value.code == "validation"
    assert refusal.value.message == (
        "before 9 lies beyond the end of the journal, whose last seq is 7: 8 is the most, and what it is unless told"
    )


@pytest.mark.parametrize(
    ("identity", "hint"),
    [("sam", 'did you mean "Sam"?'), ("xyz", "`agentbus status` shows which there are")],
)
def test_an_identity_nobody_ever_had_is_not_found_and_near_ones_are_offered(
    world: World, identity: str, hint: str
) -> None:
    with pytest.raises(BusError) as refusal:
        world.decide(ack_all(world, identity=identity))
    assert (refusal.value.code, refusal.value.message) == ("not_found", f'identity "{identity}" is not known: {hint}')


def test_for_an_identity_without_subscriptions_there_is_nothing_to_do(world: World) -> None:
    assert world.decide(ack_all(world, identity="Ann")) == Decision((), AckAllResult((), batch=False))
    world.commit(
        ev.Unsubscribed("Sam", "general", "expired"),
        ev.Unsubscribed("Sam", "memory", "expired"),
        ev.Delivered("Sam", "t", {}, include_own=False, expired=[ev.Expired("general", 2)]),
    )
    assert world.decide(ack_all(world)).events == ()


def test_the_backlogs_are_told_by_channel_and_their_age_is_that_of_the_oldest_by_somebody_else() -> None:
    world = World()
    world.register("Sam", "memory", "general")
    world.post("Sam")
    world.post("Ann")
    world.post("Sam", "memory")
    world.post("Ann", "memory")
    assert preview(world.state, ack_all(world), ALWAYS_MS).backlogs == (
        Backlog("general", 1, START_MS + 4000, 0),
        Backlog("memory", 1, START_MS + 6000, 0),
    )


def test_a_batch_and_a_gap_that_end_at_the_seq_itself_are_not_below_it(world: World) -> None:
    world.run(Receive(as_=SAM, count=10))
    end = max(world.state.batches["Sam"].ends.values())
    assert not preview(world.state, ack_all(world, end), ALWAYS_MS).batch
    assert preview(world.state, ack_all(world, end + 1), ALWAYS_MS).batch
    made = World()
    made.register("Sam", "general")
    seq = made.post("Ann")
    made.commit(ev.Evicted("general", seq + 1))
    assert not preview(made.state, ack_all(made, seq), ALWAYS_MS).anything
    assert preview(made.state, ack_all(made, seq + 1), ALWAYS_MS).backlogs == (Backlog("general", 0, None, 1),)


def test_the_gap_of_what_is_over_age_ends_where_that_ends() -> None:
    world = World()
    world.register("Sam", "general")
    old = world.post("Ann")
    horizon_ms = world.now_ms
    fresh = world.post("Ann")
    assert preview(world.state, ack_all(world, fresh), horizon_ms).backlogs == (Backlog("general", 0, None, 1),)
    assert (fresh, preview(world.state, ack_all(world, old), horizon_ms).anything) == (old + 1, False)
