"""Settings files with comments: edited where asked, and nowhere else."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbus.harness import jsonc
from agentbus.jsontext import JSONTextError

SERVER = {"command": "/opt/agentbus", "args": ["mcp"]}
NAMES = st.sampled_from(["a", "hooks", "//b", "c,}", "d\\", "é", ""])
SCALARS = st.none() | st.booleans() | st.integers() | st.sampled_from(["", "x // y", "/* z */", ",]", '"', "日本"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)


def commented(text: str, comments: list[str]) -> str:
    """A comment behind some of the line ends of a text that was laid out on several lines."""
    found = iter(comments)
    return re.sub(r"(?<=[\[{,\d])\n", lambda _: f" {next(found, '')}\n", text)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A JSON object as somebody may keep it: any indentation, comments, trailing commas, either line end."""
    value = draw(DOCUMENTS)
    indent = draw(st.sampled_from([None, 1, 2, 4, "\t"]))
    text = json.dumps(value, indent=indent, ensure_ascii=draw(st.booleans()))
    if indent is not None:
        text = commented(text, draw(st.lists(st.sampled_from(["// one", "/* , } */", ""]), max_size=6)))
        if draw(st.booleans()):
            text = re.sub(r"(?<=[^\[{,\s])(\n\s*[\]}])", r",\1", text) if not re.search("//|/\\*", text) else text
    return draw(st.sampled_from(["", "// top\n", "\n"])) + text + draw(st.sampled_from(["", "\n", "\n// end\n"]))


@st.composite
def scrawled(draw: st.DrawFn, value: object, depth: int = 1) -> str:
    """A value with a line end or none, and a comment or none, wherever there may be one."""
    if not isinstance(value, dict | list):
        return json.dumps(value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    names = [f"{json.dumps(name)}: " for name in value] if isinstance(value, dict) else [""] * len(value)
    members = value.values() if isinstance(value, dict) else value
    gaps = st.sampled_from(
        ["", " ", "\n" + "  " * depth, "\n", " // one\n", "/* two */", " /* three\nlines */ ", "// four\n"]
    )
    pieces: list[str] = []
    for name, each in zip(names, members, strict=True):
        inner: str = draw(scrawled(each, depth + 1))
        pieces.append(draw(gaps) + name + inner + draw(gaps))
    trailing = draw(st.sampled_from(["", ","])) if pieces else ""
    return opening + ",".join(pieces) + trailing + draw(gaps) + closing


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS.flatmap(scrawled), st.data())
def test_however_a_text_is_laid_out_an_edit_changes_what_it_should_and_nothing_else(
    text: str, data: st.DataObject
) -> None:
    before = jsonc.parse(text)
    edited = jsonc.put(text, ("mcpServers", "agentbus"), SERVER)
    assert jsonc.parse(edited) == before | {"mcpServers": {"agentbus": SERVER}}
    assert remarks(edited) == remarks(text)
    back = jsonc.drop(edited, ("mcpServers", "agentbus"))
    assert jsonc.parse(back) == before
    assert remarks(back) == remarks(text)
    if before:
        name = data.draw(st.sampled_from(sorted(before)))
        less = jsonc.drop(text, (name,))
        assert jsonc.parse(less) == {key: value for key, value in before.items() if key != name}
        if isinstance(before[name], list):
            longer = jsonc.append(text, (name,), SERVER)
            assert jsonc.parse(longer) == before | {name: [*before[name], SERVER]}
            assert remarks(longer) == remarks(text)


def remarks(text: str) -> int:
    return sum(text.count(mark) for mark in ("one", "two", "three", "four"))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{ // c\n"m": {"a": 1}, "version": 2}', '{ // c\n"version": 2}'),
        ('{ // c\n  "m": {"a": 1} /* d\n e */ }', "{ // c\n   /* d\n e */ }"),
        ('{"z": 1, // c\n"m": {"a": 1}, "y": 2}', '{"z": 1, // c\n"y": 2}'),
        ('{"z": 1, /* c */ "m": {"a": 1}}', '{"z": 1 /* c */}'),
        ('{"m": {"a": 1} /* c */, "y": 2}', '{/* c */ "y": 2}'),
        ('{"m": {"a": 1 /* c */}}', '{"m": { /* c */}}'),
        ('{"m": {"a": null}}', "{}"),
    ],
)
def test_a_comment_is_left_where_it_ends_and_takes_nothing_along(text: str, left: str) -> None:
    assert jsonc.drop(text, ("m", "a")) == left


def test_there_is_nothing_to_take_out_of_a_text_without_a_value() -> None:
    assert jsonc.drop("// mine\n", ("m", "a")) == "// mine\n"


def test_an_array_that_is_null_is_made() -> None:
    assert jsonc.append('{"m": {"a": null}, "z": 1}', ("m", "a"), 1) == '{"m": {"a": [\n  1\n]}, "z": 1}'


