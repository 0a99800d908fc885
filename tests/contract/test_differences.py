"""The same session through each door: where their answers differ is a list, with reasons, and nowhere else do they."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mcp_types.methods import validate_server_result

from agentbus.methods import REVISIONS
from tests.agentbus.hosts import events
from tests.agentbus.raw_server import RawServer
from tests.contract.harness import DOORS, Door
from tests.contract.probes import converse, normalised, said, session

ROOT = Path(__file__).parents[2]


class Difference(NamedTuple):
    """What the doors may say differently.

    Attributes:
        probes: the names of the lines, as in probes.py.
        stdio, sdk: what they say, as ``said`` puts it; of a text its beginning.
    """

    probes: tuple[str, ...]
    stdio: str
    sdk: str
    why: str


class Elsewhere(NamedTuple):
    """A difference that no line of the session can show, and the test that does."""

    stdio: str
    sdk: str
    why: str
    shown_by: str


ELSEWHERE = (
    Elsewhere(
        "a result of a tool says nothing of isError",
        "it says isError: false",
        "the SDK's types have a default; to clients both are the same",
        "tests/contract/test_differences.py::test_the_doors_differ_where_it_is_said_and_why_and_nowhere_else",
    ),
    Elsewhere(
        "a call that is cancelled after it took effect is answered",
        "it is not",
        "the SDK answers nothing that was cancelled; a client must expect either",
        "tests/agentbus/test_sdk.py::test_a_call_that_is_cancelled_is_told_so_and_not_answered_even_when_it_is_done",
    ),
    Elsewhere(
        "a client of 2026-07-28 is sent back to the handshake",
        "it is served as it is",
        "the SDK speaks that revision",
        "tests/agentbus/test_sdk.py::test_a_client_of_the_newest_revision_needs_no_handshake_and_is_known_by_each_request",
    ),
)

UNREADABLE = "-32602 Invalid request parameters"
DIFFERENCES = (
    Difference(
        (
            "tools/list before the handshake",
            "prompts/list before the handshake",
            "prompts/get before the handshake",
        ),
        "a result",
        UNREADABLE,
        "before the handshake the SDK answers nothing but ping; we have no reason to refuse",
    ),
    Difference(
        ("a call before the handshake",),
        "the refusal not_registered",
        UNREADABLE,
        "as above",
    ),
    Difference(
        (
            "initialize without params",
            "initialize without a client",
            "initialize with a revision that is no text",
            "initialize with a client that is no object",
        ),
        "a result",
        UNREADABLE,
        "the SDK insists on what MCP requires of a client; we answer, so that a careless one is served",
    ),
    Difference(
        (
            "an unknown method before the handshake",
            "a probe for the newest revision that names none",
            "an unknown method",
            "a method of no name",
            "a method of a newer revision",
        ),
        "-32601 unknown method ",
        "-32601 Method not found",
        "the SDK's words, with the method beside them, as data",
    ),
    Difference(
        (
            "ping with a meta of []",
            "ping with a meta of ''",
            "ping with a meta of 0",
            "tools/list with a cursor that is no text",
            "a progress token of None",
            "a progress token of 1.5",
            "a progress token of []",
        ),
        "a result",
        UNREADABLE,
        "the SDK checks every request against MCP's schema; we read what we need",
    ),
    Difference(
        ("a prompt called None", "a prompt called 7", "a prompt of no name"),
        "-32602 unknown prompt ",
        UNREADABLE,
        "as above, and in its words",
    ),
    Difference(
        (
            "a tool of no name",
            "a call without params",
            "a tool called None",
            "a tool called 7",
            "a tool called ['post']",
        ),
        "-32602 unknown tool ",
        UNREADABLE,
        "as above",
    ),
    Difference(
        ("arguments of []", "arguments of ''", "arguments of 0"),
        "-32602 arguments must be an object",
        UNREADABLE,
        "as above",
    ),
    Difference(
        ("an envelope of the newest revision in a session of an older one",),
        "a result",
        "-32600 this connection serves the handshake protocol era",
        "the SDK speaks 2026-07-28 too, if a client opens with it, and keeps the two apart",
    ),
    Difference(
        ("an id of null", "an id of true", "an id of 1.5", "an id of []"),
        "-32600 an id is a string or an integer",
        "nothing",
        "the SDK takes a request whose id is none for a notification",
    ),
    Difference(
        ("an argument of NaN",),
        "-32700 this line is not JSON",
        "the refusal validation",
        "the SDK reads NaN as a number; the table refuses what holds it",
    ),
    Difference(
        ("a wait that is cancelled by an id that only looks the same",),
        "a result",
        "nothing",
        'to the SDK a cancellation of "77" is also one of 77',
    ),
)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each door said, by the name of the probe, and what was then in its journal."""
    heard = {}
    for name, argv in DOORS:
        door = Door(argv, tmp_path_factory.mktemp(name))
        with RawServer(at(door.project, argv), **door.environ) as server:
            heard[name] = (normalised(converse(server, session())), normalised(events(door.data)))
            assert server.exit_status() == 0
            for line in server.errors():
                assert line.startswith("agentbus: sdk: dropped "), "a door has something else to complain of"
    return heard


