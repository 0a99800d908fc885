"""Which events an auditor's filters let through, and which of them are a thread."""

from __future__ import annotations

import re

import msgspec
import pytest

from agentbus import events as ev
from agentbus.audit.selection import Selection, Sieve
from agentbus.audit.threads import Roots, Threads
from agentbus.audit.threads import Threads as Members
from journal import format_time
from tests.agentbus.auditing import pairs, wanted
from tests.agentbus.building import World

POSTED, EDITED, DELETED = "posted", "memory_edited", "memory_deleted"


@pytest.fixture
def world() -> World:
    """Ann, her subagent and Bob on two ordinary channels and one for memories."""
    made = World()
    made.channel("reviews")  # 3
    made.register("Ann", "general", "memory")  # 4
    made.register("Ann/sub", "reviews")  # 5
    made.register("Bob", "general", "reviews")  # 6
    made.post("Ann", content="first\nsecond line", label="question", metadata={"ticket": "POL-1"})  # 7
    made.post("Bob", "memory", "a fact")  # 8
    made.edit("Ann", 8, "a better fact")  # 9
    made.commit(ev.Delivered("Bob", "t1", {"general": 7}, False, gaps=[ev.Gap("reviews", 1, 2, cause="damage")]))  # 10
    made.commit(ev.Acked("Bob", "t1"))  # 11
    made.commit(ev.AckedAll("Ann/sub", 8, "Bob"))  # 12
    made.delete("Bob", 8)  # 13
    made.commit(ev.Unsubscribed("Bob", "reviews", "asked"))  # 14
    made.commit(ev.AckedAll("Bob", 8, "Ann"))  # 15
    made.commit(ev.Reset("Ann"))  # 16
    return made


def seqs(world: World, selection: Selection) -> list[int]:
    return [seq for seq, _ in wanted(world, selection)]


def test_an_empty_selection_lets_everything_through(world: World) -> None:
    assert len(wanted(world, Selection())) == sum(len(events) for _, events in pairs(world))


def test_a_channel_has_what_names_it_and_the_batches_and_the_edits_that_are_about_it(world: World) -> None:
    assert wanted(world, Selection(channels=frozenset({"memory"}))) == [
        (2, "channel_created"),
        (4, "subscribed"),
        (8, POSTED),
        (9, EDITED),
        (13, DELETED),
    ]
    assert wanted(world, Selection(channels=frozenset({"reviews"}))) == [
        (3, "channel_created"),
        (5, "subscribed"),
        (6, "subscribed"),
        (10, "delivered"),  # told of a gap there
        (11, "acked"),
        (12, "acked_all"),
        (14, "unsubscribed"),
    ]


def test_an_ack_belongs_to_the_channels_of_its_own_batch_only() -> None:
    world = World()
    world.register("Bob", "general")
    world.commit(ev.Delivered("Bob", "t1", {"general": 2}, False))
    acked = Sieve(Selection(channels=frozenset({"general"})))
    found = [(commit, events) for commit, events in pairs(world)]
    for commit, events in found:
        acked.wanted(commit, events)
    other = msgspec.structs.replace(found[-1][0], seq=9)
    assert acked.wanted(other, [ev.Acked("Bob", "another")]) == ()
    assert acked.wanted(other, [ev.Acked("Bob", "t1")]) == (), "its batch is gone"


def test_a_batch_belongs_to_the_channel_of_an_expired_subscription(world: World) -> None:
    world.commit(ev.Delivered("Bob", "t2", {}, False, expired=[ev.Expired("old", 3)]))
    assert seqs(world, Selection(channels=frozenset({"old"}))) == [17]


def test_an_identity_has_its_acts_and_those_done_to_it(world: World) -> None:
    assert seqs(world, Selection(identities=frozenset({"Ann"}), types=frozenset({"acked_all", "reset"}))) == [15, 16]
    assert seqs(world, Selection(identities=frozenset({"Ann/sub"}))) == [5, 5, 12]
    assert seqs(world, Selection(identities=frozenset({"Ann"}), children=True, types=frozenset({"registered"}))) == [
        4,
        5,
    ]
    assert seqs(world, Selection(identities=frozenset({"An"}), children=True)) == []


def test_software_that_opened_a_segment_is_no_identity() -> None:
    world = World()
    world.commit(ev.SegmentOpened(format=1, journal="j", prev="0" * 64, by="Ann"))
    assert seqs(world, Selection(identities=frozenset({"Ann"}))) == []


