"""What is put into the settings of harnesses, on files as people keep them: the rest of each stays as it was."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from agentbus.harness import entries, jsonc
from agentbus.harness.entries import ForeignServerError, UnusableTextError

SERVER = {"command": "/opt/agentbus", "args": ["mcp"]}
HOOK = {"type": "command", "command": "/opt/agentbus hook stop --for claude", "timeout": 10}
WAKE = {"type": "command", "command": "/opt/agentbus hook wake --for claude", "asyncRewake": True}
GROUP = {"hooks": [HOOK, WAKE]}
THEIRS = {"matcher": "*", "hooks": [{"type": "command", "command": "make lint"}]}
server = entries.member("f", ("mcpServers", "agentbus"), SERVER, "server")
plain = entries.member("f", ("mcpServers", "agentbus"), SERVER, "server", reads="json")
commented = entries.member("f", ("mcpServers", "agentbus"), SERVER, "server", reads="comments")
stop = entries.hook("f", ("hooks", "Stop"), GROUP, "hook")
cursor = entries.hook("f", ("hooks", "stop"), {"command": HOOK["command"]}, "hook", defaults={"version": 1})
table = entries.table("f", "mcp_servers", SERVER | {"env": {"AGENTBUS_DATA_DIR": "/d"}}, "server")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"command": "agentbus", "args": ["mcp"]}, SERVER),
        ({"command": "agentbus", "args": [], "timeout": 9, "env": {"PYTHONPATH": "x"}},
         SERVER | {"timeout": 9, "env": {"PYTHONPATH": "x"}}),
        (SERVER | {"env": {"AGENTBUS_DATA_DIR": "/elsewhere"}}, SERVER),
        (SERVER | {"env": {"AGENTBUS_DATA_DIR": "/elsewhere", "A": "b"}}, SERVER | {"env": {"A": "b"}}),
        (SERVER | {"env": {}, "disabled": True}, SERVER | {"env": {}, "disabled": True}),
        (None, SERVER),
        (7, SERVER),
    ],
)  # fmt: skip
def test_an_older_server_is_brought_up_to_date_with_what_its_user_added(found: object, wanted: dict[str, Any]) -> None:
    text = json.dumps({"mcpServers": {"other": {"command": "x"}, "agentbus": found}}, indent=2)
    edited = server.put(text)
    assert json.loads(edited) == {"mcpServers": {"other": {"command": "x"}, "agentbus": wanted}}
    assert server.put(edited) == edited
    assert server.take(edited) == json.dumps({"mcpServers": {"other": {"command": "x"}}}, indent=2)


def test_where_the_bus_is_stands_in_an_environment_that_has_more() -> None:
    moved = entries.member("f", ("m", "agentbus"), SERVER | {"env": {"AGENTBUS_DATA_DIR": "/d"}}, "server")
    text = json.dumps({"m": {"agentbus": SERVER | {"env": {"A": "b"}}}})
    assert json.loads(moved.put(text))["m"]["agentbus"]["env"] == {"A": "b", "AGENTBUS_DATA_DIR": "/d"}


@pytest.mark.parametrize(
    "present",
    [
        [GROUP],
        [THEIRS, GROUP],
        [{"hooks": [HOOK]}, {"hooks": [WAKE]}],
        [{"hooks": [HOOK | {"timeout": 60}, WAKE]}],
        [{"matcher": "", "hooks": [*THEIRS["hooks"], HOOK, WAKE]}],
    ],
)
def test_hooks_that_are_there_stay_as_their_user_arranged_them(present: list[object]) -> None:
    text = json.dumps({"hooks": {"Stop": present}}, indent=4)
    assert stop.put(text) == text


def test_hooks_of_an_older_agentbus_are_brought_up_to_date_where_they_stand() -> None:
    """With the matcher, the time and the neighbours that their user gave them; Codex trusts a hook by its place."""
    command = "env AGENTBUS_DATA_DIR=/d /old/agentbus hook stop --for claude"
    old: dict[str, object] = {"command": command, "timeout": 99, "type": "command"}
    before = {"matcher": "x", "hooks": [*THEIRS["hooks"], old | {"mine": 1}, WAKE, 7]}
    text = json.dumps({"hooks": {"Stop": [before, THEIRS]}}, indent=4)
    edited = stop.put(text)
    after = before | {"hooks": [*THEIRS["hooks"], HOOK | {"timeout": 99, "mine": 1}, WAKE, 7]}
    assert json.loads(edited) == {"hooks": {"Stop": [after, THEIRS]}}
    assert edited == text.replace(command, str(HOOK["command"]))


def test_another_s_server_of_our_name_is_neither_changed_nor_taken_out() -> None:
    theirs = {"url": "https://example.org"}
    in_json, in_toml = json.dumps({"mcpServers": {"agentbus": theirs}}), '[mcp_servers.agentbus]\nurl = "https://x"\n'
    for entry, text in ((server, in_json), (table, in_toml)):
        with pytest.raises(ForeignServerError, match="another's server"):
            entry.put(text)
        assert entry.take(text) == text


def test_there_is_nothing_to_take_out_of_hooks_that_are_no_array() -> None:
    text = '{"hooks": {"Stop": null}}'
    assert stop.take(text) == text


def test_comments_beside_our_hooks_stay() -> None:
    text = '{"hooks": {"Stop": [ // ours\n{"command": "/old/agentbus hook stop --for x" /* kept */}, // theirs\n7]}}'
    one = entries.hook("f", ("hooks", "Stop"), {"command": HOOK["command"]}, "hook")
    assert one.put(text) == text.replace("/old/agentbus hook stop --for x", str(HOOK["command"]))
    assert one.take(one.put(text)) == '{"hooks": {"Stop": [ // ours // theirs\n7]}}'


@pytest.mark.parametrize("nothing", ['{"hooks": {"Stop": null}}', '{"hooks": {"Stop": []}}', '{"hooks": {}}', "{}", ""])
def test_hooks_that_are_none_yet_are_made(nothing: str) -> None:
    assert json.loads(stop.put(nothing)) == {"hooks": {"Stop": [GROUP]}}


@pytest.mark.parametrize(
    "outdated",
    [
        {"hooks": [HOOK | {"command": "agentbus hook stop --for claude"}]},
        {"hooks": [HOOK | {"command": "'/my tools/agentbus' hook stop --for claude"}, WAKE]},
        {"hooks": [HOOK | {"command": "env AGENTBUS_DATA_DIR=/d /opt/agentbus hook stop --for claude"}, WAKE]},
        {"hooks": [HOOK, {"type": "command", "command": WAKE["command"]}]},
        {"hooks": [HOOK, HOOK, WAKE]},
        {"hooks": [{"type": "command", "command": "agentbus identity --format json"}]},
    ],
)
def test_hooks_of_an_older_agentbus_are_replaced_and_not_doubled(outdated: dict[str, Any]) -> None:
    text = json.dumps({"hooks": {"Stop": [THEIRS, outdated]}}, indent=2)
    edited = stop.put(text)
    assert json.loads(edited) == {"hooks": {"Stop": [THEIRS, GROUP]}}
    assert json.loads(stop.take(text)) == {"hooks": {"Stop": [THEIRS]}}


@pytest.mark.parametrize(
    "theirs",
    [
        "agentbus identity | tee log",
        "agentbus status",
        "/opt/agentbus-wrapper hook stop --for claude",
        "notify 'agentbus hook stop --for claude'",
        "agentbus hook stop --for claude; make",
        "agentbus 'unclosed",
        "",
    ],
)
def test_a_hook_that_only_speaks_of_us_is_its_user_s(theirs: str) -> None:
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": theirs}]}, 7, {"hooks": 7}]}})
    assert stop.take(text) == text
    assert stop.take(stop.put(text)) == text


def test_one_of_ours_among_theirs_is_taken_out_alone() -> None:
    text = '{"hooks": {"Stop": [{"hooks": [{"command": "a"}, {"command": "agentbus hook stop --for x"}]}]}}'
    assert stop.take(text) == '{"hooks": {"Stop": [{"hooks": [{"command": "a"}]}]}}'


def test_members_that_a_file_needs_beside_its_hooks_come_and_go_with_them() -> None:
    made = cursor.put("")
    assert json.loads(made) == {"version": 1, "hooks": {"stop": [{"command": HOOK["command"]}]}}
    assert json.loads(cursor.take(made)) == {}
    text = '{\n  "version": 2,\n  "hooks": {"stop": [{"command": "x"}]}\n}\n'
    assert jsonc.parse(cursor.put(text))["version"] == 2
    assert cursor.take(cursor.put(text)) == text


@pytest.mark.parametrize(
    ("entry", "text", "cause"),
    [
        (server, '{"mcpServers": []}', '"mcpServers" in it is not what its client expects there'),
        (server, '{"mcpServers": {', "line 1, column"),
        (server, "<<<<<<< HEAD\n{}\n=======\n", "line 1, column 1"),
        (server, "[]", "line 1, column 1"),
        (server, '{"a": 1, "a": 2}', "line 1, column 10"),
        (plain, "{} // mine", "its client reads no comments and no trailing commas: line 1, column 4"),
        (plain, '{"a": 1,}', "its client reads no comments and no trailing commas: line 1, column"),
        (commented, '{"a": 1,} // mine', "its client reads no trailing commas: line 1, column"),
        (stop, '{"hooks": {"Stop": {}}}', '"hooks.Stop" in it is not'),
        (stop, '{"hooks": "on"}', '"hooks" in it is not'),
        (table, "mcp_servers = 3", '"mcp_servers" in it is not'),
        (table, "[mcp_servers]\nagentbus = 3", '"mcp_servers.agentbus" in it is not'),
        (table, "a = 1\na = 2", "it is no TOML"),
        (table, "a = \n", "it is no TOML"),
    ],
)
def test_a_file_that_its_client_would_not_read_is_refused_with_the_reason(
    entry: entries.Entry, text: str, cause: str
) -> None:
    with pytest.raises(UnusableTextError) as caught:
        entry.put(text)
    assert cause in str(caught.value)


def test_comments_are_no_hindrance_where_the_client_reads_them() -> None:
    text = '{"a": 1} // mine'
    assert commented.put(text) == server.put(text)
    assert plain.put("") == server.put("")


TOML = [
    "",
    "a = 1\n",
    "a = 1\n\n",
    "# only a comment\n",
    "a = 1\r\nb = 2\r\n",
    "[mcp_servers]\n",
    "[mcp_servers.other]\ncommand = 'x' # mine\n",
    "mcp_servers = {other = {command = 'x'}}\n",
    "mcp_servers.other.command = 'x'\n",
    "[mcp_servers.a]\ncommand = 'x'\n\n[tui]\nx = 1\n\n[mcp_servers.b]\ncommand = 'y'\n",
    'x = """\n[other]\n"""\n[[hooks.Stop]]\na = [1,\n 2]\n',
]


@pytest.mark.parametrize("text", TOML)
def test_a_table_comes_and_goes_and_leaves_the_rest_of_a_toml_file(text: str) -> None:
    edited = table.put(text)
    before, after = tomllib.loads(text), tomllib.loads(edited)
    assert after["mcp_servers"].pop("agentbus") == SERVER | {"env": {"AGENTBUS_DATA_DIR": "/d"}}
    assert after == {"mcp_servers": {}} | before
    assert table.put(edited) == edited
    assert table.take(edited) == text
    assert table.take(text) == text


OLDER = """\
[mcp_servers.agentbus]
command = "agentbus" # old
args = ["mcp"]
tool_timeout_sec = 9

