"""A scripted session that uses every tool, and what the journal must hold after it. Injects no fault itself.

The session is the same each time but for times, pids, tokens and the journal's id: three identities on two hosts, one
of which is closed and opened again, both kinds of channel, posts with and without keys, batches that are acked, handed
out again or acked wrongly, calls that are refused. Its segments are so small that it rolls several times.

Every call leaves a `Told`: what the caller may rely on afterwards. ``compare`` holds that against a journal's events:
what was answered is there once, what was refused is not there, and nothing at all is there twice.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from agentbus import tools
from agentbus.bus import FIRST_EVENTS, Bus
from agentbus.commands import Policy
from agentbus.config import Settings
from agentbus.control import Control
from agentbus.errors import UNSYNCED, BusError
from agentbus.host import Host
from agentbus.owners import Owners
from journal import Files, Journal, JournalError, Snapshots, UnsyncedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Result = dict[str, Any]
Event = dict[str, Any]
Pattern = tuple[tuple[str, Any], ...]
HostOpener = Callable[[], Host]

SEGMENT_BYTES_MAX = 2000
"""A segment of about eight lines: the session rolls three times, and is still cut and flipped byte by byte soon."""

SENDING = frozenset({"post", "edit_memory"})
"""The tools that do something else the second time, unless they are given a key."""

_EVENTS = {
    "post": ("posted", ("channel", "content")),
    "edit_memory": ("memory_edited", ("id", "content")),
    "delete_memory": ("memory_deleted", ("id",)),
    "subscribe": ("subscribed", ("channel",)),
}
"""Tool -> the event it leaves, and which of its arguments stand in that under the same name."""

SECONDS_TO_CLOSE = 5.0
_POLICY = Policy(
    cursor_idle_ms=72 * 3_600_000, receipt_retention_ms=3_600_000, event_bytes_max=32 << 10, result_bytes_max=10 << 10
)


def open_host(
    data: Path, files: Files | None = None, segment_bytes_max: int = SEGMENT_BYTES_MAX, *, snapshots: bool = False
) -> Host:
    """A process on the bus, as far as the bus can see: its own journal object, State and owner.

    Args:
        data: the data directory; made at the first commit. The working directory is ``work`` beside it.
        files: the journal's system calls; a fault enters here.
        segment_bytes_max: see `Journal`.
        snapshots: begin from one, and keep one when it is time. A thread of its own does that: not in the session,
            whose system calls are to come in the same order each time.
    """
    files = files or Files()
    work = data.parent / "work"
    work.mkdir(parents=True, exist_ok=True)
    journal = Journal(
        data / "journal",
        first_events=FIRST_EVENTS,
        by="agentbus crash",
        segment_bytes_max=segment_bytes_max,
        files=files,
    )
    kept = Snapshots(data / "snapshots", files) if snapshots else None
    bus = Bus(journal, Owners(data / "owners"), _POLICY, kept)
    settings = Settings(data_directory=data, send_messages_per_second=10_000, send_kib_per_second=65_536)
    return Host(bus, settings, str(work), "crash 1.0")


def abandon(host: Host) -> None:
    """What the kernel does to a process that dies: its locks and descriptors are gone, and nothing was said."""
    host.bus.owners.release()
    host.bus._journal.close()  # noqa: SLF001  # no living process ends so


def call(host: Host, tool: str, **arguments: Any) -> Result:  # noqa: ANN401  # JSON
    """A tool's result; ``as_`` and ``from_`` stand for the arguments that Python keeps for itself."""
    raw = {name.rstrip("_"): value for name, value in arguments.items()}
    return tools.call(tool, raw, host, Control(host.bus))


@dataclass(frozen=True, slots=True)
class Told:
    """One call and what its caller was told.

    Attributes:
        number: of the call in its session, from 1.
        tool: in the tool table, or ``close`` for a host that ends its sessions.
        outcome: ``done``: it is so from now on. ``refused``: nothing was written. ``unknown``: the caller was told so,
            or was told nothing.
        result: of a call that is done.
        error: of one that is not; None if it never returned.
        leaves: what each of its events holds, if it has them; see `compare`.
        undurable: whether those may be gone after a power cut though the call was done: a batch handed out.
    """

    number: int
    tool: str
    arguments: dict[str, Any]
    outcome: Literal["done", "refused", "unknown"] = "unknown"
    result: Result | None = None
    error: Exception | None = None
    leaves: tuple[Pattern, ...] = ()
    undurable: tuple[Pattern, ...] = ()

    def __str__(self) -> str:
        """For people."""
        given = json.dumps(self.arguments, ensure_ascii=False)
        return f"call {self.number} ({self.tool} {given}), {self.outcome}"


