"""The rules of posting."""

from __future__ import annotations

from typing import Any

import pytest

from agentbus import events as ev
from agentbus import wire
from agentbus.commands import Decision, Post, PostResult
from agentbus.errors import BusError
from agentbus.names import AgentName, ChannelName
from tests.agentbus.building import HOUR_MS, MINE, POLICY, THEIRS, World


@pytest.fixture
def world() -> World:
    made = World()
    made.register("Sam", "general")
    made.register("Ann", "general", owner=THEIRS)
    return made


def ask(content: str = "text", channel: str = "general", **fields: Any) -> Post:  # noqa: ANN401  # fields
    return Post(as_=AgentName("Sam"), channel=ChannelName(channel), content=content, **fields)


def refused(world: World, command: Post) -> BusError:
    with pytest.raises(BusError) as refusal:
        world.decide(command)
    assert not refusal.value.retryable
    return refusal.value


def test_a_post_says_who_where_and_what(world: World) -> None:
    asked = world.post("Ann")
    whole = ask("@Ann?", label="l", reply_to=asked, metadata={"a": "b"}, key="k")
    decision = world.decide(whole)
    posted = ev.Posted("Sam", "general", "@Ann?", "work", label="l", reply_to=asked, metadata={"a": "b"}, key="k")
    assert decision == Decision((posted,), PostResult(("Ann",)))


def test_what_is_not_given_is_not_written(world: World) -> None:
    decision = world.decide(ask())
    assert decision == Decision((ev.Posted("Sam", "general", "text", "work"),), PostResult(()))
    assert wire.encode(decision.events).count(b'":') == 5


def test_without_a_session_of_this_process_nothing_is_posted(world: World) -> None:
    world.run(ask(key="k"))
    with pytest.raises(BusError) as refusal:
        world.decide(ask(key="k"), owner=THEIRS)
    assert refusal.value.code == "not_registered"


def test_a_misspelt_channel_is_never_made(world: World) -> None:
    refusal = refused(world, ask(channel="Genera"))
    assert (refusal.code, refusal.message) == ("not_found", 'channel "Genera" does not exist: did you mean "general"?')


def test_a_reply_must_have_something_to_reply_to(world: World) -> None:
    deleted = world.post("Ann", "memory")
    world.delete("Ann", deleted)
    evicted = world.post("Ann")
    world.commit(ev.Evicted("general", evicted + 1))
    for gone in (0, deleted, evicted, world.state.last_seq, 2**60):
        refusal = refused(world, ask(reply_to=gone))
        assert refusal.code == "not_found"
        assert refusal.message == (
            f'"reply_to" {gone} is no message or memory that can still be read: look with history'
        )


def test_a_memory_is_replied_to_by_its_id_or_its_live_revision(world: World) -> None:
    memory = world.post("Sam", "memory")
    live = world.edit("Ann", memory)
    for seq in (memory, live):
        assert world.decide(ask(reply_to=seq)).result.addressed == ("Ann",)


def test_the_whole_event_must_fit(world: World) -> None:
    frame = wire.encoded_bytes(ev.Posted("Sam", "general", "", "work", metadata={"a": ""}))
    fits = ask("x" * 30_000, metadata={"a": "y" * (POLICY.event_bytes_max - frame - 30_000)})
    assert len(world.decide(fits).events) == 1
    refusal = refused(world, ask("x" * 30_001, metadata=fits.metadata))
    assert refusal.code == "validation"
    assert refusal.message == (
        "the message takes 32769 bytes with its label and metadata, more than max_message_kib (32 KiB) allows:"
        " post it in parts, or post where it can be read"
    )