def at(directory: Path, argv: tuple[str, ...]) -> tuple[str, ...]:
    return ("sh", "-c", 'cd "$0" && exec "$@"', str(directory), *argv)


def without_is_error(answers: list[Any]) -> list[Any]:
    """The one difference that is everywhere: the SDK says isError of every result of a tool, we say it of refusals."""
    for answer in answers:
        result = answer.get("result", {}) if isinstance(answer, dict) else {}
        if result.get("isError") is False:
            del result["isError"]
    return answers


def test_the_doors_differ_where_it_is_said_and_why_and_nowhere_else(sessions: dict[str, Any]) -> None:
    (stdio, _), (sdk, _) = sessions["stdio"], sessions["sdk"]
    assert all("isError" not in answer["result"] for answer in stdio["a batch handed out"])
    assert all(answer["result"]["isError"] is False for answer in sdk["a batch handed out"])
    assert list(stdio) == list(sdk)
    named = {probe: difference for difference in DIFFERENCES for probe in difference.probes}
    unnamed = {
        probe: (stdio[probe], sdk[probe])
        for probe in stdio
        if probe not in named and without_is_error(stdio[probe]) != without_is_error(sdk[probe])
    }
    assert unnamed == {}
    for probe, difference in named.items():
        assert said(stdio[probe]).startswith(difference.stdio), probe
        assert said(sdk[probe]).startswith(difference.sdk), probe


@pytest.mark.parametrize("difference", ELSEWHERE, ids=lambda difference: difference.stdio)
def test_each_other_difference_has_a_test_that_shows_it(difference: Elsewhere) -> None:
    path, name = difference.shown_by.split("::")
    assert f"def {name}(" in (ROOT / path).read_text()


def test_every_result_of_each_door_is_what_its_revision_says_of_its_method(sessions: dict[str, Any]) -> None:
    checked = set()
    for answers, _ in sessions.values():
        for probe in session():
            for answer in answers[probe.name]:
                if isinstance(answer, dict) and "result" in answer:
                    method = json.loads(probe.line.split(b"\n")[0].decode("utf-8", "replace"))["method"]
                    revision = probe.name[-10:] if probe.name[-10:] in REVISIONS else REVISIONS[-1]
                    validate_server_result(method, revision, answer["result"])
                    checked.add((method, revision))
    assert checked == {
        *(
            (method, revision)
            for method in ("initialize", "tools/list", "tools/call", "prompts/get")
            for revision in REVISIONS
        ),
        *((method, REVISIONS[-1]) for method in ("ping", "prompts/list")),
    }


def test_no_call_of_the_session_met_a_bug(sessions: dict[str, Any]) -> None:
    for answers, _ in sessions.values():
        assert [probe for probe in answers if said(answers[probe]) in ("the refusal internal", "-32603")] == []


def test_the_same_session_through_each_door_leaves_the_same_journal(sessions: dict[str, Any]) -> None:
    (_, stdio), (_, sdk) = sessions["stdio"], sessions["sdk"]
    assert stdio == sdk
    assert {"registered", "posted", "delivered", "ended"} <= {event["type"] for event in stdio}
