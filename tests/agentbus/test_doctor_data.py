"""What the doctor says of the data directory, the journal in it, and who is on the bus: all of it provoked for real."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from agentbus import doctor, snapshot
from agentbus.columns import render_bytes
from agentbus.doctor import chain, people, place
from agentbus.doctor.trial import trial
from agentbus.host import open_snapshots
from agentbus.limits import DISK_FREE_LOW_BYTES, SEARCH_BEHIND_MIN, SEARCH_DISK_BYTES_MIN
from tests.agentbus.hosts import call, crash, open_at
from tests.agentbus.patients import Patient, told, tree
from tests.agentbus.raw_server import MCP, RawServer
from tests.agentbus.shell import OPENED, WAIT_S, Writer, posted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

THEM = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    return Patient(tmp_path, monkeypatch)


def until(true: Callable[[], object]) -> None:
    """Wait for something that another process is about to do."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline
        select.select([], [], [], 0.01)


# --- the directory


def test_a_directory_that_is_ours_alone_is_well(patient: Patient) -> None:
    patient.born()
    assert [each["what"] for each in patient.found("directory")] == [
        f"{patient.data} is ours alone",
        f"{patient.data}/journal is ours alone",
    ]


@pytest.mark.parametrize("where", ["", "journal"])
def test_a_mode_that_lets_others_in_is_noted_and_left(patient: Patient, where: str) -> None:
    patient.born()
    path = patient.data / where
    path.chmod(0o755)
    assert patient.bad("directory") == [("note", f"{path} has mode 0755, not 0700")]
    (found,) = (each for each in patient.found("directory") if each["level"] == "note")
    assert found["why"] == "Others on this machine may look into it. Whoever writes to the bus next sets it right."
    assert found["do"] == f"chmod 700 {path}"
    path.chmod(0o500)
    (found,) = (each for each in patient.found("directory") if each["level"] == "note")
    assert found["why"].startswith("It may not be used as it is. ")


def test_what_is_no_directory_of_our_own_is_a_fault_with_the_way_out(patient: Patient) -> None:
    patient.data.parent.mkdir(parents=True)
    elsewhere = patient.root / "elsewhere"
    elsewhere.mkdir()
    patient.data.symlink_to(elsewhere)
    assert patient.bad("directory") == [("fault", f"{patient.data}: it is a symlink")]
    (found,) = patient.found("directory")
    assert found["do"] == f"Set data_directory (or AGENTBUS_DATA_DIR) to where it leads: {elsewhere}."
    patient.data.unlink()
    patient.data.write_text("not to be touched")
    assert patient.bad("directory") == [("fault", f"{patient.data}: it is no directory")]
    patient.data.unlink()
    patient.data.mkdir()
    patient.data.chmod(0o1777)
    ((level, what),) = patient.bad("directory")
    assert (level, "a place for everybody's files" in what) == ("fault", True)
    assert patient.found("lock") == patient.found("events") == []


@as_root
def test_what_belongs_to_another_user_is_a_fault_down_to_a_single_file(patient: Patient) -> None:
    patient.born()
    os.chown(patient.segment, THEM, THEM)
    assert patient.bad("directory") == [
        ("fault", f"1 file in {patient.data} belongs to another user, {patient.segment} first")
    ]
    os.chown(patient.data, THEM, THEM)
    assert patient.bad("directory") == [("fault", f"{patient.data}: it belongs to user {THEM}, not to 0")]
    (found,) = patient.found("directory")
    assert found["do"] == f'sudo chown -R "$(id -un)" {patient.data}'


