"""`agentbus replay` as an auditor runs it: golden journals, damage, and a journal that must not be touched."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agentbus.cli import main
from agentbus.cli.sources import Sources
from journal import Commit, Fault, Place
from journal.record import encode
from tests.agentbus.hosts import call, live, open_at
from tests.agentbus.shell import WAIT_S, Writer, environ, posted, run

GOLDEN = Path(__file__).parent.parent / "golden"
V1, MORE = GOLDEN / "journal-v1", GOLDEN / "journal-v1-more"
V1_ANCHOR = "9:dbfd9ec65e7b6458e7d99ab68800814ca6880bdcd71c1d4659bc9e188e8133d7"
LOST = (
    "LOST: seq 14 to 16 (damage); in their place stands "
    "14:25c2587431a9ae423851afd41d91e2b2d52d53dd7c4c10605b41aad6cbc82ecf"
)
NEXT = "Next: put a good copy back if you have one; else run `agentbus repair`, which shows what it will do, and asks"
HOSTILE = "\x1b[2J\x9b31m\x07\r\u2028\u202e\u200f\x7fend"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own data directory, which is not there yet."""
    for name, value in environ(tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "data"


def replay(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["replay", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def cut_after(golden: Path, seq: int, to: Path) -> Path:
    """A copy of a journal as it was after ``seq``."""
    to.mkdir()
    for segment in sorted(golden.glob("*.jsonl")):
        lines = segment.read_bytes().splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["seq"] <= seq]
        if kept:
            (to / segment.name).write_bytes(b"".join(kept))
    return to


# reading


def test_the_golden_journal_reads_line_by_line(data: Path) -> None:
    status, out, err = replay("--utc", V1)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 14
    assert lines[0] == (
        "     1  2026-09-09T08:00:01.007Z  -                   "
        "segment opened: format 1, journal 3f2b8c1e-7a54-4d0e-9a51-0c6d2f9be001"
    )
    assert lines[8] == (
        "     5  2026-09-09T08:00:05.035Z  agentbus/implement804  "
        'posted to general: starting on #804 — line\\u2028separator and "quotes"'
    )
    assert not data.exists()


def test_times_are_local_unless_utc_is_asked_for(tmp_path: Path) -> None:
    here = run(tmp_path / "data", "replay", str(V1), TZ="Asia/Kolkata", PYTHONHASHSEED="1").stdout
    assert b"  2026-09-09 13:30:01.007  -  " in here


def test_one_flat_object_an_event_and_nothing_else_on_stdout(data: Path) -> None:
    status, out, err = replay("--json", MORE)
    rows = [json.loads(line) for line in out.split("\n")[:-1]]
    assert (status, err) == (0, f"agentbus: {LOST}\n")
    assert not data.exists()
    expected: list[dict[str, Any]] = []
    for segment in sorted(MORE.glob("*.jsonl")):
        for commit in map(json.loads, segment.read_bytes().splitlines()):
            head = {key: commit[key] for key in ("seq", "time", "pid")}
            expected += [head | {"index": index} | event for index, event in enumerate(commit["events"])]
    assert rows == expected
    assert list(rows[-1]) == ["seq", "index", "time", "pid", "type", "by"]


def test_the_users_own_journal_is_read_by_default_and_any_other_by_name(data: Path) -> None:
    shutil.copytree(V1, data / "journal")
    own = replay()
    assert own[0] == 0
    for named in ([data], [data / "journal"], sorted((data / "journal").glob("*.jsonl"))):
        assert replay(*named) == own


def test_an_auditor_needs_no_settings_of_his_own_to_read_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    (tmp_path / "broken.json").write_text("{")
    monkeypatch.setenv("AGENTBUS_CONFIG", str(tmp_path / "broken.json"))
    assert replay(V1)[0] == 0
    status, out, err = replay()
    assert (status, out) == (1, "")
    assert err.startswith("agentbus: ")
    assert not data.exists()


def test_a_lost_range_is_loud_and_no_failure_of_reading(data: Path) -> None:  # noqa: ARG001  # its environment
    status, out, err = replay(MORE)
    assert (status, err) == (0, f"agentbus: {LOST}\n")
    assert "LOST: seq 14 to 16 (731 bytes): damaged, gone" in out


def test_text_of_others_never_reaches_the_terminal_as_control(tmp_path: Path) -> None:
    Writer(tmp_path / "data" / "journal").write(posted(HOSTILE, **{"as": HOSTILE, "channel": "general"}))
    for mode in ((), ("--json",), ("--verify",)):
        out = run(tmp_path / "data", "replay", *mode).stdout.decode()
        assert not set(out) & set(HOSTILE) - set("[2J31mend"), mode
    rows = run(tmp_path / "data", "replay", "--json").stdout.splitlines()
    assert json.loads(rows[-1])["content"] == HOSTILE


def on_a_terminal(data: Path, *arguments: str) -> str:
    """What a command shows on a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "agentbus", *arguments]
    with subprocess.Popen(
        command, env=environ(data, COLUMNS="120"), stdout=theirs, stdin=subprocess.DEVNULL
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 1 << 16):
                shown += chunk
        except OSError:  # Linux says EIO where the other side is closed
            pass
        assert process.wait(WAIT_S) == 0
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def test_content_is_cut_on_a_terminal_and_never_in_a_pipe(tmp_path: Path) -> None:
    Writer(tmp_path / "data" / "journal").write(posted("x" * 500))
    assert "x" * 500 + "\n" in run(tmp_path / "data", "replay").stdout.decode()
    shown = on_a_terminal(tmp_path / "data", "replay").split("\n")
    assert len(shown[3]) == 120
    assert shown[3].endswith("xxx…")


def test_long_names_are_aligned_on_a_terminal_and_move_nothing_in_a_pipe(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data" / "journal")
    for name in ("bob", "a-name-of-26-columns-in-all", "bob"):
        writer.write({"type": "active", "as": name})
    shown = on_a_terminal(tmp_path / "data", "replay").split("\n")[3:6]
    assert [line.index("looked") for line in shown] == [53, 62, 62]
    piped = run(tmp_path / "data", "replay").stdout.decode().split("\n")[3:6]
    assert [line.index("looked") for line in piped] == [53, 62, 53]


def test_the_state_is_canonical_in_a_pipe_and_harmless_on_a_terminal(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data" / "journal")
    writer.write({"type": "channel_created", "channel": "rtl\u202e", "kind": "ordinary"})
    assert "rtl\u202e" in run(tmp_path / "data", "replay", "--state").stdout.decode()
    assert "rtl\\u202e" in on_a_terminal(tmp_path / "data", "replay", "--state")


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data" / "journal")
    for _ in range(2000):
        writer.write(posted("x" * 100))
    for mode in ("--utc", "--json"):
        command = f'"{sys.executable}" -m agentbus replay {mode} | head -1'
        done = subprocess.run(
            ["sh", "-c", command], env=environ(tmp_path / "data"), capture_output=True, timeout=WAIT_S, check=True
        )
        assert done.stdout.count(b"\n") == 1
        assert done.stderr == b""


def test_options_that_exclude_each_other_are_a_usage_error(data: Path) -> None:  # noqa: ARG001  # its environment
    for pair in (("--raw", "--json"), ("--state", "--verify"), ("--follow", "--reverse")):
        status, out, err = replay(*pair, V1)
        assert (status, out) == (2, "")
        assert err.startswith("agentbus: ")
        assert "exclude each other" in err


@pytest.mark.parametrize("mode", [(), ("--json",), ("--state",), ("--verify",)])
def test_without_a_journal_it_says_so_and_where(data: Path, mode: tuple[str, ...]) -> None:
    status, out, err = replay(*mode)
    assert status == 0
    assert out + err == f"Agentbus: no journal yet in {data}\n"
    assert (out == "") == (mode in (("--json",), ("--state",)))
    data.mkdir()
    assert replay(*mode) == (status, out, err)
    assert list(data.iterdir()) == []


@pytest.mark.parametrize("mode", [(), ("--json",), ("--state",), ("--verify",)])
def test_an_auditor_who_names_a_journal_is_not_told_that_nothing_is_sound(
    data: Path, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    (data / "journal").mkdir(parents=True)
    empty = tmp_path / "00000000000000000001.jsonl"
    empty.touch()
    for path in (data, data / "journal", empty):
        says = f"agentbus: there is no commit in {path}: name a journal directory, or its files\n"
        assert replay(*mode, path) == (1, "", says)


def test_a_path_that_is_not_there_is_refused(data: Path) -> None:
    assert replay("--verify", data) == (1, "", f"agentbus: {data}: there is no such file or directory\n")


def test_what_cannot_be_read_is_named(data: Path) -> None:
    segment = data / "journal" / "00000000000000000001.jsonl"
    segment.mkdir(parents=True)
    status, out, err = replay(data)
    assert (status, out) == (1, "")
    assert err == f"agentbus: {segment}: cannot read it: Is a directory; remove it, it is no segment\n"


def test_nothing_is_created_or_touched(data: Path) -> None:
    shutil.copytree(MORE, data / "journal")
    segments = sorted((data / "journal").iterdir())
    for path in (*segments, data / "journal", data):
        os.utime(path, (1, 1))
        path.chmod(path.stat().st_mode & ~0o222)
    before = [(path, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in sorted(data.rglob("*"))]
    for mode in ((), ("--json",), ("--state",), ("--verify",)):
        replay(*mode)
    assert [(path, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in sorted(data.rglob("*"))] == before
    for path in (data, data / "journal"):
        path.chmod(0o700)


# the state


@pytest.mark.parametrize(("golden", "seq"), [(V1, 6), (V1, 9), (MORE, 22), (MORE, 24)])
def test_the_golden_journals_fold_to_their_states(golden: Path, seq: int, tmp_path: Path, data: Path) -> None:
    status, out, _ = replay("--state", cut_after(golden, seq, tmp_path / "copy"))
    assert status == 0
    assert out == (GOLDEN / f"{golden.name}.state-at-{seq}.json").read_text()
    assert not data.exists()


def test_the_state_is_the_same_bytes_on_any_machine(tmp_path: Path) -> None:
    places = [("UTC", "C", "1"), ("Pacific/Chatham", "C.UTF-8", "2"), ("America/St_Johns", "POSIX", "3")]
    states = {
        run(tmp_path / "data", "replay", "--state", str(MORE), TZ=zone, LC_ALL=locale, PYTHONHASHSEED=seed).stdout
        for zone, locale, seed in places
    }
    assert len(states) == 1


def test_the_replayed_state_is_the_live_one(data: Path) -> None:
    host = open_at(data)
    call(host, "register", name="ann")
    call(host, "post", as_="ann", channel="general", content="hello")
    assert replay("--state") == (0, live(host).decode() + "\n", "")


def test_a_state_needs_the_whole_journal(data: Path) -> None:  # noqa: ARG001  # its environment
    status, out, err = replay("--state", MORE / "00000000000000000009.jsonl")
    assert (status, out) == (1, "")
    says = "reading it, --message, --stats and --verify do without"
    assert err == f"agentbus: a state needs the journal from seq 1; this begins with seq 9: {says}\n"


def test_what_a_lost_range_took_away_is_named(data: Path) -> None:
    writer = Writer(data / "journal")
    lost = {"type": "lost", "first": 3, "last": 3, "bytes": 9, "next_prev": None, "reason": "damage"}
    writer.write(lost)
    for number in range(25):
        writer.write({"type": "ended", "as": f"a{number}", "owner": "a1" * 12, "reason": "exit"})
    status, out, err = replay("--state", "--json")
    assert status == 0
    assert json.loads(out)["last_seq"] == 28
    assert 'agentbus: seq 4 is about something that was lost: "a0" has no session of owner' in err
    assert err.endswith("agentbus: and so are 5 more events\n")


# proof


def test_a_sound_journal_ends_in_its_anchor(data: Path) -> None:
    ok = f"ok: 9 commits in 1 segment, seq 1 to 9, anchor {V1_ANCHOR}\n"
    assert replay("--verify", V1) == (0, ok, "")
    assert not data.exists()


def test_a_segment_can_be_verified_alone(tmp_path: Path, data: Path) -> None:
    cut_after(MORE, 13, tmp_path / "copy")
    status, out, _ = replay("--verify", tmp_path / "copy" / "00000000000000000009.jsonl")
    assert status == 0
    note, ok = out.splitlines()
    assert note == "note: the history begins with seq 9: nothing before that is here"
    assert ok.startswith("ok: 5 commits in 1 segment, seq 9 to 13, anchor 13:96980e01")
    assert not data.exists()


def test_a_lost_range_fails_verification_and_is_named(data: Path) -> None:
    status, out, err = replay("--verify", MORE)
    assert (status, err) == (1, "")
    assert out.splitlines() == [
        LOST,
        "sound: seq 1 to 14, anchor 14:25c2587431a9ae423851afd41d91e2b2d52d53dd7c4c10605b41aad6cbc82ecf",
        "sound: seq 17 to 24, anchor 24:374a42c08e59f46f3a51288c3c759cb08e66e5753b2c03bac53bc27b0d1216cd",
        "failed: 0 faults and 1 lost range; the rest verifies: 22 commits in 2 segments, seq 1 to 24",
        "Next: accept a loss that you know of, by the name its line has here: --accept-lost SEQ:HASH",
    ]
    assert not data.exists()


def test_a_changed_byte_stops_reading_and_is_found_by_verifying(data: Path) -> None:
    shutil.copytree(V1, data / "journal")
    segment = data / "journal" / "00000000000000000001.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b"#804", b"#805")
    segment.write_bytes(b"".join(lines))
    place = f"{segment} line 5 (byte {sum(map(len, lines[:4]))}, seq 5): does not verify"
    status, out, err = replay("--utc")
    assert status == 1
    assert out.splitlines()[-1].startswith("     4  ")
    assert err.startswith(f"agentbus: corrupt: {place}: its bytes give the hash ")
    assert err.endswith(f"...; --verify lists every fault. {NEXT}\n")
    assert err.count("\n") == 1
    assert replay(data)[2].endswith("; --verify lists every fault\n")
    status, out, err = replay("--verify")
    assert (status, err) == (1, "")
    assert out.startswith(f"fault: {place}")
    assert out.splitlines()[-2].startswith("failed: 1 fault and 0 lost ranges")
    assert out.splitlines()[-1] == NEXT
    assert f"{NEXT}\n" not in replay("--verify", data)[1]


def test_a_line_that_verifies_and_that_no_bus_wrote_is_a_fault_too(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write(posted("fine"))
    offset = writer.path.stat().st_size
    writer.write({"type": "active", "as": 7})
    writer.write(posted("fine too"), time="yesterday")
    place = f"{writer.path} line 4 (byte {offset}, seq 4): Expected `str`, got `int`"
    status, out, _ = replay("--verify")
    assert status == 1
    assert out.startswith(f"fault: {place}")
    assert "seq 5): 'yesterday' is not a time" in out
    for mode in ((), ("--json",), ("--state",)):
        status, _, err = replay(*mode)
        assert status == 1
        assert err.startswith(f"agentbus: corrupt: {place}")
    assert replay("--verify", writer.path)[1] + f"{NEXT}\n" == out


def test_such_a_fault_is_found_in_the_file_it_is_in(data: Path) -> None:
    shutil.copytree(cut_after(MORE, 13, data.with_name("copy")), data / "journal")
    second = data / "journal" / "00000000000000000009.jsonl"
    prev = json.loads(second.read_bytes().splitlines()[-1])["hash"]
    line, _ = encode(14, "2026-09-10T09:14:00.014Z", 4711, b'[{"type":"active","as":7}]', prev)
    size = second.stat().st_size
    with second.open("ab") as file:
        file.write(line)
    assert replay("--verify")[1].startswith(f"fault: {second} line 6 (byte {size}, seq 14): Expected `str`")


def test_a_file_that_is_gone_meanwhile_is_not_guessed_at() -> None:
    commit = Commit(7, "2026-09-09T08:00:07.049Z", 4711, b"[]", "0" * 64, Place(1, 9, 100))
    assert Sources([], own=False).fault_at(commit, "why") == Fault("a file that is gone", 0, 9, 7, "why")


def test_what_a_newer_agentbus_wrote_stops_every_mode(data: Path) -> None:
    Writer(data / "journal").write({"type": "teleported", "as": "bob"})
    for mode in ((), ("--json",), ("--state",), ("--verify",)):
        status, _, err = replay(*mode)
        assert status == 1
        assert err.startswith("agentbus: unsupported: ")


def test_a_torn_tail_is_a_note_and_no_failure(data: Path) -> None:
    shutil.copytree(V1, data / "journal")
    segment = data / "journal" / "00000000000000000001.jsonl"
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(b'{"seq":10,"ti')
    note = f"a torn tail, or a line that is being written: 13 bytes of {segment} from byte {size}"
    status, out, err = replay("--verify")
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == f"note: {note}; not counted: what a crash leaves was never acknowledged"
    assert out.splitlines()[1] == f"ok: 9 commits in 1 segment, seq 1 to 9, anchor {V1_ANCHOR}"
    status, _, err = replay()
    assert (status, err) == (0, f"agentbus: {note}; not counted: what a crash leaves was never acknowledged\n")


def test_a_line_without_its_end_is_a_note_too(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write(posted("unfinished"))
    writer.path.write_bytes(writer.path.read_bytes()[:-1])
    status, out, _ = replay("--verify")
    assert status == 0
    assert out.startswith("note: a whole line without its line feed: ")


def test_what_cannot_be_checked_behind_a_lost_range_is_named(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write({"type": "lost", "first": 3, "last": 3, "bytes": 9, "next_prev": None, "reason": "damage"})
    writer.write(posted("after"))
    status, out, _ = replay("--verify")
    assert status == 1
    assert "note: seq 4: taken on trust, the hash before it is gone; an anchor of that line would check it\n" in out


def test_help_says_what_it_reads_and_what_the_anchor_is_for(data: Path) -> None:
    status, out, _ = replay("--help")
    assert status == 0
    assert "segment files" in out
    assert "anchor" in out
    assert not data.exists()


def test_a_pipe_is_no_journal_and_is_named(data: Path, tmp_path: Path) -> None:  # noqa: ARG001  # its environment
    os.mkfifo(tmp_path / "pipe")
    says = (
        f"agentbus: {tmp_path / 'pipe'}: this cannot be read twice: save it to a file first, or give - and pipe it in\n"
    )
    assert replay("--verify", tmp_path / "pipe") == (1, "", says)
