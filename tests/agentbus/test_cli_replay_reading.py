"""`agentbus replay`: where it reads from, what it prints of it, in which order, and for how long."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agentbus.cli.sources import Sources
from journal import Files
from tests.agentbus.auditing import ask
from tests.agentbus.hosts import open_at
from tests.agentbus.random_calls import RandomCalls
from tests.agentbus.shell import WAIT_S, Writer, environ, posted

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).parent.parent / "golden"
V1, MORE = GOLDEN / "journal-v1", GOLDEN / "journal-v1-more"
STEPS = 150


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a journal of many small segments, of which the first are packed in the copy beside it."""
    data = tmp_path_factory.mktemp("rich") / "data"
    host = open_at(data)
    writer = host.bus._journal._writer
    writer._settings = msgspec.structs.replace(writer._settings, segment_bytes_max=4000)
    calls = RandomCalls(host, "web", Random(3))  # noqa: S311  # a test that can be repeated
    for _ in range(STEPS):
        calls.step()
    host.bus._journal.close()
    packed = data.with_name("packed")
    shutil.copytree(data, packed)
    segments = sorted((packed / "journal").glob("*.jsonl"))
    assert len(segments) > 4
    (packed / "journal" / "archive").mkdir()
    for segment in segments[:3]:
        (packed / "journal" / "archive" / f"{segment.name}.gz").write_bytes(gzip.compress(segment.read_bytes()))
        segment.unlink()
    return data


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own data directory, which is not there yet."""
    for name, value in environ(tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "data"


def rows(*arguments: str | Path, stdin: bytes = b"") -> list[dict[str, Any]]:
    status, out, _ = ask("--json", *arguments, stdin=stdin)
    assert status == 0
    return [json.loads(line) for line in out.split("\n")[:-1]]


def raw(data: Path) -> bytes:
    """All lines of a journal that is not packed."""
    return b"".join(path.read_bytes() for path in sorted((data / "journal").glob("*.jsonl")))


# sources


def test_a_journal_is_the_same_wherever_its_segments_lie(rich: Path) -> None:
    packed = rich.with_name("packed") / "journal"
    everything = ask("--utc", rich)
    assert everything[::2] == (0, "")
    plain, gz = sorted(packed.glob("*.jsonl")), sorted((packed / "archive").iterdir())
    for named in ([packed.parent], [packed], [*plain, *gz], [packed / "archive", *plain]):
        assert ask("--utc", *named) == everything
    for streamed in (raw(rich), b"".join(path.read_bytes() for path in (*gz, *plain)), gzip.compress(raw(rich))):
        assert ask("--utc", "-", stdin=streamed) == everything


def test_a_segment_that_is_there_twice_is_read_once(rich: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(rich.with_name("packed"), copy)
    first = min((rich / "journal").glob("*.jsonl"))
    shutil.copy(first, copy / "journal")
    files = [*copy.rglob("*.jsonl"), *copy.rglob("*.gz")]
    assert ask("--digest", copy) == ask("--digest", *files) == ask("--digest", rich)
    assert ask("--reverse", "--utc", copy) == ask("--reverse", "--utc", rich)


def test_stdin_is_read_alone_and_faults_in_it_are_named_by_line(rich: Path) -> None:
    assert ask("-", rich)[::2] == (2, "agentbus: - stands for stdin and is read alone. Try 'agentbus replay --help'.\n")
    lines = raw(rich).splitlines(keepends=True)
    lines[6] = lines[6].replace(b'"pid":', b'"pid":1')
    status, out, err = ask("--utc", "-", stdin=b"".join(lines))
    assert (status, out.splitlines()[-1][:6]) == (1, "     6")
    assert err.startswith(f"agentbus: corrupt: stdin line 7 (byte {sum(map(len, lines[:6]))}, seq 7): does not verify")
    assert err.endswith("--verify lists every fault\n")
    status, out, err = ask("--verify", "-", stdin=b"".join(lines))
    assert (status, out.count("fault: stdin line 7 ")) == (1, 1)
    assert ask("-") == (1, "", "agentbus: there is no commit in stdin: pipe a journal in\n")


def test_a_line_in_stdin_that_no_bus_wrote_is_named_by_its_place(data: Path) -> None:
    writer = Writer(data / "journal")
    offset = writer.path.stat().st_size
    writer.write({"type": "active", "as": 7})
    _, _, err = ask("-", stdin=writer.path.read_bytes())
    assert f"stdin line 3 (byte {offset}, seq 3): Expected `str`" in err


def test_such_a_line_is_found_in_an_archive(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write({"type": "active", "as": 7})
    packed = data / f"{writer.path.name}.gz"
    packed.write_bytes(gzip.compress(writer.path.read_bytes()))
    assert f"{packed} line 3 (byte " in ask(packed)[2]


def test_a_journal_that_begins_late_is_read_and_says_so(rich: Path, tmp_path: Path) -> None:
    packed = rich.with_name("packed") / "journal"
    late = sorted(packed.glob("*.jsonl"))
    begin = int(late[0].stem)
    note = f"agentbus: the journal begins with seq {begin}: nothing before that can be told"
    status, out, err = ask("--utc", *late)
    assert (status, err) == (0, f"{note}\n")
    assert ask("--utc", rich)[1].endswith(out)
    assert ask("--stats", *late)[2].startswith(f"{note}; latency and backlog are of what was posted since")
    for question in (["--state"], ["--digest"], ["--inbox", "web"], ["--diff", "70", "80"]):
        status, out, err = ask(*question, *late)
        assert (status, out) == (1, "")
        assert f"needs the journal from seq 1; this begins with seq {begin}" in err
    gone = tmp_path / "copy"
    shutil.copytree(packed, gone)
    shutil.rmtree(gone / "archive")
    assert ask("--utc", gone) == ask("--utc", *late)
    assert rows("--reverse", gone) == rows(gone)[::-1]
    assert rows("--follow", "--limit", "2", gone) == rows(gone)[:2]
    message = next(row["seq"] for row in rows(*late) if row["type"] == "posted")
    status, out, err = ask("--message", str(message), *late)
    assert (status, err.count("nothing before that can be told; a subscription from then")) == (0, 1)
    assert out.startswith(f"seq {message}  ")


# forms and order


def test_raw_lines_are_the_bytes_that_stand_there(rich: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentbus", "replay", "--raw", str(rich)],
        capture_output=True,
        check=True,
        timeout=WAIT_S,
    )
    assert done.stdout == raw(rich)
    some = ask("--raw", "--type", "registered", "--limit", "2", rich)[1]
    assert [json.loads(line)["events"][0]["type"] for line in some.splitlines()] == ["registered", "registered"]


@pytest.mark.parametrize("how", ["--raw", "--json", "--utc", "--verify"])
def test_a_line_that_is_spelt_in_another_way_is_a_fault(how: str, data: Path) -> None:
    writer = Writer(data / "journal")
    spaced = writer.path.read_bytes()
    line = b'{"seq": 3,"time":"2026-09-09T08:00:07.049Z","pid":4711,"events":[{"type":"active","as":"bob"}]'
    import hashlib  # noqa: PLC0415  # only here a line is spelt otherwise

    digest = hashlib.sha256(writer.prev.encode() + line).hexdigest()
    writer.path.write_bytes(spaced + line + f',"hash":"{digest}"}}\n'.encode())
    status, out, err = ask(how, data)
    assert status == 1
    assert "line 3" in out + err
    assert "not spelt as the format has it" in out + err


@pytest.mark.parametrize(
    "filters", [[], ["--channel", "one"], ["--channel", "memory", "--type", "acked"], ["--as", "shared"]]
)
def test_backwards_is_forwards_from_its_end(rich: Path, filters: list[str]) -> None:
    for place in (rich, rich.with_name("packed")):
        forwards, backwards = rows(*filters, place), rows("--reverse", *filters, place)
        assert backwards == forwards[::-1]
        assert forwards or filters
        assert rows("--reverse", "--limit", "7", *filters, place) == backwards[:7]
    assert ask("--reverse", "--utc", rich)[1].splitlines() == ask("--utc", rich)[1].splitlines()[::-1]


def test_stdin_cannot_be_read_backwards(rich: Path) -> None:
    status, out, err = ask("--reverse", "-", stdin=raw(rich))
    assert (status, out) == (2, "")
    assert "--reverse has to go back, which stdin cannot" in err


def test_nothing_is_printed_backwards_of_a_journal_that_is_damaged(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write(posted("x"))
    writer.path.write_bytes(writer.path.read_bytes().replace(b'"x"', b'"y"'))
    assert ask("--reverse", data)[:2] == (1, "")


@pytest.mark.parametrize("change", ["archived", "damaged", "cut", "removed"])
def test_backwards_misses_nothing_in_silence_that_changes_while_it_is_read(
    rich: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(rich, copy)
    forwards = ask("--json", copy)[1].splitlines()
    segment = sorted((copy / "journal").glob("*.jsonl"))[1]
    walk_file = Sources.walk_file

    def change_it(sources: Sources, file: Path) -> Any:  # noqa: ANN401  # passed on
        monkeypatch.setattr(Sources, "walk_file", walk_file)
        text = segment.read_bytes()
        if change == "archived":
            (copy / "journal" / "archive").mkdir()
            (copy / "journal" / "archive" / f"{segment.name}.gz").write_bytes(gzip.compress(text))
        if change in ("archived", "removed"):
            segment.unlink()
        elif change in ("damaged", "cut"):
            changed = text.replace(b'"pid":', b'"pid":1', 1) if change == "damaged" else text[: text.index(b"\n") + 1]
            segment.write_bytes(changed)
        return walk_file(sources, file)

    monkeypatch.setattr(Sources, "walk_file", change_it)
    status, out, err = ask("--json", "--reverse", copy)
    if change == "archived":
        assert (status, out.splitlines(), err) == (0, forwards[::-1], "")
    else:
        assert (status, err.count("\n")) == (1, 1)
        assert err.startswith(("agentbus: corrupt: ", "agentbus: the journal changed while it was read: of "))


def test_a_limit_counts_what_is_printed(rich: Path) -> None:
    assert rows("--limit", "5", rich) == rows(rich)[:5]
    assert ask("--limit", "3", "--raw", rich)[1].count("\n") == 3
    everything = rows(rich)
    assert rows("--limit", str(len(everything)), rich) == everything


def test_reading_ends_where_the_range_does(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write(posted("x"))
    writer.write({"type": "active", "as": 7})
    assert [row["seq"] for row in rows("--to-seq", "3", data)] == [1, 2, 2, 3]
    assert ask("--to-seq", "3", "--limit", "9", data)[2] == ""
    assert ask("--limit", "4", data)[0] == 0
    assert ask(data)[0] == 1


def test_nothing_matches_is_said(data: Path) -> None:
    Writer(data / "journal")
    assert ask("--channel", "none") == (0, "", "agentbus: nothing matches\n")


# reading only


def test_no_lock_is_taken_and_nothing_is_made_whatever_is_asked(rich: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a lock was asked for")

    for verb in ("try_lock", "try_share", "lock"):
        monkeypatch.setattr(Files, verb, refuse)
    before = {path: path.stat().st_mtime_ns for path in rich.rglob("*")}
    for arguments in (
        ["--reverse"],
        ["--raw"],
        ["--state"],
        ["--digest"],
        ["--stats"],
        ["--inbox", "web"],
        ["--message", "6"],
        ["--thread", "6"],
        ["--diff", "5", "50"],
        ["--follow", "--limit", "20"],
        ["--verify"],
    ):
        assert ask(*arguments, rich)[0] in (0, 1)
    assert {path: path.stat().st_mtime_ns for path in rich.rglob("*")} == before


# following


# A suite that runs in the background may be told to pass over SIGINT, and its children with it.
HEEDING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from agentbus.__main__ import main
main()
"""


