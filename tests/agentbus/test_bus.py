"""What a Bus promises whatever happens between its steps: other processes, faults of the disk, exchanged files."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentbus import bus as bus_module
from agentbus import fold as fold_module
from agentbus import projection as projection_module
from agentbus.bus import FIRST_EVENTS, Bus
from agentbus.commands import Post, PostResult, Reset
from agentbus.control import Cancelled, Control
from agentbus.host import Host
from agentbus.names import AgentName, ChannelName
from agentbus.owners import Owners
from agentbus.queries import Located, located
from journal import BusyError, CorruptError, Files, Journal, ReplacedError, UnsupportedError, UnsyncedError
from tests.agentbus.hosts import WAIT_S, Background, call, crash, events, lines, live, open_at, refusal, replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentbus.state import State
    from journal import Commit

HOLD_THE_LOCK = """
import os, sys, time
from pathlib import Path
from journal import Journal
with Journal(Path(sys.argv[1]), first_events=b"[]").locked(time.monotonic() + 20):
    print("held", flush=True)
    os.kill(os.getpid(), 19)
    print("released", flush=True)
"""


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(name="soon")
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls give up early."""
    monkeypatch.setattr(bus_module, "COMMAND_DEADLINE_S", 0.3)


def _registered(data: Path, name: str = "sam") -> Host:
    host = open_at(data)
    assert call(host, "register", name=name)["as"] == name
    return host


def _post(text: str = "hello", name: str = "sam") -> Post:
    return Post(as_=AgentName(name), channel=ChannelName("general"), content=text)


@contextmanager
def _lock_held_by_a_stopped_process(data: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(data / "journal")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=WAIT_S)


