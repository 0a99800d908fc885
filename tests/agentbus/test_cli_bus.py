"""The commands by which a person meets the bus: status, channel, post, reset; through the command line as it is."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from agentbus.cli import main
from tests.agentbus.hosts import call, crash, events, open_at
from tests.agentbus.shell import WAIT_S, Writer, environ, posted, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentbus.host import Host

HOSTILE = "\x1b[2J\x9b31m\u2028\u202e"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory, not there yet; the login name is ann, and she works in a directory called shop."""
    for name, value in environ(tmp_path / "data", LOGNAME="ann").items():
        monkeypatch.setenv(name, value)
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "data"


def agentbus(*arguments: str, stdin: bytes | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def ask(*arguments: str) -> Any:  # noqa: ANN401  # JSON
    status, out, _ = agentbus(*arguments, "--json")
    assert status == 0
    return json.loads(out)


# post


def test_a_person_posts_in_a_session_that_ends_with_the_command(data: Path) -> None:
    done = run(data, "post", "general", "hello, all", LOGNAME="ann")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b'Agentbus: posted message 4 to "general" as "ann": 0 subscribed, 0 of them live.\n'
    told = [(event["type"], event["as"]) for event in events(data)[3:]]
    assert told == [("registered", "ann"), ("posted", "ann"), ("ended", "ann")]
    registered, post, _ = events(data)[3:]
    assert registered["context"] == post["context"] == "shop"
    assert registered["client"].startswith("agentbus ")
    assert post["content"] == "hello, all"


def test_a_post_leaves_no_subscription_whatever_the_repository_lists(data: Path) -> None:
    assert agentbus("init")[0] == 1  # no repository, no list
    os.mkdir(".git")
    assert agentbus("init")[0] == 0
    assert agentbus("post", "general", "hello")[0] == 0
    assert ask("status")["subscriptions"] == []
    assert not (data / "agentbus.log").exists()


def test_a_post_says_who_will_hear_of_it(data: Path) -> None:
    host = open_at(data)
    call(host, "register", name="bob")
    gone = open_at(data)
    call(gone, "register", name="cid")
    crash(gone)
    status, out, _ = agentbus("post", "general", "@bob hello")
    assert status == 0
    assert out.endswith('as "ann": 2 subscribed, 1 of them live; addressed to bob.\n')
    _, out, _ = agentbus("post", "general", "@bob, where are @dan and @eve?")
    assert out.endswith("; addressed to bob; nobody is called dan or eve.\n")


def test_a_person_whose_name_a_live_agent_holds_speaks_under_the_next_one_and_is_told(data: Path) -> None:
    host = open_at(data)
    call(host, "register", name="ann")
    status, out, _ = agentbus("post", "general", "it is me")
    assert status == 0
    assert ' as "ann2" ("ann" is taken): ' in out
    assert ask("post", "general", "again")["as"] == "ann2"
    assert ask("post", "general", "as bob", "--as", "bob")["as"] == "bob"
    assert ask("post", "general", "e\u0301", "--as", "e\u0301")["as"] == "\u00e9"
    assert "live session" not in agentbus("post", "general", "nfc", "--as", "e\u0301")[1]


def test_a_person_may_state_a_fact(data: Path) -> None:
    assert ask("post", "memory", "the build needs make 4") == {
        "as": "ann",
        "seq": 4,
        "memory_id": 4,
        "subscribers": 0,
        "live": 0,
        "addressed": [],
    }
    assert 'Agentbus: posted memory 7 to "memory" as "ann"' in agentbus("post", "memory", "and git")[1]
    assert data.exists()


def test_a_dash_reads_the_text_from_stdin(data: Path) -> None:
    assert agentbus("post", "general", "-", stdin="zwei\nZeilen ä\n".encode())[0] == 0
    assert events(data)[-2]["content"] == "zwei\nZeilen ä"


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        (b"caf\xe9", "stdin, byte 4: this is not UTF-8"),
        (b"x" * ((32 << 10) + 2), "stdin holds more than max_message_kib (32 KiB) allows: send less"),
    ],
)
def test_what_is_no_text_or_too_much_of_it_is_refused_before_anything_is_written(
    data: Path, stdin: bytes, says: str
) -> None:
    assert agentbus("post", "general", "-", stdin=stdin) == (1, "", f"agentbus: {says}\n")
    assert not data.exists()


