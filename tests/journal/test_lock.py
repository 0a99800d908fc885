"""The writer lock between threads, processes and files that were put in its place."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from journal import BusyError, Files, UnusableError
from journal.lock import WriterLock
from tests.journal.conftest import FaultyFiles, events, soon

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journal.conftest import Kit

HOLD = """
with journal.locked(time.monotonic() + 5):
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
sys.stdin.readline()
"""


def until(condition: object, seconds: float = 20) -> None:
    assert callable(condition)
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        threading.Event().wait(0.001)


def test_a_stopped_writer_makes_others_busy_and_nothing_is_written(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    data = kit.segment().read_bytes()
    with kit.run(HOLD) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        asked: list[str] = []
        for _ in range(3):
            with pytest.raises(BusyError) as caught:
                journal.commit(lambda at: asked.append(at) or b"", deadline=soon(0.1))  # type: ignore[func-returns-value]  # counts the calls
            assert "writer lock" in caught.value.waited_for
        assert (asked, kit.segment().read_bytes()) == ([], data)
        assert len([t for t in threading.enumerate() if t.name == "journal-lock"]) == 1
        assert kit.texts(journal) == ["one"]
        holder.send_signal(signal.SIGCONT)
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "released\n"
        until(lambda: not [t for t in threading.enumerate() if t.name == "journal-lock"])
        assert kit.commit(kit.open(), "two").seq == 4  # the abandoned wait gave the lock back
        assert kit.commit(journal, "three").seq == 5
        holder.stdin.write("\n")
    assert kit.texts() == ["one", "two", "three"]


def test_a_wait_that_was_given_up_is_adopted_by_the_next_caller(kit: Kit) -> None:
    journal, holder = kit.open(), kit.open()
    kit.commit(journal, "one")
    done = threading.Thread(target=lambda: kit.commit(journal, "two"))
    with holder.locked(soon()):
        with pytest.raises(BusyError):
            journal.commit(lambda _time: events("never"), deadline=soon(0.05))
        worker = journal._lock._worker
        assert worker is not None
        done.start()
        until(lambda: worker.wanted)
        assert journal._lock._worker is worker
    done.join(20)
    assert kit.texts() == ["one", "two"]


def test_a_thread_waits_for_a_thread_until_its_deadline(kit: Kit) -> None:
    journal = kit.open()
    with journal.locked(soon()), pytest.raises(BusyError, match="another call of this process"):
        journal.commit(lambda _time: b"", deadline=soon(0.02))


def test_a_deleted_lock_file_is_made_again(kit: Kit) -> None:
    journal, other = kit.open(), kit.open()
    kit.commit(journal, "one")
    kit.commit(other, "two")
    (kit.directory / "writer.lock").unlink()
    kit.commit(journal, "three")
    kit.commit(other, "four")
    assert kit.texts() == ["one", "two", "three", "four"]


def test_two_holders_of_two_lock_files_do_not_both_write(kit: Kit) -> None:
    journal, other = kit.open(), kit.open()
    kit.commit(journal, "one")
    entered, leave = threading.Event(), threading.Event()

    def build(_time: str) -> bytes:
        entered.set()
        assert leave.wait(20)
        return events("slow")

    slow = threading.Thread(target=lambda: journal.commit(build, deadline=soon()))
    slow.start()
    assert entered.wait(20)
    (kit.directory / "writer.lock").unlink()
    with pytest.raises(BusyError, match="a file of the journal"):
        kit.open().commit(lambda _time: events("no"), deadline=soon(0.05))
    leave.set()
    slow.join(20)
    kit.commit(other, "two")
    assert kit.texts() == ["one", "slow", "two"]


@pytest.mark.parametrize("opens", [0, 3])
def test_a_filesystem_without_locks_is_refused_by_name(kit: Kit, opens: int) -> None:
    """Whether it does not lock the lock file, or does not open it: the two files opened before are the parents."""
    files = FaultyFiles()

    def fail(verb: str, _: int) -> int:
        refused = verb == "try_lock" or (verb == "open" and files.calls.count("open") == opens)
        return errno.ENOLCK if refused else 0

    files.fail = fail
    kit.directory.mkdir(parents=True)
    with pytest.raises(UnusableError, match="no lock on it: No locks available") as caught:
        kit.commit(kit.open(files=files))
    assert caught.value.directory == str(kit.directory)
    assert not list(kit.directory.glob("*.jsonl"))


def test_a_wait_that_fails_is_told_to_the_caller_and_the_next_one_tries_anew(kit: Kit) -> None:
    files = FaultyFiles()
    journal, holder = kit.open(files=files), kit.open()
    kit.commit(journal, "one")
    files.fail_verbs("lock", code=errno.EOPNOTSUPP)
    with holder.locked(soon()), pytest.raises(UnusableError, match="not supported"):
        kit.commit(journal, "two")
    assert kit.commit(journal, "three").seq == 4


def test_a_lock_file_that_cannot_be_looked_at_is_not_trusted(kit: Kit, tmp_path: Path) -> None:
    class Vanishing(Files):
        looks = 0

        def stat(self, path: str) -> os.stat_result:
            self.looks += 1
            if self.looks == 1:
                raise FileNotFoundError(path)
            return super().stat(path)

    lock = WriterLock(str(tmp_path), Vanishing())
    lock.acquire(soon())
    assert lock.held_here
    lock.release()
    assert not lock.held_here
    lock.close()
    lock.close()
    assert kit.texts() == []


def test_a_lock_that_cannot_be_given_back_goes_with_its_file(tmp_path: Path) -> None:
    files = FaultyFiles()
    lock, other = WriterLock(str(tmp_path), files), WriterLock(str(tmp_path), Files())
    lock.acquire(soon())
    files.fail_verbs("unlock")
    lock.release()
    other.acquire(soon())
    other.release()
    files.fail_nothing()
    lock.acquire(soon())
    lock.after_fork()  # as if this were a child forked meanwhile
    other.acquire(soon())
    other.release()
    lock.acquire(soon())
    lock.release()


def test_closing_leaves_a_waiting_worker_nobodys(tmp_path: Path) -> None:
    lock, holder = WriterLock(str(tmp_path), Files()), WriterLock(str(tmp_path), Files())
    holder.acquire(soon())
    with pytest.raises(BusyError):
        lock.acquire(soon(0.02))
    lock.close()
    with pytest.raises(BusyError):
        lock.acquire(soon(0.02))  # a worker of its own, not the one of the closed file
    holder.release()
    lock.acquire(soon())
    lock.release()
    until(lambda: not [t for t in threading.enumerate() if t.name == "journal-lock"])
    holder.acquire(soon())
    holder.release()


def test_a_forked_child_neither_holds_nor_drops_the_lock(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    journal.wait(journal.last_seq, 0, lambda: False)
    read, write = os.pipe()
    journal._lock.acquire(soon())
    journal._writer.open(soon())
    waiter = kit.open()
    with pytest.raises(BusyError):
        waiter.commit(lambda _time: b"", deadline=soon(0.02))
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # lives until the parent has shown what it came for
        os._exit(0)
    try:
        os.close(read)
        with pytest.raises(BusyError):
            kit.open().commit(lambda _time: b"", deadline=soon(0.02))
        journal._release()
        assert kit.commit(kit.open(), "two").seq == 4
        assert kit.commit(journal, "three").seq == 5
    finally:
        os.close(write)
        os.waitpid(child, 0)


def test_a_child_forked_under_the_lock_may_leave_the_block(kit: Kit) -> None:
    journal = kit.open()
    with journal.locked(soon()):
        child = os.fork()
        if child == 0:
            try:
                journal._lock._threads.acquire()
                journal._lock.release()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(BusyError):
            kit.open().commit(lambda _time: b"", deadline=soon(0.02))


CHILD = """
import os
journal.commit(lambda t: b'[{"type":"posted","content":"parent"}]', deadline=time.monotonic() + 5)
journal.wait(3, 0, lambda: False)
fds = set(os.listdir("/proc/self/fd"))
child = os.fork()
if child == 0:
    assert journal.last_seq == 0
    journal.commit(lambda t: b'[{"type":"posted","content":"child"}]', deadline=time.monotonic() + 5)
    assert journal.last_seq == 4
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_forked_child_starts_afresh(kit: Kit) -> None:
    with kit.run(CHILD) as parent:
        assert parent.stdout is not None
        assert parent.stdout.read() == "0\n"
    assert kit.texts() == ["parent", "child"]


