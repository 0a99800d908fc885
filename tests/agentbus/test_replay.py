"""A journal as an auditor reads it: events in words and as JSON."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbus import replay, wire
from agentbus.columns import align, cut, pad, render_count, width
from agentbus.events import AnyEvent
from journal import Commit, Place, UnsupportedError, record
from tests.agentbus.shell import posted

TIME = "2026-09-09T08:00:07.049Z"
OWNER = "a1" * 12
ACTIVE = {"type": "active", "as": "bob"}
TEXTS = st.text(st.characters(codec="utf-8"))
DAMAGE = {"first": 14, "last": 16, "bytes": 731, "sha256": "e7" * 32, "next_prev": "5c" * 32, "reason": "damage"}
REDACTED = {"first": 14, "last": 16, "bytes": 731, "next_prev": None, "reason": "redacted"}
OPENED = {"format": 1, "journal": "uuid", "prev": "0" * 64}
SESSION = {"as": "bob", "owner": OWNER, "name": "bob", "context": "shop"}
TEXT = {"as": "bob", "context": "shop", "content": "yes: so"}
EXTRAS = {"label": "fact", "metadata": {"a": "1", "b c": "2"}, "key": "k1"}
BATCH = {"as": "bob", "token": "t0", "ends": {"a": 4, "b": 9}, "include_own": False}
GAP = {"channel": "a", "from": 14, "to": 16, "cause": "damage"}
NOTICES = {
    "ends": {},
    "include_own": True,
    "gaps": [GAP, GAP | {"count": 2}],
    "expired": [{"channel": "c", "unread": 3}],
}
TOLD = "told of a gap: a 14 to 16 (damage); told of a gap: a 14 to 16 (2 messages, damage)"
WORDS: list[tuple[str, dict[str, Any], str]] = [
    ("segment_opened", OPENED, "segment opened: format 1, journal uuid"),
    (
        "segment_opened",
        OPENED | {"by": "agentbus 0.1.0", "host": "desk"},
        'segment opened: format 1, journal uuid, by "agentbus 0.1.0", on desk',
    ),
    ("channel_created", {"channel": "reviews", "kind": "ordinary", "as": "bob"}, "created ordinary channel reviews"),
    ("registered", SESSION, "registered, working in shop"),
    (
        "registered",
        SESSION | {"as": "ann/bob", "parent": "ann", "client": "codex 1.0"},
        'registered, working in shop, child of ann, client "codex 1.0"',
    ),
    ("ended", {"as": "bob", "owner": OWNER, "reason": "exit"}, "ended"),
    ("ended", {"as": "bob", "owner": OWNER, "reason": "gone"}, "ended: its process was gone"),
    ("subscribed", {"as": "bob", "channel": "a", "cursor": 7}, "subscribed to a after 7"),
    ("unsubscribed", {"as": "bob", "channel": "a", "reason": "asked"}, "unsubscribed from a, as asked"),
    ("unsubscribed", {"as": "bob", "channel": "a", "reason": "fresh"}, "unsubscribed from a, for a fresh start"),
    ("unsubscribed", {"as": "bob", "channel": "a", "reason": "expired"}, "unsubscribed from a, idle too long"),
    ("posted", TEXT | {"channel": "a"}, "posted to a: yes: so"),
    (
        "posted",
        TEXT | EXTRAS | {"channel": "a", "reply_to": 0},
        'posted to a, in reply to 0, label fact, metadata a=1 "b c"=2, key k1: yes: so',
    ),
    ("memory_edited", TEXT | {"id": 5, "replaces": 1}, "edited memory 5, replacing revision 1: yes: so"),
    ("memory_deleted", {"as": "bob", "id": 5, "replaces": 2}, "deleted memory 5, which had revision 2"),
    ("delivered", BATCH, "was handed a up to 4, b up to 9, batch t0"),
    (
        "delivered",
        BATCH | NOTICES,
        f"was handed no messages, its own included, batch t0; {TOLD}; told that it was idle too long for c, 3 unread",
    ),
    ("acked", {"as": "bob", "token": "t0"}, "acknowledged batch t0"),
    ("acked_all", {"as": "bob", "before": 18, "by": "ann"}, "had everything before 18 acknowledged by ann"),
    ("active", {"as": "bob"}, "looked, nothing was new"),
    ("evicted", {"channel": "a", "before": 8}, "a: agents are no longer shown messages before 8"),
    ("reset", {"by": "ann"}, "reset the bus"),
    ("lost", DAMAGE, "LOST: seq 14 to 16 (731 bytes): damaged, gone, and set aside by repair"),
    (
        "lost",
        REDACTED,
        "LOST: seq 14 to 16 (731 bytes): redacted; the line after is taken on trust",
    ),
    ("repaired", {}, "repaired: nothing was lost"),
    ("repaired", {"lost": 14, "hash": "e7" * 32}, "repaired: the line seq 14 says what was lost there"),
]


def commit(*events: dict[str, Any], time: str = TIME) -> Commit:
    return Commit(7, time, 4711, msgspec.json.encode(events), "0" * 64, Place(1, 0, 100))


def lines(*events: dict[str, Any], columns: int | None = None) -> list[str]:
    made = commit(*events)
    return list(replay.render_lines(made, replay.parse_events(made), range(len(events)), str, columns))


@pytest.mark.parametrize(("tag", "fields", "words"), WORDS)
def test_each_event_reads_as_a_sentence(tag: str, fields: dict[str, Any], words: str) -> None:
    (line,) = lines({"type": tag, **fields})
    assert line[54:] == words


def test_there_are_words_for_every_event_type() -> None:
    tags = {kind.__struct_config__.tag for kind in replay._WORDS}
    assert tags == {tag for tag, _, _ in WORDS} == {kind.__struct_config__.tag for kind in get_args(AnyEvent)}


def test_a_line_says_seq_time_identity_and_what_happened() -> None:
    created = {"type": "channel_created", "channel": "general", "kind": "ordinary"}
    assert lines(ACTIVE, {"type": "reset", "by": "ann"}, created) == [
        f"     7  {TIME}  bob                 looked, nothing was new",
        f"     7  {TIME}  ann                 reset the bus",
        f"     7  {TIME}  -                   created ordinary channel general",
    ]


@pytest.mark.parametrize(
    ("names", "columns", "room"),
    [
        (["bob"], 100, 18),
        (["a" * 25, "b" * 20], 100, 25),
        (["a" * 25, "b" * 26], 100, 25),
        (["検" * 12], 100, 24),
        (["a" * 40, "b" * 41], 300, 40),
        ([], 100, 18),
    ],
)
def test_on_a_terminal_the_room_for_identities_grows_with_the_longest_name_so_far(
    names: list[str], columns: int, room: int
) -> None:
    made = commit(*({"type": "active", "as": name} for name in names))
    events = replay.parse_events(made) if names else []
    assert replay.widen(replay.IDENTITY_COLUMNS, events, range(len(names)), columns) == room
    assert replay.widen(99, events, range(len(names)), columns) == 99


def test_the_time_is_shown_as_the_reader_wants_it() -> None:
    made = commit(ACTIVE)
    (line,) = replay.render_lines(made, replay.parse_events(made), [0], lambda text: text[11:16])
    assert line.startswith("     7  08:00  bob")


def test_a_long_line_is_cut_visibly_where_it_is_asked_for_and_only_there() -> None:
    long = posted("x" * 1000)
    (line,) = lines(long)
    assert line.endswith(": " + "x" * 1000)
    (shown,) = lines(long, columns=100)
    assert len(shown) == 100
    assert shown.endswith("x…")


def test_a_name_cannot_pass_for_other_words_of_the_line() -> None:
    event = posted("\nno", **{"as": 'bob  posted to general: "I quit"', "channel": "a, b"})
    (line,) = lines(event)
    assert line.split(TIME)[1] == '  "bob  posted to general: \\"I quit\\""  posted to "a, b": \\nno'


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_no_text_of_others_moves_the_cursor_or_begins_a_line(name: str, content: str, label: str, key: str) -> None:
    event = posted(content, **{"as": name, "channel": name, "label": label, "metadata": {key: label}, "key": key})
    (line,) = lines(event)
    assert not [char for char in line if unicodedata.category(char) in ("Cc", "Zl", "Zp")]
    assert not re.search("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", line)


def test_a_flat_object_holds_seq_index_time_and_pid_and_then_the_event() -> None:
    made = commit(ACTIVE, posted("hi", reply_to=3))
    found = list(replay.render_flat(made, replay.parse_events(made), range(2)))
    assert found[1] == (
        b'{"seq":7,"index":1,"time":"2026-09-09T08:00:07.049Z","pid":4711,"type":"posted","as":"alice",'
        b'"channel":"general","content":"hi","context":"shop","reply_to":3}'
    )
    assert [json.loads(line)["index"] for line in found] == [0, 1]


@pytest.mark.parametrize("time", ["", "yesterday", "2026-09-31T08:00:07.049Z", "2026-09-09T08:00:07.49Z", TIME + "\n"])
def test_a_time_that_is_none_is_a_fault(time: str) -> None:
    with pytest.raises(wire.MalformedError, match="is not a"):
        replay.parse_events(commit(ACTIVE, time=time))


def test_only_the_wanted_events_are_shown_in_the_order_that_is_asked_for() -> None:
    made = commit(ACTIVE, {"type": "reset", "by": "ann"}, posted("hi"))
    events = replay.parse_events(made)
    flat = [json.loads(line) for line in replay.render_flat(made, events, [2, 0])]
    assert [(row["index"], row["type"]) for row in flat] == [(2, "posted"), (0, "active")]
    assert [line[54:] for line in replay.render_lines(made, events, [1], str)] == ["reset the bus"]


def test_the_line_of_a_commit_is_made_again() -> None:
    line, _ = record.encode(7, TIME, 4711, b'[{"type":"active","as":"bob"}]', "0" * 64)
    made = record.decode(line[:-1], "0" * 64)
    assert replay.render_raw(made) == line


def test_what_no_bus_wrote_is_a_fault_and_what_a_later_one_wrote_is_named() -> None:
    with pytest.raises(wire.MalformedError):
        replay.parse_events(commit({"type": "active", "as": 7}))
    with pytest.raises(UnsupportedError):
        lines({"type": "teleported"})


def test_columns_count_what_a_terminal_shows() -> None:
    assert width("検索") == 4
    assert width("e\N{COMBINING ACUTE ACCENT}") == 1
    assert pad("検", 4) == "検  "
    assert pad("long", 2) == "long"


def test_a_cut_never_shows_more_columns_than_there_are() -> None:
    assert cut("four", 4) == "four"
    assert cut("検索検索", 6) == "検索…"
    assert cut("検索検索", 7) == "検索検…"


def test_rows_are_aligned_by_their_widest_cells() -> None:
    assert align([("a", "bb", ""), ("検索", "c", "d")]) == ["a     bb", "検索  c   d"]
    assert align([]) == []


def test_counts_are_words_for_one_and_for_many() -> None:
    assert [render_count(number, "line") for number in (0, 1, 2)] == ["0 lines", "1 line", "2 lines"]
    assert [render_count(number, "memory", "memories") for number in (1, 2)] == ["1 memory", "2 memories"]
