"""`agentbus status`: why nobody answers, and what there is; through the command line as it is."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from agentbus.cli import main
from agentbus.columns import render_bytes, width
from agentbus.limits import SEARCH_BEHIND_MIN
from journal import format_time
from tests.agentbus.hosts import call, crash, open_at
from tests.agentbus.shell import WAIT_S, Writer, environ, posted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentbus.host import Host

HOUR_MS = 3600 * 1000


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in environ(tmp_path / "data", LOGNAME="ann").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "data"


@pytest.fixture
def bob(data: Path) -> Iterator[Host]:
    """Bob is live and has asked for nothing; cid has crashed with something unread, dan with nothing."""
    hosts = {name: open_at(data) for name in ("bob", "cid", "dan")}
    for name, host in hosts.items():
        call(host, "register", name=name, context="shop")
    call(hosts["dan"], "post", as_="dan", channel="general", content="@bob hello")
    for name in ("cid", "dan"):
        crash(hosts[name])
    yield hosts["bob"]
    crash(hosts["bob"])


def agentbus(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def ask(*arguments: str) -> Any:  # noqa: ANN401  # JSON
    status, out, _ = agentbus("status", *arguments, "--json")
    assert status == 0
    return json.loads(out)


def lines(*arguments: str) -> list[str]:
    status, out, err = agentbus("status", *arguments)
    assert (status, err) == (0, "")
    return out.splitlines()


def told(begin: str, *arguments: str) -> str:
    """The one line that begins so."""
    (found,) = (line for line in lines(*arguments) if line.startswith(begin))
    return found


def ago(ms: int) -> str:
    return format_time(time.time_ns() // 1_000_000 - ms)


# why nobody answers


def test_the_first_line_says_who_has_not_asked_and_who_is_gone(bob: Host) -> None:
    assert lines()[0] == "Agentbus: 1 live; bob has not asked for what waits; cid is gone, with 1 unread message"
    call(bob, "receive", as_="bob")
    assert lines()[0] == "Agentbus: 1 live; cid is gone, with 1 unread message"


def test_each_live_session_is_told_with_what_waits_and_what_it_has_in_hand(bob: Host) -> None:
    assert told("live (1)").split() == [
        *("live", "(1)", "unread", "to", "it", "oldest", "state", "last", "active", "in", "pid", "client")
    ]
    row = told("bob").split("  ")
    assert [cell.strip() for cell in row if cell.strip()][1:3] == ["1", "1"]
    assert "has not asked for them" in told("bob")
    assert told("bob").endswith(f"shop  {os.getpid()}  test 1.0")
    assert "  An agent is shown messages when it calls receive; one that is idle has to be woken." in lines()
    token = call(bob, "receive", as_="bob")["token"]
    assert "has 1 in hand, not acked" in told("bob")
    agentbus("post", "general", "more")
    assert "has 1 in hand, 1 more waiting" in told("bob")
    call(bob, "receive", as_="bob", ack=token)
    call(bob, "receive", as_="bob", ack=call(bob, "receive", as_="bob")["token"])
    assert "up to date" in told("bob")
    for channel in ("general", "memory"):
        call(bob, "unsubscribe", as_="bob", channel=channel)
    assert "subscribed to nothing" in told("bob")


@pytest.mark.usefixtures("bob")
def test_dead_letters_are_listed_with_the_way_out() -> None:
    assert told("dead letters (1)").split()[3:5] == ["unread", "to"]
    assert told("cid").endswith("general 1")
    assert "  Each is handed its messages when it registers again under its name." in lines()
    assert "  For one that will not come back: agentbus ack-all cid" in lines()
    assert told("gone, nothing unread") == "gone, nothing unread (1): dan"
    assert agentbus("ack-all", "cid", "--yes")[0] == 0
    assert "dead letters" not in "\n".join(lines())
    assert told("gone, nothing unread") == "gone, nothing unread (2): cid, dan"


def test_one_that_was_idle_too_long_will_be_told_a_count_only(data: Path) -> None:
    writer = Writer(data / "journal")
    old, older = ago(80 * HOUR_MS), ago(90 * HOUR_MS)
    writer.write({"type": "subscribed", "as": "o'er there", "channel": "general", "cursor": 2}, time=older)
    writer.write(posted("hello"), time=old)
    assert told("o'er there").endswith("3 d     3 d ago      (!) general 1")
    assert "  (!) Idle longer than cursor_idle_hours: will only be told how many there were." in lines()
    assert "  Each is handed its messages when it registers again under its name." not in lines()
    assert """  For one that will not come back: agentbus ack-all 'o'"'"'er there'""" in lines()
    assert ask()["identities"][0]["expired"] is True


def test_a_name_that_looks_like_an_option_is_shown_as_it_has_to_be_typed(data: Path) -> None:
    dashed = open_at(data)
    call(dashed, "register", name="--yes")
    crash(dashed)
    agentbus("post", "general", "to nobody")
    assert "  For one that will not come back: agentbus ack-all -- --yes" in lines()
    assert agentbus("ack-all", "--yes", "--", "--yes")[0] == 0
    assert ask()["dead_letters"] == []


def test_with_nobody_there_it_says_so(data: Path) -> None:
    agentbus("post", "general", "hello")
    assert lines()[0] == "Agentbus: nobody is live"
    assert data.exists()


def test_many_are_counted_and_cut_unless_all_are_asked_for(data: Path) -> None:
    writer = Writer(data / "journal")
    names = [f"エージェント{chr(0x4E00 + number)}" * 6 for number in range(30)]
    for name in names:
        writer.write({"type": "subscribed", "as": name, "channel": "general", "cursor": 2}, time=ago(HOUR_MS))
    for number in range(28):
        writer.write({"type": "channel_created", "channel": f"c{number}", "kind": "ordinary"}, time=ago(0))
    assert told("gone, nothing unread (30)").endswith(" and 5 more")
    writer.write(posted("hello"), time=ago(0))
    assert lines()[0] == "Agentbus: nobody is live; 30 are gone, with 30 unread messages"
    assert [line for line in lines() if line.startswith("  and ")] == [
        "  and 5 more: agentbus status --all",
        "  and 5 more: agentbus status --all",
    ]
    assert {width(line.split("1  ")[0]) for line in lines() if line.startswith("エ")} == {33}
    assert all(width(line) < 100 for line in lines() if line.startswith("エ"))
    assert sum(name in "\n".join(lines("--all")) for name in names) == 30


# what there is


@pytest.mark.usefixtures("bob")
def test_programs_get_all_of_it(data: Path) -> None:
    found = ask()
    assert found["data_directory"] == str(data)
    assert found["last_seq"] == 6
    assert found["anchor"].startswith("6:")
    own, cid, dan = found["identities"]
    for row, keys in ((own, ("oldest", "unasked_since", "last_active")), (cid, ("oldest", "unasked_since"))):
        for key in keys:
            assert row.pop(key).endswith("Z")
    common = {"handed_out": 0, "channels": {"general": 1, "memory": 0}}
    session = {"context": "shop", "client": "test 1.0", "pid": os.getpid()}
    assert own == common | session | {"as": "bob", "live": True, "unread": 1, "addressed": 1}
    assert cid.pop("last_active").endswith("Z")
    assert cid == common | {"as": "cid", "live": False, "unread": 1, "addressed": 0}
    assert (dan["unread"], "oldest" in dan) == (0, False)
    assert found["dead_letters"] == ["cid"]
    assert [(row["as"], row["context"], row["client"]) for row in found["sessions"]] == [("bob", "shop", "test 1.0")]
    general, memory = found["channels"]
    assert general.pop("newest").endswith("Z")
    assert general == {
        "channel": "general",
        "kind": "ordinary",
        "messages": 1,
        "last_seq": 6,
        "subscribers": 3,
        "live": 1,
    }
    assert (memory["messages"], "newest" in memory) == (0, False)
    rows = found["subscriptions"]
    assert rows[0].pop("oldest").endswith("Z")
    assert rows[:2] == [
        {"as": "bob", "channel": "general", "cursor": 2, "unread": 1},
        {"as": "bob", "channel": "memory", "cursor": 2, "unread": 0},
    ]
    assert found["retention"] == {"message_retention_hours": 168, "over_age": 0, "journal_keep_days": 0}
    assert (found["torn_bytes"], found["set_aside"], found["segments"]) == (0, [], 1)
    assert (found["lost"], found["search"], found["archives"], found["snapshot"]) == ([], None, 0, None)
    segments = sum(path.stat().st_size for path in (data / "journal").glob("*.jsonl"))
    assert (found["bytes"], found["disk"]["journal"]) == (segments, segments)
    assert found["disk"]["total"] > segments
    assert found["disk"]["free"] > 0


@pytest.mark.usefixtures("bob")
def test_people_get_the_rest_in_columns(data: Path) -> None:
    assert told("channels (2)").split() == [*("channels", "(2)", "kind", "messages", "subscribed", "live", "newest")]
    assert told("general").split()[:5] == ["general", "ordinary", "1", "3", "1"]
    assert told("memory").split() == ["memory", "memory", "0", "3", "1", "-"]
    assert told("journal").startswith("journal       last seq 6, ")
    assert told("journal").endswith(" in 1 segment")
    assert told("anchor").startswith("anchor        6:")
    assert told("snapshot") == "snapshot      none"
    assert told("search index") == "search index  none: a search makes it where there are many texts"
    assert told("retention") == "retention     messages are shown for 168 h, memories for good"
    assert told("archive") == "archive       off (journal_keep_days is 0)"
    assert " free of " in told("disk ")
    assert told("directory") == f"directory     {data}"


def test_what_is_over_age_is_counted_and_waits_for_nobody(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write({"type": "subscribed", "as": "bob", "channel": "general", "cursor": 2}, time=ago(200 * HOUR_MS))
    writer.write(posted("old"), time=ago(190 * HOUR_MS))
    writer.write(posted("older than the rest"), time=ago(180 * HOUR_MS))
    assert told("retention").endswith("; 2 messages over age")
    assert ask()["dead_letters"] == []
    assert ask()["subscriptions"] == [{"as": "bob", "channel": "general", "cursor": 2, "unread": 0}]
    assert ask()["channels"][0]["messages"] == 0
    writer.write({"type": "evicted", "channel": "general", "before": 5}, time=ago(2 * HOUR_MS))
    assert told("retention").endswith("; 1 message over age; last cleanup 2 h ago")
    assert ask()["retention"]["last_cleanup"].endswith("Z")
    writer.write({"type": "evicted", "channel": "general", "before": 6}, time=ago(-HOUR_MS))
    assert told("retention").endswith("; last cleanup now")


def test_torn_and_set_aside_pieces_are_counted(data: Path) -> None:
    agentbus("post", "general", "hello")
    segment = data / "journal" / "00000000000000000001.jsonl"
    for _ in range(2):
        with segment.open("ab") as file:
            file.write(b'{"seq":')
        assert ask()["torn_bytes"] == 7
        assert agentbus("post", "general", "hello again")[0] == 0
    found = ask()
    assert (found["torn_bytes"], len(found["set_aside"]), found["disk"]["set_aside"]) == (0, 2, 14)
    assert told("set aside") == f"set aside     2 pieces in {data}/journal/set-aside"
    assert "set-aside 14 bytes" in told("disk ")
    assert "torn tail" not in "\n".join(lines())
    with segment.open("ab") as file:
        file.write(b'{"seq":')
    assert told("torn tail") == "torn tail     7 bytes, never acknowledged"


def test_what_was_lost_is_told_last_and_loudly(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write(posted("damaged"))
    lost = {"type": "lost", "first": 4, "last": 4, "bytes": 9, "next_prev": None, "reason": "redacted"}
    writer.write(lost)
    assert lines()[-1] == "LOST: 1 range of the journal; `agentbus replay --verify` names what"
    assert ask()["lost"] == [4]


# on a terminal


def on_a_terminal(data: Path, **more: str) -> str:
    """What the command prints there."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "agentbus", "status"]
    process = subprocess.Popen(command, stdin=child, stdout=child, env=environ(data, **more))
    os.close(child)
    out = b""
    try:
        while chunk := os.read(parent, 1 << 16):
            out += chunk
    except OSError:  # Linux, where the other side is closed
        pass
    os.close(parent)
    assert process.wait(WAIT_S) == 0
    return out.decode()


