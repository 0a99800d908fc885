"""Which texts a search may look at."""

from __future__ import annotations

import pytest

from agentbus import events as ev
from agentbus import queries
from agentbus.errors import BusError
from agentbus.search import matching
from agentbus.search.scope import Scope, View, key
from agentbus.state import ALWAYS_MS
from tests.agentbus.building import World


@pytest.fixture
def world() -> World:
    return World()


def seqs(world: World, scope: Scope, horizon_ms: int = ALWAYS_MS, upto: int | None = None) -> list[int]:
    """What passes: looked up one by one and listed, which must be the same."""
    view = View(world.state, scope, horizon_ms, upto)
    listed = sorted(at.seq for at in view.above(0))
    assert [seq for seq in range(1, world.state.last_seq + 2) if view.locate(seq) is not None] == listed
    assert sorted(at.seq for at in view.above(4)) == [seq for seq in listed if seq > 4]
    return listed


def test_candidates_are_what_can_still_be_read(world: World) -> None:
    evicted, chat = world.post("Ann"), world.post("Ann")
    world.commit(ev.Evicted("general", chat))
    memory, gone = world.post("Ann", "memory"), world.post("Ann", "memory")
    live = world.edit("Bob", memory)
    world.delete("Ann", gone)
    assert seqs(world, Scope()) == [chat, live]
    assert evicted < chat


def test_what_is_over_age_is_not_there_before_it_is_evicted_but_memories_are(world: World) -> None:
    memory, old = world.post("Ann", "memory"), world.post("Ann")
    horizon_ms = world.now_ms
    new = world.post("Ann", reply_to=old)
    assert seqs(world, Scope(), horizon_ms) == [memory, new]
    with pytest.raises(BusError, match=f'"thread" {old} is no message that can still be read'):
        seqs(world, Scope(thread=old), horizon_ms)
    assert seqs(world, Scope(thread=new), horizon_ms) == [new]


def test_a_scope_is_narrowed_by_channel_kind_sender_and_time(world: World) -> None:
    world.channel("facts", "memory")
    one, two, three = world.post("Ann"), world.post("Bob", "memory"), world.post("Ann", "facts")
    when = [matching.parse_when(world.lines[seq][0], "since", 0) for seq in (one, two, three)]
    assert seqs(world, Scope(channel="memory")) == [two]
    with pytest.raises(BusError, match='channel "fact" does not exist: did you mean "facts"'):
        seqs(world, Scope(channel="fact"))
    assert seqs(world, Scope(kind="memory")) == [two, three]
    assert seqs(world, Scope(kind="memory", channel="general")) == []
    assert seqs(world, Scope(sender="Ann")) == [one, three]
    with pytest.raises(BusError, match='"sender" "Zoe" is nobody who was ever here: discover shows who is live'):
        seqs(world, Scope(sender="Zoe"))
    assert seqs(world, Scope(since_ms=when[1])) == [two, three]
    assert seqs(world, Scope(until_ms=when[1])) == [one, two]
    assert seqs(world, Scope(since_ms=when[1], until_ms=when[1])) == [two]
    view = View(world.state, Scope(kind="memory"), ALWAYS_MS)
    assert [channel.name for channel in view.channels] == ["facts", "memory"]


NARROW = [Scope(sender="Ann"), Scope(since_ms=0), Scope(until_ms=0), Scope(thread=1)]


def test_a_scope_of_whole_channels_is_not_narrow() -> None:
    assert all(scope.is_narrow for scope in NARROW)
    assert not Scope(channel="general", kind="memory").is_narrow


def test_a_thread_is_a_message_and_what_answers_it_and_the_answers_across_channels(world: World) -> None:
    root = world.post("Ann")
    world.post("Ann", reply_to=world.post("Ann"))
    answer = world.post("Bob", "memory", reply_to=root)
    last = world.post("Cy", reply_to=answer)
    for seq in (root, answer, last):
        assert seqs(world, Scope(thread=seq)) == [root, answer, last]


def test_the_thread_of_a_memory_outlives_its_revisions(world: World) -> None:
    memory = world.post("Ann", "memory")
    first = world.post("Bob", reply_to=memory)
    second_revision = world.edit("Ann", memory)
    second = world.post("Bob", reply_to=second_revision)
    live = world.edit("Ann", memory)
    for thread in (memory, live, first, second):
        assert seqs(world, Scope(thread=thread)) == [first, second, live]


def test_replies_in_circles_that_no_bus_wrote_end(world: World) -> None:
    one = world.post("Ann", reply_to=4)
    two = world.post("Bob", reply_to=4)
    assert (one, two) == (3, 4)
    assert seqs(world, Scope(thread=two)) == [two]


def test_the_thread_of_what_cannot_be_read_is_not_found(world: World) -> None:
    with pytest.raises(BusError) as refusal:
        seqs(world, Scope(thread=99))
    assert refusal.value.code == "not_found"
    assert refusal.value.message == '"thread" 99 is no message that can still be read: history shows those that can'


def test_a_next_page_looks_at_what_stood_when_the_first_was_made_and_at_its_memories_as_they_are(world: World) -> None:
    chat, memory = world.post("Ann"), world.post("Ann", "memory")
    upto = world.state.last_seq
    world.post("Ann")
    world.post("Ann", "memory")
    live = world.edit("Ann", memory)
    assert seqs(world, Scope(), upto=upto) == [chat, live]
    view = View(world.state, Scope(), ALWAYS_MS, upto)
    assert [key(at) for at in view.above(0)] == [chat, memory]


def test_what_is_located_for_a_search_is_what_a_page_shows(world: World) -> None:
    seq = world.post("Ann", "memory")
    assert [View(world.state, Scope(), ALWAYS_MS).locate(seq)] == queries.locate(world.state, [(seq, "memory")])
