"""Facts that are corrected and taken away, by two agents on two servers; and who sends too fast."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.harness import Door

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.harness import Client

pytestmark = pytest.mark.anyio


@pytest.fixture
async def fact(client: Client, ann: str) -> int:
    """A memory of ann's."""
    made = await client.call("post", as_=ann, channel="memory", content="the port is 4711", label="ports")
    number = made["memory_id"]
    assert isinstance(number, int)
    return number


async def test_an_edit_makes_a_revision_and_names_the_one_it_replaced(client: Client, fact: int) -> None:
    edited = await client.call("edit_memory", as_="ann", id=fact, content="the port is 4712", metadata={"a": "b"})
    assert edited == {"seq": edited["seq"], "memory_id": fact, "revision": 2, "replaced": 1}
    assert edited["seq"] > fact
    memory = await client.call("get_memory", as_="ann", id=fact)
    assert (memory["id"], memory["seq"], memory["revision"]) == (fact, edited["seq"], 2)
    assert (memory["content"], memory["metadata"]) == ("the port is 4712", {"a": "b"})
    assert "label" not in memory


async def test_a_deleted_memory_is_found_by_nobody(client: Client, fact: int) -> None:
    assert await client.call("delete_memory", as_="ann", id=fact) == {"deleted": fact, "revision": 1}
    assert (await client.call("search", as_="ann", query="port"))["hits"] == []
    assert (await client.call("history", as_="ann", channel="memory"))["messages"] == []
    asked: list[tuple[str, dict[str, Any]]] = [
        ("get_memory", {}),
        ("edit_memory", {"content": "x"}),
        ("delete_memory", {}),
    ]
    for tool, arguments in asked:
        refused = await client.refused(tool, as_="ann", id=fact, **arguments)
        assert (refused["code"], refused["retryable"]) == ("not_found", False)
        assert f"memory {fact} does not exist, or was deleted" in refused["message"]


async def test_two_agents_keep_a_fact_and_each_sees_what_the_other_made_of_it(
    client: Client, other: Client, fact: int
) -> None:
    await other.call("register", name="bob")
    first = await client.call("edit_memory", as_="ann", id=fact, content="4712, @bob")
    second = await other.call("edit_memory", as_="bob", id=fact, content="4713")
    assert (first["revision"], second["revision"], second["replaced"]) == (2, 3, 2)
    assert (await other.call("receive", as_="bob"))["messages"] == []
    (message,) = (await client.call("receive", as_="ann"))["messages"]
    assert list(message)[:2] == ["memory_id", "revision"]
    assert (message["memory_id"], message["revision"], message["from"]) == (fact, 3, "bob")
    assert (message["seq"], message["content"]) == (second["seq"], "4713")


async def test_what_was_replaced_in_a_batch_is_named_when_the_batch_comes_again(
    client: Client, other: Client, ann: str
) -> None:
    await other.call("register", name="bob")
    fact = (await client.call("post", as_=ann, channel="memory", content="old"))["memory_id"]
    batch = await other.call("receive", as_="bob")
    edited = await client.call("edit_memory", as_="ann", id=fact, content="new")
    again = await other.call("receive", as_="bob")
    assert (again["token"], again["redelivered"], again["messages"]) == (batch["token"], True, [])
    gap = {"channel": "memory", "from": fact, "to": fact, "count": 1, "cause": "superseded or deleted"}
    assert again["gaps"] == [gap]
    (message,) = (await other.call("receive", as_="bob", ack=batch["token"]))["messages"]
    assert (message["seq"], message["revision"]) == (edited["seq"], 2)


async def test_keys_make_edits_and_deletes_safe_to_repeat_in_any_order(client: Client, fact: int) -> None:
    edit: dict[str, Any] = {"as_": "ann", "id": fact, "content": "new", "idempotency_key": "e"}
    delete: dict[str, Any] = {"as_": "ann", "id": fact, "idempotency_key": "d"}
    edited, deleted = await client.call("edit_memory", **edit), await client.call("delete_memory", **delete)
    assert await client.call("edit_memory", **edit) == edited | {"repeated": True}
    assert await client.call("delete_memory", **delete) == deleted | {"repeated": True}
    assert (await client.refused("edit_memory", **edit | {"content": "other"}))["code"] == "conflict"
    assert (await client.refused("delete_memory", **delete | {"idempotency_key": "e"}))["code"] == "conflict"


async def test_who_sends_too_fast_is_told_when_to_try_again(shared_door: Door, tmp_path: Path) -> None:
    door = Door(shared_door.argv, tmp_path)
    settings = door.directory / "home" / ".config" / "agentbus" / "config.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"send_messages_per_second": 1, "send_kib_per_second": 64}))
    async with door.connect() as client:
        await client.call("register", name="ann")
        refused: dict[str, Any] = {}
        sent = 0
        while not refused:  # ends: it sends faster than one a second
            answer = await client.session.call_tool("post", {"as": "ann", "channel": "general", "content": "x"})
            assert sent < 100
            sent += 1
            refused = json.loads(answer.content[0].text) if answer.is_error else {}  # type: ignore[union-attr]  # a text
        assert (refused["code"], refused["retryable"]) == ("rate_limited", True)
        assert refused["message"].startswith(
            '"ann" may send 1 messages a second (send_messages_per_second): try again in '
        )
        page = await client.call("history", as_="ann", channel="general")
        assert len(page["messages"]) == sent - 1


async def test_a_post_tells_of_names_that_nobody_has(client: Client, ann: str) -> None:
    posted = await client.call("post", as_=ann, channel="general", content="@bob, are you there?")
    assert (posted["addressed"], posted["unknown"]) == ([], ["bob"])
