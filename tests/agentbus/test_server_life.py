"""How a server process ends, whatever its client, its parent or its libraries do, and what it costs while idle."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentbus.stdio import read_chunk
from tests.agentbus.raw_server import MCP, TOY, TOY_SDK, WAIT_S, RawServer, call, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
HANDSHAKE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"raw","version":"7"}}}\n'
)
PONG = {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.fixture(params=[TOY, TOY_SDK], ids=["stdio", "sdk"])
def toy(request: pytest.FixtureRequest) -> Iterator[RawServer]:
    with RawServer(request.param) as server:
        server.initialize()
        server.heard("warm")
        yield server


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A home of its own for a real server."""
    return {"HOME": str(tmp_path), "AGENTBUS_DATA_DIR": str(tmp_path / "data")}


def test_it_ends_with_stdin_and_closes_the_bus(toy: RawServer) -> None:
    toy.close_stdin()
    assert toy.exit_status() == 0
    assert toy.errors() == ["close True\n"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_by_a_signal_and_closes_the_bus(toy: RawServer, number: int) -> None:
    toy.process.send_signal(number)
    assert toy.exit_status() == 0
    assert toy.errors() == ["close True\n"]


@pytest.mark.parametrize(
    ("argv", "last_words"),
    [(TOY, b""), (TOY, json.dumps(PING).encode() + b"\n"), (TOY_SDK, json.dumps(PING).encode() + b"\n")],
)
def test_it_ends_when_nobody_reads_its_stdout_any_more(argv: tuple[str, ...], last_words: bytes) -> None:
    read, write = os.pipe()
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=write, stderr=subprocess.PIPE, bufsize=0) as process:
        os.close(write)
        assert process.stdin
        process.stdin.write(json.dumps(PING).encode() + b"\n")
        assert parse(os.read(read, 1000)) == PONG
        os.close(read)
        with suppress(BrokenPipeError):  # it may be gone by now
            process.stdin.write(last_words)
        assert process.wait(WAIT_S) == 0


def test_it_does_not_begin_without_a_stdout() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *TOY],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == b"agentbus: stdout is closed: there is no client to serve\n"


def test_it_ends_when_an_answer_cannot_be_written() -> None:
    with Path("/dev/full").open("wb") as full, subprocess.Popen(TOY, stdin=subprocess.PIPE, stdout=full) as process:
        assert process.stdin
        process.stdin.write(json.dumps(PING).encode() + b"\n")
        process.stdin.flush()
        assert process.wait(WAIT_S) == 0


def test_a_slow_reader_gets_every_byte_though_somebody_made_the_pipe_non_blocking() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with subprocess.Popen(TOY, stdin=subprocess.PIPE, stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        assert process.stdin
        assert process.stderr
        process.stdin.write(json.dumps(call(1, "echo", text="x" * 500_000)).encode() + b"\n")
        process.stdin.flush()
        assert process.stderr.readline()
        with open(read, "rb") as answers:
            assert len(parse(answers.readline())["result"]["structuredContent"]["text"]) == 500_000
            process.stdin.close()
            assert process.wait(WAIT_S) == 0


def test_stdin_may_be_shared_with_another_reader_and_may_break() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    assert read_chunk(read) is None
    os.write(write, b"x")
    assert read_chunk(read) == b"x"
    os.close(write)
    assert read_chunk(read) == b""
    os.close(read)
    assert read_chunk(read) == b""


def test_without_stdin_or_stderr_it_ends_at_once_and_leaves_stdout_alone() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *TOY], stdout=subprocess.PIPE, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")


def test_what_was_asked_before_stdin_ended_is_still_answered() -> None:
    lines = b"".join(json.dumps(call(number, "work", seconds=0.2)).encode() + b"\n" for number in range(3))
    done = subprocess.run(TOY, input=lines + json.dumps(PING).encode(), capture_output=True, check=True, timeout=WAIT_S)
    answers = {message["id"]: message for message in map(parse, done.stdout.splitlines(keepends=True))}
    assert set(answers) == {0, 1, 2}
    assert answers[1] == PONG or "result" in answers[1]


def test_a_wait_ends_unanswered_and_a_call_that_ends_in_time_is_answered_when_stdin_ends(toy: RawServer) -> None:
    toy.send(call(1, "wait"), call(2, "work", seconds=WAIT_S))
    toy.heard("called")
    toy.heard("called")
    toy.close_stdin()
    assert [answer["id"] for answer in toy.rest()] == [2]
    assert toy.exit_status() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_calls_in_flight_are_cancelled_by_a_signal(toy: RawServer, number: int) -> None:
    toy.send(call(1, "wait"), call(2, "work", seconds=WAIT_S))
    toy.heard("called")
    toy.heard("called")
    toy.process.send_signal(number)
    (answer,) = toy.rest()
    assert (answer["id"], answer["result"]["structuredContent"]) == (2, {"cancelled": True})
    assert toy.exit_status() == 0


