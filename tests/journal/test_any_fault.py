"""Random sessions of two who write and pack, in which any system call may fail, or be the last before a kill.

Nothing that was answered is lost, and nothing is there that was refused.

Each seed is a session; `python -m tests.journal.test_any_fault FIRST COUNT` runs others than the suite's.
"""

from __future__ import annotations

import errno
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from journal import Fault, Journal, JournalError, ReplacedError, UnsyncedError, Wanted, verify
from tests.journal.conftest import FIRST_EVENTS, VERBS, Unflushed

SESSIONS = 150
CODES = (errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES)


class Killed(BaseException):
    """The process is gone in the middle of a system call."""


class Fragile(Unflushed):
    """The n-th call from `arm` on fails or kills; a write may have got through in part."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.disarm()

    def arm(self, left: int, *, kills: bool, code: int) -> None:
        self.left, self.kills, self.code = left, kills, code

    def disarm(self) -> None:
        self.arm(0, kills=False, code=0)

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401  # whatever the system call returns
        found = object.__getattribute__(self, name)
        return (lambda *args, **more: self._call(name, found, *args, **more)) if name in VERBS else found

    def _call(self, name: str, found: Any, *args: Any, **more: Any) -> Any:  # noqa: ANN401  # as above
        self.left -= 1
        if self.left != 0 or name == "unlock":  # the kernel does not refuse that one
            return found(*args, **more)
        code, kills = self.code, self.kills
        if name == "write" and self.chance.random() < 0.7:
            found(args[0], args[1][: self.chance.randrange(len(args[1]) + kills)])
        if kills:
            raise Killed
        raise OSError(code, "injected")


class Session:
    """Two processes on one journal, as far as it can see; what they were told, and what nobody can know."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
        self.segment_bytes_max = self.chance.choice([300, 500, 900])
        self.answered: dict[int, int] = {}
        self.unsure: set[int] = set()
        self.writers = [self.open(), self.open()]
        self.read_up_to = [0, 0]
        self.number = 0

    def open(self) -> tuple[Journal, Fragile]:
        files = Fragile(self.chance)
        settings = {"first_events": FIRST_EVENTS, "segment_bytes_max": self.segment_bytes_max}
        return Journal(self.directory, **settings, files=files), files  # type: ignore[arg-type]  # keywords in a dict

    def step(self) -> None:
        who = self.chance.randrange(2)
        journal, files = self.writers[who]
        if self.chance.random() < 0.35:
            kills, code = self.chance.random() < 0.33, self.chance.choice(CODES)
            files.arm(self.chance.randrange(1, 40), kills=kills, code=code)
        try:
            kind = self.chance.random()
            if kind < 0.35:
                self.catch_up(journal, who)
            elif kind < 0.5:
                needed = {first for first in range(1, 100) if self.chance.random() < 0.2}
                journal.archive(Wanted(needed, 1 << 40, 1 << 50, self.chance.randrange(1, 4), lambda: False))
            else:
                self.commit(journal, who)
        except ReplacedError:
            self.read_up_to[who] = 0
        except JournalError:
            pass
        except Killed:
            self.unsure.add(self.number)
            files.disarm()
            journal.close()
            self.writers[who], self.read_up_to[who] = self.open(), 0
        files.disarm()

    def catch_up(self, journal: Journal, who: int) -> None:
        for commit in journal.read(self.read_up_to[who]):
            self.read_up_to[who] = commit.seq

    def commit(self, journal: Journal, who: int) -> None:
        self.number += 1
        event = {"type": "posted", "number": self.number, "content": "x" * self.chance.randrange(200)}

        def build(_: str) -> bytes:
            self.catch_up(journal, who)
            return json.dumps([event], separators=(",", ":")).encode()

        try:
            self.answered[self.number] = journal.commit(build, deadline=time.monotonic() + 1).seq
        except UnsyncedError:
            self.unsure.add(self.number)

    def check(self) -> None:
        last, _ = self.open()
        last.commit(lambda _: b'[{"type":"end"}]', deadline=time.monotonic() + 5)
        assert [found for found in verify([self.directory]) if isinstance(found, Fault)] == []
        held = [
            (event["number"], commit.seq)
            for commit in last.read(0)
            for event in json.loads(commit.events)
            if "number" in event
        ]
        assert len(dict(held)) == len(held), "a commit is there twice"
        assert self.answered.items() <= dict(held).items()
        assert set(dict(held)) <= set(self.answered) | self.unsure, "a commit is there that was refused"
        for journal in (last, *(writer for writer, _ in self.writers)):
            journal.close()


def run(directory: Path, seed: int) -> None:
    session = Session(directory, seed)
    for _ in range(session.chance.randrange(10, 40)):
        session.step()
    session.check()


@pytest.mark.parametrize("part", range(5))
def test_whatever_fails_nothing_answered_is_lost_and_nothing_refused_is_there(tmp_path: Path, part: int) -> None:
    for seed in range(part, SESSIONS, 5):
        run(tmp_path / str(seed) / "journal", seed)


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
        with tempfile.TemporaryDirectory() as place:
            run(Path(place) / "data" / "journal", number)
