"""What a model is told when a call cannot be done: code, what, why, next step; and the next call works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.contract.harness import Client

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def client(shared_client: Client) -> Client:
    """Ann is registered. One bus for all: these tests leave nothing behind."""
    await shared_client.call("register", name="ann")
    return shared_client


async def test_an_unknown_tool_is_no_matter_of_the_bus(client: Client) -> None:
    error = await client.protocol_error("pst", as_="ann")
    assert error.error.code == -32602
    assert "post" in error.error.message


async def test_an_unknown_argument_is_refused_by_name_with_the_known_ones(client: Client) -> None:
    refused = await client.refused("post", as_="ann", chanel="general", content="x")
    assert refused["code"] == "validation"
    assert all(word in refused["message"] for word in ('"chanel"', "channel", "content", "reply_to"))


@pytest.mark.parametrize("tool", ["post", "receive", "list_channels", "discover", "create_channel", "get_memory"])
async def test_a_missing_as_is_a_refusal_that_says_to_register(client: Client, tool: str) -> None:
    refused = await client.refused(tool)
    assert refused["code"] == "validation"
    assert '"as"' in refused["message"]
    assert "register" in refused["message"]


@pytest.mark.parametrize("value", ["7", True, None, 7.0, [7], -1])
async def test_what_only_looks_like_a_number_is_refused(client: Client, value: object) -> None:
    refused = await client.refused("receive", as_="ann", count=value)
    assert refused["code"] == "validation"
    assert '"count"' in refused["message"]


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("register", {"name": 5}, '"name"'),
        ("register", {"name": "a/b"}, '"a/b"'),
        ("register", {"name": "x", "resume": "yes"}, '"resume"'),
        ("subscribe", {"as": "ann", "channel": "general", "from": "never"}, '"from"'),
        ("subscribe", {"as": "ann", "channel": "general", "persistent": 1}, '"persistent"'),
        ("create_channel", {"as": "ann", "name": "x", "kind": "chat"}, '"kind"'),
        ("post", {"as": "ann", "channel": "general"}, '"content"'),
        ("post", {"as": "ann", "channel": "general", "content": ""}, '"content"'),
        ("post", {"as": "ann", "channel": "general", "content": "x", "metadata": {"a": 1}}, '"metadata"'),
        ("receive", {"as": "ann", "wait_seconds": 100_000}, "100000"),
        ("receive", {"as": "ann", "channels": ["general", 5]}, '"channels"'),
        ("history", {"as": "ann", "channel": "general", "before": "1"}, '"before"'),
        ("search", {"as": "ann", "query": "x", "since": "yesterday"}, "since"),
    ],
)
async def test_a_wrong_argument_is_refused_by_name(
    client: Client, tool: str, arguments: dict[str, Any], named: str
) -> None:
    refused = await client.refused(tool, **arguments)
    assert refused["code"] == "validation"
    assert refused["retryable"] is False
    assert named in refused["message"]


async def test_a_name_that_nobody_has_is_answered_with_the_nearest(client: Client) -> None:
    refused = await client.refused("post", as_="ann", channel="Genral", content="x")
    assert refused["code"] == "not_found"
    assert "general" in refused["message"]


@pytest.mark.parametrize("name", ["bob", "ann2"])
async def test_whoever_is_not_registered_here_is_told_to_register(client: Client, name: str) -> None:
    refused = await client.refused("receive", as_=name)
    assert refused["code"] == "not_registered"
    assert "register" in refused["message"]


async def test_a_session_of_another_server_is_not_mine_to_use(client: Client, other_client: Client) -> None:
    refused = await other_client.refused("post", as_="ann", channel="general", content="x")
    assert refused["code"] == "not_registered"
    assert (await client.call("history", as_="ann", channel="general"))["messages"] == []


async def test_five_megabytes_are_refused_and_the_next_call_works(client: Client) -> None:
    refused = await client.refused("post", as_="ann", channel="general", content="x" * (5 << 20))
    assert refused["code"] == "validation"
    assert len(refused["message"]) < 1000
    refused = await client.refused("search", as_="ann", query="y" * (5 << 20))
    assert len(refused["message"]) < 1000
    assert (await client.call("post", as_="ann", channel="general", content="small"))["seq"] > 0


async def test_deeply_nested_arguments_are_refused_and_the_next_call_works(client: Client) -> None:
    nested: Any = "x"
    for _ in range(200):
        nested = [nested]
    for arguments in ({"metadata": nested}, {"content": nested}, {"more": nested}):
        given: dict[str, Any] = {"as_": "ann", "channel": "general", "content": "x"} | arguments
        assert (await client.refused("post", **given))["code"] == "validation"
    assert (await client.call("post", as_="ann", channel="general", content="flat"))["seq"] > 0
