"""``agentbus wait``: what ends it, how, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, cast

import pytest

from agentbus import config
from agentbus.cli import wait as cli_wait
from agentbus.host import open_journal
from agentbus.projection import Projection
from tests.agentbus.desk import WAIT_S, sitting, until
from tests.agentbus.hosts import call, open_at
from tests.agentbus.shell import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.agentbus.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with sitting(tmp_path) as made:
        yield made


def test_a_newer_waiter_takes_the_place_of_the_older(desk: Desk) -> None:
    first = desk.start("wait")
    until(desk.is_waited_for)
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


def waited(desk: Desk, *arguments: str) -> tuple[int, str, str]:
    """What a wait ends with: exit status, stdout, stderr."""
    done = subprocess.run(
        desk.command("wait", *arguments), env=desk.environ, cwd=desk.repository, capture_output=True, text=True,
        timeout=WAIT_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_wait_ends_with_its_time_its_match_or_what_it_cannot_do(desk: Desk) -> None:
    assert waited(desk, "--timeout", "0") == (3, "", "")
    desk.says("release 7 is out")
    assert waited(desk, "--timeout", "0") == (3, "", "")
    status, out, _ = waited(desk, "--all", "--filter", r"release \d")
    assert status == 0
    assert "release" not in out
    assert waited(desk, "--all", "--filter", "nothing", "--timeout", "0")[0] == 3
    assert waited(desk, "--all", "--channel", "general", "--timeout", "0")[0] == 0
    assert waited(desk, "--channel", "reviews", "--timeout", "0")[2] == (
        'agentbus: "alpha" is not subscribed to "reviews": it is to general, memory\n'
    )
    assert waited(desk, "--filter", "(")[0] == 2
    status, out, err = waited(desk, "--as", "nobody")
    assert (status, out) == (1, "")
    assert err.startswith('agentbus: "nobody" has no subscriptions: nothing would ever wait for it; `agentbus status`')


def test_a_time_that_is_no_number_is_refused(desk: Desk) -> None:
    status, out, err = waited(desk, "--timeout", "nan")
    assert (status, out) == (2, "")
    assert "nan is no time" in err


def test_a_filter_that_cannot_be_done_with_a_text_is_refused_and_names_it(desk: Desk) -> None:
    seq = desk.says("a" * 40 + "!")
    status, out, err = waited(desk, "--all", "--filter", "(a+)+$")
    assert (status, out) == (1, "")
    assert err.startswith(f'agentbus: --filter "(a+)+$" takes longer than 1 s on the message {seq}: ')


class Noting:
    """A pattern that notes what it was tried on."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.tried: list[str] = []

    def search(self, text: str) -> re.Match[str] | None:
        self.tried.append(text)
        return re.search(self.pattern, text)


def test_a_filter_is_tried_once_on_each_text(desk: Desk) -> None:
    noting = Noting("three")
    settings = config.load(None, desk.environ)
    journal = open_journal(settings, read_only=True)
    wanted = cli_wait.Wanted("alpha", every=True, channels=None, pattern=cast("re.Pattern[str]", noting))
    watch = cli_wait.Watcher(Projection(journal, None), journal, settings, wanted)
    desk.says("one")
    assert watch.look()[1] == []
    desk.says("two")
    assert watch.look()[1] == []
    desk.says("number three")
    assert len(watch.look()[1]) == 1
    assert noting.tried == ["one", "two", "number three"]


def test_a_seat_that_cannot_be_taken_is_one_line(desk: Desk) -> None:
    (desk.data / "waiters").write_text("")
    status, out, err = waited(desk, "--timeout", "0")
    assert (status, out) == (1, "")
    assert err == f'agentbus: cannot be the one who waits: "{desk.data}/waiters": File exists\n'


def test_a_wait_where_nothing_ever_happened_says_so_and_makes_nothing(tmp_path: Path) -> None:
    for words in ([], ["--as", "alpha"]):
        done = run(tmp_path / "data", "wait", *words)
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.decode() == f"agentbus: no journal yet in {tmp_path}/data: nobody has registered there\n"
    assert not (tmp_path / "data").exists()


def test_a_wait_ends_when_the_bus_was_emptied_under_it(desk: Desk) -> None:
    waiter = desk.start("wait")
    until(desk.is_waited_for)
    assert run(desk.data, "reset", "--yes").returncode == 0
    assert waiter.communicate(timeout=WAIT_S)[1].startswith('agentbus: "alpha" has no subscriptions: ')
    assert waiter.returncode == 1


def test_what_is_deleted_of_a_waiter_does_not_end_it(desk: Desk) -> None:
    waiter = desk.start("wait")
    until(desk.is_waited_for)
    shutil.rmtree(desk.data / "waiters")
    until(desk.is_waited_for)
    desk.says("@alpha hello")
    assert waiter.communicate(timeout=WAIT_S)[1] == ""
    assert waiter.returncode == 0


def test_a_wait_whose_bus_is_taken_away_says_so(desk: Desk) -> None:
    waiter = desk.start("wait")
    until(desk.is_waited_for)
    desk.data.rename(desk.data.parent / "elsewhere")
    _, err = waiter.communicate(timeout=WAIT_S)
    assert (waiter.returncode, err.count("\n")) == (1, 1)
    assert err.startswith("agentbus: ")
    (desk.data.parent / "elsewhere").rename(desk.data)


def test_a_wait_outlives_a_repair(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with sitting(tmp_path) as desk:
        desk.says("hello")
    waiter = subprocess.Popen(
        [sys.executable, "-m", "agentbus", "wait", "--as", "alpha"],
        env=desk.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(desk.is_waited_for)
    (segment,) = (data / "journal").glob("*.jsonl")
    segment.write_bytes(segment.read_bytes().replace(b'"hello"', b'"hullo"'))
    assert run(data, "repair", "--yes").returncode == 0
    peer = open_at(data)
    call(peer, "register", name="beta")
    call(peer, "post", as_="beta", channel="general", content="@alpha hello")
    out, err = waiter.communicate(timeout=WAIT_S)
    assert (waiter.returncode, err) == (0, "")
    assert json.loads(out)["from"] == "beta"
    peer.close(float("inf"))


def test_a_reader_that_is_gone_ends_a_wait_without_a_word(desk: Desk) -> None:
    desk.says("@alpha " + "x" * 20_000)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        desk.command("wait", "--bodies"), env=desk.environ, stdout=writer, stderr=subprocess.PIPE, timeout=WAIT_S,
        check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_waiter_ends_when_its_harness_is_gone(desk: Desk) -> None:
    waiter = desk.command("wait", "--as", "alpha")
    inner = f"import subprocess, sys; p = subprocess.Popen({waiter!r}, stdout=2); print(p.pid, flush=True); p.wait()"
    harness = subprocess.Popen(
        [sys.executable, "-c", inner], env=desk.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    pid = int(harness.stdout.readline())
    until(desk.is_waited_for)
    harness.kill()
    harness.communicate(timeout=WAIT_S)
    _until_gone(pid)


def _until_gone(pid: int) -> None:
    waiter = subprocess.run(
        ["timeout", str(WAIT_S), "sh", "-c", f"while kill -0 {pid} 2>/dev/null; do sleep 0.1; done"], check=False
    )
    assert waiter.returncode == 0
    assert not os.path.exists(f"/proc/{pid}")
