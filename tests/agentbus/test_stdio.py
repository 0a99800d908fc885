"""The door itself, by raw lines to a process around a table of toys: protocol, cancellation, batches, refusals."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from agentbus.limits import CALLS_IN_FLIGHT_MAX, REQUEST_BYTES_MAX
from tests.agentbus.raw_server import TOY, RawServer, call

if TYPE_CHECKING:
    from collections.abc import Iterator

CANCELLED = "notifications/cancelled"


@pytest.fixture
def server() -> Iterator[RawServer]:
    with RawServer(TOY) as server:
        yield server


def request(id_: object, method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def notification(method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def envelope(answer: dict[str, Any]) -> dict[str, Any]:
    """The envelope of a refused call."""
    result = answer["result"]
    assert result["isError"] is True
    assert "structuredContent" not in result
    (content,) = result["content"]
    loaded: dict[str, Any] = json.loads(content["text"])
    return loaded


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_known_revision_is_agreed_to(server: RawServer, revision: str) -> None:
    assert server.initialize(revision)["protocolVersion"] == revision


@pytest.mark.parametrize("revision", ["2026-07-28", "1", "", None, 7, [], {}])
def test_for_any_other_revision_the_newest_is_offered(server: RawServer, revision: object) -> None:
    assert server.ask("initialize", {"protocolVersion": revision})["result"]["protocolVersion"] == "2025-11-25"


def test_initialize_says_who_serves_what_and_the_session_protocol(server: RawServer) -> None:
    result = server.initialize()
    assert result["serverInfo"]["name"] == "agentbus"
    assert result["capabilities"] == {"tools": {}, "prompts": {}}
    assert result["instructions"].startswith("Agentbus: call the register tool now")


@pytest.mark.parametrize(
    ("info", "known_as"),
    [
        ({"name": "codex", "version": "0.171.0"}, "codex 0.171.0"),
        ({"name": "codex"}, "codex"),
        ({"name": "a\n\u202eb", "version": 7}, "ab"),
        ({"name": "x" * 1000, "version": "1"}, "x" * 200),
        ({"name": "\n"}, "None"),
        ("codex", "None"),
        (None, "None"),
    ],
)
def test_the_bus_is_opened_for_the_client_as_it_calls_itself(server: RawServer, info: object, known_as: str) -> None:
    server.ask("initialize", {"clientInfo": info})
    assert server.heard("open") == f"open {known_as}"


def test_server_discover_and_every_unknown_method_is_refused_so_that_clients_shake_hands(server: RawServer) -> None:
    for method in ("server/discover", "resources/list", "logging/setLevel", "", "nö\n\ud83d"):
        error = server.ask(method)["error"]
        assert error["code"] == -32601
        assert "\n" not in error["message"]


def test_ping_prompts_and_tools_are_answered_even_before_a_handshake(server: RawServer) -> None:
    assert server.ask("ping")["result"] == {}
    assert [tool["name"] for tool in server.ask("tools/list")["result"]["tools"]][:2] == ["echo", "wait"]
    (prompt,) = server.ask("prompts/list")["result"]["prompts"]
    assert prompt["name"] == "init"


def test_a_tool_is_listed_with_hints_and_meta_only_if_it_has_some(server: RawServer) -> None:
    echo, wait, *_ = server.ask("tools/list")["result"]["tools"]
    plain = {"title", "name", "description", "inputSchema"}
    assert set(wait) == plain
    assert set(echo) == plain | {"annotations", "_meta"}


def test_the_init_prompt_holds_the_setup_steps_and_the_protocol(server: RawServer) -> None:
    (message,) = server.ask("prompts/get", {"name": "init"})["result"]["messages"]
    assert message["role"] == "user"
    assert "claude mcp add" in message["content"]["text"]
    assert "Then follow this protocol:" in message["content"]["text"]


@pytest.mark.parametrize("name", ["other", None, 7, ["init"]])
def test_an_unknown_prompt_is_refused_with_the_one_there_is(server: RawServer, name: object) -> None:
    error = server.ask("prompts/get", {"name": name})["error"]
    assert error["code"] == -32602
    assert "init" in error["message"]


def test_a_result_is_the_same_object_twice(server: RawServer) -> None:
    server.call(1, "echo", text='"\\\u2028é😀\n')
    result = server.next()["result"]
    (content,) = result["content"]
    assert json.loads(content["text"]) == result["structuredContent"] == {"text": '"\\\u2028é😀\n'}
    assert ", " not in content["text"]
    assert "isError" not in result


def test_arguments_may_be_missing_or_null_but_nothing_else_than_an_object(server: RawServer) -> None:
    assert server.ask("tools/call", {"name": "echo"})["result"]["structuredContent"] == {}
    assert server.ask("tools/call", {"name": "echo", "arguments": None})["result"]["structuredContent"] == {}
    wrong: list[object] = [[], "", 0, False]
    for arguments in wrong:
        assert server.ask("tools/call", {"name": "echo", "arguments": arguments})["error"]["code"] == -32602


@pytest.mark.parametrize("name", ["ech", "", None, 7, ["echo"], {"echo": 1}, "\ud83d"])
def test_an_unknown_tool_is_refused_with_those_there_are(server: RawServer, name: object) -> None:
    error = server.ask("tools/call", {"name": name})["error"]
    assert error["code"] == -32602
    assert "\ud83d" in str(name) or "echo, wait, work" in error["message"]


def test_a_refusal_is_an_envelope_as_text(server: RawServer) -> None:
    server.call(1, "refuse", message="no \ud83d")
    assert envelope(server.next()) == {"code": "validation", "message": "no ?", "retryable": False}


def test_a_bug_is_an_envelope_too_and_is_logged_without_its_words(server: RawServer) -> None:
    server.initialize()
    server.call(1, "break")
    answer = envelope(server.next())
    assert answer["code"] == "internal"
    assert server.heard("log") == "log failed tools/call break RuntimeError"
    server.close_stdin()
    assert "private" not in json.dumps([answer, server.errors()])


def test_what_is_not_text_outside_of_a_tools_arguments_is_refused_by_name(server: RawServer) -> None:
    for method in ("ping", "tools/list", "tools/call"):
        error = server.ask(method, {"_meta": {"a": ["\ud83d"]}})["error"]
        assert error["code"] == -32602
        assert '"_meta.a"' in error["message"]
    server.send(b'{"jsonrpc":"2.0","id":"x","method":"ping","params":{"b":"\xff"}}\n')
    assert server.next()["id"] == "x"
    assert server.ask("ping")["result"] == {}


def test_what_is_not_text_in_a_tools_arguments_is_left_to_the_table(server: RawServer) -> None:
    server.call(1, "echo", text="\ud83d")
    assert server.next()["result"]["structuredContent"] == {"text": "?"}


def test_a_line_that_is_no_message_is_answered_without_an_id_and_the_next_one_is_served(server: RawServer) -> None:
    server.send(b"word\n", b"[]\n", b"{}\n", b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n')
    answers = [server.next() for _ in range(4)]
    assert [answer["id"] for answer in answers] == [None] * 4
    assert [answer["error"]["code"] for answer in answers] == [-32700, -32600, -32600, -32600]
    assert server.ask("ping")["result"] == {}


def test_blank_lines_notifications_and_answers_are_not_answered(server: RawServer) -> None:
    server.send(b"\n \r\n", notification("notifications/initialized"), notification("no/such", x="\ud83d"))
    server.send({"jsonrpc": "2.0", "id": 1, "result": {}}, notification(CANCELLED, requestId=9))
    server.send(notification(CANCELLED), notification(CANCELLED, requestId=[1]))
    assert server.ask("ping")["result"] == {}


def test_a_line_that_is_too_long_is_refused_and_skipped(server: RawServer) -> None:
    server.send(b"x" * (REQUEST_BYTES_MAX + 1))
    assert server.next()["error"]["code"] == -32600
    server.send(b"x" * 100_000 + b"\n")
    assert server.ask("ping")["result"] == {}


def test_a_megabyte_goes_in_and_out(server: RawServer) -> None:
    text = "é\u2028" * 1_000_000
    server.call("big", "echo", text=text)
    assert server.next()["result"]["structuredContent"] == {"text": text}


@pytest.mark.parametrize("id_", [0, -1, 2**70, "", "1", "é\u2028😀"])
def test_an_answer_carries_the_id_of_its_request(server: RawServer, id_: object) -> None:
    server.send(request(id_, "ping"))
    assert server.next() == {"jsonrpc": "2.0", "id": id_, "result": {}}


def test_ping_is_answered_while_every_thread_for_calls_is_taken(server: RawServer) -> None:
    for number in range(CALLS_IN_FLIGHT_MAX + 5):
        server.call(number, "hang")
    for _ in range(CALLS_IN_FLIGHT_MAX):
        server.heard("called hang")
    assert server.ask("ping")["result"] == {}


def test_fifty_calls_at_once_are_all_answered(server: RawServer) -> None:
    server.send(*(call(number, "echo", number=number) for number in range(50)))
    answers = [server.next() for _ in range(50)]
    assert {answer["id"]: answer["result"]["structuredContent"]["number"] for answer in answers} == {
        number: number for number in range(50)
    }


def test_a_cancelled_wait_is_not_answered(server: RawServer) -> None:
    server.call(7, "wait")
    server.heard("called wait")
    server.send(notification(CANCELLED, requestId=7, reason="tired"))
    assert server.ask("ping")["result"] == {}
    server.close_stdin()
    assert server.rest() == []
    assert server.exit_status() == 0


def test_a_call_past_its_commit_is_answered_though_it_was_cancelled(server: RawServer) -> None:
    server.call("w", "work", seconds=20)
    server.heard("called work")
    server.send(notification(CANCELLED, requestId="w"))
    assert server.next()["result"]["structuredContent"] == {"cancelled": True}


def test_a_call_that_was_cancelled_before_a_thread_took_it_never_begins(server: RawServer) -> None:
    for number in range(CALLS_IN_FLIGHT_MAX):
        server.call(number, "work", seconds=20)
        server.heard("called work")
    server.call("late", "echo")
    server.send(notification(CANCELLED, requestId="late"))
    server.send(notification(CANCELLED, requestId=0))
    answers = [server.next() for _ in range(CALLS_IN_FLIGHT_MAX)]
    assert {answer["id"] for answer in answers} == set(range(CALLS_IN_FLIGHT_MAX))
    server.close_stdin()
    assert server.rest() == []
    assert not any("echo" in line for line in server.errors())


def test_an_id_used_twice_is_answered_twice_and_cancelled_twice(server: RawServer) -> None:
    server.send(call(1, "work", seconds=20), call(1, "work", seconds=20))
    for _ in range(2):
        server.heard("called work")
    server.send(notification(CANCELLED, requestId=1))
    for _ in range(2):
        assert server.next() == {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {
                "content": [{"type": "text", "text": '{"cancelled":true}'}],
                "structuredContent": {"cancelled": True},
            },
        }


def test_a_cancellation_does_not_reach_a_request_whose_id_only_looks_the_same(server: RawServer) -> None:
    server.call("1", "work", seconds=0.2)
    server.heard("called work")
    server.send(notification(CANCELLED, requestId=1))
    assert server.next()["result"]["structuredContent"] == {"cancelled": False}


@pytest.mark.parametrize("token", [0, "", "t"])
def test_a_wait_says_how_it_goes_on_to_whoever_asked_for_it(server: RawServer, token: object) -> None:
    server.send(request(1, "tools/call", name="wait", _meta={"progressToken": token}))
    params = {"progressToken": token, "progress": 0.5}
    assert server.next() == {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


@pytest.mark.parametrize("meta", [None, [], "t", {}, {"progressToken": None}, {"progressToken": 1.5}])
def test_a_wait_says_nothing_to_whoever_did_not(server: RawServer, meta: object) -> None:
    server.send(request(1, "tools/call", name="wait", _meta=meta))
    server.heard("called wait")
    assert server.ask("ping")["result"] == {}


def test_a_batch_is_answered_as_one_where_the_revision_has_batches(server: RawServer) -> None:
    server.initialize("2025-03-26")
    server.send([request(1, "ping"), notification("x"), 7, call("e", "echo", a=1), request(2, "initialize")])
    answers = {answer["id"]: answer for answer in server.next()}
    assert set(answers) == {1, None, "e", 2}
    assert answers["e"]["result"]["structuredContent"] == {"a": 1}
    assert answers[2]["error"]["code"] == -32600


def test_a_batch_of_notifications_or_of_cancelled_calls_is_not_answered(server: RawServer) -> None:
    server.initialize("2025-03-26")
    server.send([notification("x"), notification("y")], [call(1, "wait"), call(2, "wait")])
    for _ in range(2):
        server.heard("called wait")
    server.send([notification(CANCELLED, requestId=1), notification(CANCELLED, requestId=2)])
    assert server.ask("ping")["result"] == {}


@pytest.mark.parametrize("revision", [None, "2024-11-05", "2025-06-18", "2025-11-25"])
def test_elsewhere_a_batch_is_one_error(server: RawServer, revision: str | None) -> None:
    if revision:
        server.initialize(revision)
    server.send([request(1, "ping"), request(2, "ping")])
    answer = server.next()
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


def test_a_second_initialize_is_answered_and_counts(server: RawServer) -> None:
    server.initialize("2025-11-25")
    server.initialize("2025-03-26")
    server.send([request(1, "ping")])
    assert server.next() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


def test_a_call_can_be_cancelled_before_the_table_has_it(server: RawServer) -> None:
    server.send(call(1, "wait"), notification(CANCELLED, requestId=1))
    server.close_stdin()
    assert server.rest() == []


def test_wrong_settings_are_told_to_every_call_and_to_stderr_and_tools_are_still_listed() -> None:
    with RawServer((*TOY, "settings are wrong")) as server:
        server.initialize()
        assert server.heard("agentbus") == "agentbus: settings: no such key"
        assert server.ask("tools/list")["result"]["tools"]
        for number in (7, 8):
            server.call(number, "echo")
            assert envelope(server.next())["message"] == "settings: no such key"


def test_a_table_that_cannot_be_imported_is_a_failure_of_each_request_not_of_the_server() -> None:
    with RawServer((*TOY, "table breaks")) as server:
        server.initialize()
        assert server.ask("tools/list")["error"]["code"] == -32603
        assert server.ask("tools/call", {"name": "echo"})["error"]["code"] == -32603
        assert server.ask("ping")["result"] == {}
        assert server.heard("agentbus").endswith(": ImportError: no such module")


def test_a_journal_that_cannot_be_folded_ahead_keeps_nobody_from_calling() -> None:
    with RawServer((*TOY, "warm breaks")) as server:
        server.initialize()
        assert server.heard("log") == "log failed warm RuntimeError"
        server.call(1, "echo")
        assert server.next()["result"]["structuredContent"] == {}


def test_answers_of_many_threads_never_mix(server: RawServer) -> None:
    def ask(first: int) -> None:
        for number in range(first, first + 25):
            server.send(call(number, "echo", text="x" * 20_000))

    threads = [threading.Thread(target=ask, args=(first,)) for first in (0, 25)]
    for thread in threads:
        thread.start()
    assert {server.next()["id"] for _ in range(50)} == set(range(50))
    for thread in threads:
        thread.join()
