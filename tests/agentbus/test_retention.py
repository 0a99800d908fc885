"""Retention: what is over age is shown to nobody at once, evicted by the next line, and told to those who miss it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agentbus import commands as cmd
from agentbus import events as ev
from agentbus import limits, queries, snapshot
from agentbus.decide import retention
from agentbus.errors import BusError
from agentbus.names import AgentName, ChannelName
from agentbus.state import ALWAYS_MS, NEVER_MS, hidden_through, is_hidden
from tests.agentbus.building import HOUR_MS, MINUTE_MS, POLICY, World

if TYPE_CHECKING:
    from agentbus.commands import Receive, ReceiveResult

AGE_MS = 168 * HOUR_MS
DAY_MS = 24 * HOUR_MS
SAM, TOM = AgentName("Sam"), AgentName("Tom")
GENERAL = ChannelName("general")


@pytest.fixture
def world() -> World:
    """Sam and Tom on general and memory; the idle clock runs for ever."""
    made = World()
    for name in (SAM, TOM):
        made.register(name, "general", "memory")
    return made


PATIENT = msgspec.structs.replace(POLICY, cursor_idle_ms=1 << 60)


def run(world: World, command: cmd.Command[Any]) -> Any:  # noqa: ANN401  # the command's result
    return world.run(command, policy=PATIENT)


def receive(as_: AgentName = TOM, **fields: Any) -> Receive:  # noqa: ANN401  # of Receive
    return cmd.Receive(**{"as_": as_, "count": 100, **fields})


def said(as_: AgentName = SAM, content: str = "new", **fields: Any) -> cmd.Post:  # noqa: ANN401  # of Post
    return cmd.Post(as_=as_, channel=GENERAL, content=content, **fields)


def evicted(world: World) -> list[tuple[int, str, int]]:
    """(seq, channel, before) of every eviction."""
    return [
        (seq, event.channel, event.before)
        for seq, (_, events) in world.lines.items()
        for event in events
        if isinstance(event, ev.Evicted)
    ]


def seqs(result: ReceiveResult) -> list[int]:
    return [seq for seq, _ in result.messages]


def gaps(result: ReceiveResult) -> list[tuple[str, int, int, Any, str]]:
    return [(gap.channel, gap.from_, gap.to, gap.count, gap.cause) for gap in result.gaps]


# --- what is over age


def test_a_message_is_over_age_an_instant_after_its_time_and_memories_never_are(world: World) -> None:
    world.now_ms = at = world.now_ms + HOUR_MS
    seq, memory = world.post(SAM), world.post(SAM, "memory")
    general = world.state.channels["general"]
    assert hidden_through(general, at) == 0
    assert hidden_through(general, at + 1) == seq
    assert hidden_through(world.state.channels["memory"], NEVER_MS) == 0
    assert not is_hidden(world.state, seq, at)
    assert is_hidden(world.state, seq, at + 1)
    assert is_hidden(world.state, 999, ALWAYS_MS)
    edited = world.edit(SAM, memory)
    assert not is_hidden(world.state, memory, NEVER_MS)
    assert not is_hidden(world.state, edited, NEVER_MS)


def test_a_message_stamped_by_a_clock_that_was_set_back_is_not_older_than_those_before_it(world: World) -> None:
    old = world.post(SAM)
    at = world.now_ms
    fresh = world.post(SAM)
    world.now_ms = at - 300 * DAY_MS
    back = world.post(SAM)
    general = world.state.channels["general"]
    assert hidden_through(general, at) == old
    assert hidden_through(general, at + 1) == back
    assert [general.retained.times[index] for index in range(3)] != sorted(general.retained.times)
    world.now_ms = at + MINUTE_MS
    assert run(world, receive()).messages == ((old, "general"), (fresh, "general"), (back, "general"))


def test_a_message_from_the_future_is_not_over_age(world: World) -> None:
    world.now_ms += 300 * DAY_MS
    ahead = world.post(SAM)
    world.now_ms -= 300 * DAY_MS
    assert seqs(run(world, receive())) == [ahead]
    assert evicted(world) == []


# --- when it is evicted


def test_the_next_line_evicts_in_every_channel_in_front_of_its_own_events_and_a_look_writes_nothing(
    world: World,
) -> None:
    world.channel("other")
    first, other = world.post(SAM), world.post(SAM, "other")
    kept = world.post(SAM, "memory")
    world.now_ms += AGE_MS + MINUTE_MS
    fresh = world.post(SAM)
    assert world.decide(cmd.CreateChannel(as_=SAM, channel=GENERAL, kind="ordinary")).events == ()
    world.run(cmd.CreateChannel(as_=SAM, channel=ChannelName("third"), kind="ordinary"))
    seq = world.state.last_seq
    assert evicted(world) == [(seq, "general", first + 1), (seq, "other", other + 1)]
    assert [type(event) for event in world.lines[seq][1]] == [ev.Evicted, ev.Evicted, ev.ChannelCreated]
    assert [len(world.state.channels[name].retained) for name in ("general", "other", "memory")] == [1, 0, 1]
    assert world.state.channels["general"].retained.seqs[0] == fresh
    assert world.state.author_of(kept) == SAM
    assert world.state.channels["other"].last_seq == other


def test_it_is_written_once_an_interval_and_by_one_process_for_all(world: World) -> None:
    for _ in range(200):
        world.post(SAM)
        world.now_ms += 10 * MINUTE_MS
    world.now_ms += AGE_MS - 200 * 10 * MINUTE_MS
    at = []
    for number in range(40):
        before = len(evicted(world))
        run(world, said(content=f"number {number}"))
        if len(evicted(world)) > before:
            at.append(number)
        world.now_ms += 10 * MINUTE_MS
    assert at == list(range(at[0], 40, 6))
    assert world.state.evicted_ms > 0


def test_a_clock_set_back_by_years_does_not_put_the_next_eviction_off_for_years(world: World) -> None:
    world.post(SAM)
    world.now_ms += 3000 * DAY_MS
    world.run(cmd.CreateChannel(as_=SAM, channel=ChannelName("one"), kind="ordinary"))
    assert len(evicted(world)) == 1
    world.now_ms -= 2900 * DAY_MS
    world.post(SAM)
    world.now_ms += AGE_MS + MINUTE_MS
    world.run(cmd.CreateChannel(as_=SAM, channel=ChannelName("two"), kind="ordinary"))
    assert len(evicted(world)) == 2


def test_a_line_evicts_of_no_more_channels_than_it_has_room_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "EVICTED_CHANNELS_MAX", 2)
    assert limits.EVICTED_CHANNELS_MAX * 300 < 1 << 20
    names = [ChannelName(f"c{number}") for number in range(4)]
    for name in names:
        world.channel(name)
        world.post(SAM, name)
    world.now_ms += AGE_MS + MINUTE_MS
    world.run(cmd.CreateChannel(as_=SAM, channel=ChannelName("new"), kind="ordinary"))
    assert [channel for _, channel, _ in evicted(world)] == ["c0", "c1"]
    assert world.state.oldest_ms < NEVER_MS
    world.now_ms += HOUR_MS
    world.run(cmd.CreateChannel(as_=SAM, channel=ChannelName("newer"), kind="ordinary"))
    assert [channel for _, channel, _ in evicted(world)] == names
    assert world.state.oldest_ms == NEVER_MS


def test_the_oldest_time_is_never_above_that_of_a_first_message(world: World) -> None:
    chance = random.Random(3)  # noqa: S311  # repeatable, not secret
    world.channel("other")
    for number in range(400):
        world.now_ms += chance.randrange(-HOUR_MS, 9 * HOUR_MS)
        if number == 200:
            world.commit(ev.Reset(by="test"))
            assert world.state.oldest_ms == NEVER_MS
            for name in (SAM, TOM):
                world.register(name, "general", "memory")
            world.channel("other")
        channel = chance.choice(["general", "other", "memory"])
        world.run(cmd.Post(as_=SAM, channel=ChannelName(channel), content="text"))
        for each in ("general", "other"):
            times = world.state.channels[each].retained.times
            assert not times or world.state.oldest_ms <= times[0]
    assert len(evicted(world)) > 20


# --- what is hidden meanwhile


def aged(world: World) -> tuple[int, int]:
    """An old and a new message of Sam's; the old one came of age since the last eviction, and the next is not due."""
    start_ms = world.now_ms
    world.post(SAM)
    world.now_ms += 30 * MINUTE_MS
    old = world.post(SAM)
    world.now_ms = start_ms + AGE_MS + MINUTE_MS
    world.run(cmd.CreateChannel(as_=SAM, channel=ChannelName("any"), kind="ordinary"))
    assert len(evicted(world)) == 1
    new = world.post(SAM)
    world.now_ms += 40 * MINUTE_MS
    world.run(cmd.CreateChannel(as_=SAM, channel=ChannelName("more"), kind="ordinary"))
    assert len(evicted(world)) == 1
    return old, new


