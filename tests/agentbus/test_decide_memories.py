"""The rules of memories: edit, delete, and what their keys answer."""

from __future__ import annotations

from typing import Any

import pytest

from agentbus import events as ev
from agentbus import wire
from agentbus.commands import Command, Decision, DeleteMemory, DeleteResult, EditMemory, EditResult, Post, Receive
from agentbus.decide.memories import require_memory
from agentbus.errors import BusError
from agentbus.names import AgentName, ChannelName
from tests.agentbus.building import HOUR_MS, MINE, POLICY, THEIRS, World

SAM, ANN = AgentName("Sam"), AgentName("Ann")


@pytest.fixture
def world() -> World:
    made = World()
    made.register("Sam", "memory")
    made.register("Ann", "memory", owner=THEIRS)
    return made


@pytest.fixture
def fact(world: World) -> int:
    """A memory of Ann's."""
    return world.post("Ann", "memory", "old", label="l", metadata={"a": "b"})


def edit(number: int, content: str = "new", **fields: Any) -> EditMemory:  # noqa: ANN401  # fields
    return EditMemory(as_=SAM, id=number, content=content, **fields)


def delete(number: int, **fields: Any) -> DeleteMemory:  # noqa: ANN401  # fields
    return DeleteMemory(as_=SAM, id=number, **fields)


def refused(world: World, command: Command[Any]) -> BusError:
    seq = world.state.last_seq
    with pytest.raises(BusError) as refusal:
        world.run(command)
    assert not refusal.value.retryable
    assert world.state.last_seq == seq
    return refusal.value


def read(world: World, identity: AgentName, owner: str, ack: str | None = None) -> dict[str, Any]:
    result = world.run(Receive(as_=identity, count=10, ack=ack), owner)
    return world.shown(result, identity)


def shown(batch: dict[str, Any]) -> list[tuple[int, int, str]]:
    """(seq, revision, content) of each memory handed out."""
    return [(each["seq"], each["revision"], each["content"]) for each in batch["messages"]]


# --- edit


def test_an_edit_names_the_revision_it_makes_and_replaces(world: World, fact: int) -> None:
    decision = world.decide(edit(fact, "@Ann?", label="m", metadata={"c": "d"}, key="k"))
    edited = ev.MemoryEdited(
        as_="Sam", id=fact, content="@Ann?", context="work", label="m", metadata={"c": "d"}, key="k", replaces=1
    )
    assert decision == Decision((edited,), EditResult(fact, 2))


def test_what_an_edit_is_not_given_the_revision_does_not_have(world: World, fact: int) -> None:
    (edited,) = world.decide(edit(fact)).events
    assert edited == ev.MemoryEdited(as_="Sam", id=fact, content="new", context="work", replaces=1)
    assert wire.encode((edited,)).count(b'":') == 6


def test_the_last_commit_wins_whoever_it_is(world: World, fact: int) -> None:
    assert world.run(EditMemory(as_=ANN, id=fact, content="hers"), THEIRS).revision == 2
    assert world.run(edit(fact, "mine")).revision == 3
    assert world.run(EditMemory(as_=ANN, id=fact, content="hers"), THEIRS) == EditResult(fact, 4)
    memory = world.state.memories[fact]
    assert (memory.revision, memory.seq, memory.id) == (4, world.state.last_seq, fact)


@pytest.mark.parametrize("ask", [edit, delete])
def test_a_memory_that_is_gone_or_never_was_is_not_found(world: World, fact: int, ask: Any) -> None:  # noqa: ANN401  # either
    message = world.post("Sam")
    world.delete("Ann", fact)
    for number in (0, fact, message, 2**53):
        refusal = refused(world, ask(number))
        assert refusal.code == "not_found"
        assert refusal.message == (f"memory {number} does not exist, or was deleted: search shows those that do")


@pytest.mark.parametrize("ask", [edit, delete])
def test_a_revisions_seq_is_answered_with_the_memorys_id(world: World, fact: int, ask: Any) -> None:  # noqa: ANN401  # either
    live = world.edit("Ann", fact)
    assert refused(world, ask(live)).message == (
        f"{live} is the seq of revision 2, not the id of a memory: pass {fact}"
    )


@pytest.mark.parametrize("ask", [edit, delete])
def test_without_a_session_of_this_process_no_memory_changes(world: World, fact: int, ask: Any) -> None:  # noqa: ANN401  # either
    with pytest.raises(BusError) as refusal:
        world.decide(ask(fact), owner=THEIRS)
    assert refusal.value.code == "not_registered"


def test_a_revision_may_be_as_large_as_a_post(world: World, fact: int) -> None:
    frame = wire.encoded_bytes(ev.MemoryEdited(as_="Sam", id=fact, content="", context="work", replaces=1))
    most = POLICY.event_bytes_max - frame
    assert len(world.decide(edit(fact, "x" * most)).events) == 1
    refusal = refused(world, edit(fact, "x" * (most + 1)))
    assert refusal.code == "validation"
    assert refusal.message == (
        "the memory takes 32769 bytes with its label and metadata, more than max_message_kib (32 KiB) allows:"
        " shorten it, or store where the whole of it can be read"
    )


def test_a_memory_that_is_asked_for_is_the_live_one(world: World, fact: int) -> None:
    world.edit("Ann", fact)
    assert require_memory(world.state, fact) is world.state.memories[fact]


# --- delete