def test_calls_that_hang_do_not_keep_it(toy: RawServer) -> None:
    for number in range(10):
        toy.call(number, "hang")
        toy.heard("called hang")
    toy.close_stdin()
    assert toy.exit_status() == 0
    given_up = "agentbus: stdin ended before all that was asked was done; the rest is given up\n"
    assert toy.errors() == [given_up, "close True\n"]


def test_a_bus_that_hangs_while_it_is_closed_does_not_keep_it() -> None:
    with RawServer((*TOY, "close hangs")) as server:
        server.initialize()
        server.heard("warm")
        server.close_stdin()
        assert server.exit_status() == -signal.SIGALRM


def test_a_bus_that_breaks_while_it_is_closed_is_logged() -> None:
    with RawServer((*TOY, "close breaks")) as server:
        server.initialize()
        server.heard("warm")
        server.close_stdin()
        assert server.exit_status() == 0
        assert server.errors() == ["close True\n", "log failed close RuntimeError\n"]


@pytest.mark.parametrize(("argv", "ending"), [(TOY, "stdin"), (TOY, "signal"), (TOY_SDK, "stdin")])
def test_a_client_that_never_reads_does_not_keep_it(argv: tuple[str, ...], ending: str) -> None:
    read, write = os.pipe()
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert process.stdin
    assert process.stderr
    line = json.dumps(call(1, "echo", text="x" * 10_000)).encode() + b"\n"
    process.stdin.write(HANDSHAKE + line * 100)  # a megabyte of answers: the pipe holds 64 KiB
    process.stdin.flush()
    for _ in range(60):
        process.stderr.readline()
    if ending == "stdin":
        process.stdin.close()
    else:
        process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0
    os.close(read)
    process.stdin.close()
    process.stderr.close()


