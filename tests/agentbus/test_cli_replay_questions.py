"""The questions of `agentbus replay`: what each answers, which filters it takes, what it says to a bad value."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agentbus.cli.asked import READING, TAKES
from agentbus.cli.replay import replay as command
from agentbus.cli.times import parse_when
from journal import format_time, parse_time
from tests.agentbus.auditing import ask
from tests.agentbus.hosts import call, live, open_at
from tests.agentbus.random_calls import RandomCalls
from tests.agentbus.shell import Writer, environ, posted, run

GOLDEN = Path(__file__).parent.parent / "golden"
V1, MORE = GOLDEN / "journal-v1", GOLDEN / "journal-v1-more"
VALUES = {
    "channel": ["general"],
    "as": ["agentbus"],
    "children": [],
    "type": ["posted"],
    "since": ["2026-09-09T08:00:00Z"],
    "until": ["2026-09-10T08:00:00Z"],
    "from-seq": ["2"],
    "to-seq": ["8"],
    "grep": ["a"],
    "thread": ["5"],
    "limit": ["2"],
    "reverse": [],
    "follow": [],
    "utc": [],
    "json": [],
    "raw": [],
    "at": ["8"],
    "message": ["5"],
    "inbox": ["agentbus/implement804"],
    "state": [],
    "digest": [],
    "diff": ["2", "8"],
    "stats": [],
    "verify": [],
}
OPTIONS = sorted({name for takes in TAKES.values() for name in takes} & set(VALUES))
Record = dict[str, Any]


def given(name: str) -> list[str]:
    """An option with a value; what it cannot stand without stands before it."""
    return [*(["--as", "agentbus"] if name == "children" else []), f"--{name}", *VALUES[name]]


def answer(*arguments: str | Path, stdin: bytes = b"") -> Record:
    status, out, _ = ask("--json", *arguments, stdin=stdin)
    assert status == 0
    found: Record = json.loads(out)
    return found


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own data directory, which is not there yet."""
    for name, value in environ(tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "data"


# which question takes which filter


@pytest.mark.parametrize(("question", "option"), list(itertools.product(TAKES, OPTIONS)))
def test_each_question_obeys_an_option_or_refuses_it_by_name(question: str, option: str) -> None:
    asked = [] if question == READING else given(question)
    option_given = ["--follow", "--limit", "1"] if option == "follow" else given(option)  # or it would never end
    status, out, err = ask(*asked, *option_given, V1)
    if option in TAKES[question]:
        assert status == 0, err
        return
    assert (status, out) == (2, "")
    who = "reading" if question == READING else f"--{question}"
    assert err.startswith(f"agentbus: {who} does not take ")
    assert f"--{option}" in err


def test_the_table_names_every_option_there_is() -> None:
    options = {name.removeprefix("--") for param in command.params for name in param.opts if name.startswith("--")}
    takes = {name for takes in TAKES.values() for name in takes}
    assert options - {"config"} == takes | (set(TAKES) - {READING})


def test_two_questions_at_once_are_refused_by_name() -> None:
    for first, second in itertools.combinations([name for name in TAKES if name != READING], 2):
        status, out, err = ask(*given(first), *given(second), V1)
        assert (status, out) == (2, "")
        assert f"--{first} and --{second} exclude each other" in err or f"--{second} and --{first} exclude" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--type", "post"], '--type "post" is no event type; there are: segment_opened, channel_created'),
        (["--grep", "("], '--grep "(" is no regular expression: missing )'),
        (["--since", "yesterday"], '--since "yesterday" is no time: give RFC 3339, as 2026-09-09T08:00:00Z'),
        (["--until", "2026-02-30T08:00:00Z"], '--until "2026-02-30T08:00:00Z" is no time'),
        (["--state", "--at", "0"], "--at 0 is no seq: they begin with 1"),
        (["--state", "--at", "9" * 30], "is no seq: they begin with 1"),
        (["--state", "--at", "soon"], '--at "soon" is neither a seq nor a time'),
        (["--diff", "1", "then"], '--diff "then" is neither a seq nor a time'),
        (["--limit", "0"], '"0" is no number from 1 to'),
        (["--from-seq", "x"], '"x" is no number from 1 to'),
        (["--from-seq", "9", "--to-seq", "5"], "--from-seq 9 comes after --to-seq 5: nothing lies between"),
        (["--since", "1h", "--until", "2h"], "nothing lies between"),
        (["--children"], "--children takes along the subagents of the identity that --as names: give --as too"),
        (["--diff", "8", "2"], "--diff wants the earlier point first: seq 8 comes after seq 2"),
    ],
)
def test_a_bad_value_is_refused_with_the_value_and_what_is_allowed(arguments: list[str], says: str) -> None:
    status, out, err = ask(*arguments, V1)
    assert (status, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--state", "--at", "10"], "seq 10 comes after the journal: it ends with seq 9"),
        (["--digest", "--at", "2020-01-01T00:00:00Z"], "comes before the journal, which begins with seq 1 at 2026"),
        (["--message", "9"], "--message 9: that is no message; `agentbus replay --type posted` lists them"),
        (["--message", "99"], "--message 99: that is no message; the journal ends with seq 9"),
        (["--thread", "4"], "--thread 4: that is no message"),
        (["--message", "15", MORE], "--message 15: whatever that was is lost"),
        (["--inbox", "nobody"], 'after seq 9 the bus knew no identity "nobody"'),
    ],
)
def test_what_this_journal_cannot_answer_is_said(arguments: list[str | Path], says: str) -> None:
    status, out, err = ask(*arguments, *([] if MORE in arguments else [V1]))
    assert (status, out) == (1, "")
    assert says in err


