"""Answers read from a State."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbus import events as ev
from agentbus import queries, results, wire
from agentbus.limits import NAME_BYTES_MAX
from agentbus.state import shown_bytes
from journal import Commit, parse_time
from tests.agentbus.building import MINE, THEIRS, World
from tests.agentbus.wandering import Step, steps, wandered


@pytest.fixture
def world() -> World:
    made = World()
    made.register("Sam", "general", "memory")
    return made


def test_pending_counts_the_unread_of_others_the_unacked_batch_included(world: World) -> None:
    assert queries.pending(world.state, "Sam") == []
    assert queries.pending(world.state, "Nobody") == []
    world.post("Sam")
    seq = world.post("Ann")
    world.post("Ann", "memory")
    world.commit(ev.Delivered("Sam", "t", {"general": seq}, include_own=False))
    counts = [{"channel": "general", "count": 1}, {"channel": "memory", "count": 1}]
    assert queries.pending(world.state, "Sam") == counts
    world.commit(ev.Acked("Sam", "t"))
    assert queries.pending(world.state, "Sam") == counts[1:]


def test_an_ack_of_twelve_of_thirteen_leaves_one_for_its_reader_and_thirteen_for_the_other(world: World) -> None:
    world.register("Bob", "general")
    seqs = [world.post("Ann") for _ in range(13)]
    world.commit(ev.Delivered("Sam", "t", {"general": seqs[11]}, include_own=False))
    world.commit(ev.Acked("Sam", "t"))
    assert queries.pending(world.state, "Sam") == [{"channel": "general", "count": 1}]
    assert queries.pending(world.state, "Bob") == [{"channel": "general", "count": 13}]


def test_channels_are_listed_by_name_with_what_is_retained(world: World) -> None:
    world.channel("a")
    seq = world.post("Ann")
    world.post("Ann", "memory")
    rows = queries.channel_rows(world.state)
    assert rows == [
        {"channel": "a", "kind": "ordinary", "messages": 0, "last_seq": 0},
        {"channel": "general", "kind": "ordinary", "messages": 1, "last_seq": seq},
        {"channel": "memory", "kind": "memory", "messages": 1, "last_seq": seq + 1},
    ]
    subscribed = [row["subscribed"] for row in queries.channel_rows(world.state, "Sam")]
    assert subscribed == [False, True, True]
    assert not any(row["subscribed"] for row in queries.channel_rows(world.state, "Nobody"))


def test_sessions_of_processes_that_are_gone_are_not_live(world: World) -> None:
    world.register("Ann", owner=THEIRS)
    assert [held.as_ for held in queries.live_sessions(world.state, ())] == ["Ann", "Sam"]
    assert [held.as_ for held in queries.live_sessions(world.state, {THEIRS})] == ["Sam"]


def test_subscribers_are_the_others_live_or_not(world: World) -> None:
    world.register("Bob", "general")
    world.commit(ev.Ended("Bob", MINE, "exit"))
    assert queries.subscribers(world.state, "general", "Sam") == ["Bob"]
    assert queries.subscribers(world.state, "general", "Ann") == ["Sam", "Bob"]
    assert queries.subscribers(world.state, "none", "Ann") == []


def test_what_is_located_knows_its_memory_and_whom_it_addresses(world: World) -> None:
    chat, memory = world.post("Ann", content="@Sam"), world.post("Ann", "memory")
    live = world.edit("Ann", memory)
    found = queries.locate(world.state, [(chat, "general"), (memory, "memory"), (live, "memory"), (9, "no channel")])
    assert [(at.seq, at.channel, at.memory, at.addressed) for at in found] == [
        (chat, "general", None, ("Sam",)),
        (live, "memory", (memory, 2), ()),
    ]
    assert found[0].place == world.state.channels["general"].retained.place(0)


@given(
    st.lists(st.booleans(), max_size=12),
    st.none() | st.integers(0, 16),
    st.none() | st.integers(0, 16),
    st.integers(1, 14),
    st.integers(-10, 2000),
)
def test_a_page_lies_next_to_its_anchor(
    made: list[bool], before: int | None, after: int | None, count: int, room: int
) -> None:
    world = World()
    for chat in made:
        world.post("Ann", "general" if chat else "memory")
    channel = world.state.channels["general"]
    between = [
        seq for seq in channel.retained.seqs if (after is None or seq > after) and (before is None or seq < before)
    ]
    nearest_first = between if after is not None else between[::-1]
    used = list(itertools.accumulate(world.line_bytes[seq] for seq in nearest_first))
    fitting = [seq for n, seq in enumerate(nearest_first) if n == 0 or used[n] <= room]
    expected = sorted(fitting[:count])
    page = queries.history(world.state, channel, before=before, after=after, count=count, bytes_max=room)
    assert ([at.seq for at in page.messages], page.truncated) == (expected, len(expected) < len(between))


def test_the_oldest_unread_is_that_of_others(world: World) -> None:
    assert queries.oldest_unread_ms(world.state, "Sam", "general") is None
    world.post("Sam")
    assert queries.oldest_unread_ms(world.state, "Sam", "general") is None
    seq = world.post("Ann")
    world.post("Ann")
    assert queries.oldest_unread_ms(world.state, "Sam", "general") == parse_time(world.lines[seq][0])


def test_the_canonical_state_is_one_line_of_sorted_compact_json(world: World) -> None:
    world.register("Sam/検")
    world.post("Ann", "memory")
    seq = world.post("Ann")
    world.commit(ev.Delivered("Sam", "t", {"memory": seq - 1, "general": seq}, include_own=False))
    text = world.canonical().decode()
    state = json.loads(text)
    assert text == json.dumps(state, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert state["sessions"] == [
        {"as": "Sam", "context": "work", "name": "Sam", "owner": MINE, "registered_at": world.lines[3][0]},
        {
            "as": "Sam/検",
            "context": "work",
            "name": "検",
            "owner": MINE,
            "parent": "Sam",
            "registered_at": world.lines[4][0],
        },
    ]
    assert state["batches"] == [{"as": "Sam", "ends": {"general": seq, "memory": seq - 1}, "token": "t"}]
    assert state["memories"] == [{"id": 5, "channel": "memory", "seq": 5, "revision": 1, "from": "Ann"}]


@settings(max_examples=30, deadline=None)
@given(steps)
def test_unread_is_what_a_default_receive_would_still_hand_out_and_the_unacked(path: list[Step]) -> None:
    world = wandered(path)
    for who, mine in world.state.subscriptions.items():
        counted = {row["channel"]: row["count"] for row in queries.pending(world.state, who)}
        for name, held in mine.items():
            kept = world.state.channels[name].retained
            own = world.state.identities.find(who)
            unread = [s for s, a in zip(kept.seqs, kept.authors, strict=True) if s > held.cursor and a != own]
            assert counted.get(name, 0) == len(unread)


def test_no_revision_takes_more_than_it_is_said_to_whatever_its_channel_is_called(world: World) -> None:
    name = '"' * NAME_BYTES_MAX
    world.channel(name, "memory")
    world.edit("Ann", world.post("Ann", name), "y")
    channel = world.state.channels[name]
    shown = results.message(world.body(queries.located(world.state, channel, 0)), world.now_ms, "Sam")
    assert len(json.dumps(shown, separators=(",", ":"))) <= shown_bytes(channel, 0)


def test_the_text_of_a_line_is_that_of_its_message_whatever_else_it_tells_before(world: World) -> None:
    said = world.post("Ann", content="said")
    at = queries.located(world.state, world.state.channels["general"], 0)
    (posted,) = world.lines[said][1]
    line = wire.encode((ev.Evicted("general", said), posted))
    body = queries.body_of(at, Commit(said, "2026-09-09T08:00:07.049Z", 1, line, "", at.place))
    assert (body.event.content, body.time, body.at) == ("said", "2026-09-09T08:00:07.049Z", at)
