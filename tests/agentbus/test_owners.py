"""Who lives is what the kernel says of a lock: never a pid, a time-out or a file's age."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from agentbus.owners import Owners
from journal import Files

if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import sys
from pathlib import Path
from agentbus.owners import Owners
from journal import Files
owners = Owners(Path(sys.argv[1]))
owners.hold()
print(owners.token, flush=True)
sys.stdin.read()
"""


def _holder(directory: Path) -> tuple[subprocess.Popen[str], str]:
    """A process that holds an owner until it is killed or its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def _end(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    process.communicate(timeout=20)


def test_an_owner_lives_from_hold_to_release(tmp_path: Path) -> None:
    one, other = Owners(tmp_path / "owners"), Owners(tmp_path / "owners")
    assert one.lives(one.token)
    assert not other.lives(one.token)
    one.hold()
    assert other.lives(one.token)
    assert other.gone([one.token, other.token, "0" * 24]) == {"0" * 24}
    one.release()
    assert not other.lives(one.token)


def test_a_killed_process_is_gone_at_once_and_a_stopped_one_is_not(tmp_path: Path) -> None:
    process, token = _holder(tmp_path / "owners")
    owners = Owners(tmp_path / "owners")
    process.send_signal(signal.SIGSTOP)
    assert owners.lives(token)
    _end(process, signal.SIGKILL)
    assert not owners.lives(token)


def test_another_process_that_got_the_same_pid_changes_nothing(tmp_path: Path) -> None:
    process, token = _holder(tmp_path / "owners")
    file = tmp_path / "owners" / f"{token}.lock"
    facts = json.loads(file.read_text())
    assert facts["pid"] == process.pid
    assert facts["harness"]["pid"] == os.getpid()
    assert None not in (facts["started"], facts["harness"]["started"])
    # As a container sees it that shares the directory and not the pids, or a pid that was used again.
    file.write_text(json.dumps(facts | {"pid": 2**22 - 1, "started": "1"}))
    owners = Owners(tmp_path / "owners")
    assert owners.lives(token)
    file.write_text(json.dumps(facts | {"pid": os.getpid()}))
    _end(process, signal.SIGKILL)
    assert not owners.lives(token)


@pytest.mark.parametrize("owner", ["", "..", "../../etc/passwd", "0" * 23, "G" * 24])
def test_what_is_no_owner_token_is_gone_and_never_a_path(tmp_path: Path, owner: str) -> None:
    assert not Owners(tmp_path / "owners").lives(owner)


def test_the_directory_and_the_file_are_private_whatever_the_umask(tmp_path: Path) -> None:
    owners = Owners(tmp_path / "owners")
    old = os.umask(0o277)
    try:
        owners.hold()
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "owners").stat().st_mode) == 0o700
    (file,) = (tmp_path / "owners").iterdir()
    assert file.name == f"{owners.token}.lock"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_was_deleted_is_made_again_by_the_next_hold(tmp_path: Path) -> None:
    one, other = Owners(tmp_path / "owners"), Owners(tmp_path / "owners")
    one.hold()
    file = tmp_path / "owners" / f"{one.token}.lock"
    file.unlink()
    assert not other.lives(one.token)
    one.hold()
    assert other.lives(one.token)
    inode = file.stat().st_ino
    one.hold()
    assert file.stat().st_ino == inode


def test_threads_that_hold_at_once_leave_one_locked_file(tmp_path: Path) -> None:
    one, other = Owners(tmp_path / "owners"), Owners(tmp_path / "owners")
    with ThreadPoolExecutor(16) as pool:
        for held in [pool.submit(one.hold) for _ in range(64)]:
            held.result(timeout=20)
    assert [file.name for file in (tmp_path / "owners").iterdir()] == [f"{one.token}.lock"]
    assert other.lives(one.token)
    one.release()
    assert not other.lives(one.token)


def test_a_hold_that_cannot_be_made_says_so_and_keeps_no_descriptor(tmp_path: Path) -> None:
    owners = Owners(tmp_path / "owners")
    (tmp_path / "owners").mkdir()
    (tmp_path / "owners" / f"{owners.token}.lock").mkdir()
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match="directory"):
        owners.hold()
    assert len(os.listdir("/dev/fd")) == before
    (tmp_path / "owners" / f"{owners.token}.lock").rmdir()
    owners.hold()
    assert Owners(tmp_path / "owners").lives(owners.token)


def test_a_forked_child_neither_keeps_nor_drops_the_lock(tmp_path: Path) -> None:
    owners, other = Owners(tmp_path / "owners"), Owners(tmp_path / "owners")
    owners.hold()
    forgotten = Owners(tmp_path / "owners")
    del forgotten
    gc.collect()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover  # a child that must not return into pytest
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    try:
        assert other.lives(owners.token)
        owners.release()
        assert not other.lives(owners.token)
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)


def test_living_owners_tell_who_they_are_and_a_sweep_takes_only_the_files_of_the_gone(tmp_path: Path) -> None:
    process, token = _holder(tmp_path / "owners")
    owners = Owners(tmp_path / "owners")
    assert [entry["owner"] for entry in owners.living()] == [token]
    owners.hold()
    kept, swept = "a" * 24, "b" * 24
    for gone in (kept, swept):
        (tmp_path / "owners" / f"{gone}.lock").touch()
    told = {entry["owner"]: entry["pid"] for entry in owners.living()}
    assert told == {token: process.pid, owners.token: os.getpid()}
    assert not owners.lives(kept)
    owners.sweep({kept})
    left = {file.name for file in (tmp_path / "owners").iterdir()}
    assert left == {f"{owner}.lock" for owner in (token, owners.token, kept)}
    _end(process, signal.SIGKILL)
    owners.sweep(())
    assert [file.name for file in (tmp_path / "owners").iterdir()] == [f"{owners.token}.lock"]


def test_without_a_directory_nobody_lives_and_nothing_is_swept(tmp_path: Path) -> None:
    owners = Owners(tmp_path / "owners")
    owners.sweep(())
    owners.release()
    assert owners.living() == []
    assert not (tmp_path / "owners").exists()


def test_where_there_are_no_locks_an_owner_is_taken_for_living_and_cannot_be_one_itself(
    tmp_path: Path,
) -> None:
    class NoLocks(Files):
        def try_lock(self, fd: int) -> bool:
            raise OSError(errno.ENOLCK, f"no locks available on {fd}")

        try_share = try_lock

    held = Owners(tmp_path / "owners")
    held.hold()
    other = Owners(tmp_path / "owners", NoLocks())
    assert other.lives(held.token)
    with pytest.raises(OSError, match="no locks available"):
        other.hold()


def test_a_link_in_the_place_of_the_directory_is_refused_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (tmp_path / "owners").symlink_to(elsewhere)
    with pytest.raises(OSError, match="owners"):
        Owners(tmp_path / "owners").hold()
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755
    assert list(elsewhere.iterdir()) == []


def test_an_owner_file_that_could_not_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    class NoLocks(Files):
        def try_lock(self, fd: int) -> bool:
            raise OSError(errno.ENOLCK, f"no locks available on {fd}")

    with pytest.raises(OSError, match="no locks available"):
        Owners(tmp_path / "owners", NoLocks()).hold()
    assert list((tmp_path / "owners").iterdir()) == []


@pytest.mark.parametrize("text", [b"", b"5", b"{"])
def test_one_whose_file_says_nothing_is_named_among_the_living_all_the_same(tmp_path: Path, text: bytes) -> None:
    owners = Owners(tmp_path / "owners")
    owners.hold()
    (tmp_path / "owners" / f"{owners.token}.lock").write_bytes(text)
    assert Owners(tmp_path / "owners").living() == [{"owner": owners.token}]


def test_a_live_owner_tells_which_of_its_client_s_sessions_use_it(tmp_path: Path) -> None:
    owners, other = Owners(tmp_path / "owners"), Owners(tmp_path / "owners")
    owners.serve("t-0")
    owners.hold()
    assert [facts["threads"] for facts in other.living()] == [["t-0"]]
    for number in range(40):
        owners.serve(f"t-{number}")
    owners.serve("t-39")
    (facts,) = other.living()
    assert facts["threads"] == [f"t-{number}" for number in range(8, 40)]
    assert facts["pid"] == os.getpid()
    owners.release()
