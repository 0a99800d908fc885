"""The fold, event by event: what a State is after each, and what cannot have happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbus import events as ev
from agentbus import queries, wire
from agentbus.fold import FoldError, fold
from agentbus.state import State, handed_out
from journal import Commit, Place, format_time
from tests.agentbus.building import HOUR_MS, MINE, START_MS, THEIRS, World
from tests.agentbus.wandering import Step, steps, wandered

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def world() -> World:
    return World()


def lose(world: World, first: int, last: int) -> int:
    """A lost line in the place of some commits."""
    assert world.state.last_seq == first - 1
    return world.commit(ev.Lost(first=first, last=last, bytes=9, next_prev=None, reason="damage"))


def cursors(world: World, identity: str) -> dict[str, int]:
    return {channel: held.cursor for channel, held in world.state.subscriptions.get(identity, {}).items()}


def in_batch(world: World, identity: str) -> list[tuple[int, str]]:
    """(seq, channel) of what is left of the pending batch, by seq."""
    return sorted(
        (channel.retained.seqs[index], channel.name)
        for channel in world.state.channels.values()
        for index in handed_out(world.state, identity, channel)
    )


def gaps(world: World, identity: str, channel: str = "general") -> list[tuple[int, int, object, str]]:
    held = world.state.subscriptions[identity][channel]
    return [(gap.from_, gap.to, gap.count, gap.cause) for gap in held.gaps]


def test_a_session_that_registers_again_keeps_its_time_and_takes_the_new_context(world: World) -> None:
    world.register("Sam")
    first = world.state.sessions["Sam"].registered_at
    again = ev.Registered(as_="Sam", owner=MINE, name="Sam", context="elsewhere", client="codex 1")
    world.commit(again)
    held = world.state.sessions["Sam"]
    assert (held.registered_at, held.context, held.client, held.parent) == (first, "elsewhere", "codex 1", None)
    world.commit(msgspec.structs.replace(again, owner=THEIRS))
    assert world.state.sessions["Sam"].registered_at > first


def test_an_end_takes_the_session_and_leaves_subscriptions_and_batch(world: World) -> None:
    world.register("Sam", "general")
    seq = world.post("Ann")
    world.commit(ev.Delivered("Sam", "t", ends={"general": seq}, include_own=False))
    world.commit(ev.Ended(as_="Sam", owner=MINE, reason="gone"))
    assert world.state.sessions == {}
    assert cursors(world, "Sam") == {"general": 2}
    assert in_batch(world, "Sam") == [(seq, "general")]


def test_a_subscription_stays_where_it_is_when_it_is_made_again(world: World) -> None:
    world.register("Sam", "general")
    world.commit(ev.Subscribed("Sam", "general", 99))
    assert cursors(world, "Sam") == {"general": 2}


def test_an_unsubscribe_takes_its_share_of_the_batch_and_the_token_acks_the_rest(world: World) -> None:
    world.register("Sam", "general", "memory")
    chat, fact = world.post("Ann"), world.post("Ann", "memory")
    gap = ev.Gap("general", 1, 2, 1, "retention")
    ends = {"general": chat, "memory": fact}
    world.commit(ev.Delivered("Sam", "t", ends=ends, include_own=False, gaps=[gap]))
    world.commit(ev.Unsubscribed("Sam", "general", "asked"))
    batch = world.state.batches["Sam"]
    assert (batch.ends, in_batch(world, "Sam"), batch.gaps) == ({"memory": fact}, [(fact, "memory")], [])
    world.commit(ev.Acked("Sam", "t"))
    assert cursors(world, "Sam") == {"memory": fact}


def test_a_batch_of_which_nothing_is_left_is_gone(world: World) -> None:
    world.register("Sam", "general")
    world.commit(ev.Delivered("Sam", "t", ends={"general": world.post("Ann")}, include_own=False))
    world.commit(ev.Unsubscribed("Sam", "general", "asked"))
    assert world.state.batches == {}
    assert "Sam" not in world.state.subscriptions


def test_a_batch_keeps_the_expired_it_has_to_tell_when_a_channel_leaves_it(world: World) -> None:
    world.register("Sam", "general")
    told = [ev.Expired("memory", 3)]
    world.commit(ev.Delivered("Sam", "t", ends={"general": 2}, include_own=False, expired=told))
    world.commit(ev.Unsubscribed("Sam", "general", "asked"))
    assert world.state.batches["Sam"].expired == told


def test_only_an_ack_moves_a_cursor(world: World) -> None:
    world.register("Sam", "general")
    seq = world.post("Ann")
    world.commit(ev.Delivered("Sam", "t", ends={"general": seq}, include_own=False))
    world.commit(ev.Active(as_="Sam"))
    assert cursors(world, "Sam") == {"general": 2}
    world.commit(ev.Acked("Sam", "t"))
    assert cursors(world, "Sam") == {"general": seq}
    assert world.state.batches == {}


def test_a_cursor_never_goes_back(world: World) -> None:
    world.register("Sam", "general")
    world.commit(ev.Delivered("Sam", "t", {"general": 1}, include_own=False), ev.Acked("Sam", "t"))
    world.commit(ev.AckedAll("Sam", 2, "operator"))
    assert cursors(world, "Sam") == {"general": 2}


def test_a_later_batch_takes_the_place_of_the_pending_one(world: World) -> None:
    world.register("Sam", "general")
    one = world.post("Ann")
    world.commit(ev.Delivered("Sam", "t1", ends={"general": one}, include_own=False))
    two = world.post("Ann")
    world.commit(ev.Delivered("Sam", "t2", ends={"general": two}, include_own=False))
    assert in_batch(world, "Sam") == [(one, "general"), (two, "general")]


def test_a_batch_holds_the_own_messages_only_if_it_was_asked_to(world: World) -> None:
    world.register("Sam", "general")
    mine, theirs = world.post("Sam"), world.post("Ann")
    for include, seqs in ((False, [theirs]), (True, [mine, theirs])):
        world.commit(ev.Delivered("Sam", "t", ends={"general": theirs}, include_own=include))
        assert [seq for seq, _ in in_batch(world, "Sam")] == seqs


def test_a_memory_is_its_first_seq_whatever_its_revisions(world: World) -> None:
    first = world.post("Ann", "memory", "one")
    second = world.edit("Bob", first)
    third = world.edit("Cy", first)
    memory = world.state.memories[first]
    assert (memory.id, memory.seq, memory.revision) == (first, third, 3)
    assert list(world.state.channels["memory"].retained.seqs) == [third]
    assert world.state.memory_at(third) == memory
    assert (world.state.memory_at(first), world.state.memory_at(second)) == (None, None)
    assert world.state.author_of(first) == world.state.author_of(third) == "Cy"
    assert world.state.author_of(second) is None
    world.delete("Ann", first)
    assert (world.state.memories, world.state.revised) == ({}, {})
    assert world.state.author_of(first) is None
    assert len(world.state.channels["memory"].retained) == 0


def test_a_reply_to_any_live_revision_is_a_reply_to_the_memory(world: World) -> None:
    memory = world.post("Ann", "memory")
    second = world.edit("Bob", memory)
    reply = world.post("Cy", reply_to=second)
    assert world.state.replies == {reply: memory}
    assert world.state.addressed == {reply: ("Bob",)}


def test_a_memory_stays_in_its_thread_when_it_is_edited_and_leaves_it_when_it_is_deleted(world: World) -> None:
    root = world.post("Ann")
    memory = world.post("Ann", "memory", reply_to=root)
    world.edit("Bob", memory)
    second = world.edit("Bob", memory)
    reply = world.post("Cy", reply_to=second)
    assert world.state.replies == {memory: root, reply: root}
    world.delete("Bob", memory)
    assert world.state.replies == {reply: root}


def test_who_was_addressed_is_forgotten_with_the_revision(world: World) -> None:
    world.register("Sam")
    memory = world.post("Ann", "memory", "@Sam")
    second = world.edit("Ann", memory, "@Sam again")
    assert world.state.addressed == {second: ("Sam",)}
    world.delete("Ann", memory)
    assert (world.state.addressed, world.state.replies) == ({}, {})


def test_eviction_is_a_gap_for_what_was_not_handed_out_and_was_not_ones_own(world: World) -> None:
    for identity in ("Ann", "Bob", "Sam"):
        world.register(identity, "general")
    world.register("Aside", "memory")
    seqs = [world.post("Ann"), world.post("Ann"), world.post("Bob"), world.post("Ann", content="@Sam", reply_to=7)]
    world.commit(ev.Delivered("Sam", "t", ends={"general": seqs[0]}, include_own=False))
    world.commit(ev.Evicted("general", seqs[3] + 1))
    assert gaps(world, "Sam") == [(seqs[1], seqs[3], 3, "retention")]
    assert gaps(world, "Bob") == [(seqs[0], seqs[3], 3, "retention")]
    assert [gap[2] for gap in gaps(world, "Ann")] == [1]
    assert (world.state.addressed, world.state.replies) == ({}, {})
    channel = world.state.channels["general"]
    assert (len(channel.retained), channel.last_seq) == (0, seqs[3])
    world.commit(ev.Evicted("general", seqs[3] + 1))
    assert len(gaps(world, "Sam")) == 1


def test_an_acked_gap_is_told_and_the_others_stay(world: World) -> None:
    world.register("Sam", "general", "memory")
    lose(world, 4, 5)
    one = world.state.subscriptions["Sam"]["general"].gaps[0]
    world.commit(ev.Delivered("Sam", "t", ends={}, include_own=False, gaps=[one]))
    world.commit(ev.Acked("Sam", "t"))
    assert gaps(world, "Sam") == []
    assert gaps(world, "Sam", "memory") == [(4, 5, msgspec.UNSET, "damage")]


def test_the_gap_of_a_channel_left_and_joined_again_is_not_told_for_the_new_subscription(world: World) -> None:
    world.register("Sam", "general", "memory")
    lose(world, 4, 5)
    told = [held.gaps[0] for held in world.state.subscriptions["Sam"].values()]
    world.commit(ev.Delivered("Sam", "t", ends={}, include_own=False, gaps=told))
    world.commit(ev.Unsubscribed("Sam", "general", "asked"))
    world.commit(ev.Subscribed("Sam", "general", 2))
    lose(world, 9, 10)
    world.commit(ev.Acked("Sam", "t"))
    assert gaps(world, "Sam") == [(9, 10, msgspec.UNSET, "damage")]


def test_a_person_acks_for_an_identity_what_lies_below(world: World) -> None:
    world.register("Sam", "general", "memory")
    seqs = [world.post("Ann") for _ in range(4)]
    world.commit(ev.Unsubscribed("Sam", "memory", "asked"), ev.Subscribed("Sam", "memory", seqs[3]))
    world.commit(ev.Evicted("general", seqs[1]), ev.Evicted("general", seqs[3]))
    world.commit(ev.Delivered("Sam", "t", ends={"general": seqs[3]}, include_own=False))
    world.commit(ev.AckedAll("Sam", seqs[1] + 1, "operator"))
    assert cursors(world, "Sam") == {"general": seqs[1], "memory": seqs[3]}
    assert world.state.batches == {}
    assert [gap[:2] for gap in gaps(world, "Sam")] == [(seqs[0], seqs[2])]  # whole: it reaches above


def test_a_lost_line_takes_its_last_seq_and_is_a_gap_for_each_cursor_below(world: World) -> None:
    world.register("Sam", "general", "memory")
    world.commit(ev.Unsubscribed("Sam", "memory", "asked"), ev.Subscribed("Sam", "memory", 9))
    lose(world, 5, 9)
    assert world.state.last_seq == 9
    assert gaps(world, "Sam") == [(5, 9, msgspec.UNSET, "damage")]
    assert gaps(world, "Sam", "memory") == []
    assert world.post("Ann") == 10


def test_a_reset_leaves_the_default_channels_and_goes_on_counting(world: World) -> None:
    world.register("Sam", "general")
    world.channel("reviews")
    world.post("Ann", content="@Sam", key="k")
    world.edit("Ann", world.post("Ann", "memory", reply_to=3))
    world.commit(ev.Delivered("Sam", "t", ends={"general": 5}, include_own=False))
    seq = world.commit(ev.Reset(by="me"))
    fresh, state = World().state, world.state
    assert state.last_seq == seq
    assert state.resets == 1
    assert queries.canonical(state) == queries.canonical(fresh) | {"last_seq": seq}
    for name in ("revised", "receipts", "replies", "addressed"):
        assert not getattr(state, name), name
    assert state.identities.names == []
    assert world.post("Sam") == seq + 1


@pytest.mark.parametrize("kind", [ev.SegmentOpened(format=1, journal="j", prev="0"), ev.Repaired(), ev.Active("no")])
def test_some_events_change_nothing(world: World, kind: ev.AnyEvent) -> None:
    before = queries.canonical(world.state)
    seq = world.commit(kind)
    assert queries.canonical(world.state) == before | {"last_seq": seq}


RENEWING: list[Callable[[World], object]] = [
    lambda world: world.register("Sam"),
    lambda world: world.commit(ev.Subscribed("Sam", "general", 1)),
    lambda world: world.commit(ev.Delivered("Sam", "t", ends={}, include_own=False)),
    lambda world: world.commit(ev.Active("Sam")),
    lambda world: world.commit(ev.Delivered("Sam", "t", ends={}, include_own=False), ev.Acked("Sam", "t")),
]


@pytest.mark.parametrize("renew", RENEWING)
def test_receive_subscribe_register_and_ack_renew_the_idle_clock(world: World, renew: Callable[[World], None]) -> None:
    world.register("Sam", "general")
    world.now_ms += HOUR_MS
    now = world.now_ms
    renew(world)
    assert world.state.subscriptions["Sam"]["general"].active_ms == now


def test_posting_does_not_renew_the_idle_clock(world: World) -> None:
    world.register("Sam", "general")
    world.now_ms += HOUR_MS
    world.post("Sam")
    assert world.state.subscriptions["Sam"]["general"].active_ms < START_MS + HOUR_MS


def test_a_receipt_is_kept_for_the_longest_retention_and_then_forgotten(world: World) -> None:
    seq = world.post("Ann", key="k1")
    world.now_ms += 24 * HOUR_MS - 2000
    memory = world.post("Ann", "memory", key="k2")
    edit = world.edit("Ann", memory, key="k3")
    held = {key: (r.seq, r.memory_id, r.revision) for (_, key), r in world.state.receipts.items()}
    assert held == {"k1": (seq, None, None), "k2": (memory, memory, 1), "k3": (edit, memory, 2)}
    deleted = world.delete("Bob", memory, key="k3")
    assert list(world.state.receipts) == [("Ann", "k2"), ("Ann", "k3"), ("Bob", "k3")]
    assert world.state.receipts["Bob", "k3"].seq == deleted


def test_a_key_used_again_after_its_time_stands_for_the_later_use(world: World) -> None:
    world.post("Ann", key="k1")
    world.post("Ann", key="k2")
    world.now_ms += 2 * HOUR_MS
    seq = world.post("Ann", key="k1")
    assert list(world.state.receipts) == [("Ann", "k2"), ("Ann", "k1")]
    assert world.state.receipts["Ann", "k1"].seq == seq


def test_a_clock_that_stepped_back_forgets_no_receipt(world: World) -> None:
    world.post("Ann", key="k1")
    world.now_ms -= 20 * HOUR_MS
    world.post("Ann", key="k2")
    assert len(world.state.receipts) == 2
    assert world.state.channels["general"].retained.times[1] < world.state.channels["general"].retained.times[0]


ABSENT: list[tuple[ev.AnyEvent, str]] = [
    (ev.ChannelCreated("general", "ordinary"), 'channel "general" exists already'),
    (ev.Ended("Sam", MINE, "exit"), f'"Sam" has no session of owner {MINE}'),
    (ev.Ended("Ann", THEIRS, "exit"), f'"Ann" has no session of owner {THEIRS}'),
    (ev.Subscribed("Ann", "reviews", 1), 'channel "reviews" does not exist'),
    (ev.Unsubscribed("Ann", "memory", "asked"), '"Ann" is not subscribed to "memory"'),
    (ev.Unsubscribed("Sam", "memory", "asked"), '"Sam" is not subscribed to "memory"'),
    (ev.Posted(as_="Ann", channel="reviews", content="x", context="c"), 'channel "reviews" does not exist'),
    (ev.MemoryEdited(as_="Ann", id=9, content="x", context="c", replaces=1), "memory 9 does not exist"),
    (ev.MemoryDeleted(as_="Ann", id=9, replaces=1), "memory 9 does not exist"),
    (
        ev.Delivered("Ann", "t", ends={"memory": 2}, include_own=False),
        '"Ann" is not subscribed to "memory"',
    ),
    (ev.Acked("Ann", "t"), '"Ann" has no pending batch t'),
    (ev.AckedAll("Sam", 2, "me"), '"Sam" has no subscription'),
    (ev.Evicted("reviews", 2), 'channel "reviews" does not exist'),
]


@pytest.mark.parametrize(("event", "cause"), ABSENT)
def test_an_event_about_something_absent_cannot_have_happened(world: World, event: ev.AnyEvent, cause: str) -> None:
    world.register("Ann", "general")
    with pytest.raises(FoldError) as fault:
        world.commit(event)
    assert fault.value.cause == str(fault.value) == cause


@pytest.mark.parametrize(("event", "cause"), ABSENT)
def test_after_a_lost_line_it_is_an_orphan_and_counted(world: World, event: ev.AnyEvent, cause: str) -> None:
    world.register("Ann", "general")
    lose(world, 4, 5)
    seq = world.commit(event)
    assert world.state.orphans == [(seq, cause)]
    if "reviews" in cause:
        assert world.state.channels["reviews"].kind == "ordinary"


def test_an_ack_of_another_token_is_not_the_pending_one(world: World) -> None:
    world.register("Sam", "general")
    world.commit(ev.Delivered("Sam", "t", ends={}, include_own=False))
    with pytest.raises(FoldError, match='"Sam" has no pending batch other'):
        world.commit(ev.Acked("Sam", "other"))


def test_a_message_on_a_channel_whose_making_was_lost_is_kept(world: World) -> None:
    lose(world, 3, 3)
    seq = world.post("Ann", "reviews")
    assert list(world.state.channels["reviews"].retained.seqs) == [seq]


def test_the_default_channels_are_known_though_the_line_that_made_them_is_lost() -> None:
    state = State()
    lost = ev.Lost(first=1, last=4, bytes=9, next_prev=None, reason="damage")
    fold(state, Commit(1, format_time(0), 1, b"", "", Place(1, 0, 9)), [lost])
    assert {name: channel.kind for name, channel in state.channels.items()} == {
        "general": "ordinary",
        "memory": "memory",
    }
    later = State()
    opened = ev.SegmentOpened(format=1, journal="j", prev="0" * 64)
    fold(later, Commit(1, format_time(0), 1, b"", "", Place(1, 0, 9)), [opened])
    after = ev.Lost(first=3, last=4, bytes=9, next_prev=None, reason="damage")
    fold(later, Commit(3, format_time(0), 1, b"", "", Place(1, 9, 9)), [after])
    assert later.channels == {}


def test_the_ack_of_a_batch_whose_subscription_was_lost_moves_what_is_left(world: World) -> None:
    world.register("Sam", "general")
    lose(world, 4, 5)
    gap = ev.Gap("memory", 4, 5, cause="damage")
    world.commit(ev.Delivered("Sam", "t", {"general": 2, "memory": 2}, include_own=False, gaps=[gap]))
    world.commit(ev.Acked("Sam", "t"))
    assert cursors(world, "Sam") == {"general": 2}
    assert len(gaps(world, "Sam")) == 1


@pytest.mark.parametrize("time", ["", "yesterday", "2026-09-09T08:00:xx.000Z", "2026-13-09T08:00:00.000Z"])
def test_a_line_without_a_time_is_a_fault_and_not_a_crash(time: str) -> None:
    commit = Commit(1, time, 1, b"", "", Place(1, 0, 1))
    with pytest.raises(FoldError, match=f'^the time "{time}" is none$'):
        fold(State(), commit, [ev.Active("a")])


def test_a_time_before_1970_can_be_folded() -> None:
    state = State()
    fold(state, Commit(1, "1969-12-31T23:59:59.999Z", 1, b"", "", Place(1, 0, 1)), list(ev.DEFAULT_CHANNELS))
    assert list(state.channels) == ["general", "memory"]


def refolded(world: World, upto: int) -> State:
    """A State that was folded up to a seq and then, as by another process, the rest onto it."""
    state = State()
    lines = sorted(world.lines.items())
    for part in (lines[:upto], lines[upto:]):
        for seq, (time, events) in part:
            text = wire.encode(events)
            fold(state, Commit(seq, time, 1, text, "", Place(1, seq, 300)), wire.decode(text))
    return state


@settings(max_examples=30, deadline=None)
@given(steps, st.integers(0, 30))
def test_the_fold_of_both_parts_is_the_second_folded_onto_the_first(path: list[Step], upto: int) -> None:
    world = wandered(path)
    state = refolded(world, upto)
    assert queries.encode_canonical(state) == world.canonical()
    for name in ("receipts", "replies", "addressed", "revised", "orphans"):
        assert getattr(state, name) == getattr(world.state, name), name
    assert state.identities.names == world.state.identities.names