def test_a_key_and_its_payload_give_the_first_answer_and_no_line(world: World) -> None:
    first = world.run(ask("@Ann", key="k"))
    seq = world.state.last_seq
    assert world.decide(ask("@Ann", key="k")) == Decision((), PostResult(("Ann",), repeated=True, seq=seq))
    assert first == PostResult(("Ann",))
    fact = ask("fact", "memory", key="m")
    world.run(fact)
    memory = world.state.last_seq
    expected = PostResult((), repeated=True, seq=memory, memory_id=memory, revision=1)
    assert world.decide(fact).result == expected
    world.edit("Ann", memory)
    assert world.decide(fact).result == expected


def test_a_repeat_says_whom_the_first_addressed(world: World) -> None:
    world.run(ask("@Ann and @Zoe", key="k"))
    world.register("Zoe")
    assert world.decide(ask("@Ann and @Zoe", key="k")).result.addressed == ("Ann",)


def test_a_key_is_looked_up_before_every_check_but_as(world: World) -> None:
    memory = world.post("Ann", "memory")
    reply = ask("x" * 1000, reply_to=memory, key="k")
    world.run(reply)
    seq = world.state.last_seq
    world.delete("Ann", memory)
    world.commit(ev.Ended("Sam", MINE, "exit"))
    world.commit(ev.Registered(as_="Sam", owner=MINE, name="Sam", context="another directory"))
    assert world.decide(reply).result.seq == seq
    assert refused(world, ask("x" * 1000, reply_to=memory, key="other")).code == "not_found"
    assert refused(world, ask(channel="missing", key="k")).code == "conflict"


def test_a_key_with_another_payload_is_a_conflict(world: World) -> None:
    world.run(ask(key="k"))
    seq = world.state.last_seq
    for other in (ask("other", key="k"), ask(label="l", key="k"), ask(channel="memory", key="k")):
        refusal = refused(world, other)
        assert refusal.code == "conflict"
        assert refusal.message == (
            f'"idempotency_key" "k" was used for another payload at seq {seq}: use a new key for a new message'
        )


def test_a_key_belongs_to_its_identity(world: World) -> None:
    world.post("Ann", key="k")
    assert len(world.decide(ask(key="k")).events) == 1


def test_a_key_is_free_again_after_its_retention(world: World) -> None:
    world.run(ask(key="k"))
    seq, now = world.state.last_seq, world.now_ms - 1000
    assert world.decide(ask(key="k"), time_ms=now + HOUR_MS).result.seq == seq
    assert len(world.decide(ask(key="k"), time_ms=now + HOUR_MS + 1).events) == 1
    assert world.decide(ask(key="k"), time_ms=now - HOUR_MS).result.seq == seq


UNKNOWN = [
    ("no mention", ()),
    ("@Ann and @Sam are here", ()),
    ("@tom, @Tom! (@tom)", ("tom", "Tom")),
    ("write to me@work.example", ()),
    ("漢字@tom", ("tom",)),
    ("@Ann's, but not @Anna", ("Anna",)),
    ("@Ann/build- and @x-", ("Ann/build", "x")),
    ("@Dr. Who, that is @Dr", ("Dr",)),
    ("@ @@ @- @/x", ()),
    (" ".join(f"@n{n}" for n in range(9)), ("n0", "n1", "n2", "n3", "n4")),
    ("@Ann " * 100 + "@tom", ()),
    ("@Ann " * 99 + "@tom", ("tom",)),
    ("@" + "x" * 200, ("x" * 64,)),
    ("@田中、@ünïcode", ("田中", "ünïcode")),
]


@pytest.mark.parametrize(("content", "unknown"), UNKNOWN, ids=[text[:20] for text, _ in UNKNOWN])
def test_a_post_names_those_it_mentions_whom_nobody_knows(world: World, content: str, unknown: tuple[str, ...]) -> None:
    world.register("Dr. Who")
    decision = world.decide(ask(content))
    assert decision.result.unknown == unknown
    assert not set(unknown) & set(decision.result.addressed)


def test_a_repeat_tells_of_no_unknown_names(world: World) -> None:
    world.run(ask("@tom", key="k"))
    assert world.decide(ask("@tom", key="k")).result.unknown == ()
