"""Processes killed while they write; see ``tools/crash.py kill --help``. Judges nothing itself: that is checks.py.

Rounds go by in eras of 50, each on a data directory of its own, because every life begins with a fold of the whole
journal. Era N of seed S is era 1 of seed S + N - 1: a fault is sought again by its era's seed. When a process dies by
its own hand the moment is repeatable, when by ours it is not; therefore the directory of an era in which something was
wrong is kept, and named.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbus import projection, queries, tools
from agentbus.errors import BusError
from journal import Files, JournalError
from tools.crashes import Summary, again_with
from tools.crashes.checks import Answers, Findings, check, check_returns
from tools.crashes.session import call, open_host
from tools.crashes.workers import WAIT_S, Ears, HungError, Worker, listen_to_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.host import Host

ERA_ROUNDS = 50
NAMES = ("ann", "bob", "cid", "dan")
SURVIVOR = "sam"
_VERBS = frozenset(name for name in vars(Files) if not name.startswith("_"))
_MADE_OF_OTHERS = frozenset({"append", "write_all", "read_all", "copy", "fsync_directory"})
_MESSAGES_MAX = 10
_CALLS_MAX = 240
_DELAY_S = (1e-6, 1e-2)
_FLUSHING_ERAS = 0.2
_CONTENT_MAX = 3000  # so that a message about it goes through a pipe whole or not at all: PIPE_BUF is 4096


@dataclass(frozen=True, slots=True)
class Life:
    """What one process is to do.

    Attributes:
        number: of this life of the name; its messages hold it.
        call: it dies by its own hand at this system call of the journal, counted from 1; 0 for never.
        writes_only: count writes alone.
        snapshot_lines: keep a snapshot after so many lines; the product's own bound would be met by no life here.
        flushes: wait for the disk. A kill does not show whether one did, and without it there is time for more kills.
        unsure: what the life before asked and was not answered, (key, content); asked again first.
    """

    data: str
    name: str
    number: int
    seed: int
    segment_bytes_max: int
    snapshot_lines: int
    flushes: bool
    call: int = 0
    writes_only: bool = False
    unsure: tuple[str, str] | None = None


class Mortal(Files):
    """Kills its process at the n-th call: before it, after it, or, if it is a write, in the middle."""

    def __init__(self, life: Life, chance: random.Random) -> None:
        self.left = life.call
        self._writes_only = life.writes_only
        self._flushes = life.flushes
        self._chance = chance

    def fdatasync(self, fd: int) -> None:
        """What was written reaches the disk, if this life waits for that."""
        if self._flushes:
            super().fdatasync(fd)

    def fsync(self, fd: int) -> None:
        """As `fdatasync`."""
        if self._flushes:
            super().fsync(fd)

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401  # whatever the system call returns
        found = object.__getattribute__(self, name)
        if name not in _VERBS - _MADE_OF_OTHERS or not object.__getattribute__(self, "left"):
            return found
        return lambda *args: self._count(name, found, args)

    def _count(self, name: str, found: Callable[..., Any], args: tuple[Any, ...]) -> Any:  # noqa: ANN401  # as above
        self.left -= name == "write" or not self._writes_only
        if self.left > 0:  # two threads may have come at once: then it is below zero
            return found(*args)
        try:
            if name == "write":
                found(args[0], args[1][: self._chance.randrange(len(args[1]) + 1)])
            elif self._chance.random() < 0.5:
                found(*args)
        finally:  # a call that fails, such as the look at a directory that is not there, is a moment like any other
            os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def live(ears: Ears, life: Life) -> None:
    """A process's life: it posts, receives and acks until it dies; when told "stop" it stops and says its State."""
    chance = random.Random(life.seed)  # noqa: S311  # repeatable, not secret
    files = Mortal(life, chance)
    vars(projection)["SNAPSHOT_TAIL_LINES_MIN"] = life.snapshot_lines  # of this process only
    host = open_host(Path(life.data), files, life.segment_bytes_max, snapshots=True)
    try:
        _Agent(ears, host, life, chance).run(files)
    except (BusError, JournalError) as error:
        ears.say(("failed", tools.render_error(error)))