def test_over_age_text_is_in_no_answer_before_it_is_evicted(world: World) -> None:
    old, new = aged(world)
    horizon_ms = world.now_ms - AGE_MS
    state, general = world.state, world.state.channels["general"]
    assert general.retained.find(old) is not None
    assert queries.pending(state, TOM, horizon_ms=horizon_ms) == [{"channel": "general", "count": 1}]
    rows = {row["channel"]: row["messages"] for row in queries.channel_rows(state, horizon_ms=horizon_ms)}
    assert rows == {"general": 1, "memory": 0, "any": 0, "more": 0}
    page = queries.history(state, general, before=None, after=None, count=10, bytes_max=1 << 20, horizon_ms=horizon_ms)
    assert ([at.seq for at in page.messages], page.truncated) == ([new], False)
    page = queries.history(state, general, before=new, after=1, count=10, bytes_max=1 << 20, horizon_ms=horizon_ms)
    assert page == queries.Page([], truncated=False)
    assert (
        queries.oldest_unread_ms(state, TOM, "general", horizon_ms=horizon_ms)
        == general.retained.times[general.retained.find(new) or 0]
    )
    assert queries.oldest_unread_ms(state, TOM, "general", horizon_ms=NEVER_MS) is None
    assert queries.canonical(state)["subscriptions"][2]["unread"] > 1  # what auditors see is what was evicted


