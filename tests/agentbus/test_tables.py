"""A table of a TOML file comes and goes, and all else stays as it was, however the file is written."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from agentbus.harness import tables
from agentbus.harness.entries import merged
from agentbus.harness.tables import TableError

PATH = ("mcp_servers", "agentbus")
WANTED = {"command": '/opt/a "b"\\c $d/agentbus', "args": ["mcp"], "env": {"AGENTBUS_DATA_DIR": "/é"}}
HEADERS = [
    "[mcp_servers]", "[ mcp_servers ]", '["mcp_servers"]', "[mcp_servers.other]", '[ mcp_servers . "other" ]',
    "[mcp_servers.agentbus]", '["mcp_servers".agentbus]', "[ mcp_servers.agentbus ] # mine", "[tui]", "[[hooks.Stop]]",
    "[mcp_servers.agentbus.env]", "[mcp_servers.'agentbus'.env]", "[mcp_servers.other.env]", '[projects."/a b"]',
    "[mcp_servers.agentbus.tools.post]", "[[mcp_servers]]", "[numbers]\nn = [nan, 1e9]",
]  # fmt: skip
LINES = [
    'model = "m" # why', "x = [\n 1, # one\n]", 'text = """\n[mcp_servers.agentbus]\n"""', "# [mcp_servers.agentbus]",
    'mcp_servers.other.command = "x"', 'mcp_servers.agentbus.command = "x"', "mcp_servers = {}",
    'mcp_servers = {other = {command = "x"}}', 'mcp_servers = {agentbus = {command = "x"}}', "", "\t# indented",
    'mcp_servers.agentbus = {command="x", args=[]}', 'agentbus = {command = "y"}', 'agentbus.command = "y"',
    'command = "agentbus"', 'args = ["mcp"]', 'env = {A = "b"}', 'env.A = "b"', 'A = "\u2028[x]"', "t = 20.0",
    'AGENTBUS_DATA_DIR = "/old"', "d = 1979-05-27T07:32:00Z", "other.command = 'x'", '"agentbus"."command" = "q"',
]  # fmt: skip


@st.composite
def texts(draw: st.DrawFn) -> str:
    """TOML in any spelling, most of it about servers."""
    lines = draw(st.lists(st.sampled_from([*HEADERS, *LINES, *LINES]), max_size=8))
    text = "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n"]))
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def said(text: str) -> dict[str, Any]:
    """What a text says; numbers as they are written, so that NaN is like NaN."""
    return tomllib.loads(text, parse_float=str)


def without(value: dict[str, Any]) -> dict[str, Any]:
    servers = {name: each for name, each in value.get("mcp_servers", {}).items() if name != "agentbus"}
    rest = {name: each for name, each in value.items() if name != "mcp_servers"}
    return rest | ({"mcp_servers": servers} if servers else {})


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(texts())
def test_a_table_comes_and_goes_and_nothing_else_is_said_then(text: str) -> None:
    try:
        before, found = said(text), tables.get(text, PATH)
    except (tomllib.TOMLDecodeError, TableError, KeyError):
        reject()  # no such file would be edited
    wanted = merged(found, WANTED)
    edited = tables.put(text, PATH, wanted)
    assert tables.get(edited, PATH) == wanted
    assert without(said(edited)) == without(before)
    assert tables.put(edited, PATH, wanted) == edited
    if found is None and "= {" not in text:
        assert edited.startswith(text)
    if "\n" in text and "\n" not in text.replace("\r\n", ""):
        assert edited.count("\n") == edited.count("\r\n")
    try:
        left = tables.drop(edited, PATH)
    except TableError:
        reject()  # it is in pieces that nobody can put together, and named
    assert tables.get(left, PATH) is None
    assert without(said(left)) == without(before)
    assert tables.drop(left, PATH) == left


def test_pieces_that_the_library_would_scatter_are_put_together_at_the_end() -> None:
    text = '[mcp_servers]\nagentbus.command = "y"\nother.command = "x"\n'
    edited = tables.put(text, PATH, {"command": "y", "env": {"A": "b"}})
    assert edited == (
        '[mcp_servers]\nother.command = "x"\n\n[mcp_servers.agentbus]\ncommand = "y"\n\n'
        '[mcp_servers.agentbus.env]\nA = "b"\n'
    )


def test_pieces_that_nobody_can_put_together_are_named_and_left() -> None:
    text = """
[mcp_servers]
command = "agentbus"
other.command = 'x'
"agentbus".command="q"
"agentbus".args = ["mcp"]
[tui]
agentbus = {command = "y"}
[mcp_servers.'agentbus'.env]
AGENTBUS_DATA_DIR = "/d"
"""
    with pytest.raises(TableError, match=r"its mcp_servers\.agentbus cannot be edited .* take it out by hand"):
        tables.drop(text, PATH)


def test_new_lines_end_as_those_that_are_there() -> None:
    text = '[mcp_servers.agentbus]\r\ncommand = "x"\r\n[tui]\r\n'
    edited = tables.put(text, PATH, {"command": "y", "args": ["mcp"]})
    assert edited == '[mcp_servers.agentbus]\r\ncommand = "y"\r\nargs = ["mcp"]\r\n[tui]\r\n'


def test_a_file_of_many_tables_is_not_read_by_the_library_where_nothing_changes() -> None:
    many = "".join(f'[projects."/p{number}"]\ntrust_level = "trusted"\n\n' for number in range(300))
    edited = tables.put(many, PATH, WANTED)
    assert tables.put(edited, PATH, WANTED) is edited
    assert tables.drop(edited, PATH) == many


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('a = "x"\n[a]\n', "it is no TOML: Cannot overwrite a value"),
        ("a = 1\na = 2\n", "it is no TOML"),
        ("a = " + "[" * 5000, "it is nested too deeply"),
    ],
)
def test_what_is_no_toml_is_refused_though_the_library_may_take_it(text: str, says: str) -> None:
    with pytest.raises(TableError, match=says):
        tables.put(text, PATH, WANTED)