class _Agent:
    """What an agent does on the bus, said before and after."""

    def __init__(self, ears: Ears, host: Host, life: Life, chance: random.Random) -> None:
        self._ears = ears
        self._host = host
        self._life = life
        self._chance = chance
        self._token: str | None = None
        self._count = 0

    def run(self, files: Mortal) -> None:
        registered = call(self._host, "register", name=self._life.name, context=f"life {self._life.number}")
        self._ears.say(("registered", registered["as"]))
        for channel in ("general", "memory"):
            call(self._host, "subscribe", as_=self._life.name, channel=channel)
        if self._life.unsure:
            self._post(*self._life.unsure)
        while True:
            if self._ears.word() == "stop":
                files.left = 0
                self._stop()
            elif self._chance.random() < 0.6:
                self._count += 1
                key = f"{self._life.name} {self._life.number} {self._count}"
                content = key + " " + "x" * int(min(self._chance.paretovariate(0.5), _CONTENT_MAX))
                for _ in range(self._chance.choice((1, 2))):  # twice, as a caller does that is not sure
                    self._post(key, content)
            else:
                self._receive()

    def _post(self, key: str, content: str) -> None:
        self._ears.say(("posting", key, content))
        # The channel follows from the key, so that it is the same when it is asked again.
        channel = "memory" if key.endswith("7") else "general"
        posted = call(self._host, "post", as_=self._life.name, channel=channel, content=content, idempotency_key=key)
        self._ears.say(("posted", key, posted["seq"]))

    def _receive(self) -> None:
        ack = {} if self._token is None or self._chance.random() < 0.2 else {"ack": self._token}
        if ack:
            self._ears.say(("acking", ack["ack"]))
        received = call(self._host, "receive", as_=self._life.name, count=self._chance.randrange(9), **ack)
        if ack and "ack_ignored" not in received:
            self._ears.say(("acked", ack["ack"]))
        if "token" in received:
            self._ears.say(("received", received["token"], [message["seq"] for message in received["messages"]]))
        self._token = received.get("token", None if ack else self._token)

    def _stop(self) -> None:
        """Wait until all have stopped, then say the State."""
        self._ears.say(("stopped",))
        self._ears.word(None)
        self._ears.say(("state", self._host.bus.ask(queries.encode_canonical)))
        self._ears.word(None)


class _Seat:
    """A name on the bus, and the process that sits there now."""

    def __init__(self, name: str, era: _Era) -> None:
        self.name = name
        self.lives = 0
        self._era = era
        self._heard = 0
        self._unsure: tuple[str, str] | None = None
        self.start()

    def start(self) -> None:
        """The next life. Half of them end by their own hand, if nobody else is quicker."""
        chance = self._era.chance
        self.lives += 1
        self._heard = 0
        own = self.name != SURVIVOR and chance.random() < 0.5
        writes_only = chance.random() < 0.5
        count = int(chance.uniform(1, _CALLS_MAX / 20 if writes_only else _CALLS_MAX)) if own else 0
        life = Life(
            str(self._era.data),
            self.name,
            self.lives,
            chance.randrange(1 << 30),
            self._era.segment_bytes_max,
            self._era.snapshot_lines,
            self._era.flushes,
            count,
            writes_only,
            self._unsure,
        )
        self.own_hand = own
        self.worker = Worker(live, life)

    def take_in(self) -> None:
        """Put what was said since into the era's answers."""
        for message in self.worker.heard[self._heard :]:
            self._era.answers.take(self.name, message)
            if message[0] == "posting":
                self._unsure = message[1:]
            elif message[0] == "posted":
                self._unsure = None
        self._heard = len(self.worker.heard)

    def die(self) -> None:
        """The end of this life, one way or the other."""
        if not self.own_hand:
            self.worker.kill()
        self.worker.bury()
        self.take_in()
        if self.worker.exit_code != -signal.SIGKILL:
            self._era.found.faults.append(f"{self.name} died by itself, with exit code {self.worker.exit_code}")