def test_a_reply_to_what_is_over_age_is_refused_as_if_it_were_gone(world: World) -> None:
    old, new = aged(world)
    with pytest.raises(BusError, match="no message or memory that can still be read"):
        run(world, said(reply_to=old))
    run(world, said(TOM, reply_to=new))


def test_a_subscription_from_the_oldest_begins_at_what_is_still_shown(world: World) -> None:
    _, new = aged(world)
    world.register("Cy")
    run(world, cmd.Subscribe(as_=AgentName("Cy"), channel=GENERAL, oldest=True))
    assert world.state.subscriptions["Cy"]["general"].cursor == new - 1
    result = run(world, receive(AgentName("Cy")))
    assert (seqs(result), result.gaps) == ([new], ())


def test_an_expired_subscription_counts_what_was_evicted_and_what_is_over_age(world: World) -> None:
    aged(world)
    result = world.run(receive())
    assert [(gap.count, gap.cause) for gap in result.gaps] == []
    assert [(gone.channel, gone.unread) for gone in result.expired] == [("general", 3), ("memory", 0)]


def test_an_expired_subscription_counts_what_was_evicted_out_of_its_pending_batch(world: World) -> None:
    memory = world.post(SAM, "memory")
    handed = world.post(SAM), world.post(SAM)
    assert seqs(run(world, receive())) == [memory, *handed]
    world.edit(SAM, memory)
    world.now_ms += AGE_MS + MINUTE_MS
    run(world, said())
    again = world.run(cmd.Register(name=TOM, context="work"))
    assert [(gone.channel, gone.unread) for gone in again.expired] == [("general", 3), ("memory", 1)]


def test_a_lost_range_adds_nothing_to_what_an_expired_subscription_counts(world: World) -> None:
    world.post(SAM)
    lost = world.state.last_seq + 1
    world.commit(ev.Lost(first=lost, last=lost, bytes=9, next_prev=None, reason="damage"))
    world.now_ms += 73 * HOUR_MS
    assert [gone.unread for gone in world.run(receive()).expired] == [1, 0]


