"""Repair on a disk that fails and a machine that stops: each step is durable before the next, and can be done again."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from journal import Files, JournalError
from journal.segment import name
from tests.journal.conftest import FaultyFiles
from tests.journal.test_repair import Case, both, change, three

if TYPE_CHECKING:
    from pathlib import Path


class Noted(Files):
    """Notes what is written, flushed and renamed, by the end of its path."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.paths: dict[int, str] = {}

    def note(self, verb: str, path: str) -> None:
        what = path.rsplit(".", 1)[-1] if "." in path.rsplit("/", 1)[-1] else path.rsplit("/", 1)[-1]
        if self.steps[-1:] != [f"{verb} {what}"]:
            self.steps.append(f"{verb} {what}")

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self.paths[fd] = path
        return fd

    def dup(self, fd: int) -> int:
        copy = super().dup(fd)
        self.paths[copy] = self.paths[fd]
        return copy

    def write(self, fd: int, data: bytes) -> int:
        self.note("write", self.paths[fd])
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self.note("fsync", self.paths[fd])
        super().fsync(fd)

    def fdatasync(self, fd: int) -> None:
        self.note("fdatasync", self.paths[fd])
        super().fdatasync(fd)

    def rename(self, old: str, new: str) -> None:
        self.note("rename", old)
        super().rename(old, new)

    def mkdir(self, path: str) -> None:
        self.note("mkdir", path)
        super().mkdir(path)

    def unlink(self, path: str) -> None:
        self.note("unlink", path)
        super().unlink(path)


def test_each_step_is_durable_before_the_next(tmp_path: Path) -> None:
    made = three()
    change(made, 10)
    made[3] = [b"stray\n"]
    case = Case(tmp_path, made)
    files = Noted()
    case.run(files=files)
    mended = ["mkdir set-aside", "fsync journal", "write damaged", "fsync damaged", "fsync set-aside", "write new"]
    mended += ["fsync new", "rename new", "fsync journal", "write jsonl"]
    taken = ["mkdir set-aside", "fsync journal", "rename jsonl", "fsync set-aside", "fsync journal"]
    begin = files.steps.index("unlink " + f"{5:020d}")
    assert files.steps[begin + 1 :][:1] == ["fsync snapshots"]
    assert files.steps[begin + 2 :][: len(taken) + len(mended)] == taken + mended
    assert "fdatasync jsonl" in files.steps[-2:]


class Killed(BaseException):
    """The process is gone in the middle of a system call."""


class Deadly(FaultyFiles):
    """The n-th call fails, or kills; a write has got through in part then."""

    def __init__(self, number: int, *, kills: bool) -> None:
        super().__init__()
        self.short = True
        self.fail = lambda _verb, at: errno.EIO if at == number else 0
        self.kills = kills

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401  # whatever the system call returns
        found = super().__getattribute__(name)
        if not callable(found) or name.startswith("_") or name == "fail" or not self.kills:
            return found

        def call(*args: Any, **more: Any) -> Any:  # noqa: ANN401  # as above
            try:
                return found(*args, **more)
            except OSError as error:
                if error.strerror is None or error.filename is not None:
                    raise
                raise Killed from error

        return call


@pytest.mark.parametrize("kills", [False, True], ids=["fails", "kills"])
def test_whichever_system_call_fails_or_kills_it_can_be_run_again(tmp_path: Path, *, kills: bool) -> None:
    made = three()
    sound = [line for lines in made.values() for line in lines]
    both(lambda lines: change(lines, 2), lambda lines: change(lines, 3), lambda lines: lines.pop(5))(made)
    made[3] = [b"stray\n"]
    change(made, 10)
    stays = [line for line in sound if any(line in lines for lines in made.values())]
    number = 0
    while True:
        number += 1
        case = Case(tmp_path / str(number), made)
        pieces = [case.before[name(3)], made[1][1], made[1][2], made[9][1]]
        files = Deadly(number, kills=kills)
        try:
            case.run(files=files)
        except (JournalError, Killed):
            pass
        else:
            if len(files.calls) < number:
                break
        held = [*case.files().values(), *case.aside().values()]
        assert all(any(piece in data for data in held) for piece in pieces)
        assert [line for line in case.lines() if line in stays] == stays
        case.run()
        assert [line for line in case.lines() if line in stays] == stays
        assert all(any(piece in data for data in case.aside().values()) for piece in pieces)
        assert [(each.seq, each.last) for each in case.check().lost] == [(2, 3), (5, 8), (10, 10)]
    assert number > 80


def test_what_was_made_in_vain_is_gone_again_and_what_stands_is_told(tmp_path: Path) -> None:
    made = three()
    change(made, 2)
    made[3] = [b"stray\n"]
    change(made, 10)
    stood = set()
    for number in range(1, 200):
        case = Case(tmp_path / str(number), made)
        plan = case.repair().plan()
        files = FaultyFiles()
        files.short = True
        files.fail_nth(number, errno.ENOSPC)
        work = case.repair(files)
        with contextlib.suppress(JournalError):
            work.perform(plan, lambda: None, wait_s=5)
        stood.add(len(work.mended))
        if files.calls[number - 1 : number] != ["rename"]:  # then nobody knows whether the new file is in its place
            assert set(case.aside()) == {each.piece for each in work.mended}
            assert not any(each.endswith(".new") for each in os.listdir(case.place))
        for each in work.mended:
            assert each.damage in plan.damages
            data = (case.place / os.path.basename(each.damage.file)).read_bytes() if each.lost is not None else b""
            assert each.lost is None or each.lost.hash.encode() in data
    assert stood == {0, 1, 2, 3}
