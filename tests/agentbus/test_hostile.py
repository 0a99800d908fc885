"""A hostile data directory, as a model and a person meet it: a refusal that names what and where, and never a hang.

What the journal alone answers is in tests/journal/test_hostile.py; damage in test_bus.py and test_cli_replay.py.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from agentbus.cli import main
from tests.agentbus.hosts import WAIT_S, Background, call, events, live, open_at, refusal, replayed
from tests.agentbus.raw_server import MCP, RawServer
from tests.agentbus.shell import OPENED, Writer, environ

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentbus.host import Host
    from tests.agentbus.hosts import Result

SEGMENT = "journal/00000000000000000001.jsonl"
LOCK = "journal/writer.lock"
THEM = 12345
COMMANDS = (("status",), ("channel", "list"), ("post", "general", "hello"), ("reset", "--yes"))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="root's rights are taken away as Linux does it")


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def _born(data: Path) -> None:
    """A journal with a message, and nobody there any more."""
    host = open_at(data)
    call(host, "register", name="sam")
    call(host, "post", as_="sam", channel="general", content="hello")
    host.close(time.monotonic() + WAIT_S)


def agentbus(data: Path, *arguments: str) -> tuple[int, str, str]:
    """A command, to its end: exit status, stdout, stderr; anything but an exit is raised here."""
    result = CliRunner(env=environ(data)).invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def tree(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a path: its mode and its content."""
    found = {}
    for each in sorted([path, *path.rglob("*")]):
        facts = each.lstat()
        found[str(each)] = (facts.st_mode, each.read_bytes() if stat.S_ISREG(facts.st_mode) else b"")
    return found


# --- what it may be, and what it must not


def _symlink(data: Path) -> Path:
    _born(data)
    data.rename(data.with_name("elsewhere"))
    data.symlink_to(data.with_name("elsewhere"))
    return data


def _everybodys(data: Path) -> Path:
    data.mkdir()
    data.chmod(0o1777)
    return data


def _somebody_elses(data: Path) -> Path:
    data.mkdir(mode=0o755)
    os.chown(data, THEM, THEM)
    return data


def _a_file(data: Path) -> Path:
    data.write_text("not to be touched")
    return data


def _no_journal_directory(data: Path) -> Path:
    data.mkdir(mode=0o700)
    (data / "journal").write_text("not to be touched")
    return data / "journal"


def _a_directory_as_segment(data: Path) -> Path:
    _born(data)
    (data / SEGMENT).unlink()
    (data / SEGMENT).mkdir()
    return data / "journal"


def _a_directory_as_lock(data: Path) -> Path:
    _born(data)
    (data / LOCK).unlink()
    (data / LOCK).mkdir()
    return data / "journal"


def _a_fifo_as_segment(data: Path) -> Path:
    _born(data)
    (data / SEGMENT).unlink()
    os.mkfifo(data / SEGMENT)
    return data / SEGMENT


def _a_foreign_segment(data: Path) -> Path:
    _born(data)
    end = len((data / SEGMENT).read_bytes().splitlines())
    path = data / "journal" / f"{end + 1:020d}.jsonl"
    Writer(data.parent / "other").path.rename(path)
    return path


def _garbage(data: Path) -> Path:
    (data / "journal").mkdir(parents=True)
    (data / SEGMENT).write_bytes(b"garbage\n" * 100)
    return data / SEGMENT


@pytest.mark.parametrize(
    ("make", "codes"),
    [
        (_symlink, {"validation"}),
        (_everybodys, {"validation"}),
        pytest.param(_somebody_elses, {"validation"}, marks=as_root),
        (_a_file, {"validation", "capacity_exhausted"}),
        (_no_journal_directory, {"validation", "capacity_exhausted"}),
        (_a_directory_as_segment, {"validation", "capacity_exhausted"}),
        (_a_directory_as_lock, {"validation", "capacity_exhausted"}),
        (_a_fifo_as_segment, {"validation", "capacity_exhausted"}),
        (_a_foreign_segment, {"corrupt"}),
        (_garbage, {"corrupt"}),
    ],
)
def test_what_cannot_be_used_is_named_to_the_model_and_to_the_person_and_left_as_it_is(
    data: Path, make: Callable[[Path], Path], codes: set[str]
) -> None:
    path = make(data)
    host = open_at(data)
    environ(data)
    before = tree(data.parent)
    answer = Background(lambda: refusal(host, "register", name="sam")).outcome()
    assert answer["code"] in codes
    assert str(path) in answer["message"]
    assert not answer["retryable"]
    assert Background(lambda: refusal(host, "register", name="sam")).outcome() == answer
    assert agentbus(data, "post", "general", "hello") == (1, "", f"agentbus: {answer['message']}\n")
    assert tree(data.parent) == before


