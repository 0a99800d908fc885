"""JSON-RPC lines: how a stream is cut, what a line means, and what is written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbus import jsonrpc
from agentbus.jsonrpc import LineSplitter, Malformed, Notification, Request, Response, parse_line

STREAM = "first\n\n\u2028second\r\x0b\x85\nthird".encode()


@pytest.mark.parametrize("size", range(1, len(STREAM) + 1))
def test_lines_end_at_lf_only_however_the_stream_arrives(size: int) -> None:
    splitter = LineSplitter(100)
    chunks = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    assert lines == [b"first", b"", "\u2028second\r\x0b\x85".encode()]
    assert splitter.last_line() == b"third"


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_line_that_is_too_long_is_told_once_as_soon_as_it_is_and_the_next_one_is_whole(size: int) -> None:
    splitter = LineSplitter(5)
    stream = b"12345\n123456" + b"x" * 30 + b"\n12345\n"
    lines = [line for at in range(0, len(stream), size) for line in splitter.feed(stream[at : at + size])]
    assert lines == [b"12345", None, b"12345"]
    assert splitter.feed(b"123456") == [None]
    assert splitter.feed(b"more") == []
    assert splitter.last_line() == b""


def test_a_request_has_id_method_and_params() -> None:
    message = parse_line(b'{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":[1]}}\r')
    assert isinstance(message, Request)
    assert (message.id, message.method, message.params, message.not_text) == ("a", "m", {"x": [1]}, None)


@pytest.mark.parametrize("params", [b"", b',"params":null', b',"params":{}'])
def test_params_may_be_missing_null_or_empty(params: bytes) -> None:
    message = parse_line(b'{"jsonrpc":"2.0","id":0,"method":"m"%b}' % params)
    assert isinstance(message, Request)
    assert (message.id, message.params) == (0, {})


def test_without_an_id_it_is_a_notification() -> None:
    message = parse_line(b'{"jsonrpc":"2.0","method":"m","params":{"x":1}}')
    assert isinstance(message, Notification)
    assert (message.method, message.params) == ("m", {"x": 1})


@pytest.mark.parametrize("rest", [b'"result":{}', b'"error":{"code":1,"message":""}'])
def test_an_answer_is_no_request(rest: bytes) -> None:
    assert isinstance(parse_line(b'{"jsonrpc":"2.0","id":1,%b}' % rest), Response)


@pytest.mark.parametrize(
    ("line", "code", "id_"),
    [
        (b"word", jsonrpc.PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":1', jsonrpc.PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":NaN}}', jsonrpc.PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":-Infinity}}', jsonrpc.PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":%b}}' % (b"9" * 5000), jsonrpc.PARSE_ERROR, None),
        (b"[" * 200_000, jsonrpc.PARSE_ERROR, None),
        (b'{"a":' * 200_000, jsonrpc.PARSE_ERROR, None),
        (b'\xff{"jsonrpc":"2.0","id":1,"method":"m"}', jsonrpc.PARSE_ERROR, None),
        (b"[]", jsonrpc.INVALID_REQUEST, None),
        (b"42", jsonrpc.INVALID_REQUEST, None),
        (b"null", jsonrpc.INVALID_REQUEST, None),
        (b'"text"', jsonrpc.INVALID_REQUEST, None),
        (b"{}", jsonrpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":1}', jsonrpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', jsonrpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"m"}', jsonrpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', jsonrpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":[1],"method":"m"}', jsonrpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":"\\ud83d","method":"m"}', jsonrpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"1.0","id":1,"method":"m"}', jsonrpc.INVALID_REQUEST, 1),
        (b'{"id":1,"method":"m"}', jsonrpc.INVALID_REQUEST, 1),
        (b'{"method":"m"}', jsonrpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', jsonrpc.INVALID_REQUEST, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', jsonrpc.INVALID_PARAMS, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":0}', jsonrpc.INVALID_PARAMS, 1),
    ],
)
def test_what_is_no_message_is_told_so_under_its_id_if_it_has_one(line: bytes, code: int, id_: object) -> None:
    message = parse_line(line)
    assert isinstance(message, Malformed)
    assert (message.code, message.id) == (code, id_)
    assert jsonrpc.render_error(message.id, message.code, message.text)


def test_a_batch_is_read_entry_by_entry() -> None:
    messages = parse_line(b'[{"jsonrpc":"2.0","id":1,"method":"m"},7,{"jsonrpc":"2.0","method":"n"}]')
    assert isinstance(messages, list)
    assert [type(message) for message in messages] == [Request, Malformed, Notification]


@pytest.mark.parametrize(
    ("params", "path"),
    [
        (rb'{"a":"ok","b":{"c":["ok","\ud83d"]}}', ("b", "c")),
        (rb'{"a":"\uDE00\ud83d"}', ("a",)),
        (rb'{"\ud83d":1}', ("\ud83d",)),
        (b'{"a":"\xff"}', ("a",)),
        (b'{"a":"\xed\xa0\xbd"}', ("a",)),
        (rb'{"b":{"x":"\ud83d"},"a":"\ud83d"}', ("b", "x")),
        (rb'{"a":"\ud83d\ude00"}', None),
        ('{"a":"😀"}'.encode(), None),
        (rb'{"a":"\\ud83d"}', None),
    ],
)
def test_what_is_not_text_is_found_where_it_stands(params: bytes, path: tuple[str, ...] | None) -> None:
    message = parse_line(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % params)
    assert isinstance(message, Request)
    assert message.not_text == path


def test_text_is_looked_for_as_deep_as_json_can_be_read() -> None:
    nested = json.loads("[" * 900 + '"x"' + "]" * 900)
    assert jsonrpc.find_not_text(nested) is None
    assert jsonrpc.find_not_text({"a": [nested, "\ud83d"]}) == ("a",)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_what_is_written_reads_the_same_and_is_one_line_for_every_client(value: object) -> None:
    data = jsonrpc.encode(value)
    assert json.loads(data) == value
    assert len(data.decode().splitlines()) == 1


def test_what_cannot_be_encoded_never_keeps_an_answer_back() -> None:
    assert jsonrpc.encode({"a": "\ud83dx"}) == b'{"a":"?x"}'