def test_filters_are_combined_and_alternatives_of_one_are_not(world: World) -> None:
    both = frozenset({POSTED, EDITED})
    assert seqs(world, Selection(types=both)) == [7, 8, 9]
    assert seqs(world, Selection(types=both, identities=frozenset({"Ann"}))) == [7, 9]
    assert seqs(world, Selection(types=both, channels=frozenset({"general", "memory"}), from_seq=8)) == [8, 9]


def test_both_ends_of_a_range_are_inside(world: World) -> None:
    assert set(seqs(world, Selection(from_seq=8, to_seq=9))) == {8, 9}
    times = {seq: time for seq, (time, _) in world.lines.items()}
    assert set(seqs(world, Selection(since=times[8], until=times[9]))) == {8, 9}
    later = format_time(world.now_ms)
    assert seqs(world, Selection(since=later)) == []


def test_a_lost_line_lies_in_the_range_of_what_it_stands_for(world: World) -> None:
    world.commit(ev.Lost(first=17, last=20, bytes=1, next_prev=None, reason="damage"))
    assert seqs(world, Selection(from_seq=19)) == [17]
    assert seqs(world, Selection(from_seq=21)) == []


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("^second", [7]),
        ("POL-1", [7]),
        ("ticket", [7]),
        ("question", [7]),
        ("better", [9]),
        ("^t1$", [10, 11]),
        ("damage", [10]),
        ("posted", []),  # a type is no text
        ("(?i)BETTER", [9]),
    ],
)
def test_a_pattern_is_looked_for_in_every_text_of_an_event(world: World, pattern: str, found: list[int]) -> None:
    assert seqs(world, Selection(patterns=(re.compile(pattern, re.MULTILINE),))) == found


def test_one_of_two_patterns_is_enough(world: World) -> None:
    assert seqs(world, Selection(patterns=(re.compile("POL-1"), re.compile("better")))) == [7, 9]


def test_a_branch_goes_on_from_what_was_known_there(world: World) -> None:
    sieve = Sieve(Selection(channels=frozenset({"reviews"})))
    found = pairs(world)
    for commit, events in found[:10]:
        sieve.wanted(commit, events)
    branch = sieve.branch()
    rest = [[list(each.wanted(*pair)) for pair in found[10:]] for each in (branch, sieve)]
    assert rest[0] == rest[1] == [[0], [0], [], [0], [], []]


# threads


def thread_of(world: World, seq: int) -> list[int]:
    roots = Roots()
    messages = {commit.seq for commit, events in pairs(world) if roots.note(commit.seq, events)}
    assert seq in messages
    return seqs_of(world, Threads([roots.root(seq)]))


def seqs_of(world: World, threads: Members) -> list[int]:
    return [seq for seq, _ in wanted(world, Selection(threads=frozenset({1})), threads)]


def test_a_thread_is_the_same_from_any_of_its_messages() -> None:
    world = World()
    world.register("Ann", "general")
    root = world.post("Ann")
    other = world.post("Ann")
    reply = world.post("Ann", reply_to=root)
    deep = world.post("Ann", reply_to=reply)
    aside = world.post("Ann", reply_to=other)
    for seq in (root, reply, deep):
        assert thread_of(world, seq) == [root, reply, deep]
    assert thread_of(world, aside) == [other, aside]


def test_edits_of_a_memory_are_of_its_thread_and_so_is_a_reply_to_one_of_them() -> None:
    world = World()
    world.register("Ann", "memory")
    memory = world.post("Ann", "memory")
    edit = world.edit("Ann", memory)
    reply = world.post("Ann", reply_to=edit)
    deleted = world.delete("Ann", memory)
    for seq in (memory, edit, reply):
        assert thread_of(world, seq) == [memory, edit, reply, deleted]


def test_what_is_no_message_is_of_no_thread() -> None:
    roots = Roots()
    assert not roots.note(3, [ev.Active("Ann")])
    assert not Threads([3]).holds(3, ev.Active("Ann"))


def test_replies_in_circles_that_no_bus_wrote_end() -> None:
    roots = Roots()
    for seq, reply_to in ((3, 5), (4, 3), (5, 5), (6, 5)):
        assert roots.note(seq, [ev.Posted(as_="Ann", channel="general", content="x", context="c", reply_to=reply_to)])
    assert [roots.root(seq) for seq in (3, 4, 5, 6)] == [3, 3, 5, 5]
