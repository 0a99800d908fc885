"""The life of a message, as the journal tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given

from agentbus import events as ev
from agentbus.audit import telling
from agentbus.audit.life import Life
from agentbus.audit.selection import Selection
from tests.agentbus.auditing import life_of, pairs, witness
from tests.agentbus.building import World
from tests.agentbus.wandering import Step, Take, begun, steps, walk

if TYPE_CHECKING:
    from agentbus.commands import ReceiveResult

Record = dict[str, Any]


def readers(found: Record) -> dict[str, Record]:
    return {row["as"]: row for row in found["readers"]}


def outcome(found: Record, identity: str) -> str:
    return str(readers(found)[identity]["outcome"]["what"])


def deliver(world: World, identity: str, token: str, own: bool = False, **ends: int) -> int:  # noqa: FBT001, FBT002  # as the event has it
    return world.commit(ev.Delivered(identity, token, ends, own))


def joined() -> World:
    """Ann and Bob on general and memory, and Cy who has no session any more."""
    world = World()
    for identity in ("Ann", "Bob", "Cy"):
        world.register(identity, "general", "memory")
    world.commit(ev.Ended("Cy", "a1" * 12, "gone"))
    return world


def test_of_a_seq_that_is_no_message_nothing_later_is_asked_for() -> None:
    life = Life(2, Selection())
    assert (life.is_done(1), life.is_done(2)) == (False, True)


def test_it_says_who_posted_what_and_who_was_there() -> None:
    world = joined()
    seq = world.post("Ann", content="@Bob hello", label="question", metadata={"a": "1"}, key="k")
    found = life_of(pairs(world), seq)
    assert {
        key: found[key] for key in ("seq", "type", "as", "channel", "content", "label", "metadata", "key", "pid")
    } == {
        "seq": seq,
        "type": "posted",
        "as": "Ann",
        "channel": "general",
        "content": "@Bob hello",
        "label": "question",
        "metadata": {"a": "1"},
        "key": "k",
        "pid": 4711,
    }
    assert found["addressed"] == ["Bob"]
    assert [(row["as"], row["subscribed"], row["live"]) for row in found["readers"]] == [
        ("Bob", True, True),
        ("Cy", True, False),
    ]
    assert [outcome(found, name) for name in ("Bob", "Cy")] == ["unread", "unread"]
    assert (found["replies"], found["edits"], found["upto"]) == ([], [], seq)
    assert "memory_id" not in found


def test_each_delivery_and_each_ack_is_told_with_the_time_it_took() -> None:
    world = joined()
    seq = world.post("Ann")
    handed = deliver(world, "Bob", "t1", general=seq)
    acked = world.commit(ev.Acked("Bob", "t1"))
    deliver(world, "Cy", "t2", general=seq)
    found = life_of(pairs(world), seq)
    (delivery,) = readers(found)["Bob"]["delivered"]
    assert (delivery["seq"], delivery["token"], delivery["after_ms"]) == (handed, "t1", 1000)
    ack = readers(found)["Bob"]["outcome"]
    assert (ack["what"], ack["seq"], ack["after_ms"]) == ("acked", acked, 1000)
    assert outcome(found, "Cy") == "handed_out"


def test_only_a_batch_that_holds_it_counts() -> None:
    world = joined()
    before = world.post("Ann")
    deliver(world, "Bob", "t0", general=before)
    world.commit(ev.Acked("Bob", "t0"))
    seq = world.post("Ann")
    deliver(world, "Cy", "t1", general=before)
    deliver(world, "Bob", "t2", memory=2)
    world.commit(ev.Acked("Bob", "t2"))
    found = life_of(pairs(world), seq)
    assert all(not row["delivered"] for row in found["readers"])
    assert {outcome(found, name) for name in ("Bob", "Cy")} == {"unread"}


def test_its_author_is_handed_it_only_where_that_was_asked_for() -> None:
    world = joined()
    seq = world.post("Ann")
    deliver(world, "Ann", "t1", general=seq)
    assert "Ann" not in readers(life_of(pairs(world), seq))
    deliver(world, "Ann", "t2", own=True, general=seq)
    row = readers(life_of(pairs(world), seq))["Ann"]
    assert ([each["token"] for each in row["delivered"]], row["subscribed"]) == (["t2"], False)


def test_a_batch_that_a_person_ended_before_it_waits_to_be_handed_out_anew() -> None:
    world = joined()
    seq = world.post("Ann")
    deliver(world, "Bob", "t1", general=seq)
    deliver(world, "Cy", "t2", general=seq)
    world.commit(ev.Acked("Cy", "t2"))
    world.commit(ev.AckedAll("Bob", seq, "root"))
    world.commit(ev.AckedAll("Cy", seq, "root"))
    found = life_of(pairs(world), seq)
    assert [outcome(found, name) for name in ("Bob", "Cy")] == ["unread", "acked"]
    assert "not handed out again, so unread" in "\n".join(telling.tell_life(found, str))
    world.commit(ev.Evicted("general", seq + 1))
    assert outcome(life_of(pairs(world), seq), "Bob") == "evicted"


def test_who_subscribes_later_from_before_it_waits_for_it_too_and_who_leaves_does_not() -> None:
    world = joined()
    seq = world.post("Ann")
    world.commit(ev.Subscribed("Dan", "general", 2))
    world.commit(ev.Subscribed("Eve", "general", seq))
    world.commit(ev.Subscribed("Bob", "general", 2))  # is already, so nothing changes
    world.commit(ev.Unsubscribed("Bob", "general", "asked"))
    world.commit(ev.Unsubscribed("Cy", "memory", "asked"))
    found = life_of(pairs(world), seq)
    assert [(row["as"], row["subscribed"], row["outcome"]["what"]) for row in found["readers"]] == [
        ("Bob", True, "unsubscribed"),
        ("Cy", True, "unread"),
        ("Dan", False, "unread"),
    ]
    world.commit(ev.Subscribed("Bob", "general", 2))
    handed = deliver(world, "Bob", "t1", general=seq)
    row = readers(life_of(pairs(world), seq))["Bob"]
    assert ([each["seq"] for each in row["delivered"]], row["outcome"]["what"]) == ([handed], "handed_out")


def test_a_person_may_acknowledge_for_somebody_who_will_not_come_back() -> None:
    world = joined()
    seq = world.post("Ann")
    world.commit(ev.AckedAll("Bob", seq, "root"))  # before it
    world.commit(ev.AckedAll("Cy", seq + 1, "root"))
    world.commit(ev.AckedAll("Ann", seq + 1, "root"))
    found = life_of(pairs(world), seq)
    assert outcome(found, "Bob") == "unread"
    assert readers(found)["Cy"]["outcome"]["by"] == "root"


def test_replies_and_edits_are_told_and_what_was_replaced_is_handed_to_nobody() -> None:
    world = joined()
    memory = world.post("Ann", "memory", "fact")
    deliver(world, "Bob", "t1", memory=memory)
    edit = world.edit("Bob", memory, "better")
    deliver(world, "Cy", "t2", memory=memory)
    reply = world.post("Ann", reply_to=edit)
    world.post("Ann", reply_to=world.post("Ann"))
    world.commit(ev.Acked("Bob", "t1"))
    deleted = world.delete("Ann", memory)
    found = life_of(pairs(world), memory)
    assert (found["memory_id"], found["revision"]) == (memory, 1)
    assert [(row["seq"], row.get("revision"), row.get("deleted")) for row in found["edits"]] == [
        (edit, 2, None),
        (deleted, None, True),
    ]
    assert [row["seq"] for row in found["replies"]] == [reply]
    assert (outcome(found, "Bob"), outcome(found, "Cy")) == ("acked", "replaced")
    assert found["end"]["what"] == "replaced"
    later = life_of(pairs(world), edit)
    assert (later["type"], later["channel"], later["memory_id"], later["revision"]) == (
        "memory_edited",
        "memory",
        memory,
        2,
    )
    assert (later["end"]["what"], [row["seq"] for row in later["replies"]]) == ("deleted", [reply])


def test_eviction_and_reset_end_it() -> None:
    world = joined()
    seq = world.post("Ann")
    deliver(world, "Bob", "t1", general=seq)
    world.commit(ev.Evicted("memory", seq + 1))
    world.commit(ev.Evicted("general", seq))
    evicted = world.commit(ev.Evicted("general", seq + 1))
    found = life_of(pairs(world), seq)
    assert (outcome(found, "Bob"), outcome(found, "Cy")) == ("handed_out", "evicted")
    assert found["end"] == {"seq": evicted, "time": world.lines[evicted][0], "what": "evicted"}
    world.commit(ev.Reset("root"))
    world.commit(ev.Subscribed("Bob", "general", 0))
    world.commit(ev.AckedAll("Bob", seq + 1, "root"))
    found = life_of(pairs(world), seq)
    assert (outcome(found, "Bob"), outcome(found, "Cy"), found["end"]["what"]) == ("reset", "evicted", "evicted")


def test_only_the_readers_that_were_asked_for_are_told() -> None:
    world = joined()
    seq = world.post("Ann")
    found = life_of(pairs(world), seq, identities=frozenset({"Cy"}))
    assert ([row["as"] for row in found["readers"]], found["only"]) == (["Cy"], ["Cy"])


def test_what_is_no_message_has_no_life() -> None:
    world = joined()
    life = Life(3, Selection())
    witness(pairs(world), life)
    assert life.found is None
    life = Life(99, Selection())
    witness(pairs(world), life)
    assert life.found is None


def test_an_edit_of_a_memory_that_was_lost_is_told_without_its_channel() -> None:
    world = joined()
    world.commit(
        ev.Lost(first=world.state.last_seq + 1, last=world.state.last_seq + 1, bytes=1, next_prev=None, reason="damage")
    )
    edit = world.commit(ev.MemoryEdited(as_="Ann", id=3, content="x", context="work", replaces=1))
    world.commit(ev.Active("Bob"))
    found = life_of(pairs(world), edit)
    assert (found["channel"], found["readers"], found["addressed"]) == ("", [], [])


def test_without_the_journals_beginning_deliveries_are_told_all_the_same() -> None:
    world = joined()
    world.channel("reviews")
    world.commit(ev.Subscribed("Bob", "reviews", 2), ev.Subscribed("Cy", "reviews", 2))
    begin = len(world.lines)
    seq = world.post("Ann", "reviews")
    handed = deliver(world, "Bob", "t1", reviews=seq)
    world.commit(ev.Acked("Bob", "t1"))
    found = life_of(pairs(world)[begin:], seq)
    assert [(row["as"], row["subscribed"], row["outcome"]["what"]) for row in found["readers"]] == [
        ("Bob", False, "acked")
    ]
    assert [each["seq"] for each in readers(found)["Bob"]["delivered"]] == [handed]


@given(steps)
def test_what_a_receive_answered_is_what_is_told_later(path: list[Step]) -> None:
    world, answered = begun(), {}
    for step in path:
        seq = world.state.last_seq
        result: ReceiveResult | None = walk(world, step)
        if isinstance(step, Take) and result is not None and world.state.last_seq > seq and result.token:
            answered[step.who, result.token] = (world.state.last_seq, {each for each, _ in result.messages})
    found = pairs(world)
    posted = [
        commit.seq
        for commit, events in found
        if any(isinstance(event, ev.Posted | ev.MemoryEdited) for event in events)
    ]
    for seq in posted:
        told = {
            (row["as"], each["token"]): each["seq"]
            for row in life_of(found, seq)["readers"]
            for each in row["delivered"]
        }
        assert told == {key: at for key, (at, messages) in answered.items() if seq in messages}


# in words


def words(found: Record) -> list[str]:
    return list(telling.tell_life(found, lambda text: text[11:19]))


def test_a_life_reads_as_a_story() -> None:
    world = joined()
    seq = world.post(
        "Ann", content="@Bob one\n\x1b[2Jtwo", label="a b", metadata={"k": "v"}, key="k1", reply_to=world.post("Bob")
    )
    deliver(world, "Bob", "t1", general=seq)
    world.commit(ev.Acked("Bob", "t1"))
    reply = world.post("Bob", content="yes\nno", reply_to=seq)
    world.commit(ev.Evicted("general", seq + 1))
    assert words(life_of(pairs(world), seq)) == [
        f"seq {seq}  08:00:07  posted on general by Ann",
        "  from: work, process 4711",
        f"  in reply to: {seq - 1}",
        "  addressed to: Bob",
        '  label: "a b"',
        "  key: k1",
        "  metadata: k=v",
        "  | @Bob one",
        "  | \\x1b[2Jtwo",
        "",
        "subscribed then: Bob, Cy (not live)",
        f"  Bob  handed out seq {seq + 1} 08:00:08, 1.0 s after; acknowledged seq {seq + 2} 08:00:09, 1.0 s after",
        f"  Cy   never handed out: too old to be shown seq {reply + 1} 08:00:11",
        "replies:",
        f"  seq {reply}  08:00:10  Bob on general: yes\\nno",
        f"gone since seq {reply + 1} 08:00:11: too old to be shown",
        f"told from the journal up to seq {reply + 1}; a batch handed out again before its ack is not journaled",
    ]


def test_every_way_it_can_end_has_words() -> None:
    world = joined()
    memory = world.post("Ann", "memory")
    for identity in ("Dan", "Eve", "Fay"):
        world.commit(ev.Subscribed(identity, "memory", 2))
    deliver(world, "Dan", "t1", memory=memory)
    world.commit(ev.Unsubscribed("Eve", "memory", "expired"))
    world.commit(ev.AckedAll("Fay", memory + 1, "root"))
    deliver(world, "Bob", "t2", memory=memory)
    world.commit(ev.Unsubscribed("Bob", "memory", "asked"))
    world.commit(ev.Subscribed("Bob", "memory", 2))
    told = "\n".join(words(life_of(pairs(world), memory)))
    for part in (
        "Cy   not handed out, so unread",
        "Dan  subscribed later; handed out seq",
        "after; not acknowledged",
        "Eve  subscribed later; never handed out: unsubscribed (expired) seq",
        "Fay  subscribed later; acknowledged for it by root seq",
        "after; not handed out again, so unread",
        "later edits: none",
        f"memory: {memory}, revision 1",
    ):
        assert part in told
    edit = world.edit("Bob", memory, "new")
    assert f"edited memory {memory} on memory by Bob" in words(life_of(pairs(world), edit))[0]
    told = "\n".join(words(life_of(pairs(world), memory)))
    assert "Cy   never handed out: replaced by Bob seq" in told
    assert "Bob revision 2: new" in told
    world.delete("Ann", memory)
    assert "Ann: deleted it" in "\n".join(words(life_of(pairs(world), memory)))
    assert "deleted by Ann" in "\n".join(words(life_of(pairs(world), edit)))
    world.commit(ev.Reset("root"))
    assert "the bus was reset by root" in "\n".join(words(life_of(pairs(world), memory)))


def test_nobody_is_called_nobody() -> None:
    world = World()
    world.register("Ann", "general")
    seq = world.post("Ann")
    assert "subscribed then: nobody else" in words(life_of(pairs(world), seq))
    only = life_of(pairs(world), seq, identities=frozenset({"Bob"}))
    assert "subscribed then: none of those asked for" in words(only)
