"""The law of the fold: whoever folds the journal, whenever, has the state of those who wrote it, byte for byte."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentbus.commands import Reset
from tests.agentbus.hosts import WAIT_S, crash, events, live, open_at, replayed
from tests.agentbus.random_calls import RandomCalls

if TYPE_CHECKING:
    from agentbus.host import Host

WORKER = str(Path(__file__).with_name("bus_worker.py"))


@pytest.mark.parametrize("seed", range(6))
def test_two_buses_on_one_journal_and_a_replay_of_it_agree_after_every_call(tmp_path: Path, seed: int) -> None:
    data = tmp_path / "data"
    chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
    hosts: list[Host] = [open_at(data), open_at(data)]
    calls = [RandomCalls(host, name, chance) for host, name in zip(hosts, ("sam", "tom"), strict=True)]
    for number in range(150):
        which = chance.randrange(2)
        if number % 50 == 49:
            crash(hosts[which])
            hosts[which] = open_at(data)
            calls[which] = RandomCalls(hosts[which], ("sam", "tom")[which], chance)
        if number == 100:
            hosts[which].bus.execute(Reset(by="test"))
            calls = [RandomCalls(host, name, chance) for host, name in zip(hosts, ("sam", "tom"), strict=True)]
        calls[which].step()
        if number % 10 == 0:
            assert live(hosts[0]) == live(hosts[1]) == replayed(data)
    assert live(hosts[0]) == live(hosts[1]) == replayed(data)
    written = {event["type"] for event in events(data)}
    assert written >= {"registered", "ended", "subscribed", "unsubscribed", "posted", "delivered", "acked", "reset"}
    assert written >= {"channel_created", "evicted"}


def test_three_processes_that_write_at_once_and_a_replay_agree(tmp_path: Path) -> None:
    data = tmp_path / "data"
    workers = [
        subprocess.Popen(
            [sys.executable, WORKER, "state", str(data), name, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, name in enumerate(("sam", "tom", "ann"))
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert json.loads(worker.stdout.readline()) == "done"
    # They end one by one, and each end writes nothing: all say the state of this moment.
    told = [json.loads(worker.communicate("\n", timeout=WAIT_S)[0]) for worker in workers]
    assert {state.encode() for state in told} == {replayed(data)}


@pytest.mark.parametrize("cut", [3, 10, 25])
def test_folding_the_rest_onto_a_beginning_is_folding_the_whole(tmp_path: Path, cut: int) -> None:
    data = tmp_path / "data"
    chance = random.Random(cut)  # noqa: S311  # repeatable, not secret
    host, late = open_at(data), open_at(data)
    calls = RandomCalls(host, "sam", chance)
    for number in range(50):
        calls.step()
        if number == cut:
            late.bus.warm()
    assert live(late) == live(host) == replayed(data)


def test_the_same_bytes_in_another_file_are_folded_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    host = open_at(data)
    calls = RandomCalls(host, "sam", random.Random(1))  # noqa: S311  # repeatable, not secret
    calls.step()
    (segment,) = (data / "journal").glob("*.jsonl")
    copy = segment.with_suffix(".copy")
    copy.write_bytes(segment.read_bytes())
    copy.rename(segment)
    calls.step()
    assert live(host) == replayed(data)