def test_bytes_of_the_shell_that_are_no_text_are_refused(data: Path) -> None:
    done = run(data, "post", "general", os.fsdecode(b"caf\xe9"), PYTHONUTF8="1")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"agentbus: TEXT, character 4: this is not UTF-8\n"
    assert not data.exists()


def test_a_refused_post_is_one_line_and_posts_nothing(data: Path) -> None:
    agentbus("post", "general", "the first")
    before = events(data)
    for arguments, says in (
        (("genral", "hello"), 'channel "genral" does not exist: did you mean "general"?'),
        (("general", ""), '"content" is empty: post some text'),
        (("general", "hello", "--as", "a/b"), 'name "a/b" is not allowed'),
        (("general", "x" * (40 << 10)), "max_message_kib"),
    ):
        status, out, err = agentbus("post", *arguments)
        assert (status, out) == (1, "")
        assert err.startswith("agentbus: ")
        assert says in err
        assert err.count("\n") == 1
        assert events(data) == before or says == "max_message_kib"
    assert [event["type"] for event in events(data)].count("posted") == 1
    assert ask("status")["sessions"] == []


def test_a_channel_that_may_not_be_created_is_refused_in_one_line_and_nothing_is_written(data: Path) -> None:
    agentbus("channel", "create", "reviews")
    before = events(data)
    for arguments, says in (
        (("Reviews",), 'channel "Reviews" differs only by case from "reviews": use that one'),
        (("reviews", "--memory"), 'channel "reviews" exists with kind "ordinary", not "memory"'),
        (("a/b",), 'channel "a/b" is not allowed: it must not hold "/"'),
    ):
        status, out, err = agentbus("channel", "create", *arguments)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(f"agentbus: {says}")
    assert events(data) == before