class Session:
    """A session at work.

    Attributes:
        told: every call so far. One that was cut short by an exception that is no failure of the bus stands at the
            end, ``unknown``: the exception goes to whoever runs the session.
        hosts: the hosts that are open, by a name of the script.
    """

    def __init__(self, opener: HostOpener, tries: int = 1) -> None:
        """``tries``: how often a call that failed is made at most, as an agent would; 1 is never again."""
        self.told: list[Told] = []
        self.hosts: dict[str, Host] = {}
        self._opener = opener
        self._tries = tries
        self._tokens: dict[str, str] = {}

    def open(self, name: str) -> None:
        """Start a process."""
        self.hosts[name] = self._opener()

    def close(self, name: str) -> None:
        """End a process: its sessions end, in one commit."""
        host = self.hosts.pop(name)
        mine = [told.result["as"] for told in self._registers(name) if told.result]
        owner = host.bus.owners.token
        leaves = tuple(_pattern(type="ended", as_=each, owner=owner, reason="exit") for each in dict.fromkeys(mine))

        def close() -> Result:
            host.close(time.monotonic() + SECONDS_TO_CLOSE)
            return {}

        self._begin("close", {"host": name}, leaves)
        self._finish(close)

    def register(self, host: str, **arguments: Any) -> None:  # noqa: ANN401  # JSON
        """Register on a host; the context must be the session's own, so that its line can be told from others."""
        arguments |= {"context": f"{host}, call {len(self.told) + 1}"}
        leaves = [_pattern(type="registered", name=arguments["name"], context=arguments["context"])]
        self._attempt(self.hosts[host], "register", arguments, tuple(leaves))

    def call(self, host: str, tool: str, as_: str, **arguments: Any) -> Result:  # noqa: ANN401  # JSON
        """Any other tool; its result, empty if there was none."""
        given = {"as": as_, **{name.rstrip("_"): value for name, value in arguments.items()}}
        return self._attempt(self.hosts[host], tool, given, _leaves(tool, given))

    def receive(self, host: str, as_: str, *, ack: bool = False, **arguments: Any) -> Result:  # noqa: ANN401  # JSON
        """Receive; with ``ack`` the identity's last batch is acked if it has one."""
        if ack and as_ in self._tokens:
            arguments["ack"] = self._tokens[as_]
        result = self.call(host, "receive", as_, **arguments)
        if ack and result:
            self._tokens.pop(as_, None)
        if "token" in result:
            self._tokens[as_] = result["token"]
        return result

    def _registers(self, host: str) -> Iterable[Told]:
        return (each for each in self.told if each.tool == "register" and _host_of(each) == host)

    def _attempt(self, host: Host, tool: str, given: dict[str, Any], leaves: tuple[Pattern, ...]) -> Result:
        for _ in range(self._tries):
            self._begin(tool, given, leaves)
            told = self._finish(lambda: tools.call(tool, given, host, Control(host.bus)))
            if told.result is not None or not _may_be_made_again(told):
                break
        return self.told[-1].result or {}

    def _begin(self, tool: str, given: dict[str, Any], leaves: tuple[Pattern, ...]) -> None:
        self.told.append(Told(len(self.told) + 1, tool, given, leaves=leaves))

    def _finish(self, work: Callable[[], Result]) -> Told:
        told = self.told[-1]
        try:
            told = _done(told, work())
        except (BusError, JournalError) as error:
            unsynced = isinstance(error, UnsyncedError) or (isinstance(error, BusError) and error.code == UNSYNCED)
            told = replace(told, outcome="unknown" if unsynced else "refused", error=error)
        self.told[-1] = told
        return told


def _host_of(told: Told) -> str:
    return str(told.arguments["context"]).partition(",")[0]