def test_a_directory_that_cannot_be_made_is_a_fault(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    (patient.root / "file").write_text("")
    monkeypatch.setenv("AGENTBUS_DATA_DIR", str(patient.root / "file" / "bus"))
    ((level, what),) = patient.bad("directory")
    assert level == "fault"
    assert what == f"{patient.root}/file/bus is missing and cannot be made: {patient.root}/file is no directory"


@on_linux
def test_a_filesystem_that_may_not_be_written_to_is_a_fault(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTBUS_DATA_DIR", "/proc/bus/agentbus")
    levels = [each["level"] for check in ("directory", "lock") for each in patient.found(check)]
    assert "fault" in levels
    if not os.access("/sys", os.W_OK):  # mounted read-only, as in containers
        assert "its filesystem is read-only" in next(place._rights("/sys")).what


@on_linux
def test_a_network_filesystem_is_a_fault_unless_it_is_allowed(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient.born()
    table = patient.root / "mountinfo"
    table.write_text("1 1 0:1 / / rw - nfs4 x rw\n")
    monkeypatch.setattr("journal.directory._MOUNTS", str(table))
    assert patient.bad("filesystem") == [("fault", f"{patient.data} is on a nfs4 filesystem")]
    own = patient.root / "own.json"
    own.write_text('{"allow_network_filesystem": true}')
    what = f"{patient.data} is on a nfs4 filesystem, which allow_network_filesystem allows"
    assert patient.bad("filesystem", "--config", str(own)) == [("note", what)]


# --- locks, events, room


def test_a_lock_is_tried_between_two_processes_and_an_event_waited_for(patient: Patient) -> None:
    assert patient.found("lock")[0]["what"] == "a lock holds between two processes"
    assert patient.found("events")[0]["what"] == "a write wakes who waits for it"
    assert list(patient.home.iterdir()) == []
    patient.born()
    assert patient.found("lock")[0]["level"] == patient.found("events")[0]["level"] == "ok"


def test_locks_that_do_not_hold_are_a_fault() -> None:
    two = place.judge_lock("/x", refused=False, free=True)
    assert (two.level, two.what) == ("fault", "a lock in /x is given to two processes")
    kept = place.judge_lock("/x", refused=True, free=False)
    assert kept.what == "a lock in /x is still held after the process that held it has ended"


def test_without_file_events_messages_only_come_later(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentbus.doctor.place.open_source", lambda _: None)
    assert patient.bad("events") == [("note", "the system has no file events to give")]

    class Silent:
        def __init__(self, _: str) -> None:
            self.fd, self._other = os.pipe()

        def close(self) -> None:
            os.close(self.fd)
            os.close(self._other)

    monkeypatch.setattr("agentbus.doctor.place.open_source", Silent)
    monkeypatch.setattr("agentbus.doctor.place._EVENT_WAIT_S", 0.1)
    assert patient.bad("events") == [("note", f"no file event came within 0.1 s of a write in {patient.home}")]


@pytest.mark.parametrize(
    ("free_bytes", "spare_files", "level", "what"),
    [
        (DISK_FREE_LOW_BYTES, None, "ok", f"its disk has {render_bytes(DISK_FREE_LOW_BYTES)} free"),
        (DISK_FREE_LOW_BYTES - 1, 5, "note", "its disk is nearly full: 1.0 GiB free"),
        (SEARCH_DISK_BYTES_MIN - 1, 5, "fault", "its disk is full: 16.0 MiB free"),
        (DISK_FREE_LOW_BYTES, 0, "fault", "its filesystem has room for no file more"),
    ],
)
def test_room_on_the_disk_is_judged(free_bytes: int, spare_files: int | None, level: str, what: str) -> None:
    found = place.judge_space(free_bytes, spare_files=spare_files)
    assert (found.level, found.what) == (level, what)


def test_a_log_that_cannot_be_written_is_noted(patient: Patient) -> None:
    patient.born()
    assert patient.found("log")[0]["what"] == "agentbus.log can be written"
    log = patient.data / "agentbus.log"
    log.unlink(missing_ok=True)
    log.mkdir()
    assert patient.bad("log") == [("note", f"{log}: it is no regular file")]


def test_what_a_trial_makes_is_gone_even_if_the_doctor_is_killed_in_the_middle(patient: Patient) -> None:
    code = "import sys; from agentbus.doctor import trial\nwith trial.trial(sys.argv[1]) as t: print(t.file); input()"
    with subprocess.Popen(
        [sys.executable, "-uc", code, str(patient.home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert os.path.exists(process.stdout.readline().strip())
        process.kill()
    until(lambda: not list(patient.home.iterdir()))


def test_a_place_where_nothing_can_be_made_is_told_in_the_system_s_words(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="No such file"), trial(str(patient.root / "gone")):
        pass
    monkeypatch.setattr(sys, "executable", shutil.which("true", path=os.defpath))
    with pytest.raises(OSError, match="without a word"), trial(str(patient.home)):
        pass


# --- the journal


def test_damage_is_one_fault_whoever_meets_it(patient: Patient) -> None:
    writer = Writer(patient.data / "journal")
    for number in range(4):
        writer.write(posted(f"message {number}"))
    patient.data.chmod(0o700)
    writer.path.write_bytes(writer.path.read_bytes().replace(b"message 2", b"message X"))
    found = [each for each in patient.examined()["findings"] if each["level"] == "fault" and each["about"] == "journal"]
    assert len(found) == 1
    assert found[0]["what"].startswith(f"corrupt: {writer.path} line 5 (byte ")
    assert "agentbus repair" in found[0]["do"]


def test_of_much_damage_the_first_is_told_and_how_much_more_there_is(patient: Patient) -> None:
    writer = Writer(patient.data / "journal")
    for number in range(20):
        writer.write(posted(f"message {number}"))
    damaged = writer.path.read_bytes()
    for number in range(0, 20, 2):
        damaged = damaged.replace(b'"message %d"' % number, b'"massage %d"' % number)
    writer.path.write_bytes(damaged)
    *first, last = (each for each in patient.found("journal") if each["level"] == "fault")
    assert len(first) == 5
    assert last["what"].endswith(" more damaged lines")
    assert "agentbus replay --verify" in last["do"]


def test_a_journal_of_newer_software_is_a_fault(patient: Patient) -> None:
    writer = Writer(patient.data / "journal")
    writer.path.unlink()
    writer.seq, writer.prev = 1, str(OPENED["prev"])
    writer.write(OPENED | {"format": 2, "by": "agentbus 9.0.0"})
    (found,) = (
        each for each in patient.examined()["findings"] if each["level"] == "fault" and each["about"] == "journal"
    )
    assert "the journal's format is 2, this software knows 1" in found["what"]
    assert found["do"].startswith("Install the agentbus that wrote it")


def test_tails_are_notes(patient: Patient) -> None:
    patient.born()
    whole = patient.segment.read_bytes()
    patient.segment.write_bytes(whole + b'{"seq":6,"ti')
    assert patient.bad("journal") == [("note", f"a torn tail of 12 bytes at the end of {patient.segment}")]
    patient.segment.write_bytes(whole[:-1])
    size = len(whole.splitlines()[-1])
    what = f"a whole line without its line feed of {size} bytes at the end of {patient.segment}"
    assert patient.bad("journal") == [("note", what)]


def test_what_a_repair_took_out_is_noted(patient: Patient) -> None:
    patient.born()
    patient.segment.write_bytes(patient.segment.read_bytes().replace(b"hello", b"hullo"))
    assert patient.run("repair", "--yes")[0] == 0
    assert patient.bad("journal") == [("note", "1 range of lines were lost, and a repair says so in their place")]
    assert patient.bad("set-aside") == [("note", f"1 piece set aside in {patient.data}/journal/set-aside")]


def test_a_walk_that_would_take_too_long_says_how_far_it_came(patient: Patient) -> None:
    writer = Writer(patient.data / "journal")
    for number in range(600):
        writer.write(posted(f"message {number}"))
    assert told(list(chain.sound(patient.visit(), walk_s=0))) == [
        ("note", "looked at up to seq 256 in 0 s, and not at the rest")
    ]
    assert told(list(chain.sound(patient.visit()))) == [("ok", "602 lines, all sound, up to seq 602")]


def test_a_data_directory_without_a_journal_is_noted(patient: Patient) -> None:
    patient.data.mkdir(parents=True, mode=0o700)
    assert patient.bad("journal") == [("note", f"there is none yet in {patient.data}")]


def test_a_snapshot_and_an_index_that_cannot_be_used_are_notes(patient: Patient) -> None:
    patient.data.parent.mkdir(parents=True)
    host = open_at(patient.data)
    call(host, "register", name="sam")
    for number in range(SEARCH_BEHIND_MIN + 1):
        call(host, "post", as_="sam", channel="general", content=f"hello {number}")
    call(host, "search", as_="sam", query="hello")
    bookmark = host.bus._journal.bookmark(host.bus.ask(lambda state: state.last_seq))
    assert bookmark is not None
    open_snapshots(host.settings).save(snapshot.VERSION, bookmark, host.bus.ask(snapshot.encode))
    crash(host)
    assert patient.bad("snapshot") == patient.bad("search-index") == []
    assert patient.found("snapshot")[0]["what"].endswith(" is whole")
    for directory in ("snapshots", "search"):
        for path in (patient.data / directory).iterdir():
            if path.name[0].isdigit():
                path.write_bytes(b"x" + path.read_bytes()[1:])
    assert patient.bad("snapshot")[0][1].endswith(" is damaged, or another version's")
    assert patient.bad("search-index") == [("note", "the search index does not hold what its name says")]


# --- who is on the bus


@on_linux
def test_a_session_whose_process_is_stopped_is_noted_by_name(patient: Patient) -> None:
    patient.born()  # a server logs its start where a journal is, beside its first calls
    with RawServer(MCP, HOME=str(patient.home)) as server:
        server.initialize()
        server.ask("tools/call", {"name": "register", "arguments": {"name": "sam"}})
        log = patient.data / "agentbus.log"
        until(lambda: log.exists() and b"server started" in log.read_bytes())
        assert patient.found("stopped")[0]["what"] == "1 live server process, none stopped"
        pid = server.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: people.is_stopped(pid))
            assert patient.bad("stopped") == [("note", f'process {pid} is stopped: the server of "sam"')]
            assert people.is_stopped_by_psutil(pid)
        finally:
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def holding(path: Path) -> Iterator[int]:
    """A process that holds a file's lock; its number."""
    code = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


@on_linux
def test_a_writer_lock_that_does_not_come_free_is_a_fault_that_names_who_holds_it(patient: Patient) -> None:
    patient.born()
    with holding(patient.data / "journal" / "writer.lock") as pid:
        (found,) = people.writer_lock(patient.visit(), wait_s=0.1)
        assert (found.level, found.what) == ("fault", f"the writer lock was held for 0.1 s by process {pid}")
        os.kill(pid, signal.SIGSTOP)
        until(lambda: people.is_stopped(pid))
        (found,) = people.writer_lock(patient.visit(), wait_s=0.1)
        os.kill(pid, signal.SIGCONT)
    assert (found.what, found.do) == (
        f"the writer lock was held for 0.1 s by process {pid}, which is stopped",
        f"kill -CONT {pid}",
    )
    assert told(list(people.writer_lock(patient.visit()))) == [("ok", "the writer lock comes free")]
    assert not people.is_stopped_by_psutil(os.getpid())
    assert not people.is_stopped_by_psutil(pid)
    assert not people.is_stopped(pid)


def test_letters_that_nobody_reads_are_noted(patient: Patient) -> None:
    patient.data.parent.mkdir(parents=True)
    hosts = [open_at(patient.data) for _ in range(5)]
    for number, host in enumerate(hosts):
        call(host, "register", name=f"agent{number}")
    call(hosts[0], "post", as_="agent0", channel="general", content="hello")
    for host in hosts:
        crash(host)
    what = '4 messages wait for "agent1", "agent2", "agent3" and 1 more, who are gone'
    assert patient.bad("dead-letters") == [("note", what)]
    for number in range(1, 4):
        patient.run("ack-all", f"agent{number}", "--yes")
    assert patient.bad("dead-letters") == [("note", '1 message waits for "agent4", who is gone')]


def test_who_lives_is_told_where_the_journal_cannot_be_read(patient: Patient) -> None:
    patient.data.parent.mkdir(parents=True)
    host = open_at(patient.data)
    call(host, "register", name="sam")
    patient.segment.write_bytes(b"garbage\n")
    assert patient.found("stopped")[0]["what"] == "1 live server process, none stopped"
    crash(host)


# --- all of them at once


def test_nothing_hangs_where_every_file_is_a_pipe_that_nobody_writes_to(patient: Patient) -> None:
    patient.born()
    for path in [*patient.data.rglob("*")]:
        if path.is_file():
            path.unlink()
            os.mkfifo(path)
    before = tree(patient.root)
    found = doctor.examine(patient.visit())
    assert tree(patient.root) == before
    assert not [each for each in found if "did not end" in each.what]
    assert [each for each in found if each.level == "fault"]


def test_a_check_that_cannot_be_done_names_the_file(patient: Patient) -> None:
    patient.born()
    patient.segment.unlink()
    patient.segment.mkdir()
    (found,) = (each for each in patient.found("journal"))
    assert (found["level"], str(patient.segment) in found["what"]) == ("fault", True)
