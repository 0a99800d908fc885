"""The rules of delivery: a table of cases, and every walk against a model that only knows lists."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from msgspec import UNSET

from agentbus import events as ev
from agentbus import queries, results
from agentbus.commands import Decision, Receive, ReceiveResult
from agentbus.errors import BusError
from agentbus.names import AgentName, ChannelName
from tests.agentbus.building import HOUR_MS, MINE, POLICY, THEIRS, World
from tests.agentbus.wandering import NARROW, WHO, Evict, Post, Step, Take, begun, steps, taken, walk

if TYPE_CHECKING:
    from agentbus.commands import Policy
    from agentbus.events import Gap


@pytest.fixture
def world() -> World:
    made = World()
    made.channel("reviews")
    made.register("Sam", "general", "memory", "reviews")
    return made


def ask(identity: str = "Sam", count: int = 100, **fields: Any) -> Receive:  # noqa: ANN401  # fields
    channels = fields.pop("channels", None)
    only = None if channels is None else tuple(map(ChannelName, channels))
    return Receive(as_=AgentName(identity), count=count, channels=only, **fields)


def seqs(result: ReceiveResult) -> list[int]:
    return [seq for seq, _ in result.messages]


def cursors(world: World, identity: str = "Sam") -> dict[str, int]:
    return {channel: held.cursor for channel, held in world.state.subscriptions.get(identity, {}).items()}


def types(decision: Decision[ReceiveResult]) -> list[str]:
    return [str(event.__struct_config__.tag) for event in decision.events]


def test_nothing_new_is_no_token_and_no_line(world: World) -> None:
    decision = world.decide(ask())
    assert decision == Decision((), ReceiveResult())


def test_a_batch_is_what_lies_above_the_cursors_in_order_of_seq(world: World) -> None:
    one, two, three = world.post("Ann"), world.post("Ann", "memory"), world.post("Bob", "reviews")
    decision = world.decide(ask())
    assert decision.result == ReceiveResult(
        token=f"token{three}", messages=((one, "general"), (two, "memory"), (three, "reviews")), more=0
    )
    ends = {"general": one, "memory": two, "reviews": three}
    assert decision.events == (ev.Delivered("Sam", f"token{three}", ends, include_own=False),)
    before = cursors(world)
    world.commit(*decision.events)
    assert cursors(world) == before


def test_an_ack_and_the_next_batch_stand_in_one_commit(world: World) -> None:
    world.post("Ann")
    first = world.run(ask())
    two = world.post("Ann")
    decision = world.decide(ask(ack=first.token))
    assert types(decision) == ["acked", "delivered"]
    world.commit(*decision.events)
    assert seqs(decision.result) == [two]
    assert cursors(world)["general"] == two - 2


def test_an_ack_with_nothing_new_is_written_alone(world: World) -> None:
    one = world.post("Ann")
    decision = world.decide(ask(ack=world.run(ask()).token))
    assert types(decision) == ["acked"]
    assert decision.result == ReceiveResult(acked=True)
    world.commit(*decision.events)
    assert cursors(world)["general"] == one


def test_a_batch_comes_again_as_it_was_until_it_is_acked(world: World) -> None:
    one, two, own = world.post("Ann"), world.post("Ann", "reviews"), world.post("Sam")
    first = world.run(ask(count=1))
    for again in (
        ask(),
        ask(count=1),
        ask(ack="another"),
        ask(include_own=True),
        ask(channels=["reviews"]),
        ask(channels=["unknown"]),
        ask(channels=[]),
    ):
        decision = world.decide(again)
        assert decision.events == ()
        more = 2 if again.include_own else 1
        expected = ReceiveResult(first.token, first.messages, more, redelivered=True, ack_ignored=again.ack is not None)
        assert decision.result == expected
    second = world.run(ask(ack=first.token, include_own=True))
    assert (seqs(first), seqs(second)) == ([one], [two, own])


def test_the_batch_of_a_session_that_ended_waits_for_the_next(world: World) -> None:
    world.post("Ann")
    first = world.run(ask())
    world.commit(ev.Ended("Sam", MINE, "gone"))
    world.register("Sam", owner=THEIRS)
    again = world.decide(ask(), owner=THEIRS).result
    assert (again.token, again.messages, again.redelivered) == (first.token, first.messages, True)


@pytest.mark.parametrize("pending", [True, False])
def test_an_ack_that_is_not_the_pending_token_is_ignored_and_moves_nothing(world: World, *, pending: bool) -> None:
    world.post("Ann")
    before = cursors(world)
    if pending:
        world.run(ask())
    result = world.run(ask(ack="0123456789ab"))
    assert result.ack_ignored
    assert cursors(world) == before


def test_a_token_acks_once(world: World) -> None:
    world.post("Ann")
    token = world.run(ask()).token
    world.run(ask(count=0, ack=token))
    assert world.decide(ask(ack=token)) == Decision((), ReceiveResult(ack_ignored=True))


def test_count_0_acks_and_hands_out_nothing(world: World) -> None:
    one, two = world.post("Ann"), world.post("Ann")
    assert world.decide(ask(count=0)) == Decision((), ReceiveResult(more=2))
    token = world.run(ask(count=1)).token
    assert world.decide(ask(count=0)) == Decision((), ReceiveResult(more=2))
    assert world.decide(ask(count=0, ack="no")) == Decision((), ReceiveResult(more=2, ack_ignored=True))
    decision = world.decide(ask(count=0, ack=token))
    assert decision == Decision((ev.Acked("Sam", str(token)),), ReceiveResult(more=1, acked=True))
    world.commit(*decision.events)
    assert cursors(world)["general"] == one
    assert seqs(world.run(ask())) == [two]


def test_count_0_does_not_count_what_left_the_pending_batch(world: World) -> None:
    memory = world.post("Ann", "memory")
    world.post("Ann")
    world.run(ask(count=1))
    world.delete("Ann", memory)
    assert world.decide(ask(count=0)).result.more == 1


def test_own_messages_are_neither_delivered_nor_counted_and_lie_behind_what_was(world: World) -> None:
    world.post("Sam")
    assert world.decide(ask()) == Decision((), ReceiveResult())
    theirs, own = world.post("Ann"), world.post("Sam")
    decision = world.decide(ask())
    assert decision.result == ReceiveResult(f"token{own}", ((theirs, "general"),))
    assert isinstance(decision.events[0], ev.Delivered)
    assert decision.events[0].ends == {"general": own}


def test_own_messages_are_delivered_on_request(world: World) -> None:
    own, theirs = world.post("Sam"), world.post("Ann")
    decision = world.decide(ask(include_own=True))
    assert seqs(decision.result) == [own, theirs]
    assert isinstance(decision.events[0], ev.Delivered)
    assert decision.events[0].include_own


def test_superseded_and_deleted_revisions_are_skipped(world: World) -> None:
    kept, gone = world.post("Ann", "memory"), world.post("Ann", "memory")
    live = world.edit("Bob", kept)
    world.delete("Ann", gone)
    result = world.run(ask())
    assert (seqs(result), result.more, result.gaps) == ([live], 0, ())


def test_what_left_a_pending_batch_is_left_out_and_named(world: World) -> None:
    chat, one, two = world.post("Ann"), world.post("Ann", "memory"), world.post("Ann", "memory")
    stays = world.post("Ann", "reviews")
    first = world.run(ask())
    live = world.edit("Bob", one)
    world.delete("Ann", two)
    world.commit(ev.Evicted("general", chat + 1))
    again = world.decide(ask()).result
    assert (again.token, seqs(again), again.more) == (first.token, [stays], 1)
    assert again.gaps == (
        ev.Gap("general", chat, chat, 1, "retention"),
        ev.Gap("memory", one, one, 1, "superseded or deleted"),
        ev.Gap("memory", two, two, 1, "superseded or deleted"),
    )
    assert world.decide(ask()).result == again
    assert seqs(world.run(ask(ack=first.token))) == [live]


def test_an_unsubscribed_channel_leaves_the_pending_batch_and_its_token_acks_the_rest(world: World) -> None:
    world.post("Ann")
    other = world.post("Ann", "reviews")
    token = world.run(ask()).token
    world.commit(ev.Unsubscribed("Sam", "general", "asked"))
    again = world.decide(ask()).result
    assert (again.token, seqs(again), again.gaps) == (token, [other], ())
    world.run(ask(count=0, ack=token))
    assert cursors(world) == {"memory": 3, "reviews": other}


def test_a_filter_takes_from_its_channels_only_and_moves_only_those(world: World) -> None:
    chat, review = world.post("Ann"), world.post("Ann", "reviews")
    first = world.run(ask(channels=["reviews", "reviews"]))
    assert (seqs(first), first.more) == ([review], 0)
    second = world.run(ask(ack=first.token))
    assert seqs(second) == [chat]
    assert cursors(world)["general"] == 3


def test_a_filter_that_names_a_channel_not_subscribed_is_refused(world: World) -> None:
    world.post("Ann")
    with pytest.raises(BusError) as refusal:
        world.decide(ask(channels=["general", "secret"]))
    assert refusal.value.code == "not_found"
    assert refusal.value.message == (
        '"Sam" is not subscribed to "secret": call subscribe first, or leave "channels" out'
    )


def test_without_a_session_of_this_process_nothing_is_received(world: World) -> None:
    for identity, owner in (("Sam", THEIRS), ("Nobody", MINE)):
        with pytest.raises(BusError) as refusal:
            world.decide(ask(identity), owner=owner)
        assert refusal.value.code == "not_registered"


def test_more_is_what_waits_behind_the_batch(world: World) -> None:
    for _ in range(5):
        world.post("Ann")
    world.post("Sam")
    first = world.run(ask(count=2))
    assert (len(first.messages), first.more) == (2, 3)
    assert world.decide(ask()).result.more == 3
    assert queries.pending(world.state, "Sam") == [{"channel": "general", "count": 5}]
    assert world.run(ask(count=2, ack=first.token)).more == 1


def narrow(room: int) -> Policy:
    return msgspec.structs.replace(POLICY, result_bytes_max=1024 + room)


def test_a_batch_holds_whole_messages_as_far_as_they_fit_and_the_first_always(world: World) -> None:
    big = world.post("Ann", content="x" * 30_000)
    small = [world.post("Ann") for _ in range(3)]
    first = world.run(ask())
    assert (seqs(first), first.more) == ([big], 3)
    size = world.line_bytes[small[0]]
    second = world.run(ask(ack=first.token), policy=narrow(2 * size))
    assert (seqs(second), second.more) == (small[:2], 1)


def test_gaps_ride_in_a_batch_and_one_alone_makes_one(world: World) -> None:
    one = world.post("Ann")
    world.commit(ev.Evicted("general", one + 1))
    gap = ev.Gap("general", one, one, 1, "retention")
    decision = world.decide(ask())
    assert decision.result == ReceiveResult(f"token{one + 1}", gaps=(gap,))
    assert decision.events == (ev.Delivered("Sam", f"token{one + 1}", {}, include_own=False, gaps=[gap]),)
    world.commit(*decision.events)
    assert world.decide(ask()).result.gaps == (gap,)
    later = world.post("Ann")
    after = world.run(ask(ack=decision.result.token))
    assert (seqs(after), after.gaps) == ([later], ())
    assert world.state.subscriptions["Sam"]["general"].gaps == []


def test_a_gap_of_a_channel_that_the_filter_leaves_out_is_told_later(world: World) -> None:
    world.commit(ev.Evicted("general", world.post("Ann") + 1))
    world.post("Ann", "reviews")
    first = world.run(ask(channels=["reviews"]))
    assert first.gaps == ()
    assert len(world.run(ask(ack=first.token)).gaps) == 1


def test_nothing_is_delivered_past_a_gap_for_which_there_was_no_room(world: World) -> None:
    lost = ev.Lost(first=world.state.last_seq + 1, last=90, bytes=1, next_prev=None, reason="damage")
    world.commit(lost)
    seq = world.post("Ann")
    first = world.run(ask(), policy=narrow(100))
    assert [gap.channel for gap in first.gaps] == ["general"]
    assert (first.messages, first.more) == ((), 1)
    second = world.run(ask(ack=first.token), policy=narrow(200))
    assert [gap.channel for gap in second.gaps] == ["memory", "reviews"]
    assert (second.messages, second.more) == ((), 1)
    assert seqs(world.run(ask(ack=second.token), policy=narrow(0))) == [seq]


def test_not_even_a_message_that_would_fit_is_delivered_past_an_untold_gap() -> None:
    world, long = World(), '"' * 128
    world.channel(long)
    world.register("Sam", "general", long)
    world.commit(ev.Lost(first=world.state.last_seq + 1, last=90, bytes=1, next_prev=None, reason="damage"))
    seq = world.post("Ann")
    told = results.encoded_bytes(ev.Gap("general", 5, 90, cause="damage")) + 1
    result = world.run(ask(), policy=narrow(told + world.line_bytes[seq]))
    assert ([gap.channel for gap in result.gaps], result.messages, result.more) == (["general"], (), 1)


def test_an_idle_subscription_is_dropped_and_told_and_the_others_deliver(world: World) -> None:
    unread = [world.post("Ann"), world.post("Ann")]
    world.now_ms += 72 * HOUR_MS
    world.commit(ev.Unsubscribed("Sam", "reviews", "asked"), ev.Subscribed("Sam", "reviews", 3))
    seq = world.post("Ann", "reviews")
    decision = world.decide(ask(channels=["general", "reviews"]))
    assert types(decision) == ["unsubscribed", "unsubscribed", "delivered"]
    assert decision.events[0] == ev.Unsubscribed("Sam", "general", "expired")
    assert decision.result.expired == (ev.Expired("general", len(unread)), ev.Expired("memory", 0))
    assert seqs(decision.result) == [seq]
    world.commit(*decision.events)
    assert list(cursors(world)) == ["reviews"]
    assert world.decide(ask()).result.expired == decision.result.expired
    assert world.run(ask(ack=decision.result.token)) == ReceiveResult(acked=True)


def test_expired_subscriptions_alone_make_a_batch(world: World) -> None:
    world.now_ms += 73 * HOUR_MS
    result = world.run(ask())
    assert [gone.channel for gone in result.expired] == ["general", "memory", "reviews"]
    assert (result.messages, result.more) == ((), 0)
    assert world.decide(ask()).result.token == result.token
    assert cursors(world) == {}


def test_what_there_is_no_room_to_tell_is_not_dropped(world: World) -> None:
    world.now_ms += 73 * HOUR_MS
    result = world.run(ask(), policy=narrow(0))
    assert [gone.channel for gone in result.expired] == ["general"]
    assert list(cursors(world)) == ["memory", "reviews"]


def test_a_subscription_is_not_idle_at_the_very_hour(world: World) -> None:
    active_ms = world.state.subscriptions["Sam"]["general"].active_ms
    assert world.decide(ask(), time_ms=active_ms + 72 * HOUR_MS).result.expired == ()
    assert len(world.decide(ask(), time_ms=active_ms + 72 * HOUR_MS + 1).result.expired) == 3


def test_a_pending_batch_comes_again_however_long_ago_and_its_ack_keeps_the_subscriptions(world: World) -> None:
    world.post("Ann")
    token = world.run(ask()).token
    world.now_ms += 100 * HOUR_MS
    assert world.decide(ask()).result.token == token
    decision = world.decide(ask(ack=token))
    assert types(decision) == ["acked"]
    world.commit(*decision.events)
    assert world.decide(ask()) == Decision((), ReceiveResult())


def test_looking_in_vain_renews_the_idle_clock_at_most_once_an_hour(world: World) -> None:
    world.now_ms = world.state.subscriptions["Sam"]["general"].active_ms + HOUR_MS - 1
    assert world.decide(ask()).events == ()
    world.now_ms += 1
    assert world.decide(ask(count=0)).events == ()
    decision = world.decide(ask())
    assert decision == Decision((ev.Active("Sam"),), ReceiveResult())
    world.commit(*decision.events)
    assert world.decide(ask()).events == ()


def test_who_keeps_looking_is_never_idle_not_even_by_the_shortest_setting(world: World) -> None:
    policy = msgspec.structs.replace(POLICY, cursor_idle_ms=HOUR_MS)
    for _ in range(30):
        world.now_ms += 20 * 60_000
        assert world.run(ask(), policy=policy) == ReceiveResult()


def test_without_a_subscription_there_is_nothing_to_renew_and_nothing_to_receive(world: World) -> None:
    world.register("Bob")
    world.now_ms += 200 * HOUR_MS
    assert world.decide(ask("Bob", ack="x")) == Decision((), ReceiveResult(ack_ignored=True))
    assert world.decide(ask("Bob", channels=[])) == Decision((), ReceiveResult())


def test_after_a_reset_every_as_is_unregistered(world: World) -> None:
    world.post("Ann")
    world.run(ask())
    world.commit(ev.Reset(by="me"))
    with pytest.raises(BusError, match="call register again"):
        world.decide(ask())


class Lists:
    """Delivery as the design tells it, on plain lists: no columns, no events, no ends.

    ``seen`` is what each subscription has behind it: everything up to that seq.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen = {(who, channel): cursor for who in cursors_of(world) for channel, cursor in cursors_of(world)[who]}
        self.gaps: dict[tuple[str, str], list[Gap]] = {key: [] for key in self.seen}
        self.pending: dict[str, tuple[str, list[tuple[int, str]], dict[str, int], list[Gap]]] = {}

    def alive(self, channel: str) -> list[tuple[int, str]]:
        """(seq, author) of each message, read from the columns."""
        names, kept = self.world.state.identities.names, self.world.state.channels[channel].retained
        return [(seq, names[author]) for seq, author in zip(kept.seqs, kept.authors, strict=True)]

    def follow(self, before: dict[str, list[tuple[int, str]]]) -> None:
        """Take in what a step other than a receive did: subscriptions made or left, and evictions."""
        now = {(who, channel): at for who, mine in cursors_of(self.world).items() for channel, at in mine}
        for key in set(self.seen) - set(now):
            del self.seen[key], self.gaps[key]
            self.leave(*key)
        for key in [key for key in now if key not in self.seen]:
            self.seen[key], self.gaps[key] = now[key], []
        for channel in ("general", "reviews"):
            taken_away = [row for row in before[channel] if row not in self.alive(channel)]
            for who in [who for who, subscribed in self.seen if subscribed == channel]:
                handed = self.pending[who][2].get(channel, 0) if who in self.pending else 0
                after = max(self.seen[who, channel], handed)
                missed = [seq for seq, author in taken_away if seq > after and author != who]
                if missed:
                    gap = ev.Gap(channel, missed[0], taken_away[-1][0], len(missed), "retention")
                    self.miss(who, gap)

    def miss(self, who: str, gap: Gap) -> None:
        """A gap joins the one before it that was not told yet."""
        known, told = self.gaps[who, gap.channel], self.pending[who][3] if who in self.pending else []
        if known and known[-1] not in told:
            last = known.pop()
            gap = ev.Gap(gap.channel, last.from_, gap.to, (last.count or 0) + (gap.count or 0), "retention")
        known.append(gap)

    def leave(self, who: str, channel: str) -> None:
        if who in self.pending:
            token, messages, through, gaps = self.pending[who]
            messages = [message for message in messages if message[1] != channel]
            gaps = [gap for gap in gaps if gap.channel != channel]
            through = {name: seq for name, seq in through.items() if name != channel}
            self.pending[who] = token, messages, through, gaps
            if not (through or gaps):
                del self.pending[who]

    def waiting(self, who: str, ask: Receive) -> list[tuple[int, str]]:
        handed = self.pending[who][2] if who in self.pending else {}
        return sorted(
            (seq, channel)
            for (subscriber, channel), seen in self.seen.items()
            if subscriber == who and (ask.channels is None or channel in ask.channels)
            for seq, author in self.alive(channel)
            if seq > max(seen, handed.get(channel, 0)) and (ask.include_own or author != who)
        )

    def receive(self, ask: Receive, token: str | None) -> ReceiveResult:
        who = str(ask.as_)
        acked = who in self.pending and ask.ack == self.pending[who][0]
        ignored = ask.ack is not None and not acked
        if acked:
            _, _, through, told = self.pending.pop(who)
            for channel, seq in through.items():
                self.seen[who, channel] = max(self.seen[who, channel], seq)
            for gap in told:
                self.gaps[who, gap.channel].remove(gap)
        elif who in self.pending:
            return self.again(msgspec.structs.replace(ask, channels=None), ignored=ignored)
        waiting = self.waiting(who, ask)
        if ask.count == 0:
            return ReceiveResult(more=len(waiting), acked=acked, ack_ignored=ignored)
        gaps, messages = self.fitting(who, ask, waiting)
        if not (gaps or messages):
            return ReceiveResult(more=len(waiting), acked=acked, ack_ignored=ignored)
        self.hand_out(ask, str(token), messages, waiting, gaps)
        more = len(waiting) - len(messages)
        return ReceiveResult(token, tuple(messages), more, gaps=tuple(gaps), acked=acked, ack_ignored=ignored)

    def fitting(
        self, who: str, ask: Receive, waiting: list[tuple[int, str]]
    ) -> tuple[list[Gap], list[tuple[int, str]]]:
        mine = [channel for channel, _ in cursors_of(self.world)[who]] if who in cursors_of(self.world) else []
        untold = [
            gap
            for channel in mine
            if ask.channels is None or channel in ask.channels
            for gap in self.gaps[who, channel]
        ]
        left, kept, messages = NARROW.result_bytes_max - 1024, 0, 0
        sizes = [len(json.dumps(msgspec.to_builtins(gap), separators=(",", ":"))) + 1 for gap in untold]
        sizes += [self.world.line_bytes[seq] + (12 if name == "memory" else 0) for seq, name in waiting[: ask.count]]
        while kept < len(sizes) and (kept == 0 or sizes[kept] <= left):
            left -= sizes[kept]
            kept += 1
        messages = max(0, kept - len(untold))
        return untold[:kept], waiting[:messages]

    def hand_out(
        self, ask: Receive, token: str, messages: list[tuple[int, str]], waiting: list[tuple[int, str]], gaps: list[Gap]
    ) -> None:
        """Everything in the channels asked for up to the last message, or all there is, counts as handed out."""
        who = str(ask.as_)
        last = self.world.state.last_seq if len(messages) == len(waiting) else messages[-1][0] if messages else 0
        through: dict[str, int] = {}
        for subscriber, channel in self.seen if messages else ():
            if subscriber == who and (ask.channels is None or channel in ask.channels):
                passed = [seq for seq, _ in self.alive(channel) if self.seen[who, channel] < seq <= last]
                through |= {channel: passed[-1]} if passed else {}
        self.pending[who] = token, messages, through, gaps

    def again(self, ask: Receive, *, ignored: bool) -> ReceiveResult:
        who = str(ask.as_)
        token, messages, _, gaps = self.pending[who]
        kept = [message for message in messages if message[0] in [seq for seq, _ in self.alive(message[1])]]
        if ask.count == 0:
            return ReceiveResult(more=len(self.waiting(who, ask)) + len(kept), ack_ignored=ignored)
        cause = {"memory": "superseded or deleted"}
        gone = [
            ev.Gap(name, seq, seq, 1, cause.get(name, "retention")) for seq, name in messages if (seq, name) not in kept
        ]
        more = len(self.waiting(who, ask))
        return ReceiveResult(token, tuple(kept), more, redelivered=True, ack_ignored=ignored, gaps=(*gaps, *gone))


