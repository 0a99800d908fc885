"""What the journal's tests share: a journal in a directory of its own, system calls that fail, a second process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from journal import Appended, Files, Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent.parent
FIRST_EVENTS = b'[{"type":"first"}]'
VERBS = (
    "open",
    "pread",
    "write",
    "truncate",
    "fdatasync",
    "fsync",
    "rename",
    "unlink",
    "mark",
    "mkdir",
    "stat",
    "fstat",
    "listdir",
    "make_private",
    "try_lock",
    "try_share",
    "lock",
    "unlock",
    "dup",
    "unnamed",
)


def soon(seconds: float = 5) -> float:
    return time.monotonic() + seconds


def events(text: str) -> bytes:
    return msgspec.json.encode([{"type": "posted", "content": text}])


class Unflushed(Files):
    """Leaves out what only a power cut would show."""

    def fdatasync(self, fd: int) -> None:
        pass

    def fsync(self, fd: int) -> None:
        pass


class FaultyFiles(Unflushed):
    """Fails chosen calls; counts all of them. ``short`` makes a failing write take half of what it is given first.

    Attributes:
        fds: the descriptors that are open.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fds: set[int] = set()
        self.fail: Callable[[str, int], int] = lambda _verb, _number: 0
        self.short = False

    def fail_nth(self, number: int, code: int, *, times: int = 1) -> None:
        self.calls.clear()
        self.fail = lambda _verb, at: code if number <= at < number + times else 0

    def fail_verbs(self, *verbs: str, code: int = errno.EIO) -> None:
        self.fail = lambda verb, _at: code if verb in verbs else 0

    def fail_nothing(self) -> None:
        self.fail = lambda _verb, _at: 0

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self.fds.add(fd)
        return fd

    def dup(self, fd: int) -> int:
        other = super().dup(fd)
        self.fds.add(other)
        return other

    def unnamed(self) -> int:
        fd = super().unnamed()
        self.fds.add(fd)
        return fd

    def close(self, fd: int) -> None:
        super().close(fd)
        self.fds.discard(fd)

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 -- whatever the system call returns
        found = object.__getattribute__(self, name)
        if name not in VERBS:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 -- as above
            self.calls.append(name)
            code = self.fail(name, len(self.calls))
            if code:
                if name == "write" and self.short:
                    found(args[0], args[1][: len(args[1]) // 2])
                raise OSError(code, os.strerror(code))
            return found(*args, **kwargs)

        return call


class Kit:
    """A journal directory and short ways to use it."""

    def __init__(self, path: Path) -> None:
        self.data = path / "data"
        self.directory = self.data / "journal"
        self._open: list[Journal] = []
        self._files: list[FaultyFiles] = []

    def open(self, **settings: Any) -> Journal:  # noqa: ANN401 -- the settings of Journal
        settings = {"first_events": FIRST_EVENTS, "by": "test 1", **settings}
        journal = Journal(self.directory, **settings)
        self._open.append(journal)
        if isinstance(files := settings.get("files"), FaultyFiles):
            self._files.append(files)
        return journal

    def close(self) -> None:
        """Close what was opened: nothing stays open, whatever failed before."""
        for journal in self._open:
            journal.close()
        for files in self._files:
            assert not files.fds

    def segment(self, first_seq: int = 1) -> Path:
        return self.directory / f"{first_seq:020d}.jsonl"

    def commit(self, journal: Journal, text: str = "hello", *, flush: bool = True) -> Appended:
        """Commit as the bus does: read on under the lock, then build."""

        def build(_time: str) -> bytes:
            for _ in journal.read(journal.last_seq):
                pass
            return events(text)

        return journal.commit(build, deadline=soon(), flush=flush)

    def texts(self, journal: Journal | None = None) -> list[str]:
        reader = journal or self.open(read_only=True)
        found = [msgspec.json.decode(commit.events)[0] for commit in reader.read(0)]
        return [event["content"] for event in found if event["type"] == "posted"]

    def run(self, script: str, *args: str) -> subprocess.Popen[str]:
        """A second process with ``directory`` and a line-wise stdin and stdout; the caller waits for it."""
        head = "import sys, time\nfrom pathlib import Path\nfrom journal import *\n"
        head += 'journal = Journal(Path(sys.argv[1]), first_events=b\'[{"type":"first"}]\')\n'
        return subprocess.Popen(
            [sys.executable, "-c", head + script, str(self.directory), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    made = Kit(tmp_path)
    yield made
    made.close()