def _may_be_made_again(told: Told) -> bool:
    """Whether an agent would: not what it got wrong itself, and not what might then be there twice."""
    if isinstance(told.error, BusError) and not told.error.retryable:
        return False
    return told.outcome == "refused" or told.tool not in SENDING or "idempotency_key" in told.arguments


def _done(told: Told, result: Result) -> Told:
    """What a result says beyond what was asked."""
    leaves, undurable = told.leaves, told.undurable
    if told.tool in SENDING:
        leaves = tuple((*pattern, ("seq", result["seq"])) for pattern in leaves)
    if told.tool == "receive":
        if result.get("ack_ignored"):
            leaves = ()
        if "token" in result:
            undurable = (_pattern(type="delivered", as_=told.arguments["as"], token=result["token"]),)
    return replace(told, outcome="done", result=result, leaves=leaves, undurable=undurable)


def _leaves(tool: str, given: dict[str, Any]) -> tuple[Pattern, ...]:
    if tool == "create_channel":
        return (_pattern(type="channel_created", channel=given["name"]),)
    if tool == "unsubscribe":
        return (_pattern(type="unsubscribed", as_=given["as"], channel=given["channel"], reason="asked"),)
    if tool == "receive":
        return (_pattern(type="acked", as_=given["as"], token=given["ack"]),) if "ack" in given else ()
    if tool not in _EVENTS:
        return ()
    kind, fields = _EVENTS[tool]
    return (_pattern(type=kind, as_=given["as"], **{name: given[name] for name in fields}),)


def _pattern(**values: Any) -> Pattern:  # noqa: ANN401  # JSON
    return tuple((name.rstrip("_"), value) for name, value in values.items())


def script(opener: HostOpener, tries: int = 1) -> list[Told]:
    """The whole session, played once; what each of its calls was told."""
    session = Session(opener, tries)
    play(session)
    return session.told


def play(session: Session) -> None:
    """The whole session. No call depends on how another one ended, so that a failure ends nothing but itself."""
    _meet(session)
    _talk(session)
    _remember(session)
    _return(session)


def _meet(session: Session) -> None:
    for name in ("sam", "tom"):
        session.open(name)
        session.register(name, name=name)
    session.call("sam", "create_channel", "sam", name="reviews")
    session.call("tom", "create_channel", "tom", name="reviews")
    session.call("tom", "create_channel", "tom", name="Reviews")
    session.call("tom", "create_channel", "tom", name="facts", kind="memory")
    session.call("tom", "subscribe", "tom", channel="general")
    session.call("tom", "subscribe", "tom", channel="general", from_="oldest")
    session.call("tom", "subscribe", "tom", channel="facts")
    session.call("sam", "subscribe", "sam", channel="reviews", persistent=True)
    session.call("sam", "list_channels", "sam")
    session.call("tom", "discover", "tom")


def _talk(session: Session) -> None:
    hello = {"channel": "general", "content": "hello @tom \u2028 \u6f22\u5b57, it\u2019s me", "idempotency_key": "k1"}
    session.call("sam", "post", "sam", channel="general", content="is anybody here?")
    first = session.call("sam", "post", "sam", **hello, label="greeting", metadata={"hash": '","hash":"'})
    session.call("sam", "post", "sam", **hello, label="greeting", metadata={"hash": '","hash":"'})
    session.call("sam", "post", "sam", channel="general", content="another text", idempotency_key="k1")
    session.call("sam", "post", "sam", channel="generel", content="misspelt")
    session.receive("tom", "tom", count=1)
    session.receive("tom", "tom")
    session.call("tom", "receive", "tom", ack="000000000000")
    session.receive("tom", "tom", ack=True)
    session.call("tom", "post", "tom", channel="general", content="yes", reply_to=first.get("seq", 0))
    session.receive("tom", "tom", ack=True, count=0)
    session.call("tom", "post", "tom", channel="reviews", content="please look", idempotency_key="k1")
    session.receive("sam", "sam", wait_seconds=1)
    session.receive("sam", "sam", ack=True)
    session.call("tom", "history", "tom", channel="general", count=3)