def test_questions_that_read_twice_refuse_stdin(data: Path) -> None:
    for arguments in (["--message", "3"], ["--thread", "3"], ["--stats", "--thread", "3"]):
        status, out, err = ask(*arguments, "-", stdin=Writer(data / "journal").path.read_bytes())
        (data / "journal" / "00000000000000000001.jsonl").unlink()
        assert (status, out) == (2, "")
        assert "has to read twice, which stdin cannot: save it to a file and name that" in err


# filters on the command line


def seqs(*arguments: str | Path) -> list[int]:
    status, out, err = ask("--json", *arguments)
    assert status == 0, err
    return [json.loads(line)["seq"] for line in out.split("\n")[:-1]]


def test_an_option_given_twice_means_either_of_a_range_the_wider() -> None:
    assert set(seqs("--from-seq", "7", "--from-seq", "8", "--to-seq", "7", "--to-seq", "8", V1)) == {7, 8}
    assert seqs("--type", "posted", "--type", "acked", V1) == sorted(
        [*seqs("--type", "posted", V1), *seqs("--type", "acked", V1)]
    )
    posts = seqs("--type", "posted", MORE)
    assert seqs("--type", "posted", "--grep", "804", "--grep", ".", MORE) == posts
    thread, other = posts[0], posts[-1]
    assert set(seqs("--thread", str(thread), "--thread", str(other), MORE)) >= {thread, other}


def test_times_are_taken_as_they_are_shown(tmp_path: Path) -> None:
    def shown(*arguments: str, zone: str = "UTC") -> list[bytes]:
        return run(tmp_path / "data", "replay", *arguments, str(V1), TZ=zone).stdout.splitlines()

    line = shown(zone="Asia/Kolkata")[8].decode()
    since = line[8:31]
    assert since == "2026-09-09 13:30:05.035"
    assert [row.decode() for row in shown("--since", since, "--until", since, zone="Asia/Kolkata")] == [line]
    utc = shown(
        "--utc", "--since", "2026-09-09 08:00:05.035", "--until", "2026-09-09T08:00:05.035", zone="Asia/Kolkata"
    )
    assert [row[:6] for row in utc] == [b"     5"]


