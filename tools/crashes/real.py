"""Faults the system itself can stage, on real processes: nothing is injected, and nothing is simulated.

A part that this machine or user cannot stage is left out by name in the summary. Whatever was mounted is unmounted.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from agentbus import tools, wire
from agentbus.errors import BusError
from agentbus.events import Posted
from journal import Fault, JournalError, audit, verify
from tools.crashes import Summary
from tools.crashes.checks import fold_from_1, opened_now
from tools.crashes.mounts import LoopDisk, SkippedError, fill, loop_disk, read_only_view, tmpfs
from tools.crashes.session import call, open_host
from tools.crashes.workers import Ears, HungError, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.host import Host

_BIG: Final = 64 << 20
_TRIES_MAX: Final = 60
_BUSY_S: Final = 5.0
_SLACK_S: Final = 2.0  # for a machine that does other things, too
_STATES: Final = {"capacity_exhausted": "refused", "busy": "refused", "unsynced": "unknown"}


def serve(ears: Ears, data: str) -> None:
    """A process on the bus that does what it is told, a JSON object a word."""
    host = open_host(Path(data), segment_bytes_max=_BIG)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ears.say(os.getpid())
    while True:
        asked = json.loads(ears.word(None) or "null")
        if "limit" in asked:
            resource.setrlimit(resource.RLIMIT_FSIZE, (asked["limit"], resource.RLIM_INFINITY))
            ears.say({})
        elif "stop" in asked:
            _stop_with_the_lock(host, ears)
        else:
            ears.say(_answer(host, asked))


def _stop_with_the_lock(host: Host, ears: Ears) -> None:
    with host.bus._journal.locked(time.monotonic() + _BUSY_S):  # noqa: SLF001  # as a commit does
        ears.say({})
        os.kill(os.getpid(), signal.SIGSTOP)
    ears.say({})


def _answer(host: Host, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return call(host, asked["tool"], **asked["arguments"])
    except (BusError, JournalError) as error:
        return {"failed": tools.render_error(error)}


@dataclass(slots=True)
class Account:
    """What callers were told in one data directory.

    Attributes:
        done: seq by content.
        refused: contents that must not be there.
        unknown: contents that may be.
        wrong: what was not as promised.
    """

    data: Path
    done: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    @property
    def posts(self) -> int:
        """So far."""
        return len(self.done) + len(self.refused) + len(self.unknown)

    def expect(self, what: str, found: object, *expected: object) -> None:
        """Note it if something is not as it should be."""
        if found not in expected:
            self.wrong.append(f"{what}: {found!r}, not {' or '.join(map(repr, expected))}")

    def check(self) -> None:
        """Hold the journal against it."""
        self.wrong += [f"bad line: {each}" for each in verify([self.data / "journal"]) if isinstance(each, Fault)]
        if self.wrong:
            return
        posted = posts_of(self.data)
        there = dict(posted)
        self.wrong += [f"lost: seq {seq}" for content, seq in self.done.items() if there.get(content) != seq]
        self.wrong += [f"refused, and there at seq {there[text]}" for text in self.refused if text in there]
        if len(there) != len(posted):
            self.wrong.append("a post is there twice")
        if opened_now(self.data) != fold_from_1(self.data):
            self.wrong.append("the State of who opens it now is not the fold from seq 1")


def posts_of(data: Path) -> list[tuple[str, int]]:
    """Content and seq of every post in the journal's verified lines."""
    return [
        (event.content, commit.seq)
        for commit in audit([data / "journal"])
        for event in wire.decode(commit.events)
        if isinstance(event, Posted)
    ]


