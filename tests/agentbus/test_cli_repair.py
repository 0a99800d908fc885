"""`agentbus repair` as a person meets it: what it says, what it asks, when it refuses, and what is there afterwards."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from agentbus.cli import main
from agentbus.owners import Owners
from journal import Files
from journal.lock import WriterLock
from journal.record import encode
from tests.agentbus.hosts import call, crash, events, live, open_at, refusal, replayed
from tests.agentbus.shell import Writer, environ, posted, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result

SEGMENT = "00000000000000000001.jsonl"
FIRST = (
    "First: if you have a good copy, or know what changed the journal (an editor, line ends), put that back instead:"
    " repair loses the damaged lines for good.\n"
)
MEANING = (
    'Agents whose own registration or subscription was lost begin at "now" when they register again (messages before'
    " that stay in the history); agents that had not come so far are told of a gap.\n"
)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory, not there yet."""
    for name, value in environ(tmp_path / "data", LOGNAME="ann").items():
        monkeypatch.setenv(name, value)
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "data"


@pytest.fixture
def damaged(data: Path) -> Path:
    """Three posts of a person, the second of them changed: seq 7."""
    for text in ("one", "two", "three"):
        assert agentbus("post", "general", text)[0] == 0
    change(data, b'"two"', b'"tWo"')
    return data


