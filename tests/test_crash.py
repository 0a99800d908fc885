"""A short run of the modes of tools/crash.py that need no fault in the disk, and that each of its judges can say no."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentbus import tools
from tools import crash
from tools.crashes import Summary, cut, flip, history, kill
from tools.crashes.checks import Answers, check, check_returns, fold_from_1
from tools.crashes.damage import Unflushed, contents, lines_of
from tools.crashes.history import Call
from tools.crashes.session import Event, Told, abandon, call, compare, events_of, open_host, script

Journaled = tuple[Path, list[Told]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Journaled:
    """A data directory after the scripted session, and what its callers were told."""
    data = tmp_path_factory.mktemp("session") / "data"
    return data, script(lambda: open_host(data, Unflushed()))


def test_the_session_uses_every_tool_and_rolls_and_is_refused_only_what_it_should_be(played: Journaled) -> None:
    data, told = played
    assert {each.tool for each in told} == {tool.name for tool in tools.TOOLS} | {"close"}
    assert len(contents(data / "journal")) > 3
    assert [each.number for each in told if each.outcome != "done"] == [5, 16, 17, 32]
    assert compare(told, events_of(data)) == []


def test_comparing_finds_what_is_lost_what_is_there_twice_and_what_was_refused(played: Journaled) -> None:
    data, told = played
    events = events_of(data)
    post = next(event for event in events if event["type"] == "posted")
    without = [event for event in events if event is not post]
    (lost,) = compare(told, without)
    assert lost.startswith("lost: call 13 (post")
    assert compare(told, [*events, post])[0].startswith("there twice")
    (moved,) = compare(told, [*without, post | {"seq": 99}])
    assert moved.startswith("answered with seq")
    refused = [replace(each, outcome="refused") for each in told]
    assert any(text.startswith("refused, and there at seq") for text in compare(refused, events))
    for kind in ("memory_edited", "memory_deleted"):
        (lost, *_) = compare(told, [event for event in events if event["type"] != kind])
        assert lost.startswith("lost: call ")
    unasked = {"type": "posted", "seq": 99, "as": "sam", "channel": "general", "content": "?"}
    assert compare(told, [*events, unasked]) == ["nobody sent what stands at seq 99: '?'"]


def test_what_nobody_was_told_may_be_there_or_not(played: Journaled) -> None:
    data, told = played
    events = events_of(data)
    last = next(each for each in reversed(told) if each.tool == "post")
    unknown = [replace(each, outcome="unknown", result=None) if each is last else each for each in told]
    assert compare(unknown, events) == []
    assert compare(unknown, [event for event in events if event.get("content") != "a child's word"]) == []


def test_after_a_power_cut_a_batch_may_be_gone_that_was_handed_out(played: Journaled) -> None:
    data, told = played
    left = [event for event in events_of(data) if event["type"] != "delivered"]
    assert compare(told, left) != []
    assert compare(told, left, durable_only=True) == []


def test_killed_processes_lose_nothing() -> None:
    summary = kill.run(12, 1)
    assert summary.wrong == []
    assert summary.tried["kills"] == 12


def test_the_checks_after_kills_find_what_is_lost_doubled_and_never_shown(tmp_path: Path) -> None:
    data = tmp_path / "data"
    host = open_host(data, Unflushed())
    for name in ("ann", "bob"):
        call(host, "register", name=name)
    post = call(host, "post", as_="ann", channel="general", content="x", idempotency_key="k")
    token = call(host, "receive", as_="bob")["token"]
    call(host, "receive", as_="bob", ack=token)
    states = {"bob": fold_from_1(data)}
    abandon(host)

    def answers(seq: int, shown: list[int], acked: str) -> Answers:
        told = Answers()
        told.take("ann", ("posting", "k", "x"))
        told.take("ann", ("posted", "k", seq))
        told.take("bob", ("received", token, shown))
        told.take("bob", ("acking", token))
        told.take("bob", ("acked", acked))
        return told

    seq = post["seq"]
    assert check(data, answers(seq, [seq], token), states).all() == []
    assert check(data, answers(seq + 1, [seq], token), states).all() == [
        f"lost: key 'k', acknowledged at seq {seq + 1}"
    ]
    assert check(data, answers(seq, [], token), states).all()[0].endswith("lies behind bob, who never acked it")
    assert check(data, answers(seq, [seq], "f" * 12), states).all() == ["lost: the ack of ffffffffffff by bob"]
    assert "the State of bob is not" in check(data, answers(seq, [seq], token), {"bob": b"{}"}).all()[0]
    twice = answers(seq, [seq], token)
    twice.take("ann", ("posted", "k", seq + 1))
    assert check(data, twice, states).all()[-1].startswith("doubled: key 'k' was answered with")


def test_a_journal_cut_anywhere_goes_on() -> None:
    summary = cut.run(60, 1)
    assert summary.wrong == []
    assert summary.tried["cuts"] + summary.tried["NUL-filled"] == 60


def test_every_changed_byte_is_named() -> None:
    summary = flip.run(150, 1)
    assert summary.wrong == []
    assert summary.tried["undetected"] == 0


def test_the_last_line_feed_alone_may_change_unseen_for_it_makes_a_tail(played: Journaled) -> None:
    journal = contents(played[0] / "journal")
    name, text = max(journal.items())
    lines = lines_of(journal)
    assert len(lines) > 20
    found = {flip.attempt(journal, flip.Flip(name, len(text) - 1, change), 1) for change in ("bit", "none")}
    assert found == {("torn tail", ""), ("unfinished line", "")}


def test_a_judge_of_flips_sees_a_change_that_nobody_names(played: Journaled) -> None:
    journal = contents(played[0] / "journal")
    name, text = max(journal.items())
    same = flip.Flip(name, len(text), "none")  # takes nothing out
    what, why = flip.attempt(journal, same, 1)
    assert what == "undetected"
    assert "verify says []" in why


def test_concurrent_calls_are_those_of_one_order() -> None:
    summary = history.run(2, 1)
    assert summary.wrong == []
    assert summary.tried["calls"] == 2 * 4 * (2 * history.CALLS) + 2 * 4


def _post(seq: int, begun: int, ended: int) -> Call:
    told = {"seq": seq, "subscribers": 0, "live": 0, "addressed": []}
    return Call("post", {"as": "ann", "channel": "general", "content": "x"}, begun, ended, told)


def _seen(seqs: list[int], begun: int, ended: int) -> Call:
    shown = [{"seq": seq, "channel": "general", "from": "ann", "content": "x"} for seq in seqs]
    given = {"as": "ann", "channel": "general", "count": 9}
    return Call("history", given, begun, ended, {"messages": shown, "truncated": False})


REGISTER = Call(
    "register",
    {"name": "ann"},
    0,
    1,
    {"as": "ann", "resumed": False, "pending": [], "subscribed": ["general", "memory"]},
)
POSTED: list[Event] = [
    {"type": "registered", "seq": 3, "as": "ann"},
    *({"type": "posted", "seq": seq} for seq in (4, 5)),
]


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        ([_post(4, 2, 5), _post(5, 3, 4)], ""),
        ([_post(4, 5, 6), _post(5, 2, 3)], "its line is behind that of a call which began after it"),
        ([_post(4, 2, 3)], "a line is nobody's: seq 5"),
        ([_post(4, 2, 3), _post(5, 4, 5), _post(6, 6, 7)], "no line bears what post"),
        ([_post(4, 2, 3), _post(5, 4, 9), _seen([4], 5, 6)], ""),
        ([_post(4, 2, 3), _post(5, 4, 9), _seen([4, 5], 5, 6)], ""),
        ([_post(4, 2, 3), _post(5, 4, 5), _seen([4], 6, 7)], "nowhere between seqs (5, 5)"),
        ([_post(4, 2, 3), _post(5, 8, 9), _seen([4, 5], 6, 7)], "nowhere between seqs (4, 4)"),
        ([_post(4, 2, 9), _post(5, 2, 9), _seen([4, 5], 3, 4), _seen([4], 5, 6)], "nowhere between seqs (3, 5)"),
        ([_post(4, 2, 9), _post(5, 2, 9), _seen([5], 3, 4)], "nowhere between seqs (3, 5)"),
    ],
)
def test_a_history_is_judged_by_the_order_of_the_journal_and_by_real_time(calls: list[Call], verdict: str) -> None:
    found = history.judge([REGISTER, *calls], POSTED)
    assert bool(found) == bool(verdict)
    assert all(text.startswith(verdict) for text in found[:1])


def test_the_command_ends_with_one_line_that_counts() -> None:
    done = CliRunner().invoke(crash.main, ["flip", "--rounds", "3", "--seed", "2"])
    assert done.exit_code == 0
    assert re.fullmatch(r"flip: \d+ bytes, 3 flips(, \d+ [a-z ]+){5}\n", done.output)


def test_the_command_fails_if_anything_was_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        crash.conclude(Summary("flip", {"flips": 1, "undetected": 1}, ["undetected, bit at byte 7"]))
    assert ended.value.code == 1
    assert capsys.readouterr().out == "undetected, bit at byte 7\nflip: 1 flips, 1 undetected\n"


def test_who_comes_back_finds_its_backlog_or_it_is_a_loss(tmp_path: Path) -> None:
    data = tmp_path / "data"
    host = open_host(data, Unflushed())
    for name in ("ann", "bob"):
        call(host, "register", name=name)
    call(host, "post", as_="ann", channel="general", content="x")
    call(host, "receive", as_="bob")
    assert check_returns(data, ["bob"]).faults == ["bob came back as bob2, resumed: False"]  # it is not dead
    abandon(host)
    assert check_returns(data, ["ann", "bob"]).all() == []


@pytest.mark.parametrize("mode", crash.TRIES)
def test_each_mode_says_what_it_tries(mode: str) -> None:
    told = CliRunner().invoke(crash.main, [mode, "--help"]).output
    assert "--rounds" in told
    assert "--seed" in told
    assert len(told) > 250


def test_the_journal_of_the_session_is_the_same_each_time_but_for_what_chance_decides(
    played: Journaled, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    script(lambda: open_host(data, Unflushed()))

    def plain(data: Path) -> str:
        kept = [[event["type"], event.get("content"), event.get("channel")] for event in events_of(data)]
        return json.dumps(kept)

    assert plain(data) == plain(played[0])
