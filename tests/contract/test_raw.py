"""What the SDK's client cannot or will not send: half characters, huge numbers; by raw lines to each door."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.agentbus.raw_server import RawServer, call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.harness import Door


@pytest.fixture(scope="module")
def shared_server(shared_door: Door) -> Iterator[RawServer]:
    with RawServer(shared_door.argv, **shared_door.environ) as server:
        server.initialize()
        yield server


@pytest.fixture
def server(door: Door, shared_server: RawServer) -> RawServer:  # noqa: ARG001  # empty the bus first
    """Ann is registered."""
    register(shared_server)
    return shared_server


def register(server: RawServer) -> None:
    server.call("register", "register", name="ann")
    assert server.next()["result"]["structuredContent"]["as"] == "ann"


def refusal(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["result"]["isError"] is True
    envelope: dict[str, Any] = json.loads(answer["result"]["content"][0]["text"])
    return envelope


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (rb'"content":"\ud83d"', '"content"'),
        (rb'"content":"\ude00\ud83d"', '"content"'),
        (b'"content":"\xff"', '"content"'),
        (rb'"content":"x","metadata":{"a":"\ud83d"}', '"metadata"'),
        (rb'"content":"x","metadata":{"\ud83d":"a"}', '"metadata"'),
        (rb'"content":"x","label":"\ud83d"', '"label"'),
        (rb'"content":"x","\ud83d":1', "argument"),
    ],
)
def test_half_a_character_in_an_argument_is_refused_by_name_and_the_next_call_works(
    server: RawServer, arguments: bytes, named: str
) -> None:
    line = b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"post","arguments":{"as":"ann",'
    server.send(line + b'"channel":"general",' + arguments + b"}}}\n")
    answer = server.next()
    assert answer["id"] == "x"
    assert refusal(answer)["code"] == "validation"
    assert named in refusal(answer)["message"]
    server.call("y", "post", **{"as": "ann", "channel": "general", "content": "whole 😀"})
    assert server.next()["result"]["structuredContent"]["seq"] > 0
    server.call("z", "history", **{"as": "ann", "channel": "general"})
    (message,) = server.next()["result"]["structuredContent"]["messages"]
    assert message["content"] == "whole 😀"


@pytest.mark.parametrize("number", [b"1e999", b"9" * 400, b"1.0", b"-0", b"1e2"])
def test_a_number_that_no_integer_holds_is_refused_politely(server: RawServer, number: bytes) -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_memory","arguments":{"as":"ann","id":'
    server.send(line + number + b"}}}\n")
    assert refusal(server.next())["code"] in {"validation", "not_found"}
    assert server.ask("ping")["result"] == {}


def test_a_client_that_does_not_wait_gets_every_answer(door: Door) -> None:
    with RawServer(door.argv, **door.environ) as server:
        server.initialize()
        register(server)
        posts = [call(n, "post", **{"as": "ann", "channel": "general", "content": str(n)}) for n in range(50)]
        server.send(*posts)
        server.close_stdin()
        seqs = {answer["id"]: answer["result"]["structuredContent"]["seq"] for answer in server.rest()}
        assert set(seqs) == set(range(50))
        assert len(set(seqs.values())) == 50
        assert server.exit_status() == 0
