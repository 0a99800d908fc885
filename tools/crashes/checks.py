"""What must be so after processes were killed, given what they had been told. Only `check_returns` writes.

The lines are read plainly here, not by the product; `journal.verify` and the fold are asked besides.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentbus import queries, wire
from agentbus.fold import fold
from agentbus.state import State
from journal import CorruptError, Fault, audit, verify
from tools.crashes.session import abandon, call, events_of, open_host

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tools.crashes.session import Event


@dataclass(slots=True)
class Findings:
    """A sentence for everything that is not as promised."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        """The worst first."""
        return [f"lost: {text}" for text in self.lost] + [f"doubled: {text}" for text in self.doubled] + self.faults

    def add(self, other: Findings) -> None:
        """Take in another's."""
        self.lost += other.lost
        self.doubled += other.doubled
        self.faults += other.faults


@dataclass(slots=True)
class Answers:
    """What the processes said they asked, and what they were told.

    Attributes:
        asked: content by key.
        posts: (identity, seqs) by key; more than one seq is one too many.
        shown: seqs by token.
        acking: (identity, token) of every ack that was sent.
        acked: of every one that was accepted.
        failed: what ended in a failure that no fault explains.
    """

    asked: dict[str, str] = field(default_factory=dict)
    posts: dict[str, tuple[str, set[int]]] = field(default_factory=dict)
    shown: dict[str, set[int]] = field(default_factory=dict)
    acking: set[tuple[str, str]] = field(default_factory=set)
    acked: set[tuple[str, str]] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)

    def take(self, name: str, message: tuple[Any, ...]) -> None:
        """One message of a process that goes by a name."""
        match message:
            case ("registered", as_) if as_ != name:
                self.failed.append(f"{name} came back as {as_}")
            case ("posting", key, content):
                self.asked[key] = content
            case ("posted", key, seq):
                self.posts.setdefault(key, (name, set()))[1].add(seq)
            case ("acking", token):
                self.acking.add((name, token))
            case ("acked", token):
                self.acked.add((name, token))
            case ("received", token, seqs):
                self.shown.setdefault(token, set()).update(seqs)
            case ("failed", envelope):
                self.failed.append(f"{name} was told {envelope}")

    @property
    def count(self) -> int:
        """Acknowledged posts and acks."""
        return len(self.posts) + len(self.acked)


def check(data: Path, answers: Answers, states: dict[str, bytes]) -> Findings:
    """Hold a data directory on which nobody is at work against what was said.

    Args:
        data: the directory.
        answers: of all processes that ever worked on it.
        states: the canonical State of each living process, by its name.
    """
    found = Findings(faults=list(answers.failed))
    for fault in verify([data / "journal"]):
        if isinstance(fault, Fault):
            found.faults.append(f"bad line: {fault}")
    if found.faults:
        return found
    events = events_of(data)
    _check_seqs(events, found)
    _check_posts(events, answers, found)
    _check_acks(events, answers, found)
    folded = fold_from_1(data)
    _check_delivery(events, json.loads(folded), answers, found)
    _check_states(folded, {**states, "who opens it now": opened_now(data)}, found)
    return found


def check_returns(data: Path, names: Iterable[str]) -> Findings:
    """Let each come back, when all are dead: under its own name, to what it has not acked, its last batch first."""
    found = Findings()
    for name in names:
        before = json.loads(fold_from_1(data))
        unread = {row["channel"]: row["unread"] for row in before["subscriptions"] if row["as"] == name}
        batch = [row["token"] for row in before["batches"] if row["as"] == name]
        host = open_host(data, snapshots=True)
        back = call(host, "register", name=name)
        if (back["as"], back["resumed"]) != (name, True):
            found.faults.append(f"{name} came back as {back['as']}, resumed: {back['resumed']}")
        if {row["channel"]: row["count"] for row in back["pending"]} != {each: n for each, n in unread.items() if n}:
            found.lost.append(f"{name} came back and was told {back['pending']} of {unread} unread")
        received = call(host, "receive", as_=back["as"])
        if batch and (received.get("token"), received.get("redelivered")) != (batch[0], True):
            found.lost.append(f"{name} came back and did not get its batch {batch[0]} again")
        abandon(host)
    return found


def fold_from_1(data: Path) -> bytes:
    """The canonical State of an auditor: every line verified and folded, without a `Journal` and without a snapshot.

    Raises:
        CorruptError: a line is damaged.
    """
    state = State()
    for commit in audit([data / "journal"]):
        fold(state, commit, wire.decode(commit.events))
    return queries.encode_canonical(state)


def opened_now(data: Path) -> bytes:
    """The canonical State of a process that starts now, from a snapshot if there is one."""
    host = open_host(data, snapshots=True)
    try:
        return host.bus.ask(queries.encode_canonical)
    except CorruptError as error:
        return str(error).encode()
    finally:
        abandon(host)


def _check_seqs(events: list[Event], found: Findings) -> None:
    seqs = list(dict.fromkeys(event["seq"] for event in events))
    if seqs != list(range(1, len(seqs) + 1)):
        found.faults.append(f"the seqs are not 1 to {len(seqs)}: {seqs}")


def _check_posts(events: list[Event], answers: Answers, found: Findings) -> None:
    posted = {event["seq"]: event for event in events if event["type"] == "posted"}
    for key, (name, seqs) in answers.posts.items():
        if len(seqs) > 1:
            found.doubled.append(f"key {key!r} was answered with seqs {sorted(seqs)}")
        found.lost += [
            f"key {key!r}, acknowledged at seq {seq}"
            for seq in seqs
            if (posted.get(seq, {}).get("as"), posted.get(seq, {}).get("key")) != (name, key)
        ]
    for key, count in Counter(event["key"] for event in posted.values()).items():
        if count > 1:
            found.doubled.append(f"key {key!r} is there {count} times")
    for seq, event in posted.items():
        if answers.asked.get(event["key"]) != event["content"]:
            found.faults.append(f"nobody asked for what is posted at seq {seq}: {event}")


def _check_acks(events: list[Event], answers: Answers, found: Findings) -> None:
    acks = Counter((event["as"], event["token"]) for event in events if event["type"] == "acked")
    found.lost += [f"the ack of {token} by {name}" for name, token in answers.acked - acks.keys()]
    found.doubled += [f"the ack of {ack} is there {count} times" for ack, count in acks.items() if count > 1]


def _check_delivery(events: list[Event], state: dict[str, Any], answers: Answers, found: Findings) -> None:
    """What lies at or below a cursor was shown, and the ack of what was shown was sent; though maybe shown twice."""
    begun = {(event["as"], event["channel"]): event["cursor"] for event in events if event["type"] == "subscribed"}
    posts = [event for event in events if event["type"] == "posted"]
    for row in state["subscriptions"]:
        name, channel = row["as"], row["channel"]
        passed = {
            event["seq"]
            for event in _others(posts, name, channel)
            if begun[name, channel] < event["seq"] <= row["cursor"]
        }
        acked = [answers.shown.get(token, set()) for who, token in answers.acking if who == name]
        missed = passed.difference(*acked)
        found.lost += [f"seq {seq} of {channel} lies behind {name}, who never acked it" for seq in sorted(missed)]


def _others(posts: list[Event], name: str, channel: str) -> Iterable[Event]:
    return (event for event in posts if event["channel"] == channel and event["as"] != name)


def _check_states(folded: bytes, states: dict[str, bytes], found: Findings) -> None:
    for name, state in states.items():
        if state != folded:
            found.faults.append(f"the State of {name} is not the fold from seq 1: {state!r} against {folded!r}")
