"""Threads of one process and several processes at once: nothing lost, nothing twice, nobody waits for ever."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from agentbus.commands import Reset
from agentbus.control import Cancelled, Control
from agentbus.errors import BusError
from tests.agentbus.hosts import WAIT_S, Background, Result, call, events, lines, live, open_at, replayed

WORKER = str(Path(__file__).with_name("bus_worker.py"))


def _worker(data: Path, mode: str, name: str, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, WORKER, mode, str(data), name, str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_fifty_calls_at_once_on_one_bus_are_each_done_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    host = open_at(data)
    call(host, "register", name="sam")
    together = threading.Barrier(50)

    def work(number: int) -> list[int]:
        together.wait(WAIT_S)
        call(host, "register", name="sam")
        call(host, "create_channel", as_="sam", name=f"channel {number % 5}")
        seqs = [call(host, "post", as_="sam", channel="general", content=f"{number} {n}")["seq"] for n in range(4)]
        call(host, "history", as_="sam", channel="general", count=5)
        return seqs

    with ThreadPoolExecutor(50) as pool:
        seqs = [seq for done in pool.map(work, range(50), timeout=WAIT_S) for seq in done]
    assert [json.loads(line)["seq"] for line in lines(data)] == list(range(1, len(lines(data)) + 1))
    posted = {event["seq"]: event["content"] for event in events(data) if event["type"] == "posted"}
    assert sorted(seqs) == sorted(posted)
    assert len(set(posted.values())) == 200
    assert Counter(event["type"] for event in events(data))["channel_created"] == 2 + 5
    assert Counter(event["type"] for event in events(data))["registered"] == 1
    assert live(host) == replayed(data)


def test_one_key_posted_by_many_threads_and_two_buses_is_one_message(tmp_path: Path) -> None:
    data = tmp_path / "data"
    host = open_at(data)
    call(host, "register", name="sam")
    together = threading.Barrier(16)

    def work(_: int) -> int:
        together.wait(WAIT_S)
        result = call(host, "post", as_="sam", channel="general", content="once", idempotency_key="k")
        return int(result["seq"])

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(work, range(16), timeout=WAIT_S)) == {4}
    assert len(lines(data)) == 4


def test_four_processes_that_post_at_once_leave_no_gap_and_every_answered_post_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    workers = [_worker(data, "posts", "sam", 100) for _ in range(4)]
    names, answered, states = [], [], set()
    for worker in workers:
        assert worker.stdout is not None
        names.append(json.loads(worker.stdout.readline()))
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        *seqs, state = [json.loads(line) for line in worker.communicate(timeout=WAIT_S)[0].splitlines()]
        answered += seqs
        states.add(state)
    assert sorted(names) == ["sam", "sam2", "sam3", "sam4"]
    assert [json.loads(line)["seq"] for line in lines(data)] == list(range(1, len(lines(data)) + 1))
    posted = {event["seq"]: event["content"] for event in events(data) if event["type"] == "posted"}
    assert sorted(answered) == sorted(posted)
    assert len(set(posted.values())) == 400
    assert replayed(data).decode() in states


def test_registers_of_one_name_at_once_get_names_of_their_own(tmp_path: Path) -> None:
    data = tmp_path / "data"
    hosts = [open_at(data) for _ in range(8)]
    together = threading.Barrier(8)

    def register(number: int) -> str:
        together.wait(WAIT_S)
        return str(call(hosts[number], "register", name="sam")["as"])

    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(register, range(8), timeout=WAIT_S))
    assert sorted(names) == ["sam", *(f"sam{number}" for number in range(2, 9))]
    for host, name in zip(hosts, names, strict=True):
        assert call(host, "register", name="sam")["as"] == name
        assert len(call(host, "discover", as_=name)["sessions"]) == 8
    assert len(list((data / "owners").iterdir())) == 8


def test_a_receive_that_waits_while_others_post_misses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    host, peers = open_at(data), [open_at(data) for _ in range(2)]
    call(host, "register", name="sam")
    for number, peer in enumerate(peers):
        call(peer, "register", name=f"peer{number}")

    def post(number: int) -> Result:
        for each in range(150):
            call(peers[number], "post", as_=f"peer{number}", channel="general", content=f"{number} {each}")
        return {}

    posting = [Background(lambda: post(0)), Background(lambda: post(1))]
    seen: list[int] = []
    arguments: dict[str, str] = {}
    while len(seen) < 300:
        result = call(host, "receive", None, as_="sam", wait_seconds=20, **arguments)
        assert result["messages"], "it waited in vain"
        assert "redelivered" not in result
        seen += [message["seq"] for message in result["messages"]]
        arguments = {"ack": result["token"]}
    for each in posting:
        each.outcome()
    assert seen == [event["seq"] for event in events(data) if event["type"] == "posted"]


def test_a_cancel_ends_its_wait_and_no_other(tmp_path: Path) -> None:
    data = tmp_path / "data"
    host, peer = open_at(data), open_at(data)
    call(peer, "register", name="tom")
    for number in range(8):
        call(host, "register", name=f"agent{number}")
    controls = [Control(host.bus) for _ in range(8)]
    waits = [
        Background(partial(call, host, "receive", controls[n], as_=f"agent{n}", wait_seconds=50)) for n in range(8)
    ]
    for control in controls[:4]:
        control.cancel()
    for wait in waits[:4]:
        with pytest.raises(Cancelled):
            wait.outcome()
    seq = call(peer, "post", as_="tom", channel="general", content="for those who wait")["seq"]
    for wait in waits[4:]:
        assert [message["seq"] for message in wait.outcome()["messages"]] == [seq]
    delivered = {event["as"] for event in events(data) if event["type"] == "delivered"}
    assert delivered == {f"agent{number}" for number in range(4, 8)}


def test_a_cancel_at_any_moment_leaves_a_post_in_the_journal_once_or_never(tmp_path: Path) -> None:
    data = tmp_path / "data"
    host = open_at(data)
    call(host, "register", name="sam")
    answered = []
    for number in range(100):
        control = Control(host.bus)
        posting = Background(partial(call, host, "post", control, as_="sam", channel="general", content=str(number)))
        control.cancel()
        posting.finish()
        if posting.error is None:
            answered.append(str(number))
        else:
            assert isinstance(posting.error, Cancelled)
    contents = [event["content"] for event in events(data) if event["type"] == "posted"]
    assert contents == answered


def test_receives_of_one_identity_at_once_hand_out_one_batch(tmp_path: Path) -> None:
    data = tmp_path / "data"
    host, peer = open_at(data), open_at(data)
    call(host, "register", name="sam")
    call(peer, "register", name="tom")
    call(peer, "post", as_="tom", channel="general", content="hello")
    together = threading.Barrier(12)

    def receive(_: int) -> tuple[str, str]:
        together.wait(WAIT_S)
        result = call(host, "receive", as_="sam")
        return result["token"], result["messages"][0]["content"]

    with ThreadPoolExecutor(12) as pool:
        assert len(set(pool.map(receive, range(12), timeout=WAIT_S))) == 1
    assert Counter(event["type"] for event in events(data))["delivered"] == 1


def test_a_reset_among_running_calls_refuses_them_and_breaks_none(tmp_path: Path) -> None:
    data = tmp_path / "data"
    host, person = open_at(data), open_at(data)
    together = threading.Barrier(9)

    def work(number: int) -> Result:
        together.wait(WAIT_S)
        for _ in range(20):
            name = call(host, "register", name=f"agent{number}")["as"]
            try:
                call(host, "create_channel", as_=name, name="own")
                call(host, "subscribe", as_=name, channel="own", from_="oldest")
                call(host, "post", as_=name, channel="own", content="x")
                call(host, "receive", as_=name)
                call(host, "history", as_=name, channel="own")
            except BusError as refused:
                if refused.code not in {"not_registered", "not_found"}:
                    raise
        return {}

    working = [Background(partial(work, number)) for number in range(8)]
    together.wait(WAIT_S)
    for _ in range(10):
        person.bus.execute(Reset(by="me"))
    for each in working:
        each.outcome()
    assert live(host) == live(person) == replayed(data)
