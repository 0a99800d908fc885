"""One JSON object, checked and edited in its text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbus.jsontext import Document, JSONTextError

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
_OBJECTS = st.dictionaries(st.text(), _VALUES)


@settings(max_examples=50, deadline=None)
@given(_OBJECTS, st.booleans(), st.sampled_from([None, 1, 4]))
def test_an_edit_keeps_every_other_key_its_order_and_its_value(
    value: dict[str, object],
    ascii_only: bool,  # noqa: FBT001 - drawn by hypothesis
    indent: int | None,
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    edited = Document(text).with_member("channels", '["a"]')
    expected = {**value, "channels": ["a"]}
    assert list(json.loads(edited).items()) == list(expected.items())
    if not ascii_only:
        assert edited == json.dumps(expected, ensure_ascii=False, indent=2) + "\n"


@pytest.mark.parametrize(
    "literal",
    [
        "1.0",
        "-0",
        "1e400",
        "1E+2",
        "0.1000",
        "123456789012345678901234567890",
        "1" * 5000,
        '"\\u00e9\\/\\ud83d"',
        '"\u2028 {[,:"',
        "true",
        "null",
        "{}",
        "[]",
    ],
)
def test_a_foreign_value_keeps_its_spelling(literal: str) -> None:
    text = f'{{"x":{literal},"channels":[]}}'
    assert (
        Document(text).with_member("channels", '["a"]') == f'{{\n  "x": {literal},\n  "channels": [\n    "a"\n  ]\n}}\n'
    )


def test_a_key_is_found_however_it_is_spelt() -> None:
    document = Document('{"\\u0063hannels": ["a"], "b": {"channels": 1}}')
    assert document.entries("channels") == ['"a"']
    assert json.loads(document.with_member("channels", "[]")) == {"channels": [], "b": {"channels": 1}}


def test_entries_are_given_in_their_own_spelling() -> None:
    document = Document('{"channels": ["a", 1.0, {"b": [1, 2]}, [], "\\u00e9"]}')
    assert document.entries("channels") == ['"a"', "1.0", '{"b":[1,2]}', "[]", '"\\u00e9"']
    assert Document('{"channels": []}').entries("channels") == []


def test_the_place_of_a_value_counts_lines_and_columns_from_one() -> None:
    document = Document('{"a": 1,\r\n  "b": {"c": 2}}')
    assert document.place("a") == (1, 7)
    assert document.place("b") == (2, 8)


@pytest.mark.parametrize(
    ("text", "line", "column", "cause"),
    [
        ("", 1, 1, "Expecting value"),
        (" \n", 2, 1, "Expecting value"),
        ("null", 1, 1, "must hold one JSON object"),
        ("\n []", 2, 2, "must hold one JSON object"),
        ("// comment\n{}", 1, 1, "Expecting value"),
        ('{"a": 1}\n{}', 2, 1, "Extra data"),
        ('{"a": [1', 1, 9, "delimiter"),
        ('{"a": 1,\n"a": 2}', 2, 1, 'duplicate key "a"'),
        ('{"a": [{"b": 1, "c": {}, "\\u0062": 2}]}', 1, 26, "duplicate key"),
        ('{"a": [1, NaN]}', 1, 11, "NaN is not JSON"),
        ('{"a": -Infinity}', 1, 7, "-Infinity is not JSON"),
        ('{"a": "\t"}', 1, 8, "Invalid control character"),
        ('{"a": "', 1, 7, "Unterminated string"),
        ('{"a":' + "[" * 100_000, 1, 1, "nested too deeply"),
    ],
)
def test_what_is_no_plain_json_object_is_refused_with_its_place(text: str, line: int, column: int, cause: str) -> None:
    with pytest.raises(JSONTextError) as caught:
        Document(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert cause in str(caught.value)
    assert not str(caught.value).endswith(" at")