def _remember(session: Session) -> None:
    fact = {"channel": "facts", "content": "the port is 4711", "idempotency_key": "port"}
    memory = session.call("sam", "post", "sam", **fact)
    session.call("sam", "post", "sam", **fact)
    known = {"id": memory.get("memory_id", 0)}
    session.call("tom", "get_memory", "tom", **known)
    session.call("tom", "edit_memory", "tom", **known, content="the port is 4712", label="fact")
    session.call("tom", "edit_memory", "tom", id=999_999, content="of no memory")
    session.call("sam", "edit_memory", "sam", **known, content="the port is 4713", idempotency_key="port 2")
    session.call("tom", "search", "tom", query="port", kind="memory")
    session.receive("tom", "tom", channels=["facts"])
    session.receive("tom", "tom", ack=True, include_own=True)
    session.call("tom", "delete_memory", "tom", **known, idempotency_key="gone")
    session.call("sam", "edit_memory", "sam", **known, content="the port is 4713", idempotency_key="port 2")
    session.call("tom", "unsubscribe", "tom", channel="facts")
    session.call("tom", "unsubscribe", "tom", channel="facts")


def _return(session: Session) -> None:
    """Tom's process ends with a batch unacked; the next one comes back to it."""
    session.call("sam", "post", "sam", channel="general", content="one more before you go")
    session.receive("tom", "tom")
    session.close("tom")
    session.open("tom again")
    session.register("tom again", name="tom")
    session.receive("tom again", "tom")
    session.receive("tom again", "tom", ack=True)
    session.register("tom again", name="kid", parent="tom")
    session.call("tom again", "post", "tom/kid", channel="reviews", content="a child's word")
    session.close("sam")
    session.close("tom again")


def events_of(data: Path) -> list[Event]:
    """Every event of the whole lines in a data directory's journal, with its ``seq``; read plainly, not by the product.

    Raises:
        ValueError: a line is no JSON.
    """
    segments = sorted((data / "journal").glob("*.jsonl"))
    lines = [json.loads(line) for segment in segments for line in segment.read_bytes().split(b"\n")[:-1]]
    return [{"seq": line["seq"], **event} for line in lines for event in line["events"]]


def compare(told: Iterable[Told], events: list[Event], *, durable_only: bool = False) -> list[str]:
    """What is wrong with a journal, given what the callers were told; a sentence each.

    Args:
        told: of one session.
        events: of its journal, as it is now.
        durable_only: the power failed: batches that were handed out may be gone.
    """
    wrong: list[str] = []
    asked: dict[Pattern, list[Told]] = {}
    for each in told:
        for pattern in each.leaves if durable_only else each.leaves + each.undurable:
            base = tuple(pair for pair in pattern if pair[0] != "seq")
            asked.setdefault(base, []).append(each)
    for pattern, calls in asked.items():
        wrong += _judge(pattern, calls, [event for event in events if _matches(pattern, event)])
    for event in events:
        if "content" in event and not any(_matches(pattern, event) for pattern in asked):
            wrong.append(f"nobody sent what stands at seq {event['seq']}: {event['content']!r}")
    return wrong + _doubled(events)


def _judge(pattern: Pattern, calls: list[Told], found: list[Event]) -> list[str]:
    """What one event should be, by all the calls that asked for it."""
    seqs = [event["seq"] for event in found]
    if len(found) > 1:
        return [f"there twice, at seqs {seqs}: {dict(pattern)}"]
    done = [each for each in calls if each.outcome == "done"]
    if done and not found:
        return [f"lost: {done[0]} left no {dict(pattern)}"]
    if not done and found and all(each.outcome == "refused" for each in calls):
        return [f"refused, and there at seq {seqs[0]}: {calls[0]}"]
    told = {dict(leaf)["seq"] for each in done for leaf in each.leaves if "seq" in dict(leaf)}
    if told and told != set(seqs):
        return [f"answered with seq {sorted(told)}, and there at {seqs}: {done[0]}"]
    return []


def _matches(pattern: Pattern, event: Event) -> bool:
    return all(event.get(name) == value for name, value in pattern)


def _doubled(events: list[Event]) -> list[str]:
    keys = Counter((event["as"], event["key"]) for event in events if "key" in event)
    return [f"key {key!r} of {identity} is there {count} times" for (identity, key), count in keys.items() if count > 1]