PARENT = """
import os, subprocess, sys
read, write = os.pipe()
os.write(write, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n')
server = subprocess.Popen(sys.argv[1:], stdin=read, stdout=1)
sibling = subprocess.Popen(["sleep", "600"], stdout=write)
print(server.pid, sibling.pid, file=sys.stderr, flush=True)
server.wait()
"""
WITHOUT_PIDFD = """
import os, runpy, sys
del os.pidfd_open
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    "argv", [TOY, (sys.executable, "-c", WITHOUT_PIDFD, TOY[1]), TOY_SDK], ids=["told", "asking", "sdk"]
)
def test_it_ends_when_its_parent_is_killed_though_a_sibling_holds_its_stdin_open(argv: tuple[str, ...]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as parent:
        assert parent.stdout
        assert parent.stderr
        server, sibling = map(int, parent.stderr.readline().split())
        ended = os.pidfd_open(server)
        try:
            assert parse(parent.stdout.readline()) == PONG
            parent.kill()
            assert select.select([ended], [], [], WAIT_S)[0]
        finally:
            os.close(ended)
            os.kill(sibling, signal.SIGKILL)


def test_an_idle_server_sleeps_and_writes_nothing(environ: dict[str, str]) -> None:
    with RawServer(MCP, **environ) as server:
        server.initialize()
        server.ask("tools/call", {"name": "register", "arguments": {"name": "idle"}})
        server.ask("tools/list")
        before = switches(server.process.pid)
        seconds = 3
        assert server.is_silent_for(seconds)
        assert switches(server.process.pid) - before <= 2 * seconds


def test_a_waiting_server_sleeps_and_writes_nothing(environ: dict[str, str]) -> None:
    with RawServer(MCP, **environ) as server:
        server.initialize()
        server.ask("tools/call", {"name": "register", "arguments": {"name": "idle"}})
        server.call("w", "receive", **{"as": "idle", "wait_seconds": 50})
        assert server.is_silent_for(0.5)
        before = switches(server.process.pid), written(server.process.pid)
        seconds = 3
        assert server.is_silent_for(seconds)
        after = switches(server.process.pid), written(server.process.pid)
        assert after[0] - before[0] <= 2 * seconds
        assert after[1] == before[1]


def switches(pid: int) -> int:
    """How often the threads of a process have gone to sleep so far."""
    lines = [line for file in Path(f"/proc/{pid}/task").glob("*/status") for line in file.read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def written(pid: int) -> str:
    (line,) = [line for line in Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("write_bytes")]
    return line


def test_nothing_that_a_library_prints_reaches_the_client() -> None:
    with RawServer((*TOY, "print")) as server:
        server.initialize()
        assert server.ask("ping")["result"] == {}
        server.close_stdin()
        assert server.rest() == []


def test_what_is_printed_at_exit_and_at_start_does_not_reach_the_client(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    custom = "import atexit, sys\nsys.stdout.write('hello')\natexit.register(print, 'bye', flush=True)\n"
    (tmp_path / "sitecustomize.py").write_text(custom)
    environ |= {"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": ""}
    for number in (None, signal.SIGTERM):
        with RawServer(MCP, **environ) as server:
            server.initialize()
            assert server.ask("tools/list")["result"]["tools"]
            if number:
                server.process.send_signal(number)
            else:
                server.close_stdin()
            assert server.rest() == []
            assert server.exit_status() == 0


def test_with_warnings_as_errors_a_session_runs_and_stdout_holds_json_rpc_only(environ: dict[str, str]) -> None:
    with RawServer((MCP[0], "-W", "error", *MCP[1:]), **environ) as server:
        run_session(server)
        assert server.errors() == []


def test_a_debug_log_goes_to_its_file_and_holds_no_message(tmp_path: Path, environ: dict[str, str]) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text('{"log_level": "debug"}')
    with RawServer((*MCP, "--config", str(settings)), **environ) as server:
        run_session(server)
        assert server.errors() == []
    log = tmp_path / "data" / "agentbus.log"
    assert not log.exists() or "a private word" not in log.read_text()


@pytest.mark.parametrize("arguments", [("--config", "{}"), ("--config={}",), ("--config=x", "--config", "{}")])
def test_bad_settings_are_told_to_the_model_and_to_stderr(
    arguments: tuple[str, ...], tmp_path: Path, environ: dict[str, str]
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text('{"segment_mib": 0}')
    argv = (*MCP, *(argument.format(settings) for argument in arguments))
    with RawServer(argv, **environ) as server:
        server.initialize()
        assert len(server.ask("tools/list")["result"]["tools"]) >= 11
        assert "segment_mib" in server.heard("agentbus")
        result = server.ask("tools/call", {"name": "register", "arguments": {"name": "x"}})["result"]
        assert result["isError"] is True
        assert json.loads(result["content"][0]["text"])["code"] == "validation"
        settings.write_text("{}")
        result = server.ask("tools/call", {"name": "register", "arguments": {"name": "x"}})["result"]
        assert result["structuredContent"]["as"] == "x"


def test_a_stderr_that_nobody_reads_keeps_no_call_from_its_answer(tmp_path: Path, environ: dict[str, str]) -> None:
    read, write = os.pipe()
    os.close(read)
    argv = (*MCP, "--config", str(tmp_path / "none.json"))
    lines = b"".join(json.dumps(call(number, "register", name="x")).encode() + b"\n" for number in range(3))
    lines = json.dumps({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": {}}).encode() + b"\n" + lines
    done = subprocess.run(
        argv, input=lines, stdout=subprocess.PIPE, stderr=write, check=True, timeout=WAIT_S, env=os.environ | environ
    )
    os.close(write)
    assert {parse(line)["id"] for line in done.stdout.splitlines(keepends=True)} == {"i", 0, 1, 2}


def test_a_working_directory_that_is_gone_keeps_nobody_from_registering(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    with RawServer(("sh", "-c", script, str(gone), *MCP), **environ) as server:
        assert 'set to "agent"' in server.initialize()["instructions"]
        result = server.ask("tools/call", {"name": "register", "arguments": {"name": "x"}})["result"]
        assert result["structuredContent"]["as"] == "x"


def run_session(server: RawServer) -> None:
    server.initialize()
    server.ask("tools/call", {"name": "register", "arguments": {"name": "x"}})
    arguments = {"as": "x", "channel": "general", "content": "a private word"}
    assert "isError" not in server.ask("tools/call", {"name": "post", "arguments": arguments})["result"]
    assert server.ask("tools/call", {"name": "post", "arguments": {"as": "x"}})["result"]["isError"] is True
    server.close_stdin()
    assert server.rest() == []
    assert server.exit_status() == 0


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGINT])
def test_the_journal_says_that_the_sessions_ended(number: int | None, tmp_path: Path, environ: dict[str, str]) -> None:
    with RawServer(MCP, **environ) as server:
        server.initialize()
        server.ask("tools/call", {"name": "register", "arguments": {"name": "x"}})
        if number:
            server.process.send_signal(number)
        else:
            server.close_stdin()
        assert server.exit_status() == 0
    (segment,) = (tmp_path / "data" / "journal").glob("*.jsonl")
    last = json.loads(segment.read_text().splitlines()[-1])
    (event,) = last["events"]
    assert (event["type"], event["as"], event["reason"]) == ("ended", "x", "exit")


LIGHT = {
    *("__future__", "_collections", "_functools", "_json", "_operator", "_queue", "_signal", "_sre", "_weakrefset"),
    *("agentbus", "collections", "copyreg", "enum", "errno", "functools", "itertools", "json", "keyword", "operator"),
    *("re", "reprlib", "select", "signal", "stat", "threading", "time", "types", "unicodedata", "warnings"),
}
"""What may be imported until ``initialize`` is answered; typing alone would cost a sixth of ``python -c pass``."""
LIST_MODULES = """
import os, sys
from agentbus import service, stdio