class _Question:
    """What the State was when a command was decided, and how often that was asked; does something at each asking."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.asked = 0
        self._act = act

    def __call__(self, state: State, _: PostResult) -> int:
        self.asked += 1
        self._act()
        return state.last_seq


def _between(host: Host, act: Callable[[], object], times: int = 1) -> None:
    """Do something between the looks without a lock and the commits under it: before the first ``times`` of these."""
    journal, left = host.bus._journal, iter(range(times))
    commit = journal.commit

    def after_acting(*args: Any, **more: Any) -> Any:  # noqa: ANN401  # commit's own
        if next(left, None) is not None:
            act()
        return commit(*args, **more)

    journal.commit = after_acting  # type: ignore[method-assign]  # on this object only


# --- the writer lock held elsewhere


@pytest.mark.usefixtures("soon")
def test_a_call_that_must_write_is_busy_while_a_stopped_process_holds_the_lock_and_works_after(data: Path) -> None:
    host = _registered(data)
    before = lines(data)
    with _lock_held_by_a_stopped_process(data):
        answer = refusal(host, "post", as_="sam", channel="general", content="hello", idempotency_key="k")
        assert (answer["code"], answer["retryable"]) == ("busy", True)
        assert refusal(host, "register", name="tom")["code"] == "busy"
        assert lines(data) == before
    result = call(host, "post", as_="sam", channel="general", content="hello", idempotency_key="k")
    assert "repeated" not in result
    again = call(host, "post", as_="sam", channel="general", content="hello", idempotency_key="k")
    assert (again["seq"], again["repeated"]) == (result["seq"], True)
    assert [event["content"] for event in events(data) if event["type"] == "posted"] == ["hello"]


@pytest.mark.usefixtures("soon")
def test_answers_that_write_nothing_do_not_wait_for_the_lock(data: Path) -> None:
    host, peer = _registered(data), _registered(data, "tom")
    call(peer, "post", as_="tom", channel="general", content="hello", idempotency_key="k")
    fact = call(peer, "post", as_="tom", channel="memory", content="a fact")["memory_id"]
    batch = call(host, "subscribe", as_="sam", channel="general", from_="oldest") and call(host, "receive", as_="sam")
    with _lock_held_by_a_stopped_process(data):
        assert call(host, "register", name="sam")["already"]
        assert not call(host, "create_channel", as_="sam", name="general")["created"]
        assert call(host, "subscribe", as_="sam", channel="general")["already"]
        assert call(host, "unsubscribe", as_="sam", channel="nowhere") == {"unsubscribed": "nowhere"}
        assert call(peer, "post", as_="tom", channel="general", content="hello", idempotency_key="k")["repeated"]
        assert call(host, "receive", as_="sam")["token"] == batch["token"]
        assert call(host, "history", as_="sam", channel="general")["messages"]
        assert call(host, "search", as_="sam", query="fact")["hits"]
        assert call(host, "get_memory", as_="sam", id=fact)["content"] == "a fact"
        assert call(host, "discover", as_="sam")["sessions"]
        assert call(host, "list_channels", as_="sam")["channels"]
        assert refusal(host, "post", as_="sam", channel="genral", content="x")["code"] == "not_found"


def test_an_open_bus_that_nobody_uses_touches_no_file(data: Path) -> None:
    host = open_at(data)
    assert host.bus.ask(lambda state: state.last_seq) == 0
    host.warm()
    assert refusal(host, "post", as_="sam", channel="general", content="x")["code"] == "not_registered"
    host.close(time.monotonic() + 1)
    assert not data.exists()


def test_every_directory_and_file_is_private_from_the_first_register_on(data: Path) -> None:
    old = os.umask(0)
    try:
        _registered(data)
    finally:
        os.umask(old)
    modes = {path: path.stat().st_mode & 0o777 for path in [data, *data.rglob("*")]}
    assert {path: mode for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


# --- what comes between the look and the commit


def test_a_command_is_decided_on_what_others_wrote_since_it_was_looked_at(data: Path) -> None:
    host, peer = _registered(data), _registered(data, "tom")
    _between(host, lambda: call(peer, "post", as_="tom", channel="general", content="first"))
    question = _Question()
    done = host.bus.execute_and_ask(_post(), question)
    assert question.asked == 1
    assert done.seq is not None
    assert done.seen == done.seq - 1
    assert live(host) == live(peer) == replayed(data)


def test_a_process_that_is_too_far_behind_lets_the_lock_go_and_reads_first(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "CATCH_UP_LINES_MAX", 2)
    host, peer = _registered(data), _registered(data, "tom")
    _between(host, lambda: [peer.bus.execute(_post(name="tom")) for _ in range(3)])
    done = host.bus.execute_and_ask(_post(), _Question())
    assert done.seen == 6 + 1
    assert live(host) == replayed(data)


@pytest.mark.usefixtures("soon")
def test_a_process_that_never_catches_up_is_busy_and_has_written_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "CATCH_UP_LINES_MAX", 0)
    host, peer = _registered(data), _registered(data, "tom")
    _between(host, lambda: peer.bus.execute(_post(name="tom")), times=10**6)
    with pytest.raises(BusyError):
        host.bus.execute(_post())
    assert "sam" not in {event["as"] for event in events(data) if event["type"] == "posted"}


def test_who_waits_for_the_state_does_not_keep_other_processes_from_writing(data: Path) -> None:
    host, peer = _registered(data), _registered(data, "tom")
    taken, go = threading.Event(), threading.Event()
    looked = threading.Event()

    def keep(_: State) -> dict[str, Any]:
        taken.set()
        assert go.wait(WAIT_S)
        return {}

    _between(host, looked.set)
    writer = Background(lambda: {"seq": host.bus.execute(_post()).seq})
    assert looked.wait(WAIT_S)
    keeper = Background(lambda: host.bus.ask(keep))
    assert taken.wait(WAIT_S)
    call(peer, "post", as_="tom", channel="general", content="not kept waiting")
    go.set()
    keeper.outcome()
    writer.outcome()
    assert live(host) == replayed(data)


def test_a_cancel_before_the_commit_writes_nothing(data: Path) -> None:
    host = _registered(data)
    before = lines(data)
    control = Control(host.bus)
    _between(host, control.cancel)
    with pytest.raises(Cancelled):
        host.bus.execute(_post(), control)
    assert lines(data) == before
    with pytest.raises(Cancelled):
        call(host, "post", control, as_="sam", channel="general", content="too late")
    assert lines(data) == before


def test_a_call_cancelled_while_it_waits_for_the_lock_writes_nothing(data: Path) -> None:
    host = _registered(data)
    before = lines(data)
    control, looked = Control(host.bus), threading.Event()
    other = Journal(data / "journal", first_events=FIRST_EVENTS)
    with other.locked(time.monotonic() + WAIT_S):
        _between(host, looked.set)
        waiting = Background(lambda: {"": host.bus.execute(_post(), control)})
        assert looked.wait(WAIT_S)
        control.cancel()
    with pytest.raises(Cancelled):
        waiting.outcome()
    assert lines(data) == before
    other.close()


def test_a_cancel_after_the_decision_comes_too_late_and_the_line_is_there_once(data: Path) -> None:
    host = _registered(data)
    control = Control(host.bus)

    done = host.bus.execute_and_ask(_post(), _Question(control.cancel), control)
    assert [event["seq"] for event in events(data) if event["type"] == "posted"] == [done.seq]


# --- files that are exchanged


def _put_back(data: Path, copy: Path) -> None:
    """What a restore from a backup does."""
    (data / "journal").rename(data / f"journal.{time.monotonic_ns()}")
    shutil.copytree(copy, data / "journal")


def test_an_older_copy_put_back_under_a_living_bus_is_folded_anew_and_resumed_exactly(data: Path) -> None:
    host, peer = _registered(data), _registered(data, "tom")
    call(peer, "subscribe", as_="tom", channel="general")
    call(host, "post", as_="sam", channel="general", content="one")
    token = call(peer, "receive", as_="tom")["token"]
    shutil.copytree(data / "journal", data.parent / "copy")
    newer = call(peer, "receive", as_="tom", ack=token)
    call(host, "post", as_="sam", channel="general", content="two")
    unknown = call(peer, "receive", as_="tom")
    assert "token" not in newer
    _put_back(data, data.parent / "copy")

    result = call(peer, "receive", as_="tom", ack=unknown["token"])
    assert (result["token"], result["redelivered"], result["ack_ignored"]) == (token, True, True)
    assert [message["content"] for message in result["messages"]] == ["one"]
    call(peer, "receive", as_="tom", ack=token)
    call(host, "post", as_="sam", channel="general", content="three")
    assert [message["content"] for message in call(peer, "receive", as_="tom")["messages"]] == ["three"]
    assert live(host) == live(peer) == replayed(data)


def test_files_exchanged_between_look_and_commit_are_seen_before_anything_is_written(data: Path) -> None:
    host = _registered(data)
    shutil.copytree(data / "journal", data.parent / "copy")
    call(host, "post", as_="sam", channel="general", content="lost with its file")
    _between(host, lambda: _put_back(data, data.parent / "copy"))
    done = host.bus.execute(_post())
    assert [(event["seq"], event["content"]) for event in events(data) if event["type"] == "posted"] == [
        (done.seq, "hello")
    ]
    assert live(host) == replayed(data)


def test_another_journal_that_grew_past_the_state_is_never_folded_on_top_of_it(data: Path) -> None:
    host, peer = _registered(data), _registered(data, "tom")
    call(peer, "subscribe", as_="tom", channel="general")
    place = host.bus.ask(lambda state: state.last_seq)
    shutil.copytree(data / "journal", data.parent / "copy")
    call(host, "post", as_="sam", channel="general", content="one history")

    def exchange() -> None:
        _put_back(data, data.parent / "copy")
        for number in range(3):
            call(peer, "post", as_="tom", channel="general", content=f"another history {number}")
        # A call that waits is the first to see it; the one that is about to commit must see it too.
        host.bus.wait(place + 1, WAIT_S, Control(host.bus))

    _between(host, exchange)
    host.bus.execute(_post())
    assert live(host) == live(peer) == replayed(data)


def test_bodies_of_exchanged_files_are_refused_and_the_next_call_works(data: Path) -> None:
    host = _registered(data)
    shutil.copytree(data / "journal", data.parent / "copy")
    call(host, "post", as_="sam", channel="general", content="x" * 500)
    at = host.bus.ask(_first_in_general)
    _put_back(data, data.parent / "copy")
    with pytest.raises(ReplacedError):
        list(host.bus.bodies(at))
    assert call(host, "history", as_="sam", channel="general")["messages"] == []


def _first_in_general(state: State) -> list[Located]:
    return [located(state, state.channels["general"], 0)]


def test_a_deleted_lock_file_and_a_deleted_owner_file_are_made_again(data: Path) -> None:
    host = _registered(data)
    (data / "journal" / "writer.lock").unlink()
    for file in (data / "owners").iterdir():
        file.unlink()
    assert call(host, "register", name="sam")["already"]
    assert call(_registered(data, "tom"), "discover", as_="tom")["sessions"][0]["as"] == "sam"
    assert call(host, "post", as_="sam", channel="general", content="on")["seq"]
    assert live(host) == replayed(data)


# --- damage, and lines this version does not know


def test_a_changed_byte_makes_every_call_answer_corrupt_with_its_place_and_nothing_is_written(data: Path) -> None:
    host = _registered(data)
    for number in range(3):
        call(host, "post", as_="sam", channel="general", content=f"message {number}")
    (segment,) = (data / "journal").glob("*.jsonl")
    sound = segment.read_bytes()
    offset = sound.index(b"\n", sound.index(b"message 0")) + 1
    damaged = sound.replace(b"message 1", b"massage 1")
    segment.write_bytes(damaged)

    fresh = open_at(data)
    for tool, arguments in (
        ("register", {"name": "sam"}),
        ("create_channel", {"as_": "sam", "name": "x"}),
        ("list_channels", {"as_": "sam"}),
        ("subscribe", {"as_": "sam", "channel": "general"}),
        ("unsubscribe", {"as_": "sam", "channel": "general"}),
        ("post", {"as_": "sam", "channel": "general", "content": "x"}),
        ("receive", {"as_": "sam"}),
        ("history", {"as_": "sam", "channel": "general"}),
        ("search", {"as_": "sam", "query": "message"}),
        ("get_memory", {"as_": "sam", "id": 1}),
        ("discover", {"as_": "sam"}),
    ):
        answer = refusal(fresh, tool, **arguments)
        assert (answer["code"], answer["retryable"]) == ("corrupt", False), tool
        assert f"{segment} line 5 (byte {offset}, seq 5)" in answer["message"]
        assert "agentbus" in answer["message"]
    with pytest.raises(CorruptError):
        fresh.bus.execute(Reset(by="me"))
    assert segment.read_bytes() == damaged
    segment.write_bytes(sound)
    assert call(fresh, "register", name="sam")["as"] == "sam2"


@pytest.mark.parametrize(
    ("written", "code"),
    [
        (b'[{"type":"teleported","as":"sam"}]', "unsupported"),
        (b'[{"type":"acked","as":"sam","token":"t","mood":"good"}]', "unsupported"),
        (b'[{"type":"acked","as":"sam","token":7}]', "corrupt"),
        (b'[{"type":"acked","as":"sam","token":"nobody has it"}]', "corrupt"),
    ],
)
def test_a_line_that_makes_no_sense_here_stops_every_call_and_nothing_more_is_written(
    data: Path, written: bytes, code: str
) -> None:
    host = _registered(data)
    Journal(data / "journal", first_events=FIRST_EVENTS).commit(lambda _: written, deadline=time.monotonic() + WAIT_S)
    before = lines(data)
    for bus in (host, open_at(data)):
        for _ in range(2):
            answer = refusal(bus, "list_channels", as_="sam")
            assert answer["code"] == code
            assert refusal(bus, "post", as_="sam", channel="general", content="x")["code"] == code
    if code == "corrupt":
        assert "line 4 (byte" in answer["message"]
        assert "seq 4" in answer["message"]
    assert lines(data) == before


def test_a_line_that_turns_up_under_the_lock_and_is_not_known_stops_the_commit(data: Path) -> None:
    host = _registered(data)
    newer = Journal(data / "journal", first_events=FIRST_EVENTS)

    def write() -> None:
        newer.commit(lambda _: b'[{"type":"teleported"}]', deadline=time.monotonic() + WAIT_S)

    _between(host, write)
    with pytest.raises(UnsupportedError):
        host.bus.execute(_post())
    assert len(lines(data)) == 4


def test_a_fault_in_the_middle_of_a_fold_never_leaves_half_a_line_in_the_state(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, peer = _registered(data), _registered(data, "tom")
    call(peer, "post", as_="tom", channel="general", content="hello")

    def interrupted(state: State, commit: Commit, events: Any) -> None:  # noqa: ANN401  # fold's own
        fold_module.fold(state, commit, events)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(projection_module, "fold", interrupted)
        with pytest.raises(KeyboardInterrupt):
            host.bus.warm()
    assert live(host) == replayed(data)


# --- faults of the disk


class _Faulty(Files):
    """Files whose next flushes fail."""

    def __init__(self) -> None:
        self.failures = 0

    def fdatasync(self, fd: int) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fdatasync(fd)


def _on(files: Files, data: Path) -> Host:
    host = open_at(data)
    journal = Journal(data / "journal", first_events=FIRST_EVENTS, files=files)
    return Host(Bus(journal, Owners(data / "owners"), host.bus.policy), host.settings, host.directory, None)


def test_a_failed_flush_is_unsynced_never_busy_or_done_and_the_next_call_makes_it_good(data: Path) -> None:
    files = _Faulty()
    host = _on(files, data)
    call(host, "register", name="sam")
    files.failures = 1
    answer = refusal(host, "post", as_="sam", channel="general", content="one")
    assert (answer["code"], answer["retryable"]) == ("unsynced", False)
    assert call(host, "post", as_="sam", channel="general", content="two")["seq"] == 5
    files.failures = 1
    answer = refusal(host, "post", as_="sam", channel="general", content="three", idempotency_key="k")
    assert (answer["code"], answer["retryable"]) == ("unsynced", True)
    again = call(host, "post", as_="sam", channel="general", content="three", idempotency_key="k")
    assert (again["seq"], again["repeated"]) == (6, True)
    assert live(host) == replayed(data)


@pytest.mark.usefixtures("soon")
def test_after_a_failed_flush_nothing_that_says_done_is_answered_until_it_is_made_good(data: Path) -> None:
    files = _Faulty()
    host = _on(files, data)
    call(host, "register", name="sam")
    files.failures = 1
    with pytest.raises(UnsyncedError):
        host.bus.execute(_post())
    with _lock_held_by_a_stopped_process(data):
        assert refusal(host, "register", name="sam")["code"] in {"busy", "unsynced"}
        assert call(host, "history", as_="sam", channel="general")["messages"]
    assert call(host, "register", name="sam")["already"]


DISK_FULL = """
import json, resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.agentbus.hosts import call, live, open_at, refusal, replayed
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
data = Path(sys.argv[1])
host = open_at(data)
call(host, "register", name="sam")
(segment,) = (data / "journal").glob("*.jsonl")
size = segment.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
refused = [refusal(host, "post", as_="sam", channel="general", content="x" * 300) for _ in range(2)]
read = call(host, "list_channels", as_="sam")["channels"][0]["messages"]
same = segment.stat().st_size == size
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
seq = call(host, "post", as_="sam", channel="general", content="x" * 300)["seq"]
print(json.dumps([refused, read, same, seq, live(host) == replayed(data)]))
"""


def test_a_full_disk_stores_nothing_says_so_and_works_again_by_itself(data: Path) -> None:
    root = str(Path(__file__).parents[2])
    run = subprocess.run(
        [sys.executable, "-c", DISK_FULL, str(data), root], capture_output=True, text=True, check=True, timeout=60
    )
    refused, read, same, seq, equal = json.loads(run.stdout)
    for answer in refused:
        assert answer["code"] == "capacity_exhausted"
        assert answer["message"].startswith("not stored: disk full")
    assert (read, same, seq, equal) == (0, True, 4, True)


def test_an_owner_file_that_cannot_be_made_refuses_the_register_and_writes_nothing(data: Path) -> None:
    first = _registered(data)
    before = lines(data)
    shutil.rmtree(data / "owners")
    (data / "owners").write_text("in the way")
    host = open_at(data)
    assert refusal(host, "register", name="tom")["code"] == "capacity_exhausted"
    assert lines(data) == before
    (data / "owners").unlink()
    assert call(host, "register", name="tom")["as"] == "tom"
    first.close(time.monotonic() + WAIT_S)


# --- the first fold, and the end


@pytest.mark.usefixtures("soon")
def test_calls_are_busy_while_the_journal_is_still_being_folded_and_each_goes_on_where_it_stopped(data: Path) -> None:
    host = _registered(data)
    for _ in range(20):
        host.bus.execute(_post())
    fresh = open_at(data)
    go, taken = threading.Event(), threading.Event()

    def keep(_: State) -> dict[str, Any]:
        taken.set()
        assert go.wait(WAIT_S)
        return {}

    keeper = Background(lambda: fresh.bus.ask(keep))
    assert taken.wait(WAIT_S)
    assert refusal(fresh, "register", name="tom")["code"] == "busy"
    go.set()
    keeper.outcome()
    assert call(fresh, "register", name="tom")["as"] == "tom"


def test_a_fold_that_outlasts_the_deadline_is_busy_and_keeps_what_it_has_folded(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = _registered(data)
    fresh = open_at(data)
    with monkeypatch.context() as patch:
        patch.setattr(bus_module, "COMMAND_DEADLINE_S", 0.0)
        assert refusal(fresh, "list_channels", as_="sam")["code"] == "busy"
    fresh.warm()
    assert call(host, "list_channels", as_="sam")
    assert fresh.bus.ask(lambda state: state.last_seq) == 3


def test_close_ends_the_sessions_of_this_process_and_every_call_that_waits(data: Path) -> None:
    host, peer = _registered(data), _registered(data, "tom")
    call(host, "register", name="child", parent="sam")
    waiting = Background(lambda: call(host, "receive", as_="sam", wait_seconds=50))
    host.close(time.monotonic() + WAIT_S)
    with pytest.raises(Cancelled):
        waiting.outcome()
    with pytest.raises(Cancelled):
        call(host, "post", as_="sam", channel="general", content="after the end")
    ended = [(event["as"], event["reason"]) for event in events(data) if event["type"] == "ended"]
    assert ended == [("sam/child", "exit"), ("sam", "exit")]
    assert [row["as"] for row in call(peer, "discover", as_="tom")["sessions"]] == ["tom"]


def test_a_close_that_cannot_write_says_so_in_time_and_the_sessions_are_gone_all_the_same(data: Path) -> None:
    host, peer = _registered(data), _registered(data, "tom")
    with _lock_held_by_a_stopped_process(data):
        with pytest.raises(BusyError):
            host.close(time.monotonic() + 0.2)
        assert [row["as"] for row in call(peer, "discover", as_="tom")["sessions"]] == ["tom"]
    assert call(open_at(data), "register", name="sam")["as"] == "sam"


def test_close_while_calls_run_ends_each_as_done_or_cancelled_and_the_journal_agrees(data: Path) -> None:
    host = _registered(data)
    started, done = threading.Barrier(9), []

    def post() -> dict[str, Any]:
        started.wait(WAIT_S)
        while True:
            done.append(call(host, "post", as_="sam", channel="general", content="until the end")["seq"])

    threads = [Background(post) for _ in range(8)]
    started.wait(WAIT_S)
    host.close(time.monotonic() + WAIT_S)
    for thread in threads:
        thread.finish()
        assert isinstance(thread.error, Cancelled)
    posted = [event["seq"] for event in events(data) if event["type"] == "posted"]
    assert set(done) <= set(posted)
    assert live(open_at(data)) == replayed(data)


def test_a_crashed_process_leaves_its_sessions_until_the_next_register_ends_them(data: Path) -> None:
    host, peer = _registered(data), _registered(data, "tom")
    crash(host)
    assert [row["as"] for row in call(peer, "discover", as_="tom")["sessions"]] == ["tom"]
    assert len(list((data / "owners").iterdir())) == 2
    assert call(open_at(data), "register", name="ann")["as"] == "ann"
    (ended,) = [event for event in events(data) if event["type"] == "ended"]
    assert (ended["as"], ended["reason"]) == ("sam", "gone")
    call(open_at(data), "register", name="bob")
    assert live(peer) == replayed(data)


def test_reset_leaves_two_empty_channels_and_makes_every_session_register_again(data: Path) -> None:
    host, peer = _registered(data), _registered(data, "tom")
    call(peer, "create_channel", as_="tom", name="extra")
    call(peer, "subscribe", as_="tom", channel="extra")
    call(host, "post", as_="sam", channel="extra", content="soon forgotten")
    token = call(peer, "receive", as_="tom")["token"]
    waiting = Background(lambda: call(host, "receive", as_="sam", wait_seconds=50))
    last = open_at(data).bus.execute(Reset(by="me")).seq
    with pytest.raises(Exception, match="register again"):
        waiting.outcome()
    for bus, name in ((host, "sam"), (peer, "tom")):
        assert refusal(bus, "receive", as_=name, ack=token)["code"] == "not_registered"
        assert refusal(bus, "list_channels", as_=name)["code"] == "not_registered"
    assert call(host, "register", name="sam") == {
        "as": "sam",
        "resumed": False,
        "pending": [],
        "subscribed": ["general", "memory"],
    }
    channels = call(host, "list_channels", as_="sam")["channels"]
    assert [(row["channel"], row["messages"]) for row in channels] == [("general", 0), ("memory", 0)]
    assert last is not None
    assert call(host, "post", as_="sam", channel="general", content="on")["seq"] == last + 2
    assert live(host) == replayed(data)