@pytest.mark.usefixtures("bob")
def test_colours_are_for_terminals_and_for_those_who_want_them(data: Path) -> None:
    shown = on_a_terminal(data, TERM="xterm")
    assert "\x1b[33mbob " in shown
    assert "\x1b[31mcid " in shown
    for other in ({"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_a_terminal(data, **other)
    assert "\x1b" not in "".join(lines())


@pytest.mark.usefixtures("bob")
def test_no_line_is_longer_than_the_terminal_is_wide(data: Path) -> None:
    shown = on_a_terminal(data, TERM="xterm", NO_COLOR="1", COLUMNS="70").splitlines()
    assert max(map(len, shown)) == 70
    assert sum(line.endswith("…") for line in shown) >= 2


def test_the_search_index_says_how_far_it_goes(bob: Host) -> None:
    for number in range(SEARCH_BEHIND_MIN):
        call(bob, "post", as_="bob", channel="general", content=f"hello {number}")
    call(bob, "search", as_="bob", query="hello")
    last = 6 + SEARCH_BEHIND_MIN
    size = ask()["search"]["bytes"]
    assert ask()["search"] == {"indexed_seq": last, "bytes": size}
    assert told("search index") == f"search index  up to seq {last}, {render_bytes(size)}"
    assert ask()["disk"]["search"] >= size
    agentbus("post", "general", "more")
    assert told("search index").endswith(", and 3 lines since")