class _Era:
    """Some rounds on one data directory."""

    def __init__(self, data: Path, seed: int) -> None:
        self.data = data
        self.chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
        self.segment_bytes_max = self.chance.choice((6000, 30_000, 200_000))
        self.snapshot_lines = self.chance.choice((20, 200))
        self.flushes = self.chance.random() < _FLUSHING_ERAS
        self.answers = Answers()
        self.found = Findings()
        self.kills = 0
        self.snapshots = 0
        self._seats = [_Seat(name, self) for name in (*NAMES, SURVIVOR)]

    def run(self, rounds: int) -> None:
        """So many kills, then the checks; all processes are gone in the end. The first that dies by itself ends it."""
        states: dict[str, bytes] = {}
        try:
            while self.kills < rounds and not self.found.faults:
                self._round()
            states = self._stop()
        except HungError:
            self.found.faults.append("a process hung")
        finally:
            for seat in self._seats:
                seat.worker.kill()
                seat.worker.bury()
                seat.take_in()
        self.found.add(check(self.data, self.answers, states))
        if not self.found.faults:
            self.found.add(check_returns(self.data, states))
        self.snapshots = len(list((self.data / "snapshots").glob("0*")))

    def _round(self) -> None:
        """One kill. A process that has died by its own hand already is the first to be replaced."""
        dead = [seat for seat in self._seats if seat.worker.ended]
        seat = dead[0] if dead else self.chance.choice(self._seats[:-1])
        if seat.own_hand:
            deadline = time.monotonic() + WAIT_S
            while not seat.worker.ended and time.monotonic() < deadline:
                listen_to_all([each.worker for each in self._seats], WAIT_S)
        else:
            for _ in range(self.chance.randrange(_MESSAGES_MAX)):
                seat.worker.listen(WAIT_S)
            _spin(self.chance)
        seat.die()
        self.kills += 1
        seat.start()
        listen_to_all([each.worker for each in self._seats])

    def _stop(self) -> dict[str, bytes]:
        """Stop all, and hear from each what State it has."""
        for seat in self._seats:
            seat.worker.tell("stop")
        for seat in self._seats:
            while seat.worker.await_word(lambda message: message[0] == "stopped") is None:
                seat.die()
                if self.found.faults:
                    return {}
                seat.start()
                seat.worker.tell("stop")
        for seat in self._seats:
            seat.worker.tell("say")
        said = {seat.name: seat.worker.await_word(lambda message: message[0] == "state") for seat in self._seats}
        return {name: message[1] if message else b"dead" for name, message in said.items()}


def _spin(chance: random.Random) -> None:
    """Pass the time, to the microsecond; each order of magnitude as often as the next."""
    low, high = _DELAY_S
    until = time.perf_counter() + low * (high / low) ** chance.random()
    while time.perf_counter() < until:
        pass


def run(rounds: int, seed: int) -> Summary:
    """So many kills."""
    tried = {"rounds": rounds, "kills": 0, "acknowledged": 0, "snapshots": 0}
    found = Findings()
    wrong: list[str] = []
    for number, begun in enumerate(range(0, rounds, ERA_ROUNDS)):
        count = min(ERA_ROUNDS, rounds - begun)
        place = Path(tempfile.mkdtemp(prefix="agentbus-kill-"))
        bad: list[str] = []
        try:
            era = _Era(place / "data", seed + number)
            era.run(count)
            bad = era.found.all()
        finally:
            if not bad:
                shutil.rmtree(place)
        found.add(era.found)
        wrong += [f"{text}; {again_with('kill', count, seed + number)}; its files are in {place}" for text in bad]
        tried["kills"] += era.kills
        tried["acknowledged"] += era.answers.count
        tried["snapshots"] += era.snapshots
    counts = {"lost": len(found.lost), "doubled": len(found.doubled), "faults": len(found.faults)}
    return Summary("kill", tried | counts, wrong)