NOW = parse_time("2026-09-09T08:00:00.000Z")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-09-09T08:00:00Z", NOW),
        ("2026-09-09t10:00:00.5+02:00", NOW + 500),
        ("2026-09-09 07:30:00.25-00:30", NOW + 250),
        ("2026-09-09T08:00Z", NOW),
        ("90s", NOW - 90_000),
        ("30m", NOW - 1_800_000),
        ("2h", NOW - 7_200_000),
        ("3d", NOW - 259_200_000),
        ("999999999d", 0),
        ("1960-01-01T00:00:00Z", 0),
        ("", None),
        ("2 h", None),
        ("2026-09-09", NOW - 8 * 3_600_000),
        ("2026-9-9", None),
        ("2026-02-30", None),
        ("9999-12-31", parse_time("9999-12-31T00:00:00.000Z")),
        ("2026-09-09T25:00:00Z", None),
        ("0000-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+23:59", 0),
        ("2026-09-09T08:00:00.1234Z", None),
    ],
)
def test_times_may_be_given_in_several_ways(text: str, ms: int | None) -> None:
    assert parse_when(text, NOW, utc=True) == ms


def test_a_day_is_all_of_it_where_the_reader_lives(tmp_path: Path) -> None:
    """Clocks are put back in Berlin on 2026-10-25: that day has 25 hours."""
    writer, times = Writer(tmp_path / "j"), ("24T22:00:00.000Z", "25T22:59:59.999Z", "25T23:00:00.000Z")
    for time in ("24T21:59:59.999Z", *times):
        writer.write(posted(time), time=f"2026-10-{time}")

    def shown(*arguments: str, zone: str = "Europe/Berlin") -> list[int]:
        ended = run(tmp_path / "data", "replay", "--json", *arguments, str(tmp_path / "j"), TZ=zone)
        return [json.loads(line)["seq"] for line in ended.stdout.splitlines()]

    assert shown("--since", "2026-10-25", "--until", "2026-10-25") == [4, 5]
    assert shown("--since", "2026-10-26") == [6]
    assert shown("--since", "2026-10-25", "--until", "2026-10-25", "--utc") == [5, 6]
    at = run(tmp_path / "data", "replay", "--state", "--at", "2026-10-25", str(tmp_path / "j"), TZ="Europe/Berlin")
    assert json.loads(at.stdout)["last_seq"] == 4
    assert parse_when("2026-10-25", NOW, utc=True, last=True) == parse_time("2026-10-25T23:59:59.999Z")
    assert parse_when("9999-12-31", NOW, utc=True, last=True) is None


def test_utc_is_how_times_are_taken_where_none_is_shown(tmp_path: Path) -> None:
    for question in (["--json"], ["--raw"], ["--state"], ["--digest"], ["--diff", "2", "2026-09-09 08:00:05.035"]):
        when = [] if "--diff" in question else ["--since" if question[0] in ("--json", "--raw") else "--at"]
        when += ["2026-09-09 08:00:05.035"] if when else []
        in_utc = run(tmp_path / "data", "replay", "--utc", *question, *when, str(V1), TZ="Asia/Kolkata")
        there = run(tmp_path / "data", "replay", *question, *when, str(V1), TZ="UTC")
        assert (in_utc.returncode, in_utc.stdout) == (0, there.stdout)


# the questions


