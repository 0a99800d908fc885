"""A State as a snapshot keeps it: with what is folded onto it later, it is the State that a fold from seq 1 gives."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from agentbus import projection as projection_module
from agentbus import queries, snapshot, wire
from agentbus.bus import FIRST_EVENTS, Bus
from agentbus.commands import Reset
from agentbus.config import Settings
from agentbus.fold import fold
from agentbus.host import Host, open_journal, open_snapshots
from agentbus.log import open_log
from agentbus.owners import Owners
from agentbus.projection import Projection
from agentbus.state import State
from agentbus.upkeep import UpkeepSettings
from journal import CorruptError, Files, Journal, Repair, Snapshots
from tests.agentbus.hosts import WAIT_S, call, crash, lines, live, open_at, replayed
from tests.agentbus.random_calls import RandomCalls

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
DIGEST_OF_FORM = {1: "9e9a889d6c310819", 2: "4a73c87f78d874f2", 3: "5315c20a905f4279"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot is due after five lines."""
    monkeypatch.setattr(projection_module, "SNAPSHOT_TAIL_LINES_MIN", 5)


def posted(host: Host, count: int) -> None:
    call(host, "register", name="sam")
    for number in range(count):
        call(host, "post", as_="sam", channel="general", content=f"message {number}")


def until_kept(host: Host) -> None:
    keeper = host.bus._upkeep._threads.get("agentbus-snapshot")
    if keeper is not None:
        keeper.join(WAIT_S)
        assert not keeper.is_alive()


def kept_seqs(data: Path) -> list[int]:
    return [int(path.name) for path in (data / "snapshots").glob("0*")]


