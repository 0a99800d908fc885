"""Recorded histories of concurrent calls, held against a sequential model; see ``tools/crash.py history --help``.

What is checked. A history is linearizable if there is one order of all calls in which each call's result is what the
model (model.py) answers at its place, and which keeps real time: a call that ended before another began stands before
it. Times are of CLOCK_MONOTONIC, which all processes of a machine share.

The journal is the witness of the order, so none has to be searched for. A call that wrote stands at its line: its
result names the line (a post's seq, a batch's token, a channel it created), each line belongs to exactly one call, and
no line stands before one whose call began after its own had ended. A call that wrote nothing (a history, a list, a
repeated key, a batch handed out again, a refusal) stands in a gap between two lines: not before a line whose call had
ended when it began, not behind one whose call began after its end, not before a gap in which an earlier such call
stands; and in at least one such gap the model must answer what it answered. The earliest gap is taken, which leaves
the most room to those behind it, so that a history for which there is an order is never called wrong.

A call that was told ``busy`` wrote nothing and is left out; any other failure is a fault.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbus import tools
from agentbus.errors import BusError
from journal import Fault, Files, JournalError, verify
from tools.crashes import Summary, again_with
from tools.crashes.damage import Unflushed
from tools.crashes.model import Model, essence
from tools.crashes.session import call, events_of, open_host
from tools.crashes.workers import Ears, HungError, Worker

if TYPE_CHECKING:
    from agentbus.host import Host
    from tools.crashes.session import Event

NAMES = ("ann", "bob", "cid", "dan")
THREADS = 2
CALLS = 20
_CHANNELS = ("general", "memory", "one", "two", "Two")
_SETUP_LINES = 2  # the first segment's own line, and the default channels
_SEGMENT_BYTES_MAX = 8000


@dataclass(frozen=True, slots=True)
class Call:
    """One call: from when to when, in ns, and the essence of what it was told."""

    tool: str
    given: dict[str, Any]
    begun: int
    ended: int
    told: dict[str, Any]

    def __str__(self) -> str:
        """For people."""
        return f"{self.tool} {self.given} from {self.begun} to {self.ended} was told {self.told}"


def live(ears: Ears, data: str, name: str, seed: int, flushes: bool) -> None:  # noqa: FBT001  # of one caller
    """A process: registers, waits for the word, makes its calls in some threads, says what it recorded."""
    host = open_host(Path(data), Files() if flushes else Unflushed(), _SEGMENT_BYTES_MAX)
    callers = [_Caller(host, name, random.Random(f"{seed} {name} {n}")) for n in range(THREADS)]  # noqa: S311  # repeatable, not secret
    callers[0].record("register", name=name, context="history")
    ears.say("ready")
    ears.word(None)
    threads = [threading.Thread(target=caller.run) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ears.say([each for caller in callers for each in caller.calls])
    ears.word(None)


class _Caller:
    """One thread of an agent. Two of them share an identity, and race each other for its batches."""

    def __init__(self, host: Host, name: str, chance: random.Random) -> None:
        self.calls: list[Call] = []
        self._host = host
        self._name = name
        self._chance = chance
        self._token: str | None = None

    def record(self, tool: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
        """One call, recorded."""
        begun = time.monotonic_ns()
        try:
            told = call(self._host, tool, **given)
        except (BusError, JournalError) as error:
            told = tools.render_error(error)
        ended = time.monotonic_ns()
        self.calls.append(Call(tool, given, begun, ended, essence(told)))
        return told

    def run(self) -> None:
        acts = [self._post] * 5 + [self._receive] * 6 + [self._create, self._subscribe, self._subscribe, self._list]
        for _ in range(CALLS):
            self._chance.choice([*acts, self._history, self._history])()

    def _channel(self) -> str:
        return self._chance.choice(_CHANNELS)

    def _create(self) -> None:
        kind = self._chance.choice(("ordinary", "ordinary", "memory"))
        self.record("create_channel", **{"as": self._name}, name=self._channel(), kind=kind)

    def _subscribe(self) -> None:
        start = self._chance.choice(("now", "oldest"))
        self.record("subscribe", **{"as": self._name, "from": start}, channel=self._channel())

    def _post(self) -> None:
        # Few keys and few texts: some repeat, some conflict.
        key = {"idempotency_key": str(self._chance.randrange(6))} if self._chance.random() < 0.5 else {}
        content = f"text {self._chance.randrange(2)}"
        self.record("post", **{"as": self._name}, channel=self._chance.choice(_CHANNELS[:3]), content=content, **key)

    def _receive(self) -> None:
        ack = {} if self._token is None or self._chance.random() < 0.3 else {"ack": self._token}
        own = self._chance.random() < 0.2
        told = self.record("receive", **{"as": self._name}, count=self._chance.randrange(6), include_own=own, **ack)
        self._token = told.get("token", self._token)

    def _history(self) -> None:
        anchor = self._chance.choice(
            ({}, {"after": self._chance.randrange(60)}, {"before": self._chance.randrange(60)})
        )
        count = self._chance.randrange(1, 9)
        self.record("history", **{"as": self._name}, channel=self._channel(), count=count, **anchor)

    def _list(self) -> None:
        self.record("list_channels", **{"as": self._name})


def run(rounds: int, seed: int) -> Summary:
    """So many histories."""
    calls = wrote = busy = 0
    wrong: list[str] = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="agentbus-history-") as place:
            data = Path(place) / "data"
            try:
                history = _record(data, seed + number)
            except HungError:
                wrong.append(f"a process hung; {again_with('history', 1, seed + number)}")
                continue
            judged = [each for each in history if each.told.get("code") != "busy"]
            faults = [found for found in verify([data / "journal"]) if isinstance(found, Fault)]
            if faults:
                wrong.append(f"bad line: {faults[0]}; {again_with('history', 1, seed + number)}")
                continue
            events = events_of(data)
            wrong += [f"{text}; {again_with('history', 1, seed + number)}" for text in judge(judged, events)]
            calls += len(history)
            wrote += len(places(judged, events))
            busy += len(history) - len(judged)
    tried = {"rounds": rounds, "calls": calls, "wrote": wrote, "busy": busy, "faults": len(wrong)}
    return Summary("history", tried, wrong)


def _record(data: Path, seed: int) -> list[Call]:
    """One history: all processes begin together."""
    flushes = seed % 5 == 0
    workers = [Worker(live, str(data), name, seed, flushes) for name in NAMES]
    try:
        for word, holds in (("go", lambda said: said == "ready"), ("end", lambda said: said != "ready")):
            said = [worker.await_word(holds) for worker in workers]
            for worker in workers:
                worker.tell(word)
    finally:
        for worker in workers:
            worker.kill()
            worker.bury()
    if None in said:
        raise HungError
    return [each for calls in said for each in calls]


def places(history: list[Call], events: list[Event]) -> dict[int, list[Call]]:
    """The calls that wrote, by the seq of the line that bears what they were told."""
    lines: dict[tuple[Any, ...], int] = {}
    for event in events:
        named = [event.get(name) for name in ("as", "channel", "token")]
        lines[event["type"], *named] = event["seq"]
    found: dict[int, list[Call]] = {}
    for each in history:
        seq = _seq_of(each, lines)
        if seq is not None:
            found.setdefault(seq, []).append(each)
    return found


def _seq_of(each: Call, lines: dict[tuple[Any, ...], int]) -> int | None:
    """The seq of the line a call wrote; None if it wrote none, 0 if it says so and there is none."""
    told, given, me = each.told, each.given, each.given.get("as")
    if "code" in told:
        return None
    line: tuple[Any, ...] | None = None
    match each.tool:
        case "register":
            line = "registered", told["as"], None, None
        case "create_channel" if told["created"]:
            line = "channel_created", me, told["channel"], None
        case "subscribe" if "already" not in told:
            line = "subscribed", me, given["channel"], None
        case "post" if "repeated" not in told:
            return int(told["seq"])
        case "receive" if "token" in told and "redelivered" not in told:
            line = "delivered", me, None, told["token"]
        case "receive" if "ack" in given and "ack_ignored" not in told:
            line = "acked", me, None, given["ack"]
    return None if line is None else lines.get(line, 0)


def judge(history: list[Call], events: list[Event]) -> list[str]:
    """Why a history is not linearizable in the order of its journal; empty if it is."""
    written = places(history, events)
    lines = {event["seq"] for event in events if event["seq"] > _SETUP_LINES and event["type"] != "segment_opened"}
    wrong = [f"a line is nobody's: seq {seq}" for seq in sorted(lines - written.keys())]
    wrong += [f"no line bears what {each} says" for seq in written.keys() - lines for each in written[seq]]
    wrong += [f"seq {seq} is the line of {len(calls)} calls: {calls[0]}" for seq, calls in written.items() if calls[1:]]
    if wrong:
        return wrong
    writes = {seq: calls[0] for seq, calls in sorted(written.items())}
    latest: Call | None = None
    for each in writes.values():
        if latest is not None and each.ended < latest.begun:
            wrong.append(f"its line is behind that of a call which began after it: {each}, {latest}")
        latest = max(latest or each, each, key=lambda other: other.begun)
    return wrong or _judge_results(history, writes, max(lines, default=0))


def _judge_results(history: list[Call], writes: dict[int, Call], last_seq: int) -> list[str]:
    """Go through the journal with the model: lines are answered as they come, and each gap is offered to the others."""
    mine = {id(each) for each in writes.values()}
    others = sorted((each for each in history if id(each) not in mine), key=lambda each: each.begun)
    bounds = {id(each): _bounds(each, writes, last_seq) for each in others}
    fits: dict[int, list[int]] = {id(each): [] for each in others}
    model = Model()
    for gap in range(_SETUP_LINES, last_seq + 1):
        if gap in writes:
            each = writes[gap]
            expected = model.call(each.tool, each.given, gap, each.told.get("token"))
            if expected != each.told:
                return [f"at its line, seq {gap}, the model says {expected}: {each}"]
        for each in others:
            low, high = bounds[id(each)]
            if low <= gap <= high and model.call(each.tool, each.given, None, None) == each.told:
                fits[id(each)].append(gap)
    return _judge_gaps(others, bounds, fits)


def _bounds(each: Call, writes: dict[int, Call], last_seq: int) -> tuple[int, int]:
    """After which seq a call that wrote nothing stands: at least, and at most."""
    low = max((seq for seq, other in writes.items() if other.ended < each.begun), default=_SETUP_LINES)
    high = min((seq - 1 for seq, other in writes.items() if other.begun > each.ended), default=last_seq)
    return low, high


def _judge_gaps(others: list[Call], bounds: dict[int, tuple[int, int]], fits: dict[int, list[int]]) -> list[str]:
    """Give each the earliest gap that fits and is not before that of one which had ended when it began."""
    taken: list[tuple[int, int]] = []
    for each in others:
        low = max((gap for ended, gap in taken if ended < each.begun), default=0)
        gap = next((gap for gap in fits[id(each)] if gap >= low), None)
        if gap is None:
            between = bounds[id(each)]
            return [f"nowhere between seqs {between}, after {low}, the model says so; it fits {fits[id(each)]}: {each}"]
        taken.append((each.ended, gap))
    return []