def test_the_life_of_a_message_is_an_object_or_a_story(data: Path) -> None:
    host = open_at(data)
    for name in ("ann", "bob"):
        call(host, "register", name=name)
    seq = call(host, "post", as_="ann", channel="general", content="hello @bob \x1b[2J")["seq"]
    token = call(host, "receive", as_="bob")["token"]
    call(host, "receive", as_="bob", ack=token, count=0)
    found = answer("--message", str(seq))
    assert (found["seq"], found["as"], found["addressed"]) == (seq, "ann", ["bob"])
    (row,) = found["readers"]
    assert (row["as"], row["delivered"][0]["token"], row["outcome"]["what"]) == ("bob", token, "acked")
    status, out, err = ask("--message", str(seq), "--utc")
    assert (status, err) == (0, "")
    assert out.startswith(f"seq {seq}  {found['time']}  posted on general by ann\n")
    assert "\x1b" not in out
    assert out.endswith("a batch handed out again before its ack is not journaled\n")
    assert ask("--message", str(seq), "--as", "ann")[1].count("none of those asked for") == 1


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_every_state_there_was_can_be_had_again(data: Path, seed: int) -> None:
    host = open_at(data)
    then: dict[int, bytes] = {}
    calls = RandomCalls(host, "web", Random(seed))  # noqa: S311  # a test that can be repeated
    for _ in range(60):
        then[json.loads(live(host))["last_seq"]] = live(host)
        calls.step()
    last = json.loads(live(host))["last_seq"]
    then[last] = live(host)
    assert sorted(then) == list(range(3, last + 1)), "each call wrote one line"
    for seq, canonical in then.items():
        assert ask("--state", "--at", str(seq)) == (0, canonical.decode() + "\n", "")
    assert ask("--digest")[1] == hashlib.sha256(then[last]).hexdigest() + "\n"
    assert answer("--digest", "--at", "5") == {"seq": 5, "sha256": hashlib.sha256(then[5]).hexdigest()}


def test_a_time_stands_for_the_last_seq_at_or_before_it() -> None:
    for time, seq in (("2026-09-09T08:00:05.035Z", 5), ("2026-09-09T08:00:05.034Z", 4), ("2027-01-01T00:00:00Z", 9)):
        assert ask("--state", "--at", time, V1) == ask("--state", "--at", str(seq), V1)


def test_of_a_lost_range_only_the_state_after_it_is_known() -> None:
    for seq in ("14", "15"):
        status, out, err = ask("--state", "--at", seq, MORE)
        assert (status, out) == (1, "")
        assert f"seq {seq} was lost, and what is left does not tell the state after it" in err
    assert json.loads(ask("--state", "--at", "16", MORE)[1])["last_seq"] == 16


def test_an_inbox_tells_what_was_over_age_by_the_settings_or_their_default(tmp_path: Path) -> None:
    writer, old, late = Writer(tmp_path / "j"), "2026-09-09T08:00:00.000Z", "2026-09-16T07:59:59.999Z"
    writer.write({"type": "registered", "as": "bob", "owner": "a1" * 12, "name": "bob", "context": "shop"}, time=old)
    writer.write({"type": "subscribed", "as": "bob", "channel": "general", "cursor": 3}, time=old)
    writer.write(posted("old"), time=old)
    writer.write(posted("new"), time=late)
    arguments = ("--inbox", "bob", tmp_path / "j")
    (tmp_path / "settings").write_text('{"message_retention_hours": 100}')

    def over_age(*more: str) -> list[bool]:
        return [row["over_age"] for row in answer(*arguments, *more)["messages"]]

    assert over_age() == [False, False]
    assert over_age("--at", "2026-09-16T08:00:00.001Z") == [True, False]
    assert over_age("--config", str(tmp_path / "settings")) == [True, False]
    assert over_age("--config", str(tmp_path / "settings"), "--at", "5") == [False]
    assert "older than 100 h" in ask(*arguments, "--config", tmp_path / "settings")[1]