def load_table():
    print(*sys.modules, file=sys.stderr)
    sys.stderr.write("ready\\n")
    raise SystemExit

stdio.serve(service.Service(load_table, None), os.getppid())
"""


def test_initialize_is_answered_by_light_modules_of_the_standard_library_only() -> None:
    with RawServer((sys.executable, "-c", LIST_MODULES), **NO_COVERAGE) as server:
        server.initialize()
        modules = server.heard("sys ")
    assert heavy(modules) == set()


def test_identity_is_printed_by_light_modules_of_the_standard_library_only(tmp_path: Path) -> None:
    script = "import sys; from agentbus.__main__ import main; main(); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, "identity"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | NO_COVERAGE,
    )
    assert done.stdout.startswith("Agentbus: ")
    assert heavy(done.stderr) == set()


NO_COVERAGE = {"COVERAGE_PROCESS_START": "", "COVERAGE_PROCESS_CONFIG": ""}


def heavy(modules: str) -> set[str]:
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | NO_COVERAGE,
    )
    imported = set(modules.split()) - set(bare.stdout.split())
    return {name for name in imported if name.split(".")[0] not in LIGHT}


def test_who_interrupts_a_command_is_told_so_in_one_line() -> None:
    script = "from agentbus import __main__, identity\ndef run(_): raise KeyboardInterrupt\nidentity.run = run\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}__main__.main()", "identity"],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "agentbus: interrupted\n")


@pytest.mark.parametrize(
    "arguments", [["mcp", "--help"], ["mcp", "extra"], ["mcp", "--config"], ["identity", "--help"], ["--version"]]
)
def test_what_the_short_cuts_do_not_know_is_clicks_to_answer(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentbus", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == (2 if arguments in (["mcp", "extra"], ["mcp", "--config"]) else 0)
    assert done.returncode == 0 or done.stderr.startswith("agentbus: ")


def test_the_log_holds_the_anchor_at_the_start_and_at_the_end(tmp_path: Path, environ: dict[str, str]) -> None:
    with RawServer(MCP, **environ) as server:
        server.initialize()
        server.call(2, "register", name="shop")
        assert server.next()["id"] == 2
    lines = [json.loads(line) for line in (tmp_path / "data" / "agentbus.log").read_text().splitlines()]
    journal = (tmp_path / "data" / "journal" / "00000000000000000001.jsonl").read_bytes().splitlines()
    by_message = {line["msg"]: line for line in lines}  # a short life may end before the thread that tells of its start
    assert sorted(by_message) == ["server ended", "server started"]
    assert json.loads(journal[3])["events"][0]["type"] == "ended"
    assert by_message["server ended"]["anchor"] == f"4:{json.loads(journal[3])['hash']}"


def test_a_torn_tail_that_was_set_aside_is_in_the_log(tmp_path: Path, environ: dict[str, str]) -> None:
    segment = tmp_path / "data" / "journal" / "00000000000000000001.jsonl"
    for _ in range(2):
        with RawServer(MCP, **environ) as server:
            server.initialize()
            server.call(2, "register", name="shop")
            assert "structuredContent" in server.next()["result"]
        with segment.open("ab") as file:
            file.write(b'{"seq":')
    pieces = [path.name for path in (tmp_path / "data" / "journal" / "set-aside").iterdir()]
    lines = [json.loads(line) for line in (tmp_path / "data" / "agentbus.log").read_text().splitlines()]
    assert [line["piece"] for line in lines if line["level"] == "WARN"] == pieces


def test_a_damaged_journal_is_told_in_the_log_and_on_stderr_with_its_place(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    segment = tmp_path / "data" / "journal" / "00000000000000000001.jsonl"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b'{"seq":1}\n')
    with RawServer(MCP, **environ) as server:
        server.initialize()
        heard = server.heard("agentbus: corrupt: ")
        assert str(segment) in heard
        assert "line 1 (byte 0, seq 1)" in heard
    (line,) = [
        found
        for found in map(json.loads, (tmp_path / "data" / "agentbus.log").read_text().splitlines())
        if found["level"] == "WARN"
    ]
    assert line["msg"].startswith(f"corrupt: {segment} line 1")