class Process:
    """A process on the bus of its own, killed when its block ends."""

    def __init__(self, account: Account, name: str) -> None:
        self._account = account
        self._name = name
        self._worker = Worker(serve, str(account.data))
        self.pid: int = self._worker.await_word(lambda _: True)

    def __enter__(self) -> Self:
        """As it is."""
        return self

    def __exit__(self, *_: object) -> None:
        """SIGKILL."""
        self._worker.kill()
        self._worker.bury()

    def register(self) -> str:
        """Join the bus; ``done``, or the code of the failure."""
        return self._code(self.ask({"tool": "register", "arguments": {"name": self._name}}))

    def post(self, size: int) -> str:
        """Post so many bytes; ``done``, or the code of the failure."""
        account = self._account
        content = f"{account.posts} ".ljust(size, "x")
        self.begin_post(content)
        return self.end_post(content)

    def begin_post(self, content: str) -> None:
        """Ask, and do not wait."""
        arguments = {"as": self._name, "channel": "general", "content": content}
        self._worker.tell(json.dumps({"tool": "post", "arguments": arguments}))

    def end_post(self, content: str) -> str:
        """Wait for the answer, and keep it."""
        account, result = self._account, self._worker.await_word(lambda _: True)
        code = self._code(result)
        if code == "done":
            account.done[content] = result["seq"]
        else:
            (account.unknown if _STATES.get(code) == "unknown" else account.refused).add(content)
        return code

    def post_until_it_fails(self, size: int) -> str:
        """The code of the first failure."""
        for _ in range(_TRIES_MAX):
            code = self.post(size)
            if code != "done":
                break
        return code

    def history(self) -> str:
        """Read; ``done``, or the code of the failure."""
        return self._code(self.ask({"tool": "history", "arguments": {"as": self._name, "channel": "general"}}))

    def ask(self, asked: dict[str, Any]) -> Any:  # noqa: ANN401  # JSON
        """Its answer."""
        self._worker.tell(json.dumps(asked))
        return self.hear()

    def hear(self) -> Any:  # noqa: ANN401  # JSON
        """The next thing it says."""
        return self._worker.await_word(lambda _: True)

    @staticmethod
    def _code(result: dict[str, Any] | None) -> str:
        if result is None:
            return "died"
        return str(result["failed"]["code"]) if "failed" in result else "done"


def file_size_limit(place: Path) -> Account:
    """RLIMIT_FSIZE: a write is cut short, the next one fails with EFBIG."""
    account = Account(place / "data")
    with Process(account, "sam") as process:
        process.register()
        account.expect("a post", process.post(200), "done")
        size = sum(map(len, _bytes_of(account.data)))
        process.ask({"limit": size + 1000})
        account.expect("beyond the limit", process.post_until_it_fails(200), "capacity_exhausted")
        account.expect("and once more", process.post(200), "capacity_exhausted")
        account.expect("reading at the limit", process.history(), "done")
        process.ask({"limit": resource.RLIM_INFINITY})
        account.expect("with the limit lifted", process.post(200), "done")
    account.check()
    return account


def full_disk(place: Path) -> Account:
    """A tmpfs without a free page."""
    with tmpfs(place / "disk", 2 << 20) as disk:
        account = Account(disk / "data")
        with Process(account, "sam") as process, Process(account, "tom") as other:
            process.register()
            account.expect("a post", process.post(200), "done")
            fill(disk / "ballast")
            account.expect("on a full disk", process.post_until_it_fails(3000), "capacity_exhausted")
            account.expect("and once more", process.post(3000), "capacity_exhausted")
            account.expect("reading on a full disk", process.history(), "done")
            account.expect("a register on a full disk", other.register(), "capacity_exhausted", "done")
            (disk / "ballast").unlink()
            account.expect("when there is room", process.post(3000), "done")
            account.expect("a register when there is room", other.register(), "done")
        account.check()
    return account


def lying_disk(place: Path) -> Account:
    """A disk whose flush fails and then lies: who failed goes on, when there is room, and the power fails."""
    with loop_disk(place) as disk:
        account = Account(disk.place / "data")
        with Process(account, "sam") as process:
            _fail_to_flush(account, process, disk)
            account.expect("the next post", process.post(1500), "unsynced")
            disk.make_room()
            account.expect("when there is room", process.post(1500), "done")
            account.expect("and once more", process.post(1500), "done")
        disk.mount_anew()
        account.check()
    return account


def lying_disk_and_another(place: Path) -> Account:
    """The same, but who failed is killed, and another process goes on, to whom all looks well."""
    with loop_disk(place) as disk:
        account = Account(disk.place / "data")
        with Process(account, "sam") as process:
            _fail_to_flush(account, process, disk)
        disk.make_room()
        with Process(account, "tom") as other:
            account.expect("another's register", other.register(), "done")
            account.expect("another's post", other.post(1500), "done")
        disk.mount_anew()
        account.check()
    return account


