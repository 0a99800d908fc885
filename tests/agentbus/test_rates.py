"""How much one identity may send: two buckets, filled by a clock that the test moves."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from agentbus import events as ev
from agentbus.errors import BusError
from agentbus.rates import Rates
from agentbus.wire import encoded_bytes
from tests.agentbus.hosts import WAIT_S


@dataclass
class Clock:
    """Seconds, moved by hand."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(name="clock")
def _clock() -> Clock:
    return Clock()


def posted(content: str = "") -> ev.Posted:
    return ev.Posted("sam", "general", content, "work")


def sized(size: int) -> ev.Posted:
    """A post of so many bytes."""
    return posted("x" * (size - encoded_bytes(posted())))


def send(rates: Rates, identity: str = "sam", size: int = 100) -> None:
    with rates.turn(identity) as turn:
        turn.take((sized(size),))


def fail(rates: Rates, error: BaseException) -> None:
    """Take all there is, and come to nothing."""
    with rates.turn("sam") as turn:
        turn.take((sized(64 << 10),))
        raise error


def refused(rates: Rates, identity: str = "sam", size: int = 100) -> str:
    with pytest.raises(BusError) as refusal:
        send(rates, identity, size)
    assert (refusal.value.code, refusal.value.retryable) == ("rate_limited", True)
    return refusal.value.message


def test_a_seconds_worth_may_be_sent_at_once_and_then_as_fast_as_it_comes_back(clock: Clock) -> None:
    rates = Rates(4, 64, clock)
    for _ in range(4):
        send(rates)
    told = '"sam" may send 4 messages a second (send_messages_per_second): try again in 0.3 s'
    assert refused(rates) == told
    clock.now_s += 0.25
    send(rates)
    assert refused(rates) == told


def test_what_is_not_used_for_a_minute_is_still_a_seconds_worth(clock: Clock) -> None:
    rates = Rates(4, 64, clock)
    send(rates)
    clock.now_s += 60
    for _ in range(4):
        send(rates)
    refused(rates)


def test_bytes_are_a_limit_of_their_own_that_says_what_the_call_takes(clock: Clock) -> None:
    rates = Rates(100, 64, clock)
    send(rates, size=60 << 10)
    assert refused(rates, size=8 << 10) == (
        '"sam" may send 64 KiB a second (send_kib_per_second), and this takes 8192 bytes: try again in 0.1 s'
    )
    send(rates, size=4 << 10)
    clock.now_s += 0.125
    send(rates, size=8 << 10)


def test_the_limit_that_is_told_is_the_one_that_lasts_longer(clock: Clock) -> None:
    rates = Rates(2, 64, clock)
    send(rates, size=40 << 10)
    send(rates, size=24 << 10)
    assert "send_messages_per_second" in refused(rates, size=1 << 10)
    assert "send_kib_per_second" in refused(rates, size=48 << 10)


def test_what_is_larger_than_a_seconds_worth_goes_when_the_bucket_is_full_and_is_paid_off(clock: Clock) -> None:
    rates = Rates(100, 64, clock)
    send(rates, size=192 << 10)
    assert refused(rates, size=1 << 10).endswith("try again in 2.1 s")
    clock.now_s += 2
    refused(rates, size=1 << 10)
    clock.now_s += 0.125
    send(rates, size=8 << 10)
    assert refused(rates, size=192 << 10).endswith("try again in 1.0 s")
    clock.now_s += 1
    send(rates, size=192 << 10)


def test_each_identity_has_rates_of_its_own(clock: Clock) -> None:
    rates = Rates(1, 64, clock)
    send(rates)
    refused(rates)
    send(rates, "sam/x")


def test_what_fails_costs_nothing(clock: Clock) -> None:
    rates = Rates(1, 64, clock)
    for error in (BusError("not_found", "no"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail(rates, error)
    with pytest.raises(KeyError), rates.turn("sam"):
        raise KeyError
    send(rates, size=64 << 10)
    refused(rates)


def test_a_refused_call_takes_nothing_of_either_bucket(clock: Clock) -> None:
    rates = Rates(2, 64, clock)
    send(rates, size=64 << 10)
    for _ in range(5):
        refused(rates, size=64 << 10)
    clock.now_s += 1
    send(rates, size=32 << 10)
    send(rates, size=32 << 10)


def test_a_call_that_tries_twice_pays_once_and_what_was_not_written_not_at_all(clock: Clock) -> None:
    rates = Rates(2, 64, clock)
    with rates.turn("sam") as turn:
        turn.take((posted(),))
        turn.take((posted(),))
    with rates.turn("sam") as turn:
        turn.take((posted(),))
        turn.give_back()
        turn.give_back()
    send(rates)
    refused(rates)


def test_only_texts_and_what_is_done_to_memories_count(clock: Clock) -> None:
    rates = Rates(100, 64, clock)
    deleted = ev.MemoryDeleted(as_="sam", id=1, replaces=1)
    with rates.turn("sam") as turn:
        turn.take((ev.Evicted("general", 7), sized((64 << 10) - encoded_bytes(deleted)), deleted))
    assert "send_kib_per_second" in refused(rates, size=100)
    clock.now_s += 1
    send(rates, size=64 << 10)


def test_threads_together_get_no_more_than_one_alone(clock: Clock) -> None:
    rates = Rates(50, 64, clock)
    sent: list[int] = []

    def work() -> None:
        for _ in range(50):
            try:
                send(rates)
            except BusError:
                continue
            sent.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert len(sent) == 50