def test_waits_given_up_at_any_moment_never_let_two_in(tmp_path: Path) -> None:
    locks = [WriterLock(str(tmp_path), Files()) for _ in range(3)]
    inside: list[int] = []
    most: list[int] = []

    def work(lock: WriterLock, number: int) -> None:
        for turn in range(150):
            try:
                lock.acquire(soon((turn * 7 + number) % 10 / 5000))
            except BusyError:
                continue
            inside.append(number)
            most.append(len(inside))
            threading.Event().wait(0.0003)
            inside.remove(number)
            lock.release()

    threads = [threading.Thread(target=work, args=(locks[number % 3], number)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert set(most) == {1}
    until(lambda: not [t for t in threading.enumerate() if t.name == "journal-lock"])
    for lock in locks:
        lock.acquire(soon())
        lock.release()
        lock.close()


def test_closing_does_not_wait_for_a_thread_that_is_waiting_for_the_lock(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    with kit.run(HOLD) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        failures: list[BusyError] = []

        def wait() -> None:
            try:
                journal.commit(lambda _: events("two"), deadline=soon(10))
            except BusyError as error:
                failures.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: any(t.name == "journal-lock" for t in threading.enumerate()))
        journal.close()
        assert waiting.is_alive()
        holder.stdin.write("\n")
        holder.stdin.flush()
        waiting.join(10)
        assert (waiting.is_alive(), failures) == (False, [])
    assert kit.texts() == ["one", "two"]


def test_without_a_descriptor_or_a_thread_to_wait_with_the_lock_is_refused(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    files = FaultyFiles()
    journal = kit.open(files=files)
    kit.commit(journal, "one")
    with kit.open().locked(soon()):
        files.fail_verbs("dup", code=errno.EMFILE)
        with pytest.raises(UnusableError, match="Too many open files"):
            journal.commit(lambda _: events("two"), deadline=soon())
        files.fail_nothing()
        monkeypatch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(BusyError, match="a thread to wait for the writer lock"):
            journal.commit(lambda _: events("two"), deadline=soon())
        monkeypatch.undo()
    kit.commit(journal, "two")
    assert kit.texts() == ["one", "two"]