class Follower:
    """``agentbus replay --follow`` in a process of its own, its lines read as they come."""

    def __init__(self, data: Path, *arguments: str) -> None:
        command = [sys.executable, "-c", HEEDING, "replay", "--follow", *arguments]
        self.process = subprocess.Popen(
            command, env=environ(data), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        self._timer = threading.Timer(WAIT_S, self.process.kill)
        self._timer.start()

    def line(self) -> str:
        """The next line, or an empty text at the end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def warning(self) -> str:
        """The next line on stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().decode()

    def end(self) -> tuple[int, str]:
        """Exit status and the rest of stderr."""
        assert self.process.stderr is not None
        err = self.process.stderr.read().decode()
        return self.process.wait(), err

    def close(self) -> None:
        self._timer.cancel()
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def follow(data: Path) -> Iterator[Any]:
    """Starts followers, and ends them."""
    started: list[Follower] = []

    def start(*arguments: str) -> Follower:
        started.append(Follower(data, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_what_is_there_is_printed_and_then_what_comes_over_the_end_of_a_segment(data: Path, follow: Any) -> None:  # noqa: ANN401  # a fixture
    host = open_at(data)
    writer = host.bus._journal._writer
    calls = RandomCalls(host, "web", Random(1))  # noqa: S311  # a test that can be repeated
    follower = follow("--json")
    expected = rows(data)
    assert [json.loads(follower.line()) for _ in expected] == expected
    writer._settings = msgspec.structs.replace(writer._settings, segment_bytes_max=1000)
    for _ in range(25):
        calls.step()
    coming = rows(data)[len(expected) :]
    assert "segment_opened" in {row["type"] for row in coming}
    assert [json.loads(follower.line()) for _ in coming] == coming
    host.bus._journal.close()
    follower.process.send_signal(signal.SIGINT)
    assert follower.end() == (0, "")


def test_a_journal_that_is_not_there_yet_is_waited_for(data: Path, follow: Any) -> None:  # noqa: ANN401  # a fixture
    follower = follow("--type", "posted", "--limit", "1")
    assert follower.warning() == f"agentbus: no journal yet in {data}: waiting for one\n"
    Writer(data / "journal").write(posted("hello"))
    assert follower.line().endswith("posted to general: hello\n")
    assert follower.end() == (0, "")


def test_it_ends_at_a_seq_and_when_nobody_listens_any_more(data: Path, follow: Any) -> None:  # noqa: ANN401  # a fixture
    writer = Writer(data / "journal")
    follower = follow("--to-seq", "4", "--from-seq", "3")
    writer.write(posted("three"))
    assert "three" in follower.line()
    writer.write(posted("four"))
    writer.write(posted("five"))
    assert "four" in follower.line()
    assert (follower.line(), follower.end()) == ("", (0, ""))
    deserted = follow()
    assert deserted.line()
    deserted.process.stdout.close()
    assert deserted.end() == (1, "")  # as every command whose reader is gone


def test_another_journal_in_its_place_is_noticed(data: Path, follow: Any) -> None:  # noqa: ANN401  # a fixture
    Writer(data / "journal").write(posted("old"))
    follower = follow("--type", "posted")
    assert "old" in follower.line()
    (data / "journal").rename(data / "old")
    Writer(data / "new").write(posted("new"))
    (data / "new").rename(data / "journal")
    status, err = follower.end()
    assert status == 1
    assert "another one was put in its place; run the command again to read it" in err


def test_damage_that_stays_is_told(data: Path, follow: Any) -> None:  # noqa: ANN401  # a fixture
    writer = Writer(data / "journal")
    follower = follow()
    for _ in range(3):
        follower.line()
    with writer.path.open("ab") as file:
        file.write(b'{"seq":3,"spoilt":1}\n')
    status, err = follower.end()
    assert status == 1
    assert err.startswith(f"agentbus: corrupt: {writer.path} line 3 ")


def test_what_a_pipe_brings_is_printed_as_it_comes(data: Path) -> None:
    writer = Writer(data.with_name("other"))
    for number in range(3):
        writer.write(posted(str(number)))
    command = [sys.executable, "-m", "agentbus", "replay", "--follow", "-"]
    with subprocess.Popen(command, env=environ(data), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in writer.path.read_bytes().splitlines(keepends=True):
            process.stdin.write(line)
            process.stdin.flush()
            assert all(process.stdout.readline() for _ in json.loads(line)["events"])
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_only_one_directory_can_be_followed(rich: Path, tmp_path: Path) -> None:
    segment = min((rich / "journal").glob("*.jsonl"))
    Writer(tmp_path / "other")
    for named in ([segment], [rich, tmp_path / "other"]):
        status, _, err = ask("--follow", *named)
        assert (status, "--follow wants one data or journal directory" in err) == (2, True)


def test_a_stopped_writer_is_not_disturbed(data: Path, follow: Any) -> None:  # noqa: ANN401  # a fixture
    writer = Writer(data / "journal")
    lock = data / "journal" / "writer.lock"
    lock.touch()
    import fcntl  # noqa: PLC0415  # only here a lock is held

    held = os.open(lock, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    follower = follow("--type", "posted", "--limit", "1")
    writer.write(posted("x"))
    assert "x" in follower.line()
    assert follower.end() == (0, "")
    os.close(held)
