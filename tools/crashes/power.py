"""The power fails at every point of a scripted session: whatever the disk holds then, nothing acknowledged is missing.

The journal's Files tells a model disk (disk.py) of every write, cut, name and flush. After each change, and after each
answer, every state that a power cut could leave (states.py) is written out to a directory of its own, a process opens
it with the real code, reads, registers and posts. Then all lines that callers were told of before the cut are there,
none that was refused is, the journal verifies, and what the process has folded is what a fold from seq 1 gives.

The session is played as it stands; with snapshots saved all along; and with one thing happening to it, at each of its
writes and flushes: a short write, a flush that fails once or for a while, a process that is killed and followed by
another. After those only the next few calls are cut: before them all is as in the first one.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentbus import queries, snapshot
from agentbus.bus import FIRST_EVENTS, Bus
from agentbus.commands import Policy
from agentbus.config import Settings
from agentbus.errors import BusError
from agentbus.host import Host
from agentbus.owners import Owners
from journal import Fault, Files, Journal, JournalError, Snapshots, verify
from tools.crashes import Summary
from tools.crashes.checks import fold_from_1
from tools.crashes.disk import Disk
from tools.crashes.fail import Blow, Failing, play_unharmed
from tools.crashes.session import SEGMENT_BYTES_MAX, Session, Told, abandon, call, compare, events_of, open_host, play
from tools.crashes.states import after_a_cut
from tools.crashes.watched import MEMORY, Unflushed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tools.crashes.session import Event, Result
    from tools.crashes.states import Tree

_CALLS_CUT: Final = 4
_TRIES: Final = 3
_WRITES: Final = ("half written", "all but the last byte written", "killed half written", "killed all but written")
_FLUSHES: Final = ("EIO", "EIO for a while", "killed")
_MARKED: Final = 0.25
_PART: Final = 0.25
_POLICY: Final = Policy(
    cursor_idle_ms=72 * 3_600_000, receipt_retention_ms=3_600_000, event_bytes_max=32 << 10, result_bytes_max=10 << 10
)


class KilledError(BaseException):
    """The process is gone in the middle of a system call."""


@dataclass(frozen=True, slots=True)
class Story:
    """What happens to a session: nothing (0), or something at its n-th system call; and whether it saves snapshots."""

    number: int = 0
    what: str = "nothing"
    snapshots: bool = False

    def __str__(self) -> str:
        """For people."""
        saved = ", snapshots saved" if self.snapshots else ""
        return f"system call {self.number} {self.what}{saved}" if self.number else f"undisturbed{saved}"

    def blow(self) -> Blow | None:
        """As a fault of the fail mode; None for a death, or nothing."""
        if not self.number or self.what.startswith("killed"):
            return None
        return Blow(self.number, self.what.removesuffix(" for a while"), lasting=self.what.endswith("while"))


class Recording(Failing):
    """System calls that tell of each change, and in one of which the process may die."""

    def __init__(self, disk: Disk, story: Story, tell: Callable[[], None]) -> None:
        super().__init__(disk, story.blow())
        self._story = story
        self._tell = tell

    def changed(self) -> None:
        """Tell of it."""
        self._tell()

    def meet(self, verb: str, fd: int = -1) -> None:
        """Fail, or die, if it is the call's turn."""
        super().meet(verb, fd)
        if self._dies and verb != "write":
            self._die()

    def write(self, fd: int, data: bytes) -> int:
        """Maybe the last thing this process does."""
        taken = super().write(fd, data)
        if self._dies:
            self._die()
        return taken

    def share(self, data: bytes) -> bytes:
        """What a process that dies in a write gets through."""
        if self._dies:
            return data[: len(data) // 2 if "half" in self._story.what else len(data) - 1]
        return super().share(data)

    @property
    def _dies(self) -> bool:
        story = self._story
        return story.what.startswith("killed") and len(self.verbs) == story.number and not self.begun

    def _die(self) -> None:
        self.begun = True
        self._tell()
        raise KilledError


class Watchful(Session):
    """A session that tells of each answer, and lifts a fault that was to last a while.

    Attributes:
        files: of all its hosts.
    """

    def __init__(self, data: Path, story: Story, look: Callable[[], None]) -> None:
        self.files = Recording(Disk(str(data.parent)), story, look)
        super().__init__(lambda: open_host(data, self.files), _TRIES)
        self._look = look
        self._calls_after = 0
        self._snapshots = Snapshots(data / "snapshots", self.files) if story.snapshots else None

    @property
    def over(self) -> bool:
        """Whether enough was seen of what followed."""
        return self._calls_after > _CALLS_CUT

    def _finish(self, work: Callable[[], Result]) -> Told:
        told = super()._finish(work)
        self._calls_after += self.files.begun
        self.files.lifted = self._calls_after > 1
        self._look()
        if told.undurable:  # the State holds a line that no flush covers
            self._save()
            self._look()
        return told

    def _save(self) -> None:
        if self._snapshots is None:
            return
        host = list(self.hosts.values())[-1]
        seq, payload = host.bus.ask(lambda state: (state.last_seq, snapshot.encode(state)))
        bookmark = host.bus._journal.bookmark(seq)  # noqa: SLF001  # as the Bus itself does when one is due
        if bookmark is not None:
            self._snapshots.save(snapshot.VERSION, bookmark, payload)


def play_story(session: Watchful, story: Story) -> None:
    """Play the session; if a process is killed, all are, and another one comes back and asks for the same again."""
    try:
        play(session)
    except KilledError:
        for host in session.hosts.values():
            abandon(host)
        session.open("next")
        session.register("next", name="sam")
        session.call("next", "create_channel", "sam", name="reviews")
        session.call("next", "subscribe", "sam", channel="general", from_="oldest")
        session.call("next", "post", "sam", channel="general", content="I am back", idempotency_key=str(story))
        session.receive("next", "sam")


@dataclass(slots=True)
class _Recovered:
    """What a process found in a state, and made of it."""

    wrong: list[str]
    events: list[Event]


@dataclass(slots=True)
class Cuts:
    """Opens states, each once, and counts.

    Attributes:
        left: how many states are still to be tried; below 0 for all there are.
        part: of the states that are met, as a share, chosen by chance.
        points: at which the power was cut.
        answers: that were held against states.
        ahead: states with a snapshot of a line that the journal does not hold.
        faults: states in which something was wrong.
        wrong: the first of them in each story.
    """

    place: Path
    chance: random.Random
    left: int
    part: float
    points: int = 0
    states: int = 0
    answers: int = 0
    ahead: int = 0
    faults: int = 0
    wrong: dict[str, str] = field(default_factory=dict)
    _known: dict[bytes, _Recovered] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether all that was asked for was tried."""
        return self.left == 0

    def cut(self, story: Story, disk: Disk, told: tuple[Told, ...], call_number: int) -> None:
        """Try the states that a power cut may leave now, after so many system calls."""
        self.points += 1
        for tree in after_a_cut(disk, self.chance):
            if self.over or self.chance.random() >= self.part:
                continue
            found = self._recovered(tree, marked=story.what.startswith("EIO") and self.chance.random() < _MARKED)
            self.answers += sum(each.outcome == "done" for each in told)
            wrong = found.wrong or compare(told, found.events, durable_only=True)
            if wrong:
                held = {path: len(data) for path, data in tree.items() if data is not None}
                where = f"{story}, power cut after system call {call_number} of {told[-1] if told else 'nothing'}"
                self.faults += 1
                self.wrong.setdefault(str(story), f"{where}, files {held}: {'; '.join(wrong)}")

    def _recovered(self, tree: Tree, *, marked: bool) -> _Recovered:
        digest = hashlib.sha256(repr(sorted(tree.items(), key=lambda row: row[0])).encode()).digest()
        if digest not in self._known:
            self.states += 1
            self.left -= 1
            place = self.place / str(self.states)
            try:
                _write(place, tree)
                if marked:
                    _mark(place)
                self.ahead += _snapshot_is_ahead(tree)
                self._known[digest] = recover(place / "data")
            finally:
                shutil.rmtree(place)
        return self._known[digest]


def _write(place: Path, tree: Tree) -> None:
    place.mkdir()
    for path, data in tree.items():
        if data is None:
            (place / path).mkdir(mode=0o700)
        else:
            (place / path).write_bytes(data)


def _mark(place: Path) -> None:
    """The mark of a failed flush may outlive the power cut."""
    for segment in (place / "data" / "journal").glob("*.jsonl"):
        Files().mark(str(segment))


def _snapshot_is_ahead(tree: Tree) -> bool:
    """Whether a snapshot was taken at a line that the journal does not hold."""
    kept = [int(Path(path).name) for path in tree if path.startswith("data/snapshots/0") and path[-1].isdigit()]
    lines = [data.count(b"\n") for path, data in tree.items() if path.startswith("data/journal/0") and data]
    return max(kept, default=0) > sum(lines)


def recover(data: Path) -> _Recovered:
    """Open what a power cut left, go on, and judge it."""
    wrong: list[str] = []
    host = _opened(data)
    try:
        _read_only(data)
        call(host, "register", name="checker", context="after the cut")
        call(host, "post", as_="checker", channel="general", content="written after the cut")
        wrong += _differs(host, data)
        if (data / "snapshots").exists():
            wrong += _differs_later(data)
    except (BusError, JournalError, OSError) as error:
        wrong.append(f"{type(error).__name__}: {error}")
    finally:
        abandon(host)
    if wrong:
        return _Recovered(wrong, [])
    wrong += [f"bad line: {each}" for each in verify([data / "journal"]) if isinstance(each, Fault)]
    events = events_of(data)
    (own,) = (each["seq"] for each in events if each["type"] == "registered" and each["as"].startswith("checker"))
    return _Recovered(wrong, [each for each in events if each["seq"] < own])


def _differs(host: Host, data: Path) -> list[str]:
    if host.bus.ask(queries.encode_canonical) == fold_from_1(data):
        return []
    return ["a process's State is not the fold from seq 1"]


def _differs_later(data: Path) -> list[str]:
    """Of a process that starts when other lines stand where a snapshot was taken."""
    later = _opened(data)
    try:
        return _differs(later, data)
    finally:
        abandon(later)


def _opened(data: Path) -> Host:
    files = Unflushed()
    (data.parent / "work").mkdir(exist_ok=True)
    journal = Journal(data / "journal", first_events=FIRST_EVENTS, segment_bytes_max=SEGMENT_BYTES_MAX, files=files)
    bus = Bus(journal, Owners(data / "owners"), _POLICY, Snapshots(data / "snapshots", files))
    return Host(bus, Settings(data_directory=data), str(data.parent / "work"), None)


def _read_only(data: Path) -> None:
    """A reader finds no damage before any writer has mended anything."""
    journal = Journal(data / "journal", first_events=b"", read_only=True)
    try:
        for _ in journal.read(0):
            pass
    finally:
        journal.close()


def run(rounds: int, seed: int) -> Summary:
    """All states, or so many chosen by chance."""
    chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
    stories = list(_stories())
    if rounds:
        chance.shuffle(stories)
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        cuts = Cuts(Path(place), chance, rounds or -1, _PART if rounds else 1.0)
        told_of = 0
        for number, story in enumerate(stories):
            if cuts.over:
                break
            told_of += 1
            tell(cuts, story, Path(place) / f"story {number}" / "data")
    counts = {"stories": told_of, "crash points": cuts.points, "states": cuts.states}
    counts |= {"answers held against them": cuts.answers, "snapshots ahead of the journal": cuts.ahead}
    again = f" (tools/crash.py power --rounds {rounds} --seed {seed})"
    return Summary("power", {**counts, "faults": cuts.faults}, [each + again for each in cuts.wrong.values()])


def _stories() -> Iterator[Story]:
    yield Story()
    yield Story(snapshots=True)
    for number, verb in enumerate(play_unharmed().verbs, 1):
        if verb == "write":
            yield from (Story(number, what) for what in _WRITES)
        if verb in {"fsync", "fdatasync"}:
            yield from (Story(number, what) for what in _FLUSHES)
        if verb in {"mkdir", "create"}:
            yield Story(number, "killed")


def tell(cuts: Cuts, story: Story, data: Path) -> None:
    """Play one story and cut the power all along, or from where it begins to differ."""
    data.parent.mkdir()

    def look() -> None:
        files = session.files
        if cuts.over or session.over or (story.number and not files.begun):
            return
        cuts.cut(story, files.disk, tuple(session.told), len(files.verbs))

    session = Watchful(data, story, look)
    play_story(session, story)
    for host in session.hosts.values():
        abandon(host)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(data.parent)