# --- what this version does not know


def _newer_format(writer: Writer) -> str:
    writer.path.unlink()
    writer.seq, writer.prev = 1, str(OPENED["prev"])
    writer.write(OPENED | {"format": 2, "by": "agentbus 9.0.0", "shape": "another"})
    return "the journal's format is 2, this software knows 1"


def _newer_event(writer: Writer) -> str:
    writer.write({"type": "teleported", "as": "alice"})
    return 'event type is "teleported", this software knows those of format 1'


def _newer_field(writer: Writer) -> str:
    writer.write({"type": "channel_created", "channel": "x", "kind": "ordinary", "mood": "good"})
    return 'event field is "mood", this software knows those of format 1'


@pytest.mark.parametrize("make", [_newer_format, _newer_event, _newer_field])
def test_a_journal_of_newer_software_stops_every_tool_and_every_command_and_is_left_as_it_is(
    data: Path, make: Callable[[Writer], str]
) -> None:
    says = make(Writer(data / "journal"))
    before = tree(data)
    host = open_at(data)
    for tool, arguments in (("register", {"name": "sam"}), ("list_channels", {"as": "sam"})):
        answer = refusal(host, tool, **arguments)
        assert (answer["code"], answer["retryable"]) == ("unsupported", False)
        assert says in answer["message"]
        assert answer["message"].endswith("newer agentbus")
    for command in (*COMMANDS, ("replay", "--state"), ("replay", "--verify")):
        status, _, err = agentbus(data, *command)
        assert (status, err) == (1, f"agentbus: {answer['message']}\n"), command
    assert tree(data) == before


# --- rights


WITHOUT_RIGHTS = """
import ctypes, os, sys
for capability in range(4):  # to give files away, to read and write what one may not, to change what is another's
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], *sys.argv[2:]])
"""
COMMANDED = """
import json, sys
from click.testing import CliRunner
from agentbus.cli import main
for command in json.loads(sys.argv[1]):
    result = CliRunner().invoke(main, command)
    bug = None if isinstance(result.exception, SystemExit | None) else repr(result.exception)
    print(json.dumps([bug, result.exit_code, result.stderr]))
"""


