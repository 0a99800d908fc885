"""`agentbus ack-all`: a person's way out of dead letters, through the command line as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from agentbus.cli import main
from tests.agentbus.hosts import call, crash, events, live, open_at, replayed
from tests.agentbus.shell import WAIT_S, Writer, environ, posted, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentbus.host import Host

HOSTILE = "\x1b[2J"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in environ(tmp_path / "data", LOGNAME="ann").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "data"


@pytest.fixture
def boss(data: Path) -> Iterator[Host]:
    """A live agent that has posted twice on general and once on memory; bob, whose process is gone, read nothing."""
    gone, host = open_at(data), open_at(data)
    call(gone, "register", name="bob")
    crash(gone)
    call(host, "register", name="boss")
    for channel in ("general", "general", "memory"):
        call(host, "post", as_="boss", channel=channel, content="hello")
    yield host
    crash(host)


def agentbus(*arguments: str, stdin: bytes | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def done(*arguments: str) -> Any:  # noqa: ANN401  # JSON
    status, out, _ = agentbus("ack-all", *arguments, "--yes", "--json")
    assert status == 0
    return json.loads(out)


def test_it_says_what_it_will_do_and_wants_the_word(data: Path, boss: Host) -> None:
    for answer in (b"", b"y\n", b"YES\n"):
        status, out, err = agentbus("ack-all", "bob", stdin=answer)
        assert (status, err) == (1, "agentbus: nothing was acknowledged: the answer was not yes\n")
        lines = out.splitlines()
        assert lines[0] == 'Agentbus: this counts as read for "bob" all that was posted before seq 8:'
        assert [line.rsplit(":", 1)[0] for line in lines[1:3]] == [
            "  general  2 messages  oldest",
            "  memory   1 message   oldest",
        ]
        assert lines[3:] == [
            "No message is deleted: each stays in its channel, in history and in search.",
            "Type yes to go on.",
        ]
    assert events(data)[-1]["type"] == "posted"
    status, out, err = agentbus("ack-all", "bob", stdin=b"yes\n")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == 'Agentbus: acknowledged 3 messages in 2 channels for "bob" (seq 8).'
    assert events(data)[-1] == {"seq": 8, "type": "acked_all", "as": "bob", "before": 8, "by": "ann"}
    assert live(boss) == replayed(data)


def test_the_agent_comes_back_to_nothing_and_others_still_find_the_messages(data: Path, boss: Host) -> None:
    assert done("bob")["messages"] == 3
    back = open_at(data)
    assert call(back, "register", name="bob")["pending"] == []
    assert call(back, "receive", as_="bob")["messages"] == []
    assert len(call(back, "history", as_="bob", channel="general")["messages"]) == 2
    call(boss, "post", as_="boss", channel="general", content="later")
    assert len(call(back, "receive", as_="bob")["messages"]) == 1


def test_what_is_posted_while_the_person_thinks_stays_unread(data: Path, boss: Host) -> None:
    command = [sys.executable, "-m", "agentbus", "ack-all", "bob"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ(data)) as asking:
        assert asking.stdin is not None
        assert asking.stdout is not None
        while asking.stdout.readline() != b"Type yes to go on.\n":
            assert asking.poll() is None
        later = call(boss, "post", as_="boss", channel="general", content="wait!")["seq"]
        out, _ = asking.communicate(b"yes\n", timeout=WAIT_S)
    assert out.decode() == f'Agentbus: acknowledged 3 messages in 2 channels for "bob" (seq {later + 1}).\n'
    back = open_at(data)
    assert call(back, "register", name="bob")["pending"] == [{"channel": "general", "count": 1}]
    assert [message["seq"] for message in call(back, "receive", as_="bob")["messages"]] == [later]


def test_programs_get_one_object_and_the_question_stays_off_stdout(data: Path, boss: Host) -> None:
    status, out, err = agentbus("ack-all", "bob", "--json", "--before", "6", stdin=b"yes\n")
    assert status == 0
    found = json.loads(out)
    (channel,) = found.pop("channels")
    assert found == {"as": "bob", "before": 6, "by": "ann", "seq": 8, "live": False, "messages": 1}
    assert channel.pop("oldest").endswith("Z")
    assert channel == {"channel": "general", "messages": 1, "gaps": 0}
    assert err.splitlines()[-1] == "Type yes to go on."
    assert live(boss) == replayed(data)


def test_nothing_to_do_writes_nothing(data: Path, boss: Host) -> None:
    before = live(boss)
    said = 'Agentbus: nothing to do: nothing waits for "bob" before seq 3.\n'
    assert agentbus("ack-all", "bob", "--before", "3") == (0, said, "")
    assert done("boss")["seq"] is None
    assert live(boss) == before == replayed(data)


def test_a_live_identity_is_told_to_be_so_before_the_question(data: Path, boss: Host) -> None:
    call(boss, "register", name="cid")
    agentbus("post", "general", "for cid")
    call(boss, "receive", as_="cid")
    status, out, _ = agentbus("ack-all", "cid", stdin=b"no\n")
    assert status == 1
    assert out.splitlines()[2:4] == [
        "  what was handed out and not acknowledged is among it",
        '"cid" is LIVE: it will not see any of this, and may be at work on what it was handed.',
    ]
    assert done("cid")["live"] is True
    assert call(boss, "receive", as_="cid")["messages"] == []
    assert data.exists()


def test_a_batch_that_is_cut_in_two_is_told_to_come_again(data: Path, boss: Host) -> None:
    call(boss, "register", name="cid")
    first = call(boss, "post", as_="boss", channel="general", content="for cid")["seq"]
    later = call(boss, "post", as_="boss", channel="general", content="for cid, too")["seq"]
    call(boss, "receive", as_="cid")
    status, out, _ = agentbus("ack-all", "cid", "--before", str(later), "--yes")
    assert (status, first) == (0, later - 1)
    assert f"  of the batch it was handed, what lies at seq {later} or above is handed out anew" in out.splitlines()
    assert [message["seq"] for message in call(boss, "receive", as_="cid")["messages"]] == [later]
    assert data.exists()


def test_gaps_and_notices_that_were_never_told_are_named(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write({"type": "subscribed", "as": "bob", "channel": "general", "cursor": 2})
    writer.write(posted("soon too old"))
    writer.write({"type": "evicted", "channel": "general", "before": 5})
    notices = {"token": "t", "ends": {}, "include_own": False, "expired": [{"channel": "x", "unread": 1}]}
    writer.write({"type": "delivered", "as": "bob", **notices})
    assert agentbus("ack-all", "bob")[1].splitlines()[1:3] == [
        "  general  0 messages    and 1 gap it was not told of",
        "  what was handed out and not acknowledged is among it",
    ]
    assert agentbus("ack-all", "bob", "--yes")[0] == 0
    writer = Writer(data.parent / "other" / "journal")
    writer.write({"type": "subscribed", "as": "bob", "channel": "general", "cursor": 2})
    writer.write({"type": "delivered", "as": "bob", **notices})
    asked = run(data.parent / "other", "ack-all", "bob")
    assert asked.stdout.splitlines()[1] == b"  a batch of notices, no message"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("bbo",), 'identity "bbo" is not known: did you mean "bob"?'),
        (("zzz",), 'identity "zzz" is not known: `agentbus status` shows which there are'),
        ((HOSTILE,), 'IDENTITY "\\x1b[2J" is not allowed: it must not hold U+001B'),
        (("bob", "--before", "9"), "before 9 lies beyond the end of the journal, whose last seq is 7: 8 is the most"),
    ],
)
def test_what_is_refused_is_one_line_and_writes_nothing(
    data: Path, boss: Host, arguments: tuple[str, ...], says: str
) -> None:
    before = live(boss)
    status, out, err = agentbus("ack-all", *arguments, "--yes")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"agentbus: {says}")
    assert live(boss) == before == replayed(data)


def test_a_seq_below_one_is_wrong_usage(data: Path) -> None:
    assert agentbus("ack-all", "bob", "--before", "0")[0] == 2
    assert not data.exists()


def test_without_a_journal_there_is_nobody(data: Path) -> None:
    assert agentbus("ack-all", "bob") == (0, f"Agentbus: no journal yet in {data}\n", "")
    assert not data.exists()


def test_replay_shows_who_did_it(data: Path, boss: Host) -> None:
    assert run(data, "ack-all", "bob", "--yes", LOGNAME="ann").returncode == 0
    assert "bob                 had everything before 8 acknowledged by ann" in agentbus("replay")[1]
    assert live(boss) == replayed(data)