def test_an_inbox_is_what_a_receive_would_have_handed_out(data: Path) -> None:
    host = open_at(data)
    for name in ("ann", "bob"):
        call(host, "register", name=name)
    for text in ("one", "two POL-1", "three"):
        call(host, "post", as_="ann", channel="general", content=text)
    call(host, "post", as_="ann", channel="memory", content="fact")
    before = answer("--inbox", "bob")
    received = call(host, "receive", as_="bob")
    assert [(row["seq"], row["content"]) for row in before["messages"]] == [
        (row["seq"], row["content"]) for row in received["messages"]
    ]
    assert "batch" not in before
    after = answer("--inbox", "bob")
    assert (after["batch"], {row["handed_out"] for row in after["messages"]}) == (received["token"], {True})
    assert answer("--inbox", "bob", "--at", str(before["seq"])) == before
    for filters, texts in (
        (["--grep", "POL"], ["two POL-1"]),
        (["--channel", "memory"], ["fact"]),
        (["--limit", "2"], ["one", "two POL-1"]),
        (["--as", "bob"], []),
        (["--thread", str(before["messages"][0]["seq"])], ["one"]),
    ):
        assert [row["content"] for row in answer("--inbox", "bob", *filters)["messages"]] == texts
    stdin = (data / "journal" / "00000000000000000001.jsonl").read_bytes()
    assert answer("--inbox", "bob", "-", stdin=stdin) == after
    assert "two POL-1" in ask("--inbox", "bob", "--at", str(before["seq"]))[1]


def test_two_points_are_compared() -> None:
    found = answer("--diff", "2", "8", V1)
    states = [json.loads(ask("--state", "--at", seq, V1)[1]) for seq in ("2", "8")]
    assert (found["from"], found["to"]) == (2, 8)
    assert found["sessions"]["added"] == [row for row in states[1]["sessions"] if row not in states[0]["sessions"]]
    times = [format_time(parse_time(f"2026-09-09T08:00:0{second}.900Z")) for second in (2, 8)]
    assert answer("--diff", *times, V1) == found
    status, out, _ = ask("--diff", "2", "8", V1)
    assert (status, out.splitlines()[0]) == (0, "from seq 2 to seq 8")


def test_totals_are_one_object_or_tables() -> None:
    found = answer("--stats", MORE)
    assert (found["first_seq"], found["last_seq"]) == (1, 24)
    assert found["lost"] == [{"first": 14, "last": 16, "reason": "damage"}]
    status, out, err = ask("--stats", MORE)
    assert (status, out.splitlines()[-1]) == (0, "lost: seq 14 to 16 (damage)")
    assert "LOST: seq 14 to 16" in err
    assert ask("--stats", "--channel", "none", V1)[:2] == (0, "nothing matches\n")


@pytest.mark.parametrize("question", ["message", "state", "digest", "inbox", "diff", "stats"])
def test_a_question_stops_at_the_first_fault(data: Path, question: str) -> None:
    writer = Writer(data / "journal")
    for number in range(9):
        writer.write(posted(str(number)))
    writer.path.write_bytes(writer.path.read_bytes().replace(b'"content":"2"', b'"content":"x"'))
    status, out, err = ask(*given(question), data)
    assert (status, out) == (1, "")
    assert re.match(r"agentbus: corrupt: .* line 5 \(byte \d+, seq 5\): does not verify", err)


@pytest.mark.parametrize("question", ["message", "state", "digest", "inbox", "diff", "stats"])
def test_what_was_folded_and_cannot_have_happened_is_a_fault(data: Path, question: str) -> None:
    writer = Writer(data / "journal")
    writer.write({"type": "acked", "as": "bob", "token": "t"})
    status, out, err = ask(*given(question), data)
    assert (status, out) == (1, "")
    assert 'seq 3): "bob" has no pending batch t' in err


@pytest.mark.parametrize("question", ["message", "state", "digest", "inbox", "diff", "stats"])
def test_without_a_journal_every_question_says_so(data: Path, question: str) -> None:
    status, out, err = ask(*given(question))
    assert (status, out + err) == (0, f"Agentbus: no journal yet in {data}\n")