# --- receive


def test_a_batch_that_passes_over_age_evicts_it_and_tells_the_gap_in_the_same_line(world: World) -> None:
    old, new = aged(world)
    batch = run(world, receive())
    assert gaps(batch) == [("general", old - 1, old, 2, "retention")]
    assert (seqs(batch), batch.more) == ([new], 0)
    assert len(evicted(world)) == 2
    assert [type(event) for event in world.lines[world.state.last_seq][1]] == [ev.Evicted, ev.Delivered]
    assert run(world, receive()) == msgspec.structs.replace(batch, redelivered=True)
    later = run(world, receive(ack=batch.token))
    assert (later.messages, later.gaps, later.token) == ((), (), None)
    assert world.state.subscriptions[TOM]["general"].gaps == []
    assert world.state.subscriptions[TOM]["general"].cursor >= new


def test_where_all_that_waits_is_over_age_the_gap_alone_is_a_batch(world: World) -> None:
    old = world.post(SAM)
    world.post(SAM)
    own = world.post(TOM)
    world.now_ms += AGE_MS + MINUTE_MS
    batch = run(world, receive())
    assert (gaps(batch), batch.messages) == ([("general", old, own, 2, "retention")], ())
    assert batch.token is not None
    assert gaps(run(world, receive())) == gaps(batch)
    done = run(world, receive(ack=batch.token))
    assert (done.acked, done.gaps, done.token) == (True, (), None)
    assert run(world, receive()).token is None


def test_one_s_own_and_what_was_handed_out_before_make_no_gap(world: World) -> None:
    own = world.post(TOM)
    world.post(SAM)
    batch = run(world, receive())
    world.now_ms += AGE_MS + MINUTE_MS
    new = world.post(SAM)
    later = run(world, receive(ack=batch.token))
    assert (seqs(later), later.gaps) == ([new], ())
    assert evicted(world) == [(world.state.last_seq, "general", own + 2)]
    assert world.state.author_of(own) is None


def test_an_eviction_by_somebody_else_s_line_is_told_at_the_next_receive_and_until_acked(world: World) -> None:
    old = world.post(SAM)
    world.now_ms += AGE_MS + MINUTE_MS
    run(world, said())
    assert [gap.to for gap in world.state.subscriptions[TOM]["general"].gaps] == [old]
    batch = run(world, receive())
    assert gaps(batch) == [("general", old, old, 1, "retention")]
    assert gaps(run(world, receive())) == gaps(batch)
    assert run(world, receive(ack=batch.token)).gaps == ()
    assert evicted(world)[0][2] == old + 1


def test_what_is_evicted_out_of_a_pending_batch_is_left_out_of_it_and_named(world: World) -> None:
    old = world.post(SAM)
    world.now_ms += AGE_MS - MINUTE_MS
    new = world.post(SAM)
    batch = run(world, receive())
    assert seqs(batch) == [old, new]
    world.now_ms += 2 * MINUTE_MS
    assert run(world, receive()) == msgspec.structs.replace(batch, redelivered=True)  # as it was, until evicted
    run(world, said())
    again = run(world, receive())
    assert (again.token, seqs(again)) == (batch.token, [new])
    assert gaps(again) == [("general", old, old, 1, "retention")]


def test_a_gap_grows_until_it_is_told_so_that_one_who_never_comes_back_has_one(world: World) -> None:
    first = world.post(SAM)
    for _ in range(48):
        world.now_ms += 9 * HOUR_MS
        run(world, said())
    (gap,) = world.state.subscriptions[TOM]["general"].gaps
    assert (gap.from_, gap.count) == (first, len(evicted(world)))
    batch = run(world, receive(count=1))
    assert batch.gaps == (gap,)
    for _ in range(3):
        world.now_ms += AGE_MS + MINUTE_MS
        run(world, said())
    last = world.state.last_seq
    told, later = world.state.subscriptions[TOM]["general"].gaps
    assert told == gap
    assert gaps(run(world, receive())) == [*gaps(batch), ("general", seqs(batch)[0], seqs(batch)[0], 1, "retention")]
    rest = run(world, receive(ack=batch.token))
    assert (rest.gaps, seqs(rest)) == ((later,), [last])
    assert later.from_ == seqs(batch)[0] + 1
    seen = len(seqs(batch)) + len(seqs(rest))
    assert (told.count or 0) + (later.count or 0) + seen == 1 + 48 + 3