def cursors_of(world: World) -> dict[str, list[tuple[str, int]]]:
    return {
        who: [(name, held.cursor) for name, held in mine.items()] for who, mine in world.state.subscriptions.items()
    }


@settings(max_examples=80, deadline=None)
@given(steps)
def test_every_walk_delivers_what_the_lists_deliver(path: list[Step]) -> None:
    world = begun()
    lists = Lists(world)
    for step in path:
        if not isinstance(step, Take):
            before = {channel: lists.alive(channel) for channel in world.state.channels}
            walk(world, step)
            lists.follow(before)
            continue
        asked = taken(world, step)
        expected = lists.receive(asked, f"token{world.state.last_seq}")
        moved = dict(lists.seen)
        result = walk(world, step)
        assert result == expected
        now = {(who, channel): at for who, mine in cursors_of(world).items() for channel, at in mine}
        assert now == moved
        assert_fits(world, result, step.who)


def assert_fits(world: World, result: ReceiveResult, reader: str) -> None:
    shown = world.shown(result, reader)
    if results.encoded_bytes(shown) > NARROW.result_bytes_max:
        assert len(result.messages) + len(result.gaps) + len(result.expired) == 1 or result.redelivered
        assert len(result.messages) <= 1


@settings(max_examples=50, deadline=None)
@given(steps)
def test_every_message_of_others_is_handed_out_once_in_order_or_lies_in_a_gap(path: list[Step]) -> None:
    world = begun()
    posted: dict[int, str] = {}
    handed: dict[str, list[int]] = {who: [] for who in WHO}
    missed: dict[str, int] = dict.fromkeys(WHO, 0)
    drain = (Take(who, 100, "right", own=False, only=None) for _ in path for who in (*WHO, *WHO))
    for step in itertools.chain(path, drain):
        if isinstance(step, Take):
            result = walk(world, Take(step.who, step.count, "right", own=False, only=None))
            assert result is not None
            assert not result.redelivered
            assert seqs(result) == sorted(seqs(result))
            handed[step.who] += seqs(result)
            missed[step.who] += sum(gap.count for gap in result.gaps if gap.count is not UNSET)
        elif isinstance(step, Post) and step.channel != "memory":
            walk(world, step)
            posted[world.state.last_seq] = step.who
        elif isinstance(step, Evict):
            walk(world, step)
    for who in WHO:
        assert handed[who] == sorted(set(handed[who]))
        of_others = [seq for seq, author in posted.items() if author != who]
        assert set(handed[who]) <= set(of_others)
        assert len(handed[who]) + missed[who] == len(of_others)
        assert queries.pending(world.state, who) == []


def test_the_longest_names_do_not_make_a_result_too_large() -> None:
    world = World()
    channel, reader = '"' * 128, "Sam/" + "検" * 300
    world.channel(channel, "memory")
    world.register(reader, channel)
    memories = [world.post("検" * 40, channel, "\\" * 50) for _ in range(60)]
    for memory in memories:
        world.edit("\\" * 128, memory, f"@{reader}", label='"' * 128, metadata={'"': "\n" * 20})
    world.now_ms += 59 * HOUR_MS
    result = world.run(ask(reader))
    size = results.encoded_bytes(world.shown(result, reader))
    assert 0.6 * POLICY.result_bytes_max < size <= POLICY.result_bytes_max
    assert result.more == 60 - len(result.messages) > 0


def test_unset_counts_are_left_out_of_a_result(world: World) -> None:
    world.commit(ev.Lost(first=world.state.last_seq + 1, last=90, bytes=1, next_prev=None, reason="redacted"))
    result = world.run(ask(channels=["general"]))
    assert result.gaps[0].count is UNSET
    shown = world.shown(result, "Sam")
    assert shown["gaps"] == [{"channel": "general", "from": 5, "to": 90, "cause": "redacted"}]