@given(texts(), st.booleans())
def test_what_was_put_in_is_taken_out_without_a_trace(text: str, windows: bool) -> None:  # noqa: FBT001  # drawn
    text = text.replace("\n", "\r\n") if windows else text
    before = jsonc.parse(text)
    edited = jsonc.put(text, ("mcpServers", "agentbus"), SERVER)
    assert jsonc.parse(edited) == before | {"mcpServers": {"agentbus": SERVER}}
    assert jsonc.put(edited, ("mcpServers", "agentbus"), SERVER) == edited
    restored = jsonc.drop(edited, ("mcpServers", "agentbus"))
    assert restored == text or (not before and re.sub(r"\s", "", restored) == re.sub(r"\s", "", text))


@given(texts(), st.data())
def test_an_edit_leaves_every_other_value_and_every_comment(text: str, data: st.DataObject) -> None:
    before = jsonc.parse(text)
    lists = [name for name, value in before.items() if isinstance(value, list)]
    if lists:
        name = data.draw(st.sampled_from(lists))
        edited = jsonc.append(text, (name,), SERVER)
        assert jsonc.parse(edited) == before | {name: [*before[name], SERVER]}
        assert edited.count("one") == text.count("one")
        if before[name]:
            assert jsonc.drop(edited, (name, len(before[name]))) == text
            less = jsonc.drop(text, (name, 0)) if before[name][0] is not None else text
            assert jsonc.parse(less).get(name, []) == (before[name][1:] if less != text else before[name])


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("", '{\n  "m": {\n    "a": 1\n  }\n}\n'),
        ("// mine\n", '// mine\n{\n  "m": {\n    "a": 1\n  }\n}\n'),
        ("{}", '{\n  "m": {\n    "a": 1\n  }\n}'),
        ('{"z": 1}', '{"z": 1, "m": {"a": 1}}'),
        ('{"z": 1,}', '{"z": 1, "m": {"a": 1},}'),
        ('{\n    "z": 1 // why\n}\n', '{\n    "z": 1, // why\n    "m": {\n        "a": 1\n    }\n}\n'),
        ('{\n\t"z": 1, /* why */\n}\n', '{\n\t"z": 1, /* why */\n\t"m": {\n\t\t"a": 1\n\t},\n}\n'),
        ("{\n  // nothing yet\n}\n", '{\n  // nothing yet\n  "m": {\n    "a": 1\n  }\n}\n'),
        ('{\n  "z": 1, // why\n  // more\n}', '{\n  "z": 1, // why\n  "m": {\n    "a": 1\n  },\n  // more\n}'),
        ('{\n  "m": {"b": 2}\n}\n', '{\n  "m": {"b": 2, "a": 1}\n}\n'),
        ('{"m": {"a": 2}, "z": 1}', '{"m": {"a": 1}, "z": 1}'),
        ('{"m": {"a": null}}', '{"m": {"a": 1}}'),
    ],
)
def test_a_new_member_looks_like_its_neighbours(text: str, edited: str) -> None:
    assert jsonc.put(text, ("m", "a"), 1) == edited


@pytest.mark.parametrize(
    ("text", "path", "left"),
    [
        ('{"a": 1, "b": 2, "c": 3}', ("b",), '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2}', ("a",), '{"b": 2}'),
        ('{"a": 1, "b": 2 }', ("b",), '{"a": 1 }'),
        ('{\n  "a": 1, // one\n  // two\n  "b": 2, // three\n  "c": 3\n}', ("b",),
         '{\n  "a": 1, // one\n  // two // three\n  "c": 3\n}'),
        ('{\n  "a": [\n    1,\n    2,\n  ],\n}', ("a", 1), '{\n  "a": [\n    1,\n  ],\n}'),
        ('{"a": {"b": {"c": 1}}, "z": []}', ("a", "b", "c"), '{"z": []}'),
        ('{"a": 1}', ("b",), '{"a": 1}'),
        ('{"a": 1}', ("b", "c"), '{"a": 1}'),
    ],
)  # fmt: skip
def test_what_is_taken_out_takes_its_comma_and_its_line_along(text: str, path: jsonc.Path, left: str) -> None:
    assert jsonc.drop(text, path) == left


@pytest.mark.parametrize(
    ("text", "place"),
    [('{"a" 1}', "line 1, column 6"), ("{// x\n/* y", "line 2, column 1"), ("[1]", "line 1, column 1"),
     ('{"a": 1,\n"a": 2}', "line 2, column 1"), ('{"a": 1,,}', "line 1, column (8|10)")],  # as the Python has it
)  # fmt: skip
def test_a_text_that_does_not_parse_is_named_with_line_and_column(text: str, place: str) -> None:
    with pytest.raises(JSONTextError, match=place):
        jsonc.put(text, ("a",), 1)


def test_what_stands_in_the_way_is_named_and_not_replaced() -> None:
    for text, path, named in [
        ('{"m": 1}', ("m", "a"), "m"),
        ('{"m": null}', ("m", "a"), "m"),
        ('{"m": []}', ("m", "a"), "m"),
        ('{"m": {"a": "x"}}', ("m", "a", "b"), "m.a"),
    ]:
        with pytest.raises(KeyError) as caught:
            jsonc.put(text, path, 1)
        assert caught.value.args == (named,)
    with pytest.raises(KeyError):
        jsonc.append('{"m": {}}', ("m",), 1)