# next
[tui]
x = 1
"""
ELSEWHERE = """\
[mcp_servers.agentbus]
command = "/opt/agentbus"
args = ["mcp"]
[mcp_servers.agentbus.env]
AGENTBUS_DATA_DIR = "/elsewhere"
"""


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        (OLDER, OLDER.replace('"agentbus"', '"/opt/agentbus"')),
        (ELSEWHERE, ELSEWHERE.partition("[mcp_servers.agentbus.env]")[0]),
        (ELSEWHERE + 'B = "c"\n', ELSEWHERE.replace('AGENTBUS_DATA_DIR = "/elsewhere"', 'B = "c"')),
    ],
)
def test_an_older_table_is_brought_up_to_date_with_what_its_user_added(text: str, edited: str) -> None:
    here = entries.table("f", "mcp_servers", SERVER, "server")
    assert here.put(text) == edited
    assert here.put(edited) == edited


def test_a_table_that_another_wrote_is_taken_out_with_its_comments_left_to_the_next() -> None:
    text = 'a = 1\n\n[mcp_servers.agentbus]\ncommand = "x"\n\n[mcp_servers.agentbus.env]\nA = "b"\n\n# mine\n[tui]\n'
    assert table.take(text) == "a = 1\n\n# mine\n[tui]\n"
    strange = 'x = """\n[mcp_servers.agentbus]\n"""\n[mcp_servers]\nagentbus = {command = "x"}\nother = {}\n'
    assert tomllib.loads(table.take(strange)) == {"x": "[mcp_servers.agentbus]\n", "mcp_servers": {"other": {}}}