def plainly(data: Path, *commands: tuple[str, ...]) -> list[tuple[int, str]]:
    """Exit status and stderr of commands as somebody runs them whom modes and owners bind, root included."""
    argv = [sys.executable, "-c", WITHOUT_RIGHTS, COMMANDED, json.dumps(commands)]
    done = subprocess.run(argv, env=environ(data), stdout=subprocess.PIPE, timeout=WAIT_S, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [bug for bug, _, _ in told if bug] == []
    return [(status, err) for _, status, err in told]


@on_linux
@pytest.mark.parametrize(
    ("where", "mode", "readable"),
    [
        (SEGMENT, 0o000, False),
        (SEGMENT, 0o400, True),
        (LOCK, 0o000, True),
        ("journal", 0o000, False),
        (".", 0o000, False),
    ],
)
def test_what_its_mode_forbids_is_told_in_one_line_that_names_it(
    data: Path, where: str, mode: int, *, readable: bool
) -> None:
    _born(data)
    (data / where).chmod(mode)
    _check_told(data, data / where, readable=readable)


@as_root
@on_linux
@pytest.mark.parametrize(
    ("where", "mode", "readable"),
    [
        (".", 0o700, False),
        (".", 0o755, True),
        ("journal", 0o755, True),
        (SEGMENT, 0o644, True),
        (LOCK, 0o644, True),
        ("owners", 0o755, True),
    ],
)
def test_what_belongs_to_another_user_is_told_in_one_line_that_names_it(
    data: Path, where: str, mode: int, *, readable: bool
) -> None:
    _born(data)
    os.chown(data / where, THEM, THEM)
    (data / where).chmod(mode)
    _check_told(data, data / where, readable=readable)


def _check_told(data: Path, path: Path, *, readable: bool) -> None:
    commands = (("post", "general", "x"), ("status",), ("replay",), ("replay", "--verify"))
    for command, (status, err) in zip(commands, plainly(data, *commands), strict=True):
        if readable and command[0] != "post":
            assert (status, err) == (0, "")
            continue
        assert status == 1, command
        assert err.startswith("agentbus: ")
        assert str(path) in err
        assert err.count("\n") == 1
    path.chmod(0o700 if path.is_dir() else 0o600)
    assert [event["type"] for event in events(data)].count("posted") == 1


@on_linux
def test_a_place_where_nothing_may_be_made_is_told_in_one_line_that_names_it(data: Path) -> None:
    home = data.parent / "home"
    home.mkdir()
    environ(home / "data")
    home.chmod(0o555)
    ((status, err),) = plainly(home / "data", ("post", "general", "x"))
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith(f"agentbus: not stored: {home}/data: Permission denied: ")
    assert [path.name for path in home.iterdir()] == ["settings.json"]


# --- real servers


def _home(data: Path) -> dict[str, str]:
    return {"HOME": str(data.parent), "AGENTBUS_DATA_DIR": str(data)}


def _ask(server: RawServer, tool: str, **arguments: object) -> Result:
    """A tool's result, or the envelope with which it fails."""
    result = server.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
    told: Result = json.loads(result["content"][0]["text"])
    return told


@pytest.mark.parametrize("make", [_symlink, _everybodys, pytest.param(_somebody_elses, marks=as_root)])
def test_a_server_leaves_no_log_in_a_directory_that_it_refuses(data: Path, make: Callable[[Path], Path]) -> None:
    make(data)
    before = tree(data.parent)
    with RawServer(MCP, **_home(data)) as server:
        server.initialize()
        assert _ask(server, "register", name="sam")["code"] == "validation"
    assert tree(data.parent) == before


def test_a_fifo_among_the_owners_holds_nobody_up(data: Path) -> None:
    _born(data)
    os.mkfifo(data / "owners" / f"{'a' * 24}.lock")
    host = open_at(data)
    assert Background(lambda: call(host, "register", name="sam")).outcome()["as"] == "sam"
    assert Background(lambda: call(host, "discover", as_="sam")).outcome()["sessions"]
    for command in COMMANDS:
        assert Background(lambda: {"status": agentbus(data, *command)[0]}).outcome() == {"status": 0}  # noqa: B023  # waited for


def test_who_asks_for_the_living_does_not_wait_for_a_fifo(data: Path) -> None:
    host = open_at(data)
    call(host, "register", name="sam")
    os.mkfifo(data / "owners" / f"{'a' * 24}.lock")
    living = Background(lambda: {"owners": host.bus.owners.living()}).outcome()["owners"]
    assert {owner.get("pid") for owner in living} == {None, os.getpid()}  # in doubt it lives


@pytest.mark.parametrize("name", ["agentbus.log", ".__agentbus.lock"])
def test_a_fifo_in_the_place_of_the_log_holds_nobody_up(data: Path, name: str) -> None:
    _born(data)
    with (data / SEGMENT).open("ab") as file:
        file.write(b'{"seq":')  # who cuts it off logs it, under the writer lock
    os.mkfifo(data / name)
    with RawServer(MCP, **_home(data)) as server:
        server.initialize()
        server.call(1, "register", name="sam")
        assert not server.is_silent_for(WAIT_S / 2)
        assert server.next()["result"]["structuredContent"]["as"] == "sam"


def test_servers_go_on_when_their_directory_is_put_back_from_a_backup_or_deleted(data: Path) -> None:
    with RawServer(MCP, **_home(data)) as one, RawServer(MCP, **_home(data)) as two:
        one.initialize()
        two.initialize()
        assert _ask(one, "register", name="sam")["as"] == "sam"
        assert _ask(two, "register", name="tom")["as"] == "tom"
        shutil.copytree(data, data.with_name("backup"))
        assert _ask(one, "post", **{"as": "sam"}, channel="general", content="in no backup")["seq"] == 5
        got = _ask(two, "receive", **{"as": "tom"})
        assert [message["content"] for message in got["messages"]] == ["in no backup"]
        two.call("waiting", "receive", **{"as": "tom"}, ack=got["token"], wait_seconds=40)
        assert two.is_silent_for(0.3)
        data.rename(data.with_name("deleted"))  # a wait that wakes in between finds an empty bus, and says so
        data.with_name("backup").rename(data)
        assert _ask(one, "post", **{"as": "sam"}, channel="general", content="after the backup")["seq"] == 5
        got = two.next()["result"]["structuredContent"]
        assert [message["content"] for message in got["messages"]] == ["after the backup"]
        shutil.rmtree(data)
        assert _ask(one, "post", **{"as": "sam"}, channel="general", content="x")["code"] == "not_registered"
        assert _ask(two, "receive", **{"as": "tom"})["code"] == "not_registered"
        assert _ask(one, "register", name="sam")["as"] == "sam"
        assert _ask(two, "register", name="tom")["as"] == "tom"
        assert _ask(one, "post", **{"as": "sam"}, channel="general", content="on an empty bus")["live"] == 1
        got = _ask(two, "receive", **{"as": "tom"})["messages"]
        assert [message["content"] for message in got] == ["on an empty bus"]
    assert agentbus(data, "replay", "--verify")[0] == 0


def test_whatever_but_the_journal_is_deleted_under_living_servers_costs_no_message(data: Path) -> None:
    with RawServer(MCP, **_home(data)) as one, RawServer(MCP, **_home(data)) as two:
        for server, name in ((one, "sam"), (two, "tom")):
            server.initialize()
            assert _ask(server, "register", name=name)["as"] == name
        _delete_all_but_the_journal(data)
        for number in range(3):
            assert _ask(one, "post", **{"as": "sam"}, channel="general", content=f"message {number}")["seq"]
        got = _ask(two, "receive", **{"as": "tom"})
        assert [message["content"] for message in got["messages"]] == ["message 0", "message 1", "message 2"]
        assert _ask(one, "register", name="sam")["already"]  # from here on others see it live again
        assert _ask(two, "register", name="tom")["already"]
        assert [session["as"] for session in _ask(one, "discover", **{"as": "sam"})["sessions"]] == ["sam", "tom"]
    logged = [json.loads(line)["msg"] for line in (data / "agentbus.log").read_bytes().splitlines()]
    assert logged.count("server ended") == 2
    assert agentbus(data, "replay", "--verify")[0] == 0


def _delete_all_but_the_journal(data: Path) -> None:
    (data / LOCK).unlink()
    for path in data.iterdir():
        if path.name != "journal":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_ten_thousand_files_of_dead_owners_are_swept_by_one_register_and_the_living_stay(data: Path) -> None:
    living = open_at(data)
    call(living, "register", name="sam")
    for number in range(10_000):
        (data / "owners" / f"{number:024x}.lock").write_bytes(b"{}")
    host = open_at(data)
    assert call(host, "register", name="sam")["as"] == "sam2"
    left = {path.name for path in (data / "owners").iterdir()}
    assert left == {f"{each.bus.owners.token}.lock" for each in (living, host)}
    assert [session["as"] for session in call(host, "discover", as_="sam2")["sessions"]] == ["sam", "sam2"]


# --- a clock that is set


HOUR_NS = 3600 * 10**9
YEAR_NS = 365 * 24 * HOUR_NS


class Clock:
    """The wall clock of this process, set at will."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._off = 0
        read = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: read() + self._off)

    def set(self, off_ns: int) -> None:
        """So much before or after the true time from here on."""
        self._off = off_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def _pair(data: Path) -> tuple[Host, Host]:
    sam, tom = open_at(data), open_at(data)
    call(sam, "register", name="sam")
    call(tom, "register", name="tom")
    return sam, tom


def _say(host: Host, text: str, **key: str) -> Result:
    return call(host, "post", None, as_="sam", channel="general", content=text, **key)


def test_a_clock_set_back_an_hour_changes_neither_order_nor_ages_nor_keys_nor_subscriptions(
    data: Path, clock: Clock
) -> None:
    sam, tom = _pair(data)
    first = _say(sam, "before", idempotency_key="k")
    fact = call(sam, "post", as_="sam", channel="memory", content="a fact")["memory_id"]
    clock.set(-HOUR_NS)
    assert _say(sam, "before", idempotency_key="k") == first | {"repeated": True}
    _say(sam, "after")
    received = call(tom, "receive", as_="tom")
    assert [message["content"] for message in received["messages"]] == ["before", "a fact", "after"]
    assert [message["seq"] for message in received["messages"]] == sorted(m["seq"] for m in received["messages"])
    told = [
        *received["messages"],
        *call(tom, "history", as_="tom", channel="general")["messages"],
        *call(tom, "search", as_="tom", query="fact")["hits"],
        call(tom, "get_memory", as_="tom", id=fact),
    ]
    assert {record["age"] for record in told if "age" in record} == {"now"}
    assert "expired" not in received
    assert call(tom, "receive", as_="tom", ack=received["token"])["messages"] == []
    back = open_at(data)
    tom.close(time.monotonic() + WAIT_S)
    assert call(back, "register", name="tom")["pending"] == []
    assert len(call(back, "discover", as_="tom")["sessions"]) == 2
    assert live(sam) == live(back) == replayed(data)
    times = [line["time"] for line in map(json.loads, (data / SEGMENT).read_bytes().splitlines())]
    assert times != sorted(times)
    for command in (("replay", "--verify"), ("replay",), ("status",)):
        assert agentbus(data, *command)[0] == 0


def test_a_clock_set_forward_four_days_and_back_drops_subscriptions_by_name_only_and_loses_no_message(
    data: Path, clock: Clock
) -> None:
    sam, tom = _pair(data)
    _say(sam, "before")
    clock.set(4 * 24 * HOUR_NS)
    _say(sam, "in four days")
    received = call(tom, "receive", as_="tom")
    assert {row["channel"]: row["unread"] for row in received["expired"]} == {"general": 2, "memory": 0}
    assert [event["reason"] for event in events(data) if event["type"] == "unsubscribed"] == ["expired", "expired"]
    call(tom, "subscribe", as_="tom", channel="general", from_="oldest")
    clock.set(0)
    _say(sam, "now again")
    received = call(tom, "receive", as_="tom", ack=received["token"])
    assert [(m["content"], m["age"]) for m in received["messages"]] == [
        ("before", "now"),
        ("in four days", "now"),
        ("now again", "now"),
    ]
    call(tom, "receive", as_="tom", ack=received["token"])
    assert "expired" not in call(tom, "receive", as_="tom")
    assert live(sam) == live(tom) == replayed(data)


def test_a_clock_set_forward_a_year_makes_texts_over_age_and_those_that_miss_them_are_told(
    data: Path, clock: Clock
) -> None:
    sam, tom = _pair(data)
    _say(sam, "before")
    call(sam, "post", as_="sam", channel="memory", content="a fact")
    clock.set(YEAR_NS)
    call(sam, "create_channel", as_="sam", name="new")
    clock.set(0)
    _say(sam, "after")
    received = call(tom, "receive", as_="tom")
    assert [message["content"] for message in received["messages"]] == ["a fact", "after"]
    assert [(gap["count"], gap["cause"]) for gap in received["gaps"]] == [(1, "retention")]
    assert [event["channel"] for event in events(data) if event["type"] == "evicted"] == ["general"]
    assert live(sam) == live(tom) == replayed(data)


def test_keys_used_while_the_clock_was_a_year_ahead_do_not_keep_later_ones_for_ever(data: Path, clock: Clock) -> None:
    sam, _ = _pair(data)
    clock.set(YEAR_NS)
    _say(sam, "in a year", idempotency_key="ahead")
    clock.set(0)
    for number in range(10):
        _say(sam, "now", idempotency_key=f"key {number}")
    clock.set(3 * 24 * HOUR_NS)
    _say(sam, "in three days", idempotency_key="last")
    kept = sam.bus.ask(lambda state: [key for _, key in state.receipts])
    assert set(kept) <= {"ahead", "last"}