def folds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Seqs of the lines that are folded from now on."""
    seen: list[int] = []

    def counted(state: State, commit: object, events: object) -> None:
        seen.append(commit.seq)  # type: ignore[attr-defined]  # a Commit
        fold(state, commit, events)  # type: ignore[arg-type]  # as above

    monkeypatch.setattr(projection_module, "fold", counted)
    return seen


# --- the law


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_at_any_line_and_the_rest_of_the_journal_fold_to_what_all_of_it_folds_to(
    data: Path, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311  # repeatable, not secret
    host = open_at(data, max_message_kib=4)
    calls = RandomCalls(host, "sam", chance)
    other = RandomCalls(open_at(data), "tom", chance)
    for number in range(120):
        chance.choice([calls, other]).step()
        if number == 80 and seed % 2:
            host.bus.execute(Reset(by="test"))
            calls, other = RandomCalls(host, "sam", chance), RandomCalls(open_at(data), "tom", chance)
    journal = open_journal(Settings(data_directory=data), read_only=True)
    states = [State()]
    for commit in journal.read(0):
        for at, state in enumerate(states):
            fold(state, commit, wire.decode(commit.events))
            assert at == 0 or snapshot.encode(state) == snapshot.encode(states[0])
        if commit.seq % 10 == seed:
            states.append(snapshot.decode(memoryview(snapshot.encode(states[0]))))
    assert len(states) > 5
    assert {queries.encode_canonical(state) for state in states} == {replayed(data)}


def test_a_snapshot_holds_every_attribute_of_a_state() -> None:
    assert set(vars(State())) == set(snapshot._Saved.__struct_fields__)


def test_what_few_states_hold_is_kept_too() -> None:
    state = State()
    state.replies, state.orphans, state.lost = {9: 3}, [(6, "an event about nothing")], [5]
    kept = snapshot.decode(memoryview(snapshot.encode(state)))
    assert (kept.replies, kept.orphans, kept.lost) == ({9: 3}, [(6, "an event about nothing")], [5])


def test_a_payload_of_another_form_is_refused() -> None:
    payload = snapshot.encode(State())
    for wrong in (b"", payload[:-1], b"\x80", msgspec.msgpack.encode({"last_seq": 1})):
        with pytest.raises(snapshot.MalformedSnapshotError):
            snapshot.decode(memoryview(wrong))


def test_columns_that_do_not_fit_this_machine_are_refused(data: Path) -> None:
    host = open_at(data)
    posted(host, 1)
    saved = host.bus.ask(lambda state: msgspec.msgpack.decode(snapshot.encode(state)))
    saved["channels"][0]["columns"][0] = b"seven b"
    with pytest.raises(snapshot.MalformedSnapshotError):
        snapshot.decode(memoryview(msgspec.msgpack.encode(saved)))


def test_whoever_changes_the_fold_gives_its_snapshots_another_form() -> None:
    """What an older fold kept must not be taken for what this one gives."""
    rooms = ("fold", "state", "retained", "addressing", "events", "snapshot")
    code = b"".join((ROOT / "agentbus" / f"{name}.py").read_bytes() for name in rooms)
    digest = hashlib.sha256(re.sub(rb"(?m)^(FORM: .*|\s*#.*)$", b"", code)).hexdigest()[:16]
    advice = "if a fold may give another State now, raise snapshot.FORM; then note here for it"
    assert digest == DIGEST_OF_FORM[snapshot.FORM], f"{advice}: {digest}"


# --- when one is made, and used


@pytest.mark.usefixtures("often")
def test_a_process_that_has_folded_enough_keeps_a_snapshot_and_the_next_one_folds_only_what_came_after(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_at(data)
    posted(host, 8)
    until_kept(host)
    monkeypatch.setattr(projection_module, "SNAPSHOT_TAIL_LINES_MIN", 10_000)
    (seq,) = kept_seqs(data)
    assert seq > 5
    call(host, "post", as_="sam", channel="general", content="after it")
    expected = live(host)
    seen = folds(monkeypatch)
    late = open_at(data)
    assert live(late) == expected == replayed(data)
    assert seen == list(range(seq + 1, late.bus.ask(lambda state: state.last_seq) + 1))


@pytest.mark.usefixtures("often")
def test_a_process_that_began_at_a_snapshot_shows_the_bodies_before_it(data: Path) -> None:
    host = open_at(data)
    posted(host, 8)
    until_kept(host)
    late = open_at(data)
    call(late, "register", name="tom")
    texts = [message["content"] for message in call(late, "history", as_="tom", channel="general")["messages"]]
    assert texts == [f"message {number}" for number in range(8)]


@pytest.mark.usefixtures("often")
def test_a_command_that_only_asks_uses_a_snapshot_and_keeps_none(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = open_at(data)
    call(host, "register", name="sam")
    for projection in (_read_only(data), _read_only(data)):
        projection.catch_up()
        assert not (data / "snapshots").exists()
    posted(host, 8)
    until_kept(host)
    seen = folds(monkeypatch)
    projection = _read_only(data)
    projection.catch_up()
    assert queries.encode_canonical(projection.state) == replayed(data)
    assert 1 not in seen


def _read_only(data: Path) -> Projection:
    settings = Settings(data_directory=data)
    return Projection(open_journal(settings, read_only=True), open_snapshots(settings))


@pytest.mark.usefixtures("often")
def test_a_damaged_snapshot_costs_a_fold_and_is_replaced(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = open_at(data)
    posted(host, 8)
    until_kept(host)
    crash(host)
    (path,) = (data / "snapshots").glob("0*")
    path.write_bytes(path.read_bytes()[:-1])
    seen = folds(monkeypatch)
    late = open_at(data)
    assert live(late) == replayed(data)
    assert seen[0] == 1
    until_kept(late)
    seen.clear()
    assert live(open_at(data)) == replayed(data)
    assert 1 not in seen


@pytest.mark.usefixtures("often")
def test_a_snapshot_that_another_form_of_this_version_left_is_none(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = open_at(data)
    posted(host, 8)
    until_kept(host)
    monkeypatch.setattr(snapshot, "encode", lambda _: b"\x80")
    posted(host, 8)
    until_kept(host)
    assert live(open_at(data)) == replayed(data)


@pytest.mark.usefixtures("often")
def test_a_journal_put_back_from_an_older_copy_is_folded_afresh_and_its_stale_snapshot_replaced(data: Path) -> None:
    host = open_at(data)
    posted(host, 3)
    (segment,) = (data / "journal").glob("*.jsonl")
    older = segment.read_bytes()
    posted(host, 8)
    until_kept(host)
    crash(host)
    (stale,) = kept_seqs(data)
    segment.unlink()
    segment.write_bytes(older)
    late = open_at(data)
    assert live(late) == replayed(data)
    until_kept(late)
    posted(late, 2)
    until_kept(late)
    assert kept_seqs(data) != [stale]
    assert live(open_at(data)) == live(late) == replayed(data)


@pytest.mark.usefixtures("often")
def test_a_live_process_whose_files_were_exchanged_trusts_no_snapshot(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_at(data)
    posted(host, 8)
    until_kept(host)
    (segment,) = (data / "journal").glob("*.jsonl")
    copy = segment.read_bytes()
    segment.unlink()
    segment.write_bytes(copy)
    seen = folds(monkeypatch)
    assert live(host) == replayed(data)
    assert seen[0] == 1
    until_kept(host)


@pytest.mark.usefixtures("often")
def test_of_two_processes_only_one_keeps_a_snapshot(data: Path) -> None:
    first, second = open_at(data), open_at(data)
    posted(first, 8)
    until_kept(first)
    (seq,) = kept_seqs(data)
    second.bus.warm()
    until_kept(second)
    assert kept_seqs(data) == [seq]


@pytest.mark.usefixtures("often")
def test_a_disk_that_refuses_a_snapshot_is_logged_and_no_call_fails(tmp_path: Path, data: Path) -> None:
    from agentbus.host import open_host  # noqa: PLC0415  # the one test that needs a log

    data.mkdir(mode=0o700)
    (data / "snapshots").write_bytes(b"no directory")
    log = open_log(data, "info")
    host = open_host(Settings(data_directory=data), str(tmp_path), "test", log)
    posted(host, 8)
    until_kept(host)
    log.close()
    warned = [line for line in _log(data) if line["level"] == "WARN"]
    assert [line["msg"] for line in warned] == ["no snapshot was kept: the next start takes longer"]
    assert live(host) == replayed(data)


def _log(data: Path) -> Iterator[dict[str, str]]:
    return map(msgspec.json.decode, (data / "agentbus.log").read_bytes().splitlines())


@pytest.mark.usefixtures("often")
def test_a_process_that_ends_finishes_its_snapshot_first(data: Path) -> None:
    host = open_at(data)
    posted(host, 8)
    host.close(deadline=time.monotonic() + WAIT_S)
    assert kept_seqs(data)


@pytest.mark.usefixtures("often")
def test_a_line_that_makes_no_sense_after_a_snapshot_is_corrupt_each_time(data: Path) -> None:
    host = open_at(data)
    posted(host, 8)
    until_kept(host)
    host.bus._journal.commit(
        lambda _: b'[{"type":"ended","as":"x","owner":"y","reason":"exit"}]', deadline=time.monotonic() + WAIT_S
    )
    for late in (host, host, open_at(data)):
        with pytest.raises(CorruptError, match='"x" has no session'):
            late.bus.warm()
    assert len(lines(data)) > 8


# --- what must not get into one


class _Unsynced(Files):
    """Flushes fail once ``fails`` is set."""

    fails = False

    def fdatasync(self, fd: int) -> None:
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fdatasync(fd)


def test_lines_that_no_flush_covers_are_not_kept(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is answered without its flush. After a power cut a snapshot must not know more than the journal."""
    sam = open_at(data)
    posted(sam, 3)
    files, told = _Unsynced(), list[str]()
    journal = Journal(data / "journal", first_events=FIRST_EVENTS, files=files)
    bus = Bus(
        journal,
        Owners(data / "owners"),
        open_at(data).bus.policy,
        Snapshots(data / "snapshots"),
        UpkeepSettings(on_no_snapshot=told.append),
    )
    host = Host(bus, Settings(data_directory=data), str(data), None)
    call(host, "register", name="tom")
    posted(sam, 1)
    files.fails = True
    assert call(host, "receive", as_="tom")["messages"]
    monkeypatch.setattr(projection_module, "SNAPSHOT_TAIL_LINES_MIN", 5)
    bus.ask(lambda _: None)
    until_kept(host)
    assert kept_seqs(data) == []
    assert len(told) == 1
    assert told[0].startswith("unsynced: ")


