"""Processes killed at random moments: what was answered is in the journal, once, and whoever comes back goes on."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from journal import Journal
from tests.agentbus.hosts import WAIT_S, call, events, live, open_at, replayed

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKER = str(Path(__file__).with_name("bus_worker.py"))
NAMES = ("sam", "tom", "ann")
ROUNDS = 8
LINES_BEFORE_A_KILL = 25


class _Worker:
    """One process that posts and receives under one name until it is killed, and all it ever said."""

    def __init__(self, data: Path, name: str) -> None:
        self.data = data
        self.name = name
        self.lives = 0
        self.said: list[dict[str, Any]] = []

    def start(self) -> None:
        self.lives += 1
        self.process = subprocess.Popen(
            [sys.executable, WORKER, "rounds", str(self.data), self.name, str(self.lives * 10_000)],
            stdout=subprocess.PIPE,
            text=True,
        )

    def listen(self, count: int) -> None:
        """Take so many of the lines it says."""
        assert self.process.stdout is not None
        for _ in range(count):
            self.said.append(json.loads(self.process.stdout.readline()))

    def kill(self) -> None:
        self.process.kill()
        assert self.process.stdout is not None
        with self.process.stdout as rest:
            self.said += [json.loads(line) for line in rest]
        self.process.wait(WAIT_S)

    def told(self, what: str) -> Iterator[dict[str, Any]]:
        return (line for line in self.said if what in line)


def test_killed_processes_lose_nothing_they_answered_and_come_back_under_their_names(tmp_path: Path) -> None:
    data = tmp_path / "data"
    chance = random.Random(7)  # noqa: S311  # repeatable, not secret
    survivor = open_at(data)
    call(survivor, "register", name="survivor")
    workers = [_Worker(data, name) for name in NAMES]
    for worker in workers:
        worker.start()
    for _ in range(ROUNDS):
        worker = chance.choice(workers)
        worker.listen(chance.randrange(1, LINES_BEFORE_A_KILL))
        worker.kill()
        worker.start()
        call(survivor, "post", as_="survivor", channel="general", content="still here")
    for worker in workers:
        worker.listen(3)
        worker.kill()

    _check_the_journal(data, workers)
    _check_delivery(data, workers)
    assert live(survivor) == replayed(data)
    for worker in workers:
        _check_the_return(data, worker)


def _check_the_journal(data: Path, workers: list[_Worker]) -> None:
    journal = Journal(data / "journal", first_events=b"[]", read_only=True)
    assert [commit.seq for commit in journal.read(0)] == list(range(1, journal.last_seq + 1))
    journal.close()
    posted = {event["seq"]: event.get("key") for event in events(data) if event["type"] == "posted"}
    answered = {line["seq"]: line["key"] for worker in workers for line in _posts(worker)}
    assert answered
    assert answered.items() <= posted.items()
    assert max(Counter(key for key in posted.values() if key).values()) == 1
    names = {line["registered"]["as"] for worker in workers for line in worker.told("registered")}
    assert names == set(NAMES)


def _posts(worker: _Worker) -> list[dict[str, Any]]:
    return [{"seq": line["posted"], "key": line["key"]} for line in worker.told("posted")]


def _check_delivery(data: Path, workers: list[_Worker]) -> None:
    """Whatever lies at or below a cursor was shown: a hole is never acked, a duplicate may be."""
    rows = json.loads(replayed(data))["subscriptions"]
    messages = [event for event in events(data) if event["type"] == "posted"]
    subscribed = {event["as"]: event["cursor"] for event in reversed(events(data)) if event["type"] == "subscribed"}
    for worker in workers:
        (cursor,) = [row["cursor"] for row in rows if (row["as"], row["channel"]) == (worker.name, "general")]
        shown = {seq for line in worker.told("received") for seq in line["received"]}
        acked = {each["seq"] for each in messages if subscribed[worker.name] < each["seq"] <= cursor}
        assert acked - {each["seq"] for each in messages if each["as"] == worker.name} <= shown


def _check_the_return(data: Path, worker: _Worker) -> None:
    before = json.loads(replayed(data))
    unread = {row["channel"]: row["unread"] for row in before["subscriptions"] if row["as"] == worker.name}
    batch = [row["token"] for row in before["batches"] if row["as"] == worker.name]
    host = open_at(data)
    result = call(host, "register", name=worker.name)
    assert (result["as"], result["resumed"]) == (worker.name, True)
    told = {row["channel"]: row["count"] for row in result["pending"]}
    assert told == {channel: count for channel, count in unread.items() if count}
    received = call(host, "receive", as_=worker.name)
    if batch:
        assert (received["token"], received["redelivered"]) == (batch[0], True)
    host.close(time.monotonic() + WAIT_S)