def test_what_was_evicted_out_of_a_batch_that_a_person_cut_short_is_told_as_a_gap(world: World) -> None:
    fact, text, other = world.post(SAM, "memory"), world.post(SAM), world.post(SAM, "memory")
    assert seqs(run(world, receive())) == [fact, text, other]
    world.edit(SAM, other)
    world.now_ms += AGE_MS + MINUTE_MS
    new = run(world, said()).seq or world.state.last_seq
    run(world, cmd.AckAll(as_=TOM, before=text, by="ann"))
    batch = run(world, receive())
    assert gaps(batch) == [("general", text, text, 1, "retention")]
    assert seqs(batch) == [new - 1, new]


def test_a_gap_of_retention_does_not_swallow_one_of_damage(world: World) -> None:
    world.post(SAM)
    lost = world.state.last_seq + 1
    world.commit(ev.Lost(first=lost, last=lost, bytes=9, next_prev=None, reason="damage"))
    world.now_ms += AGE_MS + MINUTE_MS
    run(world, said())
    assert [gap.cause for gap in world.state.subscriptions[TOM]["general"].gaps] == ["damage", "retention"]


def test_a_batch_with_one_s_own_is_repeated_without_those_of_them_that_were_over_age(world: World) -> None:
    world.channel("other")
    other, own = world.post(SAM, "other"), world.post(TOM)
    world.now_ms += AGE_MS - MINUTE_MS
    world.commit(ev.Evicted("other", other + 1))  # the next one is not due for an hour
    world.now_ms += 2 * MINUTE_MS
    new = world.post(SAM)
    batch = run(world, receive(include_own=True))
    assert (seqs(batch), batch.gaps) == ([new], ())
    assert evicted(world)[-1] == (world.state.last_seq, "general", own + 1)
    assert run(world, receive(include_own=True)) == msgspec.structs.replace(batch, redelivered=True)


def test_a_receive_of_some_channels_evicts_in_all_and_tells_of_those_it_asked_for(world: World) -> None:
    world.channel("other")
    world.commit(ev.Subscribed(TOM, "other", world.state.last_seq))
    world.post(SAM)
    world.post(SAM, "other")
    world.now_ms += AGE_MS + MINUTE_MS
    batch = run(world, receive(channels=(ChannelName("other"),)))
    assert [gap.channel for gap in batch.gaps] == ["other"]
    assert [channel for _, channel, _ in evicted(world)] == ["other", "general"]
    rest = run(world, receive(ack=batch.token))
    assert [gap.channel for gap in rest.gaps] == ["general"]


def test_a_mere_ack_tells_nothing_and_a_receive_without_room_for_a_gap_hands_out_nothing_behind_it(
    world: World,
) -> None:
    for number in range(5):
        world.channel(f"c{number}")
        world.commit(ev.Subscribed(TOM, f"c{number}", world.state.last_seq))
        world.post(SAM, f"c{number}")
    batch = run(world, receive(count=1))
    world.now_ms += AGE_MS + MINUTE_MS
    new = world.post(SAM)
    tight = msgspec.structs.replace(PATIENT, result_bytes_max=limits.RESULT_FRAME_BYTES + 250)
    acked = world.run(receive(ack=batch.token, count=0), policy=tight)
    assert (acked.acked, acked.gaps, acked.more) == (True, (), 1)
    told, token = 0, None
    while True:
        batch = world.run(receive(ack=token), policy=tight)
        told, token = told + len(batch.gaps), batch.token
        if batch.messages:
            break
        assert len(batch.gaps) in {1, 2, 3}
    assert (told, seqs(batch)) == (4, [new])


