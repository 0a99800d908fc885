"""States at a point, inboxes, differences and totals, as the journal tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

from agentbus import events as ev
from agentbus import queries
from agentbus.audit import difference, inbox, late, telling
from agentbus.audit.points import END, Point, Shot
from agentbus.audit.selection import Selection, Sieve
from agentbus.audit.totals import Totals
from agentbus.commands import Receive
from agentbus.names import AgentName
from agentbus.state import ALWAYS_MS
from journal import format_time
from tests.agentbus.auditing import pairs, witness
from tests.agentbus.building import MINE, START_MS, World
from tests.agentbus.wandering import Step, begun, steps, walk

if TYPE_CHECKING:
    from agentbus.state import State

Record = dict[str, Any]


def clock(text: str) -> str:
    return text


def last_seq(state: State) -> int:
    return state.last_seq


# points


def asked_at(world: World, point: Point) -> int | None:
    shot = Shot(point, last_seq)
    witness(pairs(world), shot)
    return None if shot.taken is None else shot.taken.answer


@given(steps)
def test_a_state_at_any_seq_is_the_one_there_was_then(path: list[Step]) -> None:
    world = begun()
    then = {world.state.last_seq: world.canonical()}
    for step in path:
        walk(world, step)
        then[world.state.last_seq] = world.canonical()
    shots = {seq: Shot(Point(seq=seq), queries.encode_canonical) for seq in then}
    witness(pairs(world), *shots.values())
    assert {seq: shot.taken and shot.taken.answer for seq, shot in shots.items()} == then


def test_the_end_is_a_point_too_and_one_before_everything_is_none() -> None:
    world = World()
    assert asked_at(world, END) == 2
    assert asked_at(world, Point(time=format_time(START_MS - 1))) is None
    assert asked_at(world, Point(seq=99)) == 2  # whoever asked sees that this is not what was asked


def test_as_of_a_time_means_after_the_last_commit_at_or_before_it_though_clocks_step_back() -> None:
    world = World()  # 1 at 0 s, 2 at 1 s
    for second in (5, 3, 9, 4, 8):  # 3 to 7
        world.now_ms = START_MS + second * 1000
        world.commit(ev.Active("Ann"))
    for second, seq in ((0, 1), (1, 2), (2, 2), (3, 4), (4, 6), (5, 6), (7, 6), (8, 7), (9, 7)):
        assert asked_at(world, Point(time=format_time(START_MS + second * 1000))) == seq, second


def test_nothing_more_is_needed_after_a_seq_and_everything_is_for_a_time() -> None:
    assert Shot(Point(seq=5), last_seq).is_done(5)
    assert not Shot(Point(seq=5), last_seq).is_done(4)
    assert not Shot(Point(time="2026"), last_seq).is_done(99)
    assert not Shot(END, last_seq).is_done(99)


# a beginning that is missing


def test_a_late_state_knows_what_its_events_prove() -> None:
    state = late.begin(7)
    late.admit(state, [ev.Delivered("Bob", "t", {"reviews": 9}, False), ev.Active("Ann")], 7)
    assert state.subscriptions["Bob"]["reviews"].cursor == 6
    assert sorted(state.channels) == ["general", "memory", "reviews"]
    assert late.begin(1).channels == {}


# inboxes


def inbox_of(world: World, identity: str, horizon_ms: int = ALWAYS_MS) -> Record:
    shot = Shot(END, lambda state: inbox.unread(state, identity, horizon_ms))
    witness(pairs(world), shot)
    assert shot.taken is not None
    found = shot.taken.answer
    for row in found["messages"]:
        inbox.fill(row, world.lines[row["seq"]][1])
    return found


def busy() -> World:
    world = World()
    for identity in ("Ann", "Bob"):
        world.register(identity, "general", "memory")
    world.post("Ann", content="one")  # 5
    world.post("Ann", content="@Bob two", label="l", metadata={"k": "v"}, reply_to=5)  # 6
    world.post("Bob", content="own")  # 7
    world.post("Ann", "memory", "fact")  # 8
    world.edit("Ann", 8, "better fact")  # 9
    return world


def test_an_inbox_has_what_lies_above_the_cursors_with_its_texts() -> None:
    world = busy()
    world.run(Receive(as_=AgentName("Bob"), count=1))
    found = inbox_of(world, "Bob")
    assert (found["as"], found["seq"], found["live"], found["batch"]) == ("Bob", 10, True, "token9")
    assert found["channels"] == [
        {"channel": "general", "cursor": 3, "unread": 2, "over_age": 0},
        {"channel": "memory", "cursor": 3, "unread": 1, "over_age": 0},
    ]
    assert [(row["seq"], row["handed_out"], row["addressed"], row["content"]) for row in found["messages"]] == [
        (5, True, False, "one"),
        (6, False, True, "@Bob two"),
        (9, False, False, "better fact"),
    ]
    assert (found["messages"][1]["label"], found["messages"][1]["reply_to"]) == ("l", 5)
    assert (found["messages"][2]["memory_id"], found["messages"][2]["revision"]) == (8, 2)
    assert sum(row["unread"] for row in found["channels"]) == len(found["messages"])


def test_a_line_may_begin_with_an_eviction() -> None:
    world = World()
    world.register("Bob", "general")
    posted = ev.Posted(as_="Ann", channel="general", content="hello", context="work")
    world.commit(ev.Evicted("general", 1), posted)
    assert [row["content"] for row in inbox_of(world, "Bob")["messages"]] == ["hello"]


def test_an_inbox_reads_line_by_line() -> None:
    world = busy()
    world.run(Receive(as_=AgentName("Bob"), count=1))
    world.commit(ev.Evicted("general", 7))
    world.commit(ev.Ended("Bob", "a1" * 12, "exit"))
    found = inbox_of(world, "Bob")
    assert list(telling.tell_inbox(found, lambda text: text[11:19])) == [
        "Bob after seq 12, which had no session then",
        "  general  0 unread  acknowledged up to 3",
        "  memory   1 unread  acknowledged up to 3",
        "  handed out and not acknowledged: batch token9",
        "  not yet told of a gap: general 6 to 6",
        "seq 9  08:00:08  Ann on memory: better fact",
    ]
    found["messages"] = []
    assert "  0 of 1 unread messages shown" in list(telling.tell_inbox(found, clock))
    world.commit(ev.Registered(as_="Cy", owner="a1" * 12, name="Cy", context="work"))
    assert list(telling.tell_inbox(inbox_of(world, "Cy"), clock)) == ["Cy after seq 13", "  subscribed to nothing"]


def test_what_was_over_age_is_told_apart() -> None:
    found = inbox_of(busy(), "Bob", START_MS + 4500)
    assert found["channels"] == [
        {"channel": "general", "cursor": 3, "unread": 2, "over_age": 1},
        {"channel": "memory", "cursor": 3, "unread": 1, "over_age": 0},
    ]
    assert [(row["seq"], row["over_age"]) for row in found["messages"]] == [(5, True), (6, False), (9, False)]
    kept = "older than 168 h (message_retention_hours, which no journal tells)"
    assert list(telling.tell_inbox(found | {"retention_hours": 168}, lambda text: text[11:19]))[1:5] == [
        "  general  2 unread, 1 of them over age  acknowledged up to 3",
        "  memory   1 unread                      acknowledged up to 3",
        f"  over age: {kept}, so not handed out any more, though not evicted yet",
        "seq 5  08:00:04  Ann on general, over age: one",
    ]


def test_an_identity_is_known_until_a_reset() -> None:
    world = busy()
    assert inbox.is_known(world.state, "Bob")
    assert not inbox.is_known(world.state, "Bo")
    world.commit(ev.Reset("Ann"))
    assert not inbox.is_known(world.state, "Bob")


# differences


def changed(world: World, since: int, **only: Any) -> Record:  # noqa: ANN401  # fields of a selection
    shots = [Shot(point, queries.canonical) for point in (Point(seq=since), END)]
    witness(pairs(world), *shots)
    before, after = (shot.taken.answer for shot in shots if shot.taken is not None)
    return difference.changes(before, after, Selection(**only))


def test_what_came_what_went_and_what_is_another_are_told_apart() -> None:
    world = busy()
    world.commit(ev.Ended("Ann", "a1" * 12, "exit"))
    world.commit(ev.Unsubscribed("Ann", "general", "asked"))
    world.commit(ev.Registered(as_="A b", owner="a1" * 12, name="A b", context="work"))
    world.run(Receive(as_=AgentName("Bob"), count=9))
    found = changed(world, 6)
    assert list(telling.tell_changes(found)) == [
        "from seq 6 to seq 13",
        "~ channel general: last_seq 6 -> 7, messages 2 -> 3",
        "~ channel memory: last_seq 0 -> 9, messages 0 -> 1",
        f'+ session "A b": name "A b", owner {MINE}, context work, registered_at "2026-09-09T08:00:11.000Z"',
        f'- session Ann: name Ann, owner {MINE}, context work, registered_at "2026-09-09T08:00:02.000Z"',
        "- subscription of Ann to general: cursor 2, unread 0",
        "~ subscription of Bob to memory: unread 0 -> 1",
        "+ pending batch of Bob: token token12, ends general:7 memory:9",
        "+ memory 8: channel memory, seq 9, revision 2, from Ann",
    ]


def test_nothing_changed_is_said() -> None:
    found = changed(busy(), 9)
    assert list(telling.tell_changes(found)) == ["from seq 9 to seq 9", "nothing changed"]


def test_a_field_that_came_or_went_with_its_row_staying_is_none_on_the_other_side() -> None:
    world = World()
    world.register("Ann")
    world.register("Ann/x")
    since = world.state.last_seq
    world.commit(ev.Ended("Ann/x", "a1" * 12, "exit"))
    world.commit(ev.Registered(as_="Ann/x", owner="b2" * 12, name="x", context="work"))
    (line,) = list(telling.tell_changes(changed(world, since)))[1:]
    assert line.startswith("~ session Ann/x: owner a1a1a1")
    assert line.endswith('parent Ann -> none, registered_at "2026-09-09T08:00:03.000Z" -> "2026-09-09T08:00:05.000Z"')


def test_a_batch_without_messages_ends_nowhere() -> None:
    world = busy()
    world.commit(ev.Delivered("Bob", "t", {}, False, gaps=[ev.Gap("general", 1, 2)]))
    assert "+ pending batch of Bob: token t, ends nothing" in list(telling.tell_changes(changed(world, 9)))


def test_differences_may_be_of_some_channels_and_identities_only() -> None:
    world = busy()
    world.run(Receive(as_=AgentName("Bob"), count=9))
    of_memory = changed(world, 4, channels=frozenset({"memory"}))
    assert [len(of_memory["channels"]["changed"]), len(of_memory["sessions"]["added"])] == [1, 0]
    assert len(of_memory["batches"]["added"]) == 1
    of_ann = changed(world, 4, identities=frozenset({"Ann"}))
    assert (of_ann["channels"]["changed"], of_ann["batches"]["added"]) == ([], [])
    assert [row["id"] for row in of_ann["memories"]["added"]] == [8]


# totals


def totals(world: World, **only: Any) -> Record:  # noqa: ANN401  # fields of a selection
    counted = Totals(Sieve(Selection(**only)))
    witness(pairs(world), counted)
    return counted.found


def told() -> World:
    """Bob reads after 2 s and acknowledges after 3 s more; then a gap, a lost line, and something unread."""
    world = busy()  # 3 to 9, of which Bob may read 5, 6 and 9
    world.now_ms += 2000
    world.run(Receive(as_=AgentName("Bob"), count=9))  # 10
    world.now_ms += 2000
    world.commit(ev.Acked("Bob", "token9"))  # 11
    gaps = [ev.Gap("general", 1, 3, 3, "retention"), ev.Gap("general", 4, 5, cause="damage")]
    world.commit(ev.Delivered("Bob", "t2", {}, False, gaps=gaps))  # 12
    world.commit(ev.Lost(first=13, last=14, bytes=1, next_prev=None, reason="damage"))  # 13 to 14
    world.post("Ann", content="late")  # 15
    return world


def test_totals_count_events_by_whom_where_when_and_what() -> None:
    found = totals(told())
    assert (found["commits"], found["first_seq"], found["last_seq"]) == (14, 1, 15)
    assert found["events"] == sum(row["events"] for row in found["types"]) == 19
    assert {"type": "posted", "events": 5} in found["types"]
    assert found["identities"] == [
        {"as": "Ann", "events": 8, "messages": 5, "handed_out": 0, "acks": 0},
        {"as": "Bob", "events": 7, "messages": 1, "handed_out": 3, "acks": 1},
    ]
    assert found["channels"] == [
        {"channel": "general", "events": 10, "messages": 4, "handed_out": 2},
        {"channel": "memory", "events": 7, "messages": 2, "handed_out": 1},
    ]
    assert found["hours"] == [{"hour": "2026-09-09T08:00:00.000Z", "events": 19, "messages": 6}]


@pytest.mark.parametrize("channel", ["general", "memory"])
def test_a_channel_has_the_events_that_its_filter_lets_through(channel: str) -> None:
    world = told()
    world.edit("Bob", 8)
    world.commit(ev.AckedAll("Bob", 17, "Ann"))
    found = totals(world, channels=frozenset({channel}))
    assert [(row["channel"], row["events"]) for row in found["channels"]] == [(channel, found["events"])]
    assert {"type": "acked_all", "events": 1} in found["types"]


def test_latency_backlog_gaps_and_losses_are_counted() -> None:
    found = totals(told())
    assert found["delivery_ms"] == {"count": 3, "p50": 6000, "p95": 7000, "max": 7000}
    assert found["ack_ms"] == {"count": 1, "p50": 3000, "p95": 3000, "max": 3000}
    assert found["backlog"] == [
        {"as": "Ann", "channel": "general", "unread": 1},
        {"as": "Bob", "channel": "general", "unread": 1},
    ]
    assert found["backlog_seq"] == 15
    assert found["gaps"] == {"told": 2, "messages": 3}
    assert found["lost"] == [{"first": 13, "last": 14, "reason": "damage"}]


def test_totals_obey_filters_and_stop_where_the_range_ends() -> None:
    of_memory = totals(told(), channels=frozenset({"memory"}))
    assert [row["channel"] for row in of_memory["channels"]] == ["memory"]
    assert (of_memory["delivery_ms"]["count"], of_memory["backlog"]) == (1, [])
    of_bob = totals(told(), identities=frozenset({"Bob"}), to_seq=10)
    assert [row["as"] for row in of_bob["identities"]] == ["Bob"]
    assert (of_bob["delivery_ms"]["count"], of_bob["ack_ms"]["count"]) == (3, 0)
    assert [row["as"] for row in of_bob["backlog"]] == ["Bob", "Bob"]
    assert of_bob["backlog_seq"] == 10
    then = told().lines[8][0]
    assert totals(told(), until=then)["backlog_seq"] == 8
    assert Totals(Sieve(Selection(to_seq=10))).is_done(10)
    of_ann = totals(told(), identities=frozenset({"Ann"}))
    assert (of_ann["delivery_ms"]["count"], of_ann["ack_ms"]["count"]) == (0, 0)


def test_a_reset_forgets_what_was_handed_out_and_orphans_are_of_no_channel() -> None:
    world = told()
    world.run(Receive(as_=AgentName("Bob"), count=9, ack="t2"))
    world.commit(ev.Reset("Ann"))
    world.commit(ev.MemoryDeleted(as_="Ann", id=8, replaces=2))
    world.commit(ev.Acked("Bob", "token15"))
    found = totals(world)
    assert found["ack_ms"]["count"] == 2
    assert {"type": "memory_deleted", "events": 1} in found["types"]
    world.commit(ev.Delivered("Bob", "t9", {"gone": 3}, False))
    assert totals(world)["delivery_ms"]["count"] == 4


def test_an_ack_of_nothing_known_is_counted_and_not_timed() -> None:
    world = told()
    world.commit(ev.Acked("Ann", "t7"))
    assert totals(world)["ack_ms"]["count"] == 1


def test_totals_read_as_tables() -> None:
    lines = list(telling.tell_totals(totals(told()), lambda text: text[:19].replace("T", " ")))
    assert lines[0] == "19 events in 14 commits, seq 1 to 15, 2026-09-09 08:00:00 to 2026-09-09 08:00:17"
    for line in (
        "identities  events  messages  handed out  acks",
        "  Bob       7       1         3           1",
        "  2026-09-09 08:00  19      6",
        "posted to handed out        3      6.0 s  7.0 s  7.0 s",
        "backlog after seq 15:",
        "  Bob  general  1 unread",
        "gaps told: 2, of 3 messages as far as that is known",
        "lost: seq 13 to 14 (damage)",
    ):
        assert line in lines


def test_totals_of_nothing_say_so() -> None:
    assert list(telling.tell_totals(totals(told(), identities=frozenset({"Cy"})), clock)) == ["nothing matches"]
    lines = list(telling.tell_totals(totals(World(), types=frozenset({"segment_opened"})), clock))
    for line in ("identities: none", "backlog after seq 2: none", "gaps told: none", "lost: nothing"):
        assert line in lines
    assert "posted to handed out        0      -    -    -" in lines


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (119_999, "120.0 s"),
        (120_000, "2 min"),
        (7_199_999, "119 min"),
        (7_200_000, "2.0 h"),
        (172_799_999, "48.0 h"),
        (172_800_000, "2 days"),
    ],
)
def test_spans_are_told_in_the_unit_that_suits(ms: int, text: str) -> None:
    assert telling.render_span(ms) == text
