"""The door through the SDK, by raw lines to a process around a table of toys: what the contract suite cannot provoke.

How it lives and dies is tested with the other door, in test_server_life.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentbus.limits import CALLS_IN_FLIGHT_MAX
from tests.agentbus.raw_server import TOY, TOY_SDK, RawServer, call

if TYPE_CHECKING:
    from collections.abc import Iterator

CANCELLED = "notifications/cancelled"
NEWEST = "2026-07-28"


@pytest.fixture(scope="module")
def shared() -> Iterator[RawServer]:
    """Its table prints to stdout while it is imported: nothing of that may reach the client."""
    with RawServer((*TOY, "print", "sdk")) as server:
        server.initialize()
        yield server


def notification(method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def envelope(answer: dict[str, Any]) -> dict[str, Any]:
    """The envelope of a refused call."""
    assert answer["result"]["isError"] is True
    assert "structuredContent" not in answer["result"]
    loaded: dict[str, Any] = json.loads(answer["result"]["content"][0]["text"])
    return loaded


def test_fifty_calls_at_once_are_all_answered(shared: RawServer) -> None:
    shared.send(*(call(number, "echo", number=number) for number in range(50)))
    answers = [shared.next() for _ in range(50)]
    assert {answer["id"]: answer["result"]["structuredContent"]["number"] for answer in answers} == {
        number: number for number in range(50)
    }


def test_a_megabyte_goes_in_and_out(shared: RawServer) -> None:
    text = "é\u2028\x85" * 500_000
    shared.call("big", "echo", text=text)
    assert shared.next()["result"]["structuredContent"] == {"text": text}


def test_half_a_character_goes_around_the_sdk_to_the_table(shared: RawServer) -> None:
    shared.call("half", "echo", text="\ud83d")
    assert shared.next()["result"]["structuredContent"] == {"text": "?"}


def test_a_call_that_is_cancelled_is_told_so_and_not_answered_even_when_it_is_done(shared: RawServer) -> None:
    shared.call("w", "work", seconds=20)
    shared.heard("called work")
    shared.send(notification(CANCELLED, requestId="w", reason="tired"))
    shared.call("next", "echo")
    assert shared.next()["id"] == "next"


def test_a_call_that_went_around_the_sdk_can_be_cancelled_too() -> None:
    with RawServer(TOY_SDK) as server:
        server.initialize()
        server.send(call("through", "work", seconds=20), call("around", "work", seconds=20, half="\ud83d"))
        for _ in range(2):
            server.heard("called work")
        server.send(notification(CANCELLED, requestId="around"))
        answers = [server.next() for _ in range(2)]  # the toy's calls wake each other
        told = {answer["id"]: answer["result"]["structuredContent"]["cancelled"] for answer in answers}
        assert told == {"through": False, "around": True}


def test_a_bug_is_an_envelope_and_is_logged_without_its_words(shared: RawServer) -> None:
    shared.call("b", "break")
    assert envelope(shared.next())["code"] == "internal"
    assert shared.heard("log") == "log failed tools/call break RuntimeError"


def test_what_the_sdk_complains_of_goes_to_stderr_and_not_into_the_answers(shared: RawServer) -> None:
    shared.send(notification(CANCELLED, requestId=[1]))
    assert shared.heard("agentbus: sdk: ") == "agentbus: sdk: dropped 'notifications/cancelled': malformed params"
    assert shared.ask("ping")["result"] == {}


def test_a_result_that_is_no_json_is_a_failure_of_its_call_alone(shared: RawServer) -> None:
    shared.call("o", "object")
    assert shared.next()["error"] == {"code": -32603, "message": "agentbus failed; see its log"}
    assert shared.heard("log") == "log failed tools/call TypeError"
    assert shared.ask("ping")["result"] == {}


def test_a_client_of_the_newest_revision_needs_no_handshake_and_is_known_by_each_request() -> None:
    with RawServer(TOY_SDK) as server:
        discovered = modern(server, "server/discover")
        assert discovered["supportedVersions"] == [NEWEST]
        assert discovered["instructions"].startswith("Agentbus: call the register tool now")
        assert server.heard("open") == "open raw 8"
        assert [tool["name"] for tool in modern(server, "tools/list")["tools"]][:2] == ["echo", "wait"]
        assert modern(server, "prompts/list")["prompts"][0]["name"] == "init"
        result = modern(server, "tools/call", name="echo", arguments={"a": 1})
        assert (result["structuredContent"], result["resultType"]) == ({"a": 1}, "complete")
        assert modern(server, "tools/call", name="refuse", arguments={"message": "no"})["isError"] is True


def modern(server: RawServer, method: str, **params: object) -> dict[str, Any]:
    prefix = "io.modelcontextprotocol"
    meta = {
        f"{prefix}/protocolVersion": NEWEST,
        f"{prefix}/clientInfo": {"name": "raw", "version": "8"},
        f"{prefix}/clientCapabilities": {},
    }
    result: dict[str, Any] = server.ask(method, params | {"_meta": meta})["result"]
    return result


def test_a_wait_says_how_it_goes_on_and_ping_is_answered_though_every_thread_is_taken() -> None:
    with RawServer(TOY_SDK) as server:
        server.initialize()
        for token in (0, "t"):
            params = {"name": "wait", "_meta": {"progressToken": token}}
            server.send({"jsonrpc": "2.0", "id": f"wait {token}", "method": "tools/call", "params": params})
            progress = {"progressToken": token, "progress": 0.5}
            assert server.next() == {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
        for number in range(CALLS_IN_FLIGHT_MAX - 2):
            server.call(number, "hang")
        for _ in range(CALLS_IN_FLIGHT_MAX - 2):
            server.heard("called hang")
        server.call("late", "echo")
        server.send(notification(CANCELLED, requestId="late"))
        assert server.ask("ping")["result"] == {}


def test_a_table_that_cannot_be_imported_is_a_failure_of_each_request_not_of_the_server() -> None:
    with RawServer((*TOY, "table breaks", "sdk")) as server:
        server.initialize()
        assert server.ask("tools/list")["error"]["code"] == -32603
        assert server.ask("tools/call", {"name": "echo"})["error"]["code"] == -32603
        assert server.ask("ping")["result"] == {}
        assert server.heard("agentbus").endswith(": ImportError: no such module")


def test_a_loop_that_breaks_ends_the_process_and_what_the_sdk_logs_of_a_bug_is_ours_to_tell() -> None:
    with RawServer((*TOY, "", "sdk that breaks")) as server:
        assert server.exit_status() == 0
        told = [f"agentbus: sdk: {kind}: a private word\n" for kind in ("ValueError", "RuntimeError")]
        assert server.errors() == told