def test_a_state_from_a_snapshot_hides_and_evicts_as_the_one_it_was_taken_of(world: World) -> None:
    at = world.now_ms
    first = world.post(SAM)
    world.now_ms = at + HOUR_MS
    ahead = world.post(SAM)
    world.now_ms = at + MINUTE_MS
    back = world.post(SAM)
    restored = snapshot.decode(memoryview(snapshot.encode(world.state)))
    assert (restored.oldest_ms, restored.evicted_ms) == (at, ALWAYS_MS)
    for state in (world.state, restored):
        general = state.channels["general"]
        assert hidden_through(general, at + 2 * MINUTE_MS) == first
        assert hidden_through(general, at + 2 * HOUR_MS) == back
        assert list(general.retained.seqs) == [first, ahead, back]


# --- threads


def test_a_thread_outlives_what_is_evicted_at_its_root_and_in_its_middle(world: World) -> None:
    root = world.post(SAM)
    middle = world.post(TOM, reply_to=root)
    world.now_ms += AGE_MS - MINUTE_MS
    leaf, side = world.post(SAM, reply_to=middle), world.post(TOM, reply_to=root)
    assert world.state.replies == {middle: root, leaf: root, side: root}
    world.now_ms += 2 * MINUTE_MS
    run(world, said())
    assert world.state.author_of(middle) is None
    assert world.state.replies == {leaf: root, side: root}


# --- a law


def test_whoever_acks_all_has_every_message_once_or_a_gap_for_it(world: World) -> None:
    """Over random ages, intervals and counts: what was handed out and what was told as missing make up all of it."""
    for seed in range(60):
        chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
        world = World()
        for name in (SAM, TOM):
            world.register(name, "general", "memory")
        policy = msgspec.structs.replace(
            PATIENT, message_retention_ms=HOUR_MS, cleanup_interval_ms=chance.choice([MINUTE_MS, 3 * HOUR_MS])
        )
        posted: list[int] = []
        had: set[int] = set()
        missed, token = 0, None
        for _ in range(150):
            world.now_ms += chance.choice([1, 1000, MINUTE_MS, 20 * MINUTE_MS])
            if chance.random() < 0.6:
                world.run(said(), policy=policy)
                posted.append(world.state.last_seq)
                continue
            batch = world.run(receive(ack=token, count=chance.choice([1, 3, 100])), policy=policy)
            horizon_ms = world.now_ms - 1000 - HOUR_MS
            if not batch.redelivered:
                assert not any(is_hidden(world.state, seq, horizon_ms) for seq in seqs(batch))
                assert had.isdisjoint(seqs(batch))
                had |= set(seqs(batch))
                missed += sum(gap.count for gap in batch.gaps if isinstance(gap.count, int))
            token = batch.token if chance.random() < 0.8 else None
        while True:
            batch = world.run(
                receive(ack=world.state.batches[TOM].token if TOM in world.state.batches else None), policy=policy
            )
            if batch.token is None:
                break
            had |= set(seqs(batch))
            missed += sum(gap.count for gap in batch.gaps if isinstance(gap.count, int))
        assert len(had) + missed == len(posted), seed


# --- the rule itself


def facts(time_ms: int) -> cmd.Facts:
    return cmd.Facts(time_ms, "a1" * 12, "t", POLICY)


def test_nothing_is_due_until_something_is_over_age_and_an_interval_is_over(world: World) -> None:
    assert retention.due(world.state, facts(world.now_ms)) == []
    old = world.post(SAM)
    late = facts(world.now_ms + AGE_MS)
    expected = [ev.Evicted(channel="general", before=old + 1)]
    assert retention.due(world.state, late) == expected
    for ago, due in ((POLICY.cleanup_interval_ms - 1, []), (POLICY.cleanup_interval_ms, expected)):
        world.state.evicted_ms = late.time_ms - ago
        assert retention.due(world.state, late) == due


def test_what_an_identity_posted_itself_is_passed_over_without_a_word_unless_it_asks_for_its_own(world: World) -> None:
    old = world.post(SAM)
    late = facts(world.now_ms + AGE_MS)
    assert retention.passed_over(world.state, SAM, ["general"], late, own=False) == ([], {})
    events, passed = retention.passed_over(world.state, SAM, ["general"], late, own=True)
    assert (events, list(passed)) == ([ev.Evicted(channel="general", before=old + 1)], ["general"])
