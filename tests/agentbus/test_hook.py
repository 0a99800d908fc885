"""What a harness's hooks tell a session, once, and never more than it may know; and who is woken by what."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentbus.harness import forms
from agentbus.protocol import render_protocol
from tests.agentbus.hosts import call, open_at
from tests.agentbus.raw_server import MCP, RawServer
from tests.agentbus.shell import environ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentbus.host import Host

WAIT_S = 30.0
HUSH = "swordfish, said the guard"
HOLD = """
import fcntl, sys, time
with open(sys.argv[1], "r+") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print(flush=True)
    time.sleep(60)
"""


class Desk:
    """An agent's session, whose server this process started as a harness does, and a peer that writes to it."""

    def __init__(self, tmp_path: Path, server: RawServer) -> None:
        self.data = tmp_path / "data"
        self.repository = tmp_path / "shop"
        (self.repository / ".git").mkdir(parents=True)
        self.environ = environ(self.data)
        self.peer: Host = open_at(self.data)
        call(self.peer, "register", name="beta")
        # The peer lives in this process, and this process's harness is another; but no server runs there.
        self.server = server
        self.server.initialize()
        self.tool("register", name="alpha")
        self.tool("subscribe", as_="alpha", channel="general")

    def tool(self, name: str, /, **arguments: object) -> dict[str, Any]:
        given = {key.rstrip("_"): value for key, value in arguments.items()}
        answer = self.server.ask("tools/call", {"name": name, "arguments": given})
        assert not answer["result"].get("isError"), answer
        found: dict[str, Any] = answer["result"]["structuredContent"]
        return found

    def says(self, content: str) -> int:
        """The peer posts to general."""
        return int(call(self.peer, "post", as_="beta", channel="general", content=content)["seq"])

    def command(self, *arguments: str) -> list[str]:
        """As a harness runs a hook: through a shell."""
        return ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-m", "agentbus", *arguments]

    def hook(self, event: str, harness: str, given: object = None, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("hook", event, "--for", harness),
            input=json.dumps({} if given is None else given),
            env=self.environ | more,
            cwd=self.repository,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def reason(self, harness: str, **given: object) -> str:
        """Why the turn should go on, as the client's model reads it; "" to let it end."""
        held = self.hook("stop", harness, given).stdout
        return reason_in(harness, held) if held else ""

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that goes on for a while."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environ,
            cwd=self.repository,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    server = RawServer(MCP, **environ(tmp_path / "data"))
    with server:
        made = Desk(tmp_path, server)
        yield made
        made.peer.close(float("inf"))


def test_a_turn_is_held_once_for_each_new_message_and_told_of_no_word_of_it(desk: Desk) -> None:
    assert desk.hook("stop", "claude").stdout == ""
    desk.says(HUSH)
    desk.says("and more")
    held = desk.hook("stop", "claude")
    assert held.returncode == 0
    assert json.loads(held.stdout) == {
        "decision": "block",
        "reason": 'Agentbus: 2 new messages wait: 2 in "general" from "beta". Call the Agentbus tool receive with "as"'
        ' "alpha".',
    }
    assert desk.hook("stop", "claude").stdout == ""
    desk.says("a third")
    assert "1 new message waits" in desk.hook("stop", "claude").stdout


def test_what_was_handed_out_holds_no_turn_though_it_is_not_acknowledged(desk: Desk) -> None:
    desk.says(HUSH)
    assert len(desk.tool("receive", as_="alpha")["messages"]) == 1
    assert desk.hook("stop", "claude").stdout == ""


def test_own_messages_hold_no_turn(desk: Desk) -> None:
    desk.tool("post", as_="alpha", channel="general", content="hello")
    assert desk.hook("stop", "claude").stdout == ""


def test_a_turn_that_goes_on_because_of_a_hook_is_not_held_again(desk: Desk) -> None:
    desk.says("hello")
    for harness in ("claude", "codex", "gemini"):
        assert desk.hook("stop", harness, {"stop_hook_active": True}).stdout == ""
    assert desk.hook("stop", "cursor", {"loop_count": 1}).stdout == ""
    assert desk.hook("stop", "cursor", {"loop_count": 0}).stdout != ""


def test_each_client_is_answered_in_its_own_form(desk: Desk) -> None:
    for harness in forms.HARNESSES:
        desk.says(HUSH)
        held = desk.hook("stop", harness, {"session_id": "s", "new field": [1]}).stdout
        assert HUSH not in held
        assert re.fullmatch(r'Agentbus: 1 new message waits: .*"beta".*"alpha"\.', reason_in(harness, held))
        begun = desk.hook("session-start", harness).stdout
        assert context_in(harness, begun) == render_protocol("shop")


def reason_in(harness: str, held: str) -> str:
    """What the client takes for the reason to go on."""
    if harness == "opencode":
        return held.rstrip("\n")
    answer = json.loads(held)
    if harness == "cursor":
        assert set(answer) == {"followup_message"}
        return str(answer["followup_message"])
    assert answer["decision"] == ("deny" if harness == "gemini" else "block")
    return str(answer["reason"])


def context_in(harness: str, begun: str) -> str:
    """What the client puts before its model at a session's start."""
    if harness in {"claude", "opencode"}:
        return begun
    answer = json.loads(begun)
    if harness == "cursor":
        return str(answer["additional_context"])
    assert answer["hookSpecificOutput"]["hookEventName"] == "SessionStart"
    return str(answer["hookSpecificOutput"]["additionalContext"])


def test_cursor_says_where_its_session_is_which_is_not_where_its_hooks_run(desk: Desk) -> None:
    (desk.repository.parent / "bank" / ".git").mkdir(parents=True)
    for roots, name in [([str(desk.repository.parent / "bank")], "bank"), (7, "shop"), ([7], "shop")]:
        begun = desk.hook("session-start", "cursor", {"workspace_roots": roots}).stdout
        assert context_in("cursor", begun) == render_protocol(name)


def test_input_that_makes_no_sense_is_no_failure(desk: Desk) -> None:
    for given in ["", "{", "[]", "null", '{"cwd": 7, "stop_hook_active": "?"}', '"\\ud83d"']:
        done = subprocess.run(
            desk.command("hook", "stop", "--for", "claude"), input=given, env=desk.environ, cwd=desk.repository,
            capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_hook_takes_its_options_in_any_order_and_names_what_it_does_not_know(desk: Desk) -> None:
    config = str(desk.data.parent / "settings.json")
    desk.says("hello")
    for words, says in [
        (["hook", "--for", "claude", "stop", "--config", config], "1 new message waits"),
        (["hook", "stop", "--for", "claude", "--config", config], ""),
    ]:
        done = desk.start(*words).communicate(timeout=WAIT_S)
        assert says in done[0]
        assert done[1] == ""
    for words, says in [
        (["hook", "begin", "--for", "claude"], "'begin' is not one of"),
        (["hook", "stop", "--for", "emacs"], "'emacs' is not one of"),
        (["hook", "stop"], "Missing option '--for'"),
    ]:
        refused = desk.start(*words)
        assert says in refused.communicate(timeout=WAIT_S)[1]
        assert refused.returncode == 2


def test_the_hook_of_another_harness_is_told_nothing(desk: Desk) -> None:
    desk.says("hello")
    hook = desk.command("hook", "stop", "--for", "claude")
    through = f"import subprocess, sys; sys.exit(subprocess.run({hook!r}).returncode)"
    done = subprocess.run(
        [sys.executable, "-c", through], env=desk.environ, cwd=desk.repository, capture_output=True, timeout=WAIT_S,
        stdin=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    assert done.stdout == b""


def test_each_session_of_a_harness_is_told_of_its_own(desk: Desk) -> None:
    """Codex has a server for each of its sessions, all children of one process, and names the session to both."""
    thread = {"_meta": {"threadId": "t-2"}}
    with RawServer(MCP, **desk.environ) as server:
        server.initialize()
        for tool, given in [("register", {"name": "gamma"}), ("subscribe", {"as": "gamma", "channel": "general"})]:
            server.ask("tools/call", {"name": tool, "arguments": given, **thread})
        desk.says("hello")
        assert '"gamma"' in desk.reason("codex", session_id="t-2")
        assert '"alpha"' in desk.reason("codex", session_id="t-1")
        assert desk.hook("stop", "codex", {"session_id": "t-3"}).stdout == ""


def test_of_the_sessions_of_one_server_the_hook_speaks_for_the_one_without_a_parent(desk: Desk) -> None:
    """Claude Code's subagents share its server."""
    desk.tool("register", name="helper", parent="alpha")
    desk.tool("subscribe", as_="alpha/helper", channel="general")
    desk.says("@alpha/helper hello")
    assert desk.reason("claude").endswith('with "as" "alpha".')


def test_a_session_in_another_directory_of_the_same_harness_is_not_told(desk: Desk) -> None:
    command = ("sh", "-c", f'cd "$0" && exec {" ".join(MCP)}', str(desk.repository))
    with RawServer(command, **desk.environ) as server:
        server.initialize()
        server.ask("tools/call", {"name": "register", "arguments": {"name": "gamma"}})
        server.ask("tools/call", {"name": "subscribe", "arguments": {"as": "gamma", "channel": "general"}})
        desk.says("hello")
        assert '"gamma"' in desk.reason("claude", cwd=str(desk.repository))
        assert '"alpha"' in desk.reason("claude", cwd=os.getcwd())


def test_two_hooks_at_once_tell_of_a_message_once(desk: Desk) -> None:
    desk.says("@alpha hello")
    hooks = [desk.start("hook", "stop", "--for", "claude") for _ in range(4)]
    told = [out for out, _ in (hook.communicate(timeout=WAIT_S) for hook in hooks) if out]
    assert len(told) == 1


def test_codex_is_handed_its_wake_up_for_the_session_whose_hook_it_was(desk: Desk, tmp_path: Path) -> None:
    """Its hook returns at once, and a process that stays behind waits and speaks to the client's queue."""
    queue = tmp_path / "bin" / "codex"
    queue.parent.mkdir()
    queue.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/queued.new && mv {tmp_path}/queued.new {tmp_path}/queued\n'
    )
    queue.chmod(0o755)
    path = f"{queue.parent}:{os.environ['PATH']}"
    done = desk.hook("wake", "codex", {"session_id": "01a2", "stop_hook_active": False}, PATH=path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    desk.says("@alpha hello")
    until((tmp_path / "queued").exists)
    words = (tmp_path / "queued").read_text().splitlines()
    assert words[:4] == ["queue", "--thread", "01a2", "--message"]
    assert words[4].startswith('Agentbus: 1 new message addressed to you waits: 1 in "general" from "beta".')


def until(is_it: Callable[[], bool]) -> None:
    """Wait until that is true."""
    deadline = time.monotonic() + WAIT_S
    while not is_it():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


LIGHT = """
import sys
sys.argv = ["agentbus", "hook", *sys.argv[1:]]
from agentbus.__main__ import main
try:
    main()
except SystemExit:
    heavy = {"click", "msgspec", "tomlkit", "subprocess", "threading", "tempfile", "fcntl", "journal", "dataclasses"}
    print(*heavy & set(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("harness", forms.HARNESSES)
def test_a_session_s_start_imports_only_what_starts_fast(harness: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    root = str(Path(forms.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-S", "-c", LIGHT, "session-start", "--for", harness],
        env={"PYTHONPATH": root, "PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL, cwd=tmp_path,
        capture_output=True, text=True, timeout=WAIT_S, check=True,
    )  # fmt: skip
    assert "register" in done.stdout
    assert done.stderr == "\n"


def test_a_turn_ends_in_time_while_a_stopped_process_holds_the_lock(desk: Desk) -> None:
    desk.says("hello")
    lock = desk.data / "journal" / "writer.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.send_signal(signal.SIGSTOP)
        try:
            assert "1 new message waits" in desk.hook("stop", "claude").stdout
        finally:
            holder.kill()


def test_no_hook_fails_where_nothing_can_be_read(tmp_path: Path) -> None:
    surroundings = environ(tmp_path / "data", AGENTBUS_CONFIG=str(tmp_path / "no such file"))
    for event in forms.EVENTS:
        done = subprocess.run(
            [sys.executable, "-m", "agentbus", "hook", event, "--for", "claude"],
            stdin=subprocess.DEVNULL, env=surroundings, cwd=tmp_path, capture_output=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0
        assert done.stderr == b""
    assert not (tmp_path / "data").exists()


def test_not_even_a_bug_makes_a_hook_fail(desk: Desk) -> None:
    code = (
        "import sys; from agentbus import holding, hook; holding.reason_to_go_on = None;"
        "sys.exit(hook.run(['stop', '--for', 'claude']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=desk.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "agentbus: hook stop failed: TypeError\n")


def test_only_a_message_addressed_to_it_wakes_an_idle_session_and_once(desk: Desk) -> None:
    waker = desk.start("hook", "wake", "--for", "claude")
    desk.says("nothing for you")
    desk.says("@alpha please look")
    out, err = waker.communicate(timeout=WAIT_S)
    assert (waker.returncode, out) == (2, "")
    assert err.startswith('Agentbus: 1 new message addressed to you waits: 1 in "general" from "beta".')
    again = desk.start("hook", "wake", "--for", "claude")
    desk.says("@alpha once more")
    assert again.communicate(timeout=WAIT_S)[1].count("1 new message addressed to you") == 1


def test_a_wake_up_for_one_message_does_not_hide_those_before_it_from_the_next_turn_s_end(desk: Desk) -> None:
    waker = desk.start("hook", "wake", "--for", "claude")
    desk.says("nothing for you")
    desk.says("@alpha please look")
    assert "1 new message addressed to you" in waker.communicate(timeout=WAIT_S)[1]
    assert desk.reason("claude").startswith("Agentbus: 1 new message waits: ")
    assert desk.reason("claude") == ""


def test_a_damaged_note_of_what_was_told_costs_one_more_mention(desk: Desk) -> None:
    desk.says("hello")
    assert desk.reason("claude") != ""
    (note,) = (desk.data / "hooks").iterdir()
    note.write_text("?")
    assert desk.reason("claude") != ""
    assert desk.reason("claude") == ""


def test_nobody_waits_in_a_run_that_nobody_would_come_back_to(desk: Desk) -> None:
    assert desk.hook("wake", "claude", CLAUDE_CODE_SESSION_ATTENDED="0").returncode == 0
    assert desk.hook("wake", "gemini").returncode == 0


def test_a_newer_waiter_takes_the_place_of_the_older(desk: Desk) -> None:
    first = desk.start("wait")
    _until_waiting(desk, first)
    second = desk.start("wait", "--bodies")
    assert first.communicate(timeout=WAIT_S) == ("", "")
    assert first.returncode == 4
    seq = desk.says("@alpha hello")
    out, _ = second.communicate(timeout=WAIT_S)
    assert second.returncode == 0
    told = json.loads(out)
    assert {key: told[key] for key in ("seq", "channel", "from", "addressed", "content")} == {
        "seq": seq, "channel": "general", "from": "beta", "addressed": ["alpha"], "content": "@alpha hello",
    }  # fmt: skip
    assert len(desk.tool("receive", as_="alpha")["messages"]) == 1
    assert list((desk.data / "waiters").iterdir()) == []


def _until_waiting(desk: Desk, waiter: subprocess.Popen[str]) -> None:
    """Until a waiter has taken its seat."""
    while not list((desk.data / "waiters").glob("*")) if (desk.data / "waiters").exists() else True:
        with pytest.raises(subprocess.TimeoutExpired):
            waiter.wait(0.05)


def test_a_wait_ends_with_its_time_its_match_or_what_it_cannot_do(desk: Desk) -> None:
    def waited(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            desk.command("wait", *arguments), env=desk.environ, cwd=desk.repository, capture_output=True, text=True,
            timeout=WAIT_S, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    assert waited("--timeout", "0") == (3, "", "")
    desk.says("release 7 is out")
    assert waited("--timeout", "0") == (3, "", "")
    status, out, _ = waited("--all", "--filter", r"release \d")
    assert status == 0
    assert "release" not in out
    assert waited("--all", "--filter", "nothing", "--timeout", "0")[0] == 3
    assert waited("--all", "--channel", "general", "--timeout", "0")[0] == 0
    assert waited("--channel", "reviews", "--timeout", "0")[2] == (
        'agentbus: "alpha" is not subscribed to "reviews": it is to general, memory\n'
    )
    assert waited("--filter", "(")[0] == 2
    assert waited("--as", "nobody")[:2] == (1, "")


def test_a_waiter_ends_when_its_harness_is_gone(desk: Desk) -> None:
    waiter = desk.command("wait", "--as", "alpha")
    inner = f"import subprocess, sys; p = subprocess.Popen({waiter!r}, stdout=2); print(p.pid, flush=True); p.wait()"
    harness = subprocess.Popen(
        [sys.executable, "-c", inner], env=desk.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    pid = int(harness.stdout.readline())
    while not (desk.data / "waiters").exists() or not list((desk.data / "waiters").glob("*")):
        with pytest.raises(subprocess.TimeoutExpired):
            harness.wait(0.05)
    harness.kill()
    harness.communicate(timeout=WAIT_S)
    _until_gone(pid)


def _until_gone(pid: int) -> None:
    waiter = subprocess.run(
        ["timeout", str(WAIT_S), "sh", "-c", f"while kill -0 {pid} 2>/dev/null; do sleep 0.1; done"], check=False
    )
    assert waiter.returncode == 0
    assert not os.path.exists(f"/proc/{pid}")
