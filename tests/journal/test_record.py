from __future__ import annotations

import json

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal import record
from journal.record import ZERO_HASH, BadLineError

TIME = "2026-09-09T08:00:07.049Z"
HASHES = st.text("0123456789abcdef", min_size=64, max_size=64)
VALUES = st.recursive(
    st.text() | st.integers(0, 2**53 - 1) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.lists(
    st.dictionaries(st.text(), VALUES, max_size=4).map(lambda rest: {"type": "x", **rest, "type ": 1}), min_size=1
)


@given(st.integers(1, 2**53 - 1), st.integers(0, 2**31), EVENTS, HASHES)
def test_decode_is_the_inverse_of_encode(seq: int, pid: int, made: list[dict[str, object]], prev: str) -> None:
    events = msgspec.json.encode(made)
    line, digest = record.encode(seq, TIME, pid, events, prev)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert b"\0" not in line
    commit = record.decode(line[:-1], prev, 3, 40)
    assert (commit.seq, commit.time, commit.pid, commit.events, commit.hash) == (seq, TIME, pid, events, digest)
    assert commit.place == record.Place(3, 40, len(line))
    assert record.decode(line[:-1], None) == msgspec.structs.replace(commit, place=record.Place(0, 0, len(line)))
    assert orjson.loads(line) == json.loads(line)


def test_a_line_is_the_five_keys_in_order_and_ends_in_75_bytes() -> None:
    line, digest = record.encode(7, TIME, 4711, b'[{"type":"acked"}]', ZERO_HASH)
    head = b'{"seq":7,"time":"2026-09-09T08:00:07.049Z","pid":4711,"events":[{"type":"acked"}]'
    assert line == head + b',"hash":"' + digest.encode() + b'"}\n'
    assert len(line) - len(head) == 75 + 1


def test_a_body_may_hold_u2028_and_a_key_named_hash() -> None:
    events = '[{"type":"posted","content":"a\u2028b","metadata":{"hash":"x"},"more":",\\"hash\\":\\"y"}]'.encode()
    line, _ = record.encode(1, TIME, 1, events, ZERO_HASH)
    assert record.decode(line[:-1], ZERO_HASH).events == events


def hashed(head: bytes) -> bytes:
    digest = record._sha256(ZERO_HASH.encode() + head).hexdigest()
    return head + b',"hash":"' + digest.encode() + b'"}'


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b"", "does not end in a hash"),
        (b"{}", "does not end in a hash"),
        (b"x" * 200, "does not end in a hash"),
        (hashed(b'{"seq":1')[:-3] + b'F"}', "does not end in a hash"),
        (hashed(b'{"seq":1').replace(b"1", b"2", 1), "does not verify: its bytes give the hash"),
        (hashed(b'{"seq":1'), "does not parse: .*missing required field"),
        (hashed(b'{"seq":1,"time":"t","pid":1,"events":[{"type":"x"}],"more":1'), "does not parse: .*unknown field"),
        (hashed(b'{"seq":"1","time":"t","pid":1,"events":[{"type":"x"}]'), "does not parse: Expected `int`"),
        (hashed(b'{"seq":1,"time":"t","pid":1,"events":[]'), "does not parse: events is no array of objects"),
        (hashed(b'{"seq":1,"time":"t","pid":1,"events":{}'), "does not parse: events is no array of objects"),
        (hashed(b'{"seq":1,"time":"t","pid":1,"events":[{]'), "does not parse: JSON is malformed"),
        (hashed(b'{"time":"t","seq":1,"pid":1,"events":[{}]'), "does not parse: it is not spelt as the format has it"),
        (hashed(b'{"seq":1,"pid":1,"time":"t","events":[{}]'), "not spelt"),
        (hashed(b'{"seq":1,"events":[{}],"time":"t","pid":1'), "not spelt"),
        (hashed(b'{"seq": 1,"time":"t","pid":1,"events":[{}]'), "not spelt"),
        (hashed(b'{"seq":1,"time":"\\u0074","pid":1,"events":[{}]'), "not spelt"),
        (hashed(b'{"seq":-0,"time":"t","pid":1,"events":[{}]'), "not spelt"),
        (hashed(b'{"seq":1,"time":"t","pid":1,"events":[{"of":1}],"events":[{}]'), "not spelt"),
        (hashed(b'{"seq":1,"time":"t","pid":1,"events":[{}] '), "not spelt"),
    ],
)
def test_a_bad_line_says_what_is_wrong_with_it(line: bytes, cause: str) -> None:
    with pytest.raises(BadLineError, match=cause):
        record.decode(line, ZERO_HASH)


@pytest.mark.parametrize(
    ("old", "new"), [(b',"hash":"', b',"hasx":"'), (b'"}', b'"]'), (b'0"}', b'~"}'), (b'0"}', b'F"}'), (b'0"}', b'/"}')]
)
def test_only_an_ending_that_is_right_in_every_byte_states_a_hash(old: bytes, new: bytes) -> None:
    line = b'{"seq":1,"hash":"' + b"0" * 64 + b'"}'
    assert record.stated_hash(line) == "0" * 64
    assert record.stated_hash(new.join(line.rsplit(old, 1))) is None


def test_a_line_may_be_two_mebibytes_long() -> None:
    assert record.LINE_BYTES_MAX == 2 * 1024 * 1024  # FORMAT.md promises it to every reader


def test_without_the_hash_before_it_a_line_must_still_state_one() -> None:
    with pytest.raises(BadLineError, match="does not end in a hash"):
        record.decode(b"x" * 100, None)


def test_a_line_of_which_nobody_says_where_it_lies_lies_nowhere() -> None:
    line, _ = record.encode(1, "2026-09-09T08:00:07.049Z", 1, b'[{"type":"x"}]', record.ZERO_HASH)
    assert record.decode(line[:-1], None).place == record.Place(0, 0, len(line))