@pytest.mark.usefixtures("often")
def test_a_process_that_knows_lines_which_a_repair_took_out_folds_afresh(data: Path) -> None:
    """A server that has not registered holds no owner file: repair does not see it."""
    host = open_at(data, segment_mib=1)
    call(host, "register", name="sam")
    fact = call(host, "post", as_="sam", channel="memory", content="remember this")["memory_id"]
    journal = Journal(data / "journal", first_events=FIRST_EVENTS, segment_bytes_max=1)
    journal.commit(lambda _: b'[{"type":"active","as":"sam"}]', deadline=time.monotonic() + WAIT_S)
    journal.close()
    idle = open_at(data)
    idle.bus.warm()
    crash(host)
    segment = data / "journal" / f"{1:020d}.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b"remember", b"rememver"))
    repair = Repair(data / "journal", Snapshots(data / "snapshots"), first_events=FIRST_EVENTS)
    (mended,) = repair.perform(repair.plan(), lambda: None, wait_s=WAIT_S)
    assert mended.lost is not None
    assert idle.bus.ask(lambda state: (fact in state.memories, state.lost)) == (False, [fact])
    posted(idle, 8)
    until_kept(idle)
    assert kept_seqs(data)
    assert live(idle) == live(open_at(data)) == replayed(data)


def test_a_repair_whose_lost_line_a_later_one_took_out_is_folded_all_the_same(data: Path) -> None:
    host = open_at(data)
    posted(host, 1)
    repaired = b'[{"type":"repaired","lost":3,"hash":"%b"}]' % (b"0" * 64)
    host.bus._journal.commit(lambda _: repaired, deadline=time.monotonic() + WAIT_S)
    assert live(open_at(data)) == live(host) == replayed(data)


# --- the thread that keeps it


@pytest.mark.usefixtures("often")
def test_where_no_thread_is_to_be_had_no_call_fails_and_the_snapshot_comes_later(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    host = open_at(data)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        posted(host, 8)
        assert kept_seqs(data) == []
    posted(host, 1)
    until_kept(host)
    assert kept_seqs(data)
    host.close(time.monotonic() + WAIT_S)


@pytest.mark.usefixtures("often")
def test_a_state_too_large_for_the_memory_is_not_kept_and_no_call_fails(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(_: State) -> bytes:
        raise MemoryError

    told: list[str] = []
    host = open_at(data)
    host.bus._upkeep._settings = UpkeepSettings(on_no_snapshot=told.append)
    monkeypatch.setattr(snapshot, "encode", too_large)
    posted(host, 8)
    until_kept(host)
    assert told == ["out of memory"]


def test_a_forked_child_has_a_state_of_its_own_whoever_held_its_parents(data: Path) -> None:
    host = open_at(data)
    posted(host, 3)
    with host.bus._mutex:
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if live(host) == replayed(data) else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
