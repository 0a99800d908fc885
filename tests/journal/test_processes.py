"""Two and more processes on one journal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

from journal import BusyError, CorruptError, Files, Verdict, verify
from tests.journal.conftest import events, soon

if TYPE_CHECKING:
    from tests.journal.conftest import Kit

WRITE = """
def build(_time):
    for _ in journal.read(journal.last_seq):
        pass
    return b'[{"type":"posted","content":"%s"}]' % text.encode()
for number in range(int(sys.argv[3])):
    text = f"{sys.argv[2]}-{number}"
    print(journal.commit(build, deadline=time.monotonic() + 20).seq, text, flush=True)
"""


def test_what_processes_were_told_is_what_the_journal_holds(kit: Kit) -> None:
    each = 40
    running = [kit.run(WRITE, str(name), str(each)) for name in range(3)]
    told: dict[int, str] = {}
    for process in running:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        for line in out.splitlines():
            seq, text = line.split()
            told[int(seq)] = text
    read = {commit.seq: msgspec.json.decode(commit.events)[0]["content"] for commit in kit.open().read(2)}
    assert read == told
    assert sorted(told) == list(range(3, 3 + 3 * each))
    verdict = list(verify([kit.directory]))[-1]
    assert isinstance(verdict, Verdict)
    assert (verdict.faults, verdict.commits) == (0, 2 + 3 * each)


def test_a_killed_writer_costs_nothing_that_was_told(kit: Kit) -> None:
    for round_number in range(3):
        with kit.run(WRITE, f"r{round_number}", "100000") as process:
            assert process.stdout is not None
            told = [process.stdout.readline().split()[1] for _ in range(5)]
            process.kill()
            told += [line.split()[1] for line in process.stdout.read().splitlines() if len(line.split()) == 2]
        there = kit.texts()
        assert [text for text in there if text in set(told)] == told
        kit.commit(kit.open(), f"after {round_number}")
    verdict = list(verify([kit.directory]))[-1]
    assert isinstance(verdict, Verdict)
    assert verdict.faults == 0


def test_a_waiting_thread_wakes_on_another_processs_line(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(journal.wait(3, 30, lambda: False)))
    waiting.start()
    with kit.run(WRITE, "other", "1") as process:
        assert process.stdout is not None
        process.stdout.read()
    waiting.join(20)
    assert woken == [True]
    assert [commit.seq for commit in journal.read(3)] == [4]


STOPPED = """
with journal.locked(time.monotonic() + 5):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_failing_line_is_judged_only_while_no_writer_is_at_work(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("journal.reader._SHARED_WAIT_S", 0.05)
    kit.commit(kit.open(), "one")
    sound = kit.segment().read_bytes()
    with kit.run(STOPPED) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        kit.segment().write_bytes(sound + b"half of a line\n")
        reader = kit.open()
        with pytest.raises(BusyError):
            list(reader.read(0))
        assert reader.wait(3, 0, lambda: False) is False
        holder.stdin.write("\n")
        holder.stdin.close()
        holder.wait(20)
    with pytest.raises(CorruptError):
        list(reader.read(0))
    assert reader.wait(3, 5, lambda: False) is True
    (kit.directory / "writer.lock").unlink()
    with pytest.raises(CorruptError):
        list(reader.read(0))
    with pytest.raises(CorruptError):
        reader.commit(lambda _time: events("no"), deadline=soon())


class Late(Files):
    """Shows a changed line the first few times it is read."""

    def __init__(self, left: int) -> None:
        self.left = left

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        data = super().pread(fd, length, offset)
        if length < 1000 or not self.left:
            return data
        self.left -= 1
        return data.replace(b'"two"', b'"2wo"')


def test_a_line_that_failed_only_for_a_moment_is_read_again(kit: Kit) -> None:
    journal = kit.open()
    kit.commit(journal, "one")
    kit.commit(journal, "two")
    for reads in (1, 2):
        assert [commit.seq for commit in kit.open(files=Late(reads)).read(0)] == [1, 2, 3, 4]
    (kit.directory / "writer.lock").unlink()
    assert [commit.seq for commit in kit.open(files=Late(2)).read(0)] == [1, 2, 3, 4]