def test_answers_do_not_depend_on_the_machine(tmp_path: Path) -> None:
    # Each zone with each locale, each locale with each seed; the digest is of the state, and taken once.
    machines = [
        ("UTC", "C", "1"),
        ("Pacific/Chatham", "C", "2"),
        ("America/St_Johns", "C", "1"),
        ("UTC", "C.UTF-8", "2"),
        ("Pacific/Chatham", "C.UTF-8", "1"),
        ("America/St_Johns", "C.UTF-8", "2"),
    ]
    for question in (["--digest"], ["--state", "--at", "2026-09-10T09:00:00Z"]):
        answers = {
            run(tmp_path / "data", "replay", *question, str(MORE), TZ=zone, LC_ALL=locale, PYTHONHASHSEED=seed).stdout
            for zone, locale, seed in machines
        }
        assert len(answers) == 1


def test_help_groups_its_options_and_stays_short() -> None:
    out = ask("--help")[1]
    headings = [line for line in out.splitlines() if re.fullmatch(r"\w.*:", line)]
    assert headings == ["How it is printed:", "Which events:", "Questions:", "Proof:", "Other:"]
    assert out.count("\n") < 60
    assert all(f"--{name}" in out for name in VALUES)


def test_the_reference_shows_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    root = GOLDEN.parent.parent
    monkeypatch.chdir(root)
    text = (root / "docs" / "reference.md").read_text().split("### Replay\n")[1].split("\n## ")[0]
    examples = re.findall(r"^\$ agentbus replay (.*)\n((?:(?!\$ |```).*\n)*)", text, flags=re.MULTILINE)
    assert len(examples) == 3
    for arguments, printed in examples:
        assert ask(*arguments.split()) == (0, printed, "")


def test_the_reference_names_every_question_and_filter() -> None:
    text = (GOLDEN.parent.parent / "docs" / "reference.md").read_text().split("### Replay\n")[1].split("\n## ")[0]
    assert [name for name in VALUES if f"--{name}" not in text] == []


HOSTILE = "\x1b[2J\x9b31m\x07\r\n\u2028\u202e\u200f\x7fend"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_answer_carries_what_others_wrote_to_the_terminal_as_control(data: Path, form: list[str]) -> None:
    writer = Writer(data / "journal")
    who, other, owner = f"a{HOSTILE}", f"b{HOSTILE}", "a1" * 12
    writer.write({"type": "channel_created", "channel": HOSTILE, "kind": "ordinary"})
    for name in (who, other):
        session = {"as": name, "owner": owner, "name": name, "context": HOSTILE, "client": HOSTILE}
        joined = {"type": "subscribed", "as": name, "channel": HOSTILE, "cursor": 0}
        writer.write({"type": "registered", **session}, joined)
    extras = {"label": HOSTILE, "metadata": {HOSTILE: HOSTILE}, "key": HOSTILE}
    writer.write(posted(HOSTILE, channel=HOSTILE, **{"as": who}, **extras))  # 6
    gap = {"channel": HOSTILE, "from": 1, "to": 2, "cause": HOSTILE}
    batch = {"as": other, "token": HOSTILE, "ends": {HOSTILE: 6}, "include_own": False, "gaps": [gap]}
    writer.write({"type": "delivered", **batch})
    writer.write(posted(HOSTILE, channel=HOSTILE, reply_to=6, **{"as": other}))
    writer.write({"type": "acked_all", "as": other, "before": 7, "by": HOSTILE})
    for question, status in (
        (["--message", "6"], 0),
        (["--inbox", other, "--at", "8"], 0),
        (["--diff", "2", "8"], 0),
        (["--stats"], 0),
        (["--channel", HOSTILE], 0),
        (["--thread", "6"], 0),
        (["--inbox", HOSTILE], 1),
        (["--grep", f"({HOSTILE}"], 2),
        (["--type", HOSTILE], 2),
        (["--since", HOSTILE], 2),
    ):
        ended, out, err = ask(*question, *form, data)
        assert ended == status, err
        assert not set((out + err).replace("\n", "")) & set(HOSTILE) - set("[2J31mend"), question