def test_a_delete_names_the_revision_that_was_live(world: World, fact: int) -> None:
    world.edit("Ann", fact)
    decision = world.decide(delete(fact, key="k"))
    deleted = ev.MemoryDeleted(as_="Sam", id=fact, key="k", replaces=2)
    assert decision == Decision((deleted,), DeleteResult(fact, 2))
    assert world.decide(delete(fact)).events == (ev.MemoryDeleted(as_="Sam", id=fact, replaces=2),)


# --- keys


def test_edit_then_delete_then_the_edit_again_by_its_key_is_answered_as_at_first(world: World, fact: int) -> None:
    assert world.run(edit(fact, key="e")) == EditResult(fact, 2)
    seq = world.state.last_seq
    assert world.run(delete(fact, key="d")) == DeleteResult(fact, 2)
    assert world.decide(edit(fact, key="e")) == Decision((), EditResult(fact, 2, repeated=True, seq=seq))
    assert world.decide(delete(fact, key="d")) == Decision((), DeleteResult(fact, 2, repeated=True))


def test_a_repeat_names_its_own_revision_and_not_the_live_one(world: World, fact: int) -> None:
    world.run(edit(fact, key="e"))
    seq = world.state.last_seq
    world.edit("Ann", fact)
    assert world.decide(edit(fact, key="e")).result == EditResult(fact, 2, repeated=True, seq=seq)
    assert world.state.memories[fact].revision == 3


def test_one_key_is_for_one_payload_of_one_kind(world: World, fact: int) -> None:
    other = world.post("Ann", "memory")
    world.run(edit(fact, key="k"))
    seq = world.state.last_seq
    post = Post(as_=SAM, channel=ChannelName("memory"), content="new", key="k")
    others = (edit(fact, "else", key="k"), edit(other, key="k"), edit(fact, label="l", key="k"), delete(fact, key="k"))
    for command in (*others, post):
        refusal = refused(world, command)
        assert refusal.code == "conflict"
        assert refusal.message == (
            f'"idempotency_key" "k" was used for another payload at seq {seq}: use a new key for a new message'
        )


def test_the_keys_of_edits_and_deletes_are_forgotten_after_their_retention(world: World, fact: int) -> None:
    world.run(edit(fact, key="k"))
    late = world.now_ms - 1000 + HOUR_MS
    assert world.decide(edit(fact, key="k"), time_ms=late).result.repeated
    assert world.decide(edit(fact, key="k"), time_ms=late + 1).result == EditResult(fact, 3)
    world.run(delete(fact, key="d"))
    late = world.now_ms - 1000 + HOUR_MS
    assert world.decide(delete(fact, key="d"), time_ms=late).result.repeated
    with pytest.raises(BusError) as refusal:
        world.decide(delete(fact, key="d"), time_ms=late + 1)
    assert refusal.value.code == "not_found"


# --- what subscribers see


def test_a_subscriber_sees_each_live_revision_once_at_its_own_seq(world: World, fact: int) -> None:
    batch = read(world, SAM, MINE)
    assert shown(batch) == [(fact, 1, "old")]
    live = world.edit("Ann", fact)
    newer = world.edit("Ann", fact, "best")
    batch = read(world, SAM, MINE, batch["token"])
    assert shown(batch) == [(newer, 3, "best")]
    assert list(batch["messages"][0])[:3] == ["memory_id", "revision", "seq"]
    assert "gaps" not in batch
    assert live < newer
    assert read(world, SAM, MINE, batch["token"])["messages"] == []


def test_superseded_and_deleted_ones_are_passed_over_without_a_word_to_who_never_had_them(world: World) -> None:
    first, second = world.post("Ann", "memory", "one"), world.post("Ann", "memory", "two")
    live = world.edit("Ann", first, "one, better")
    world.delete("Ann", second)
    batch = read(world, SAM, MINE)
    assert shown(batch) == [(live, 2, "one, better")]
    assert "gaps" not in batch


def test_a_redelivered_batch_names_what_was_superseded_or_deleted_since(world: World, fact: int) -> None:
    kept, gone = world.post("Ann", "memory", "kept"), world.post("Ann", "memory", "gone")
    first = read(world, SAM, MINE)
    live = world.edit("Ann", fact)
    world.delete("Ann", gone)
    again = read(world, SAM, MINE)
    assert (again["token"], again["redelivered"]) == (first["token"], True)
    assert shown(again) == [(kept, 1, "kept")]
    cause = "superseded or deleted"
    assert again["gaps"] == [
        {"channel": "memory", "from": fact, "to": fact, "count": 1, "cause": cause},
        {"channel": "memory", "from": gone, "to": gone, "count": 1, "cause": cause},
    ]
    after = read(world, SAM, MINE, first["token"])
    assert shown(after) == [(live, 2, "better")]
    assert "gaps" not in after


def test_an_edit_addresses_whom_its_text_mentions_and_nobody_the_old_text_did(world: World) -> None:
    fact = world.post("Ann", "memory", "@Sam look")
    world.edit("Ann", fact, "never mind")
    (message,) = (batch := read(world, SAM, MINE))["messages"]
    assert "addressed" not in message
    world.edit("Ann", fact, "@Sam look again")
    (message,) = read(world, SAM, MINE, batch["token"])["messages"]
    assert message["addressed"] is True


def test_another_ones_edit_of_my_memory_is_news_to_me_and_my_own_is_not(world: World) -> None:
    mine = world.post("Sam", "memory")
    hers = world.edit("Ann", mine, "hers")
    assert shown(read(world, SAM, MINE)) == [(hers, 2, "hers")]
    world.run(edit(mine, "mine again"))
    token = world.state.batches["Sam"].token
    assert read(world, SAM, MINE, token)["messages"] == []