def test_a_directory_whose_name_no_context_may_have_is_no_hindrance(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad\nname").mkdir()
    monkeypatch.chdir(tmp_path / "bad\nname")
    assert agentbus("post", "general", "hello")[0] == 0
    assert events(data)[-2]["context"] == "shell"


def test_a_user_without_a_name_is_known_by_number(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert ask("post", "general", "hello")["as"] == f"uid {os.getuid()}"
    assert data.exists()


# channel


def test_a_person_makes_a_channel_and_sees_it_listed(data: Path) -> None:
    assert agentbus("channel", "create", "reviews") == (0, 'Agentbus: created the ordinary channel "reviews".\n', "")
    assert agentbus("channel", "create", "facts", "--memory")[1] == 'Agentbus: created the memory channel "facts".\n'
    assert agentbus("channel", "create", "reviews")[1] == 'Agentbus: channel "reviews" exists already (ordinary).\n'
    assert ask("channel", "create", "more") == {"channel": "more", "kind": "ordinary", "created": True}
    agentbus("post", "reviews", "hello")
    assert agentbus("channel", "list")[1].splitlines() == [
        "facts    memory    0 memories  last seq 0",
        "general  ordinary  0 messages  last seq 0",
        "memory   memory    0 memories  last seq 0",
        "more     ordinary  0 messages  last seq 0",
        "reviews  ordinary  1 message   last seq 15",
    ]
    assert [row["channel"] for row in ask("channel", "list")["channels"]] == [
        "facts",
        "general",
        "memory",
        "more",
        "reviews",
    ]
    assert ask("status")["sessions"] == []
    assert data.exists()


def test_a_channel_of_another_kind_or_a_bad_name_is_refused(data: Path) -> None:
    for arguments in (("general", "--memory"), ("General",), ("a/b",), ("",)):
        status, out, err = agentbus("channel", "create", *arguments)
        assert (status, out) == (1, "")
        assert err.startswith("agentbus: ")
    assert not data.exists()


def test_channel_alone_is_a_usage_error_on_one_line(data: Path) -> None:
    status, out, err = agentbus("channel")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert not data.exists()


# status


@pytest.fixture
def busy(data: Path) -> Iterator[Path]:
    """A live agent, subscribed to the default channels, with an unread message; and one that has crashed."""
    host, gone = open_at(data), open_at(data)
    call(host, "register", name="bob", context="shop")
    call(gone, "register", name="cid")
    call(gone, "post", as_="cid", channel="general", content="hello")
    crash(gone)
    yield data
    crash(host)


def test_asking_creates_nothing_and_touches_nothing(data: Path) -> None:
    for command in (("status",), ("channel", "list")):
        assert agentbus(*command) == (0, f"Agentbus: no journal yet in {data}\n", "")
        status, out, err = agentbus(*command, "--json")
        assert (status, err) == (0, f"Agentbus: no journal yet in {data}\n")
        assert json.loads(out)["channels"] == []
    assert not data.exists()
    Writer(data / "journal").write(posted("hello"))
    before = [(path, path.stat().st_mtime_ns) for path in sorted(data.rglob("*"))]
    for command in (("status",), ("channel", "list")):
        assert agentbus(*command)[0] == 0
    assert [(path, path.stat().st_mtime_ns) for path in sorted(data.rglob("*"))] == before


def test_names_of_others_never_reach_the_terminal_as_control(data: Path) -> None:
    writer = Writer(data / "journal")
    session = {"owner": "a1" * 12, "name": HOSTILE, "context": HOSTILE, "client": HOSTILE}
    writer.write({"type": "channel_created", "channel": HOSTILE, "kind": "ordinary"})
    writer.write({"type": "registered", "as": HOSTILE, **session})
    writer.write({"type": "subscribed", "as": HOSTILE, "channel": HOSTILE, "cursor": 2})
    for command in (("status",), ("channel", "list"), ("status", "--json"), ("channel", "list", "--json")):
        _, out, _ = agentbus(*command)
        assert not set(out) & {"\x1b", "\x9b", "\u2028", "\u202e"}
        assert "31m" in out
    assert ask("status")["subscriptions"][0]["as"] == HOSTILE


def test_a_damaged_journal_is_one_line_and_exit_1(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write({"type": "ended", "as": "nobody", "owner": "a1" * 12, "reason": "exit"})
    for command in (("status",), ("channel", "list"), ("channel", "create", "x"), ("post", "general", "x"), ("reset",)):
        status, out, err = agentbus(*command)
        assert (status, out) == (1, "")
        assert err.startswith(f"agentbus: corrupt: {writer.path} line 3 ")
        assert err.count("\n") == 1


def test_settings_may_be_named(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTBUS_DATA_DIR")
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"data_directory": str(data)}))
    for command in (("status",), ("channel", "list"), ("replay",), ("reset", "--yes")):
        assert agentbus(*command, "--config", str(other))[1] == f"Agentbus: no journal yet in {data}\n"
    other.write_text("[]")
    status, out, err = agentbus("status", "--config", str(other))
    assert (status, out) == (1, "")
    assert err.startswith(f"agentbus: {other}")


# reset


def test_reset_names_the_live_sessions_and_wants_the_word(busy: Path) -> None:
    for answer in (b"", b"y\n", b"YES\n", b"no\n", b"yes please\n"):
        status, out, err = agentbus("reset", stdin=answer)
        assert (status, err) == (1, "agentbus: not reset: the answer was not yes\n")
        assert out.splitlines() == [
            "Agentbus: bob is live; it will have to register again.",
            "Agentbus: this empties the bus. The journal keeps everything up to seq 5.",
            "Type yes to go on.",
        ]
    assert events(busy)[-1]["type"] == "posted"
    status, out, err = agentbus("reset", stdin=b"yes\n")
    assert (status, err) == (0, "")
    said = "Agentbus: reset at seq 6. Nothing is destroyed: `agentbus replay` still shows what was."
    assert out.splitlines()[-1] == said
    assert events(busy)[-1] == {"seq": 6, "type": "reset", "by": "ann"}


def test_reset_with_yes_does_not_ask_and_replay_still_shows_what_was(data: Path) -> None:
    agentbus("post", "general", "a sentence")
    assert agentbus("reset", "--yes")[0] == 0
    assert ask("status")["channels"][0]["messages"] == 0
    assert "posted to general: a sentence" in agentbus("replay")[1]
    assert not (data / "agentbus.log").exists()


def test_there_is_nothing_to_reset_without_a_journal(data: Path) -> None:
    assert agentbus("reset", "--yes") == (0, f"Agentbus: no journal yet in {data}\n", "")
    assert not data.exists()


# help


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("ack-all",),
        ("config",),
        ("channel",),
        ("channel", "create"),
        ("channel", "list"),
        ("post",),
        ("reset",),
        ("replay",),
        ("demo",),
    ],
)
def test_every_command_explains_itself_even_with_settings_that_are_wrong(
    data: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("AGENTBUS_CONFIG", "/nowhere")
    status, out, err = agentbus(*command, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: agentbus {' '.join(command)}")
    assert not data.exists()


# a person beside the agents


def _registered(data: Path, name: str) -> Host:
    host = open_at(data)
    call(host, "register", name=name)
    return host


def test_a_person_never_takes_an_agents_backlog_nor_what_it_has_to_be_told(data: Path) -> None:
    crash(_registered(data, "bob"))
    assert ask("post", "general", "important")["subscribers"] == 1
    assert ask("post", "general", "from a person", "--as", "bob")["as"] == "bob2"
    answer = call(open_at(data), "register", name="bob")
    assert (answer["as"], answer["resumed"]) == ("bob", True)
    assert answer["pending"] == [{"channel": "general", "count": 2}]


def test_a_person_takes_no_dead_agents_name_either_when_a_live_one_has_the_first(data: Path) -> None:
    first, second = _registered(data, "bob"), _registered(data, "bob")
    for channel in ("general", "memory"):
        call(first, "unsubscribe", as_="bob", channel=channel)
    crash(second)
    assert ask("post", "general", "hello", "--as", "bob")["as"] == "bob3"
    assert call(open_at(data), "register", name="bob")["as"] == "bob2"


def test_before_the_first_commit_the_two_channels_are_there_and_a_refusal_makes_no_journal(data: Path) -> None:
    assert agentbus("post", "genral", "hello")[0] == 1
    assert not data.exists()
    assert ask("channel", "create", "general") == {"channel": "general", "kind": "ordinary", "created": False}
    assert agentbus("post", "general", "hello")[0] == 0


@pytest.mark.parametrize(("login", "name"), [("corp/jane", "corp-jane"), ("bad\nname", f"uid {os.getuid()}")])
def test_a_login_name_that_is_no_identity_keeps_nobody_from_speaking(
    data: Path, monkeypatch: pytest.MonkeyPatch, login: str, name: str
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: login)
    assert ask("post", "general", "hello")["as"] == name
    assert data.exists()


def in_shell(data: Path, words: str) -> subprocess.CompletedProcess[bytes]:
    """The command with its redirections."""
    line = f'"{sys.executable}" -m agentbus {words}'
    return subprocess.run(["sh", "-c", line], env=environ(data), capture_output=True, timeout=WAIT_S, check=False)


@pytest.mark.parametrize("command", ["status", "channel list", "post general hello", "--help"])
def test_an_output_that_takes_nothing_is_told_in_one_line(data: Path, command: str) -> None:
    agentbus("post", "general", "the first")
    done = in_shell(data, f"{command} > /dev/full")
    assert (done.returncode, done.stderr) == (1, b"agentbus: the output: No space left on device\n")


@pytest.mark.parametrize(
    ("command", "says"),
    [("post general -", b'"content" is empty: post some text'), ("reset", b"not reset: the answer was not yes")],
)
def test_a_closed_stdin_is_an_empty_one(data: Path, command: str, says: bytes) -> None:
    agentbus("post", "general", "the first")
    done = in_shell(data, f"{command} <&-")
    assert (done.returncode, done.stderr) == (1, b"agentbus: " + says + b"\n")


def test_a_reader_that_is_gone_is_no_fault(data: Path) -> None:
    agentbus("post", "general", "the first")
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "agentbus", "status"],
            env=environ(data),
            stdout=nobody,
            stderr=subprocess.PIPE,
            timeout=WAIT_S,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_closed_stdout_is_no_fault_of_what_was_done(data: Path) -> None:
    done = in_shell(data, "post general hello >&-")
    assert (done.returncode, done.stderr) == (0, b"")
    assert [event["content"] for event in events(data) if event["type"] == "posted"] == ["hello"]