def _fail_to_flush(account: Account, process: Process, disk: LoopDisk) -> None:
    process.register()
    for _ in range(3):
        account.expect("a post", process.post(1500), "done")
    disk.fill()
    account.expect("a post to a failing disk", process.post_until_it_fails(9000), "unsynced")


def read_only_disk(place: Path) -> Account:
    """A directory on a filesystem that is mounted to be read only."""
    account = Account(place / "data")
    with Process(account, "sam") as process:
        process.register()
        account.expect("a post", process.post(200), "done")
        before = _bytes_of(account.data)
        with read_only_view(account.data, place / "view") as view:
            with Process(Account(view), "tom") as other:
                account.expect("a register where nothing can be written", other.register(), "capacity_exhausted")
            account.expect("what is read there", posts_of(view), posts_of(account.data))
            account.expect("what an auditor folds there", fold_from_1(view), fold_from_1(account.data))
        account.expect("what is there afterwards", _bytes_of(account.data), before)
        account.expect("a post by who may write", process.post(200), "done")
    account.check()
    return account


def stopped_lock_holder(place: Path) -> Account:
    """SIGSTOP for a process that holds the writer lock, later SIGCONT."""
    account = Account(place / "data")
    with Process(account, "sam") as holder, Process(account, "tom") as writer, Process(account, "ann") as reader:
        for process in (holder, writer, reader):
            account.expect("a register", process.register(), "done")
        holder.ask({"stop": True})
        _await_stop(holder.pid)
        before = _bytes_of(account.data)
        began = time.monotonic()
        writer.begin_post("while it is stopped")
        account.expect("reading meanwhile", reader.history(), "done")
        account.expect("agentbus identity", _seconds_of_identity(place) < _SLACK_S, True)
        account.expect("a post meanwhile", writer.end_post("while it is stopped"), "busy")
        account.expect("busy in time", time.monotonic() - began < _BUSY_S + _SLACK_S, True)
        account.expect("what was written meanwhile", _bytes_of(account.data), before)
        os.kill(holder.pid, signal.SIGCONT)
        holder.hear()
        account.expect("a post afterwards", writer.post(200), "done")
        account.expect("a post by who was stopped", holder.post(200), "done")
    account.check()
    return account


def _bytes_of(data: Path) -> list[bytes]:
    return [each.read_bytes() for each in sorted((data / "journal").glob("*.jsonl"))]


def _await_stop(pid: int) -> None:
    deadline = time.monotonic() + _BUSY_S
    while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        if time.monotonic() > deadline:
            raise SkippedError("it would not stop")
        time.sleep(0.005)


def _seconds_of_identity(place: Path) -> float:
    began = time.monotonic()
    command = [sys.executable, "-m", "agentbus", "identity"]
    subprocess.run(command, cwd=place, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=30)
    return time.monotonic() - began


PARTS: Final[dict[str, Callable[[Path], Account]]] = {
    "file size limit": file_size_limit,
    "full disk": full_disk,
    "lying disk": lying_disk,
    "lying disk, another process": lying_disk_and_another,
    "read-only disk": read_only_disk,
    "stopped lock holder": stopped_lock_holder,
}


def run(rounds: int, seed: int) -> Summary:
    """Each part once, or so many times; chance has no part in it, whatever the ``seed``."""
    del seed
    counts = dict.fromkeys(("parts", "acknowledged", "refused", "unknown"), 0)
    skipped: dict[str, int] = {}
    wrong: list[str] = []
    for name in [*PARTS] * (rounds or 1):
        try:
            account = run_part(name)
        except SkippedError as error:
            skipped[f"skipped: {name}: {error}"] = 1
            continue
        except HungError:
            wrong.append(f"{name}: a process hung")
            continue
        counts["parts"] += 1
        for what, many in (("acknowledged", account.done), ("refused", account.refused), ("unknown", account.unknown)):
            counts[what] += len(many)
        wrong += [f"{name}: {each} (tools/crash.py real)" for each in account.wrong]
    return Summary("real", {**counts, "faults": len(wrong), **skipped}, wrong)


def run_part(name: str) -> Account:
    """One part, in a directory of its own.

    Raises:
        SkippedError: it cannot be staged here.
    """
    with tempfile.TemporaryDirectory() as place:
        return PARTS[name](Path(place))
