"""Long journals, made to a plan and kept in the cache folder. They are what agents on a bus write, without the bus."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from msgspec import UNSET

from agentbus import events as ev
from agentbus.kinds import MEMORY, ORDINARY
from agentbus.wire import encode
from journal import format_time, record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

    from agentbus.events import AnyEvent

_VERSION = 1  # raise it when the same plan gives another journal
_UUID = "00000000-0000-4000-8000-000000000000"
_WORDS = (
    "the build of main is green again since the lock",
    "please look at src/agentbus/fold.py:128",
    "before you merge it",
    "there may be a race when two writers roll at once,",
    "tests pass on both machines.",
    "no",
    "done:",
)
_TEXTS = 500
_RECENT_MAX = 64


@dataclass(frozen=True)
class Plan:
    """What a journal is made of; each field is part of the name under which it is kept.

    Times run from ``start_ms`` on in steps: a journal is the same whenever it is made.
    """

    commits: int
    seed: int = 1
    start_ms: int = 1_793_520_000_000  # 2026-11-01 08:00 UTC
    step_ms: int = 100
    segment_bytes: int = 16 << 20
    identities: int = 12
    channels: int = 6
    subscriptions: int = 2

    @property
    def name(self) -> str:
        """Digest of the plan and of this code's version."""
        text = json.dumps([_VERSION, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Shelf:
    """The journals kept in the cache folder."""

    def __init__(self, directory: Path, *, fresh: bool) -> None:
        self._directory = directory
        self._fresh = fresh
        self._made: set[str] = set()

    def has(self, plan: Plan) -> bool:
        """Whether nothing need be made."""
        return self._kept(plan).exists() and (plan.name in self._made or not self._fresh)

    def get(self, plan: Plan) -> Path:
        """The directory of the kept journal; only to be read. Beside it stands ``rows.json`` once it was asked for."""
        kept = self._kept(plan)
        if not self.has(plan):
            self._make(plan, kept)
            self._made.add(plan.name)
        return kept / "journal"

    def put(self, plan: Plan, data: Path) -> None:
        """Give a data directory this journal: its own copy of the last segment, which may grow; links to the others."""
        (data / "journal").mkdir(mode=0o700)
        *finished, last = sorted(self.get(plan).glob("*.jsonl"))
        for path in finished:
            os.link(path, data / "journal" / path.name)
        shutil.copyfile(last, data / "journal" / last.name)

    def _kept(self, plan: Plan) -> Path:
        return self._directory / plan.name

    def _make(self, plan: Plan, kept: Path) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        unfinished = self._directory / f"{plan.name}.{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        (unfinished / "journal").mkdir(parents=True)
        (unfinished / "plan.json").write_text(json.dumps(asdict(plan), indent=2) + "\n")
        write_journal(unfinished / "journal", plan)
        shutil.rmtree(kept, ignore_errors=True)
        unfinished.rename(kept)


def write_journal(directory: Path, plan: Plan) -> None:
    """The journal of a plan; on the disk when this returns, so that no figure pays for it."""
    lines = _Lines(directory, plan)
    life = _Life(lines, plan)
    while lines.seq < plan.commits:
        life.step()
    lines.close()


def write_memories(directory: Path, texts: Sequence[str]) -> None:
    """A journal of memories only, of one author."""
    lines = _Lines(directory, Plan(len(texts)))
    lines.put(*ev.DEFAULT_CHANNELS)
    for text in texts:
        lines.put(ev.Posted(as_="author", channel=MEMORY, content=text, context="bench"))
    lines.close()


class _Lines:
    """Commits, one after the other, into segments."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.seq = 0
        self._directory = directory
        self._plan = plan
        self._hash = record.ZERO_HASH
        self._size = 0
        self._file: BinaryIO | None = None

    def put(self, *events: AnyEvent) -> int:
        """One commit; its seq."""
        if self._file is None or self._size >= self._plan.segment_bytes:
            self._roll()
        return self._write(events)

    def _roll(self) -> None:
        self.close()
        self._file = (self._directory / f"{self.seq + 1:020d}.jsonl").open("xb")
        self._size = 0
        self._write((ev.SegmentOpened(format=1, journal=_UUID, prev=self._hash, by="bench", host="bench"),))

    def _write(self, events: Sequence[AnyEvent]) -> int:
        assert self._file is not None  # noqa: S101  # _roll has opened one
        self.seq += 1
        when = format_time(self._plan.start_ms + self.seq * self._plan.step_ms)
        line, self._hash = record.encode(self.seq, when, 4711, encode(events), self._hash)
        self._size += self._file.write(line)
        return self.seq

    def close(self) -> None:
        """Finish the last segment."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


@dataclass
class _Channel:
    name: str
    last_seq: int = 0
    recent: list[int] = field(default_factory=list)


@dataclass
class _Agent:
    """One identity, as far as what it does next depends on it."""

    name: str
    owner: str
    cursors: dict[str, int] = field(default_factory=dict)
    batch: tuple[str, dict[str, int]] | None = None


class _Life:
    """Agents that post, receive, ack, keep memories and come and go, as the rules let them."""

    def __init__(self, lines: _Lines, plan: Plan) -> None:
        self._lines = lines
        self._random = random.Random(plan.seed)  # noqa: S311  # repeatable, not secret
        self._texts = [self._text() for _ in range(_TEXTS)]
        self._revisions: dict[int, int] = {}
        lines.put(*ev.DEFAULT_CHANNELS)
        self._channels, self._kept = [_Channel("general")], _Channel(MEMORY)
        self._agents = [_Agent(f"agent-{number}", self._token(12)) for number in range(plan.identities)]
        for agent in self._agents:
            self._register(agent)
        for number in range(1, plan.channels):
            self._channels.append(_Channel(f"channel-{number}"))
            lines.put(ev.ChannelCreated(channel=f"channel-{number}", kind=ORDINARY, as_=self._agents[0].name))
        for agent in self._agents:
            for channel in self._random.sample(self._channels, k=plan.subscriptions):
                self._subscribe(agent, channel)
        for agent in self._agents[:2]:
            self._subscribe(agent, self._kept)

    def step(self) -> None:
        """One thing that some agent does: mostly posts, and receives with their acks."""
        agent = self._random.choice(self._agents)
        dice = self._random.random()
        if dice < 0.78:
            self._post(agent)
        elif dice < 0.975:
            self._receive(agent)
        elif dice < 0.998:
            self._remember(agent)
        else:
            self._restart(agent)

    def _post(self, agent: _Agent) -> None:
        channel = self._random.choice(self._channels)
        text, dice = self._random.choice(self._texts), self._random.random()
        reply_to = self._random.choice(channel.recent) if dice < 0.10 and channel.recent else UNSET
        if 0.10 <= dice < 0.15:
            text = f"@{self._random.choice(self._agents).name} {text}"
        seq = self._lines.put(
            ev.Posted(
                as_=agent.name,
                channel=channel.name,
                content=text,
                context="bench",
                reply_to=reply_to,
                label="review" if 0.15 <= dice < 0.20 else UNSET,
                metadata={"branch": "main"} if 0.20 <= dice < 0.23 else UNSET,
                key=self._token(8) if 0.23 <= dice < 0.28 else UNSET,
            )
        )
        channel.last_seq = seq
        channel.recent = [*channel.recent[-_RECENT_MAX:], seq]

    def _receive(self, agent: _Agent) -> None:
        """As the bus does it: the ack of the last batch and the next batch in one commit."""
        events: list[AnyEvent] = []
        if agent.batch is not None:
            token, ends = agent.batch
            events.append(ev.Acked(as_=agent.name, token=token))
            agent.cursors |= ends
            agent.batch = None
        mine = [channel for channel in (*self._channels, self._kept) if channel.name in agent.cursors]
        new = {channel.name: channel.last_seq for channel in mine if channel.last_seq > agent.cursors[channel.name]}
        if new:
            agent.batch = (self._token(6), new)
            events.append(ev.Delivered(as_=agent.name, token=agent.batch[0], ends=new, include_own=False))
        if events:
            self._lines.put(*events)

    def _remember(self, agent: _Agent) -> None:
        dice, text = self._random.random(), self._random.choice(self._texts)
        if dice < 0.75 or not self._revisions:
            posted = ev.Posted(as_=agent.name, channel=MEMORY, content=text, context="bench")
            self._kept.last_seq = self._lines.put(posted)
            self._revisions[self._kept.last_seq] = 1
            return
        number = self._random.choice(list(self._revisions)[-_RECENT_MAX:])
        revision = self._revisions[number]
        if dice < 0.95:
            edited = ev.MemoryEdited(as_=agent.name, id=number, content=text, context="bench", replaces=revision)
            self._kept.last_seq = self._lines.put(edited)
            self._revisions[number] += 1
        else:
            self._lines.put(ev.MemoryDeleted(as_=agent.name, id=number, replaces=revision))
            del self._revisions[number]

    def _restart(self, agent: _Agent) -> None:
        self._lines.put(ev.Ended(as_=agent.name, owner=agent.owner, reason="exit"))
        agent.owner = self._token(12)
        self._register(agent)

    def _register(self, agent: _Agent) -> None:
        self._lines.put(ev.Registered(as_=agent.name, owner=agent.owner, name=agent.name, context="bench"))

    def _subscribe(self, agent: _Agent, channel: _Channel) -> None:
        agent.cursors[channel.name] = cursor = self._lines.seq
        self._lines.put(ev.Subscribed(as_=agent.name, channel=channel.name, cursor=cursor))

    def _token(self, size: int) -> str:
        return self._random.randbytes(size).hex()

    def _text(self) -> str:
        """40 to 360 bytes, 200 on the whole."""
        want = self._random.randint(40, 360)
        return " ".join(self._random.choices(_WORDS, k=want))[:want].strip()