def change(data: Path, old: bytes, new: bytes) -> None:
    path = data / "journal" / SEGMENT
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def invoke(*arguments: str, stdin: bytes | io.BytesIO | None = None) -> Result:
    result = CliRunner().invoke(main, arguments, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def agentbus(*arguments: str, stdin: bytes | io.BytesIO | None = None) -> tuple[int, str, str]:
    result = invoke(*arguments, stdin=stdin)
    return result.exit_code, result.stdout, result.stderr


def tree(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


class Meanwhile(io.BytesIO):
    """An answer that comes after something has happened."""

    def __init__(self, answer: bytes, happens: Callable[[], object]) -> None:
        super().__init__(answer)
        self.happens = happens

    def read1(self, size: int | None = -1, /) -> bytes:
        self.happens()
        return super().read1(size)


# where nothing is to be done


def test_without_a_journal_it_says_so_and_creates_nothing(data: Path) -> None:
    assert agentbus("repair") == (0, f"Agentbus: no journal yet in {data}\n", "")
    assert agentbus("repair", "--json") == (0, "", f"Agentbus: no journal yet in {data}\n")
    assert not data.exists()


def test_a_sound_journal_needs_no_repair_whoever_lives(data: Path) -> None:
    host = open_at(data)
    call(host, "register", name="bob")
    before = tree(data)
    assert agentbus("repair") == (0, "Agentbus: nothing to repair: 3 lines, all sound.\n", "")
    status, out, _ = agentbus("repair", "--yes", "--json")
    assert (status, json.loads(out)) == (
        0,
        {"sound_lines": 3, "repaired": [], "lost_by_stopped_repair": [], "torn_tails": []},
    )
    assert tree(data) == before


# what it says and asks


def test_it_shows_what_it_will_do_and_asks(damaged: Path) -> None:
    before = tree(damaged)
    line = next(line for line in before[str(damaged / "journal" / SEGMENT)].split(b"\n") if b"tWo" in line)
    offset = before[str(damaged / "journal" / SEGMENT)].index(line)
    for answer in (b"no\n", b"y\n", b"YES\n", b""):
        status, out, err = agentbus("repair", stdin=answer)
        assert (status, err) == (1, "agentbus: not repaired: the answer was not yes; nothing was changed\n")
        journal = damaged / "journal"
        assert out.startswith(
            f"Agentbus: 1 damage in {journal}; the other 10 lines are sound and stay as they are.\n"
            f"  1. {journal / SEGMENT} line 7 (byte {offset}): does not verify: its bytes give the hash "
        )
        assert f"     LOST: seq 7. What is left of it ({len(line) + 1} bytes) is set aside.\n" in out
        assert out.endswith(f"{FIRST}Type yes to go on.\n")
        assert tree(damaged) == before


def test_after_yes_the_bus_works_again_and_all_that_was_damaged_is_kept(damaged: Path) -> None:
    line = next(
        line for line in (damaged / "journal" / SEGMENT).read_bytes().splitlines(keepends=True) if b"tWo" in line
    )
    status, out, err = agentbus("repair", stdin=b"yes\n")
    assert (status, err) == (0, "")
    (piece,) = (damaged / "journal" / "set-aside").iterdir()
    assert piece.read_bytes() == line
    assert out.endswith(
        f"Agentbus: repaired. LOST: seq 7.\n{MEANING}"
        f"What was taken out is in {piece.parent}:\n"
        f"  {piece.name}\n"
        "Next: `agentbus replay --verify` names what was lost, and exits 1 for it;"
        " `agentbus status` shows what there is.\n"
    )
    assert agentbus("repair")[1] == "Agentbus: nothing to repair: 12 lines, all sound.\n"
    assert agentbus("post", "general", "four")[0] == 0
    assert [event["content"] for event in events(damaged) if event["type"] == "posted"] == ["one", "three", "four"]


@pytest.mark.usefixtures("damaged")
def test_replay_and_verify_name_what_was_lost() -> None:
    agentbus("repair", "--yes")
    status, out, err = agentbus("replay")
    assert status == 0
    assert "LOST: seq 7" in out
    assert "repaired: the line seq 7 says what was lost there" in out
    assert "LOST: seq 7 (damage)" in err
    status, out, _ = agentbus("replay", "--verify")
    assert status == 1
    assert out.startswith("LOST: seq 7 (damage)")
    assert "failed: 0 faults and 1 lost range;" in out


def test_whoever_was_subscribed_is_told_of_the_gap(data: Path) -> None:
    host = open_at(data)
    call(host, "register", name="bob")
    call(host, "subscribe", as_="bob", channel="general")
    crash(host)
    agentbus("post", "general", "damned")
    change(data, b"damned", b"dimmed")
    agentbus("repair", "--yes")
    again = open_at(data)
    call(again, "register", name="bob")
    gap = call(again, "receive", as_="bob")["gaps"][0]
    assert (gap["channel"], gap["from"], gap["to"], gap["cause"]) == ("general", 5, 5, "damage")
    assert live(again) == replayed(data)


def test_whoever_lost_its_own_subscription_begins_at_now_and_history_has_the_rest(data: Path) -> None:
    host = open_at(data)
    call(host, "register", name="bob")
    call(host, "subscribe", as_="bob", channel="general")
    crash(host)
    agentbus("post", "general", "before")
    change(data, b'"subscribed"', b'"subscribeD"')
    out = agentbus("repair", "--yes")[1]
    assert MEANING in out
    again = open_at(data)
    call(again, "register", name="bob")
    call(again, "subscribe", as_="bob", channel="general")
    agentbus("post", "general", "after")
    assert [message["content"] for message in call(again, "receive", as_="bob")["messages"]] == ["after"]
    history = call(again, "history", as_="bob", channel="general")["messages"]
    assert [message["content"] for message in history] == ["before", "after"]


def test_what_was_done_can_be_had_as_json_with_all_else_on_stderr(damaged: Path) -> None:
    path = damaged / "journal" / SEGMENT
    offset = next(path.read_bytes().index(line) for line in path.read_bytes().split(b"\n") if b"tWo" in line)
    status, out, err = agentbus("repair", "--json", stdin=b"yes\n")
    assert status == 0
    assert "Type yes to go on.\n" in err
    done = json.loads(out)
    (row,) = done["repaired"]
    assert done["sound_lines"] == 10
    assert (row["file"], row["line"], row["offset"], row["next_checked"]) == (str(path), 7, offset, True)
    assert (row["lost"]["first"], row["lost"]["last"]) == (7, 7)
    assert len(row["lost"]["hash"]) == 64
    with open(row["set_aside"], "rb") as piece:
        assert len(piece.read()) == row["bytes"]
    assert row["cause"].startswith("does not verify")


def test_what_was_not_lost_is_told_as_json_too_and_everything_set_aside_is_logged(data: Path) -> None:
    writer = Writer(data / "journal")
    content = writer.path.read_bytes()
    writer.path.write_bytes(b"hello\n" + content + b"torn")
    status, out, _ = agentbus("repair", "--yes", "--json")
    (row,) = json.loads(out)["repaired"]
    assert (status, "lost" in row, row["bytes"]) == (0, False, 6)
    log = [json.loads(line) for line in (data / "agentbus.log").read_bytes().splitlines()]
    assert [(line["level"], line["msg"]) for line in log] == [
        ("WARN", "set a torn tail aside: it was never acknowledged"),
        ("WARN", "repaired"),
    ]
    pieces = {path.name: path.read_bytes() for path in (data / "journal" / "set-aside").iterdir()}
    assert [pieces[line["piece"]] for line in log] == [b"torn", b"hello\n"]
    assert log[1]["offset"] == 0
    lines = writer.path.read_bytes().splitlines(keepends=True)
    writer.path.write_bytes(b"".join([lines[0], lines[2]]))
    (row,) = json.loads(agentbus("repair", "--yes", "--json")[1])["repaired"]
    assert ("set_aside" in row, row["lost"]["first"], row["next_checked"]) == (False, 2, False)


def test_each_kind_of_damage_has_its_words(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write(posted("one"))
    writer.write(posted("two"))
    content = writer.path.read_bytes()
    lines = content.splitlines(keepends=True)
    for damaged, says in (
        (
            b"".join([*lines[:3], b"hello\n", lines[3]]),
            "Nothing is lost: what stands there (6 bytes) is no line of this journal.",
        ),
        (
            b"".join([*lines[:2], lines[3]]),
            "Nothing is left of it. The hash that the next line continues is gone: that line is taken on trust.",
        ),
        (content, ""),
    ):
        writer.path.write_bytes(damaged)
        assert says in agentbus("repair")[1]
    stray = writer.path.with_name(f"{3:020d}.jsonl")
    stray.write_bytes(b"")
    assert "the file has no place in this journal. All of it (0 bytes) is set aside." in agentbus("repair")[1]
    stray.rename(stray.with_name(f"{7:020d}.jsonl"))
    out = agentbus("repair")[1]
    assert (
        f"{5:020d}.jsonl: the segment that begins with it is missing\n     LOST: seq 5 to 6. Nothing is left of them."
        in out
    )
    stray.with_name(f"{7:020d}.jsonl").rename(stray.with_name(f"{5:020d}.jsonl"))
    writer.path.write_bytes(content[:-1])
    assert "Nothing is lost: the line is whole, and gets its line feed." in agentbus("repair")[1]
    status, out, _ = agentbus("repair", "--yes")
    assert status == 0
    assert "Agentbus: repaired. Nothing was lost.\nNext: `agentbus replay --verify` checks every line; " in out
    assert writer.path.read_bytes() == content


def test_a_repair_that_was_stopped_is_ended_and_what_it_took_out_is_told(data: Path) -> None:
    writer = Writer(data / "journal")
    event = {"type": "lost", "first": 3, "last": 5, "bytes": 9, "next_prev": "d" * 64, "reason": "damage"}
    writer.write(event)
    before = writer.path.read_bytes()
    stopped = "LOST: seq 3 to 5 (taken out by a repair that was stopped)."
    status, out, _ = agentbus("repair")
    assert status == 1
    assert out == (
        f"Agentbus: a repair of {data / 'journal'} was stopped before its last line;"
        " the other 3 lines are sound and stay as they are.\n"
        f"{stopped} That is still to be said in the journal's last line.\n"
        "Type yes to go on.\n"
    )
    status, out, _ = agentbus("repair", "--yes")
    assert status == 0
    assert f"Agentbus: repaired. {stopped}\n{MEANING}Next: " in out
    assert events(data)[-1] == {"seq": 6, "type": "repaired", "lost": 3, "hash": writer.prev}
    writer.path.write_bytes(before + b"hello\n")
    status, out, _ = agentbus("repair", "--yes", "--json")
    assert json.loads(out)["lost_by_stopped_repair"] == [{"first": 3, "last": 5, "hash": writer.prev}]
    writer.path.write_bytes(before.replace(b"general", b"generaL"))
    status, out, _ = agentbus("repair", "--yes")
    assert out.startswith(f"Agentbus: 1 damage in {data / 'journal'}; the other 2 lines are sound and stay as they")
    assert f"Agentbus: repaired. LOST: seq 2; {stopped.removeprefix('LOST: ')}\n" in out


def test_that_nobody_knows_how_many_lines_stood_at_the_end_is_told_before_and_after(damaged: Path) -> None:
    with (damaged / "journal" / SEGMENT).open("ab") as file:
        file.write(b"hello\n")
    _, out, _ = agentbus("repair", stdin=b"yes\n")
    assert (
        "LOST: at least seq 12, counted by line feeds: nobody knows how many lines stood here."
        " What is left of it (6 bytes) is set aside.\n"
    ) in out
    assert (
        "Agentbus: repaired. LOST: seq 7, at least seq 12"
        " (counted by line feeds: nobody knows how many lines stood there).\n"
    ) in out
    with (damaged / "journal" / SEGMENT).open("ab") as file:
        file.write(b"hello\nhello\n")
    _, out, err = agentbus("repair", "--json", stdin=b"yes\n")
    assert "LOST: at least seq 14 to 15, counted by line feeds: nobody knows how many lines stood here." in err
    assert "What is left of them (12 bytes) is set aside.\n" in err
    assert [row["lost_is_guessed"] for row in json.loads(out)["repaired"]] == [True]


def test_a_copy_of_a_segment_is_set_aside_and_nothing_is_lost(data: Path) -> None:
    assert agentbus("post", "general", "one")[0] == 0
    segment = data / "journal" / SEGMENT
    copy = segment.with_name(f"{900:020d}.jsonl")
    content = segment.read_bytes()
    copy.write_bytes(content)
    assert agentbus("post", "general", "two")[0] == 1
    status, out, _ = agentbus("repair", stdin=b"yes\n")
    assert status == 0
    assert f"  1. {copy}: begins with seq 1 where {len(content.splitlines()) + 1} is next\n" in out
    assert f"the file has no place in this journal. All of it ({len(content)} bytes) is set aside.\nType yes" in out
    assert "Agentbus: repaired. Nothing was lost.\n" in out
    assert segment.read_bytes().startswith(content)
    assert agentbus("post", "general", "two")[0] == 0
    assert [event["content"] for event in events(data) if event["type"] == "posted"] == ["one", "two"]


def test_how_many_lines_stay_is_told_in_words(data: Path) -> None:
    place = data / "journal"
    place.mkdir(parents=True)
    for content, says in (
        (b"hello\n", "there is no other line."),
        (
            Writer(place).path.read_bytes().splitlines(keepends=True)[0] + b"hello\n",
            "the other line is sound and stays as",
        ),
    ):
        (place / SEGMENT).write_bytes(content)
        assert agentbus("repair")[1].startswith(f"Agentbus: 1 damage in {place}; {says}")


def test_everything_it_took_out_is_listed_torn_tails_too(damaged: Path) -> None:
    with (damaged / "journal" / SEGMENT).open("ab") as file:
        file.write(b'{"seq":')
    out = agentbus("repair", "--yes")[1]
    listed = out[out.index("set-aside:\n") :].split("\n")[1:3]
    aside = damaged / "journal" / "set-aside"
    assert {path.name for path in aside.iterdir()} == {line.split()[0] for line in listed}
    assert listed[1].endswith(".torn (a torn tail: it was never acknowledged)")
    with (damaged / "journal" / SEGMENT).open("ab") as file:
        file.write(b"hello\n{")
    (torn,) = json.loads(agentbus("repair", "--yes", "--json")[1])["torn_tails"]
    with open(torn, "rb") as piece:
        assert piece.read() == b"{"


@contextmanager
def full_disk(largest: int) -> Iterator[None]:
    """No file grows beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_on_a_full_disk_it_says_so_and_leaves_nothing_that_was_made_in_vain(damaged: Path) -> None:
    before = tree(damaged / "journal")
    for room in (100, 1000):
        with full_disk(room):
            status, out, err = agentbus("repair", "--yes")
        assert (status, err) == (
            1,
            "agentbus: not repaired: disk full; no line was changed: mend that and run it again\n",
        )
        assert "set-aside:" not in out
        assert tree(damaged / "journal") == before
    assert agentbus("repair", "--yes")[0] == 0


def test_where_it_fails_in_the_middle_it_says_what_is_done_already(damaged: Path) -> None:
    stray = damaged / "journal" / f"{3:020d}.jsonl"
    stray.touch()
    segment = damaged / "journal" / SEGMENT
    change(damaged, b'"tWo"', b'"two"')
    with full_disk(segment.stat().st_size):
        status, out, err = agentbus("repair", "--yes")
    (piece,) = (damaged / "journal" / "set-aside").iterdir()
    assert out.endswith(
        "Agentbus: done before it failed: nothing that was lost.\n"
        f"What was taken out is in {piece.parent}:\n  {piece.name}\n"
    )
    assert (status, err) == (
        1,
        "agentbus: not repaired: disk full; what was done stands: mend that and run it again for the rest\n",
    )
    log = json.loads((damaged / "agentbus.log").read_bytes().splitlines()[-1])
    assert (log["msg"], log["piece"]) == ("repaired", piece.name)
    assert agentbus("repair")[1].startswith("Agentbus: nothing to repair: ")


def test_whoever_holds_the_journal_is_waited_for_and_then_named(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentbus.cli.repair.COMMAND_DEADLINE_S", 0)
    lock = WriterLock(str(damaged / "journal"), Files())
    lock.acquire(0)
    status, _, err = agentbus("repair", "--yes")
    lock.release()
    lock.close()
    assert status == 1
    assert err.startswith("agentbus: not repaired: busy: ")
    assert err.endswith("; no line was changed: mend that and run it again\n")


def test_what_is_no_file_is_named_with_what_to_do(damaged: Path) -> None:
    stray = damaged / "journal" / f"{900:020d}.jsonl"
    stray.mkdir()
    says = f"{stray}: it is no regular file: remove it, it is no segment; nothing was changed\n"
    assert agentbus("repair", "--yes") == (1, "", f"agentbus: not repaired: {says}")
    stray.rmdir()
    assert agentbus("repair", "--yes")[0] == 0


def test_help_says_first_what_is_better_than_a_repair() -> None:
    said = " ".join(agentbus("repair", "--help")[1].split())
    assert said.index(FIRST.strip()) < said.index("Shows what it will do")


def test_paths_and_causes_are_made_visible(tmp_path: Path, data: Path) -> None:
    hostile = tmp_path / "da\x1b[2Jta"
    writer = Writer(hostile / "journal")
    writer.write({"type": "posted", "as": "x\u202e", "channel": "\u202e", "content": "", "context": "x"})
    done = run(hostile, "repair")
    assert done.returncode == 1
    assert b"da\\x1b[2Jta" in done.stdout
    assert "\\u202e" in done.stdout.decode()
    assert (done.stdout + done.stderr).decode().replace("\n", "").isprintable()
    assert not data.exists()


# who is alive


def test_it_refuses_while_servers_live_and_names_them(damaged: Path) -> None:
    change(damaged, b'"tWo"', b'"two"')
    hosts = [open_at(damaged) for _ in range(3)]
    for host, name in zip(hosts, ("zoe", "bob", "ida"), strict=True):
        call(host, "register", name=name)
    call(hosts[1], "register", name="bob's child", parent="bob")
    call(hosts[2], "register", name="gone")
    crash(hosts[2])
    change(damaged, b'"two"', b'"tWo"')
    before = tree(damaged)
    status, out, err = agentbus("repair", "--yes")
    assert status == 1
    assert out.startswith("Agentbus: 1 damage in ")
    assert err.startswith("agentbus: not repaired while sessions are alive: ")
    assert f"process {os.getpid()} (zoe)" in err
    assert f"process {os.getpid()} (bob, bob/bob's child)" in err
    assert "ida" not in err
    assert err.endswith(". End them, then run it again; nothing was changed\n")
    assert tree(damaged) == before
    for host in hosts[:2]:
        crash(host)
    assert agentbus("repair", "--yes")[0] == 0


def test_a_server_that_comes_while_the_question_stands_keeps_repair_out(damaged: Path) -> None:
    owner = Owners(damaged / "owners")
    before = tree(damaged / "journal")
    status, _, err = agentbus("repair", stdin=Meanwhile(b"yes\n", owner.hold))
    assert (status, err.split(":")[1]) == (1, " not repaired while sessions are alive")
    assert tree(damaged / "journal") == before
    owner.release()


def test_a_journal_that_changes_while_the_question_stands_is_not_touched(damaged: Path) -> None:
    stdin = Meanwhile(b"yes\n", lambda: change(damaged, b'"three"', b'"threE"'))
    status, _, err = agentbus("repair", stdin=stdin)
    assert status == 1
    assert (
        err == f"agentbus: {damaged / 'journal'} has changed since it was looked at; nothing was done: run it again\n"
    )
    assert not (damaged / "journal" / "set-aside").exists()


def test_a_server_that_met_the_damage_works_after_the_repair_without_a_restart(damaged: Path) -> None:
    host = open_at(damaged)
    refused = refusal(host, "register", name="bob")
    assert refused["code"] == "corrupt"
    assert "run `agentbus repair`" in refused["message"]
    assert agentbus("post", "general", "four")[0] == 1
    assert agentbus("repair", "--yes")[0] == 0
    assert call(host, "register", name="bob")["as"] == "bob"
    assert call(host, "post", as_="bob", channel="general", content="here")["seq"] == 14
    assert live(host) == replayed(damaged)


# caches, and what only the bus can see


def test_snapshots_and_the_search_index_are_gone_before_anything_is_changed(damaged: Path) -> None:
    (damaged / "snapshots").mkdir()
    snapshot = damaged / "snapshots" / f"{7:020d}"
    snapshot.write_bytes(b"")
    index = damaged / "search"
    index.write_bytes(b"this cannot be deleted as a directory")
    before = tree(damaged / "journal")
    status, _, err = agentbus("repair", "--yes")
    assert status == 1
    assert err == f"agentbus: not repaired: {index}: cannot delete it: Not a directory\n"
    assert tree(damaged / "journal") == before
    index.unlink()
    index.mkdir()
    (index / "index.db").write_bytes(b"")
    assert agentbus("repair", "--yes")[0] == 0
    assert not index.exists()
    assert not snapshot.exists()


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        ({"type": "posted", "as": "bob"}, "Object missing required field"),
        (posted("lost in space", channel="nowhere"), 'channel "nowhere" does not exist'),
    ],
)
def test_a_line_that_no_bus_can_have_written_is_taken_out_too(data: Path, event: dict[str, Any], cause: str) -> None:
    writer = Writer(data / "journal")
    writer.write(event)
    writer.write(posted("after it"))
    assert refusal(open_at(data), "register", name="bob")["code"] == "corrupt"
    status, out, _ = agentbus("repair", "--yes")
    assert status == 0
    assert f"line 3 (byte {len(b''.join(writer.path.read_bytes().splitlines(keepends=True)[:2]))}): {cause}" in out
    assert [row["type"] for row in events(data)[3:]] == ["lost", "posted", "repaired"]
    assert call(open_at(data), "register", name="bob")["as"] == "bob"


def test_what_is_missing_after_damage_is_no_damage(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write({"type": "channel_created", "channel": "reviews", "kind": "ordinary"})
    writer.write(posted("kept", channel="reviews"))
    change(data, b'"reviews","kind"', b'"rEviews","kind"')
    assert agentbus("repair", "--yes")[0] == 0
    assert agentbus("repair")[1] == "Agentbus: nothing to repair: 5 lines, all sound.\n"
    assert [row["type"] for row in events(data)[3:]] == ["lost", "posted", "repaired"]


def test_a_newer_journal_is_refused_and_not_touched(data: Path) -> None:
    writer = Writer(data / "journal")
    writer.write({"type": "teleported", "as": "bob"})
    writer.write(posted("two"))
    change(data, b'"two"', b'"tWo"')
    before = tree(data)
    status, out, err = agentbus("repair", "--yes")
    assert (status, out) == (1, "")
    assert err.startswith('agentbus: unsupported: event type is "teleported"')
    assert tree(data) == before


def test_who_has_gone_is_not_taken_for_alive(data: Path) -> None:
    host = open_at(data)
    call(host, "register", name="bob")
    crash(host)
    again = open_at(data)
    call(again, "register", name="bob")
    assert agentbus("reset", "--yes")[0] == 0
    change(data, b'"general"', b'"generaL"')
    status, _, err = agentbus("repair", "--yes")
    assert status == 1
    assert f"process {os.getpid()}. End" in err
    crash(again)


def test_damage_in_an_archive_is_named_and_taken_out_and_the_archive_is_set_aside(damaged: Path) -> None:
    journal = damaged / "journal"
    for text in ("four", "five"):
        assert agentbus("post", "general", text)[0] in {0, 1}  # refused: the journal is damaged
    whole = gzip.compress((journal / SEGMENT).read_bytes(), mtime=0)
    last = json.loads((journal / SEGMENT).read_bytes().splitlines()[-1])
    (journal / "archive").mkdir()
    (journal / "archive" / f"{SEGMENT}.gz").write_bytes(whole)
    (journal / SEGMENT).unlink()
    opened = {"type": "segment_opened", "format": 1, "journal": json.loads(_first(whole))["events"][0]["journal"]}
    events = msgspec.json.encode([opened | {"prev": last["hash"]}])
    line, _ = encode(last["seq"] + 1, last["time"], 1, events, last["hash"])
    (journal / f"{last['seq'] + 1:020d}.jsonl").write_bytes(line)
    status, out, err = agentbus("repair", "--yes")
    assert (status, err) == (0, "")
    assert f"archive/{SEGMENT}.gz line 7" in out
    (piece,) = (journal / "set-aside").glob("*.damaged.gz")
    assert piece.name in out
    assert piece.read_bytes() == whole
    assert agentbus("replay", "--state")[0] == 0
    (journal / SEGMENT).rename(journal / "kept")
    (journal / "archive" / f"{SEGMENT}.gz").write_bytes(gzip.compress((journal / "kept").read_bytes())[:-1])
    (journal / "kept").unlink()
    status, out, err = agentbus("repair", "--yes", "--json")
    assert status == 0
    (row,) = json.loads(out)["repaired"]
    assert (row["bytes"], "lost" in row, row["archive_set_aside"].endswith(".damaged.gz")) == (0, False, True)
    assert "every line can be unpacked" in err


def _first(packed: bytes) -> bytes:
    return gzip.decompress(packed).partition(b"\n")[0]
