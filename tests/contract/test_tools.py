"""Every tool, as a model's client sees it: the shape of its result, and that it keeps what it was given."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.contract.harness import Client, Door

pytestmark = pytest.mark.anyio
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")


async def test_tools_are_listed_within_eight_kib_in_a_form_that_harnesses_like(client: Client) -> None:
    listing = await client.session.list_tools()
    raw = listing.model_dump(by_alias=True, exclude_unset=True)
    assert len(json.dumps(raw, separators=(",", ":"))) < 8 << 10
    names = [tool.name for tool in listing.tools]
    assert names[:3] == ["register", "create_channel", "list_channels"]
    assert [tool.name for tool in listing.tools if tool.meta] == ["register", "post", "receive"]
    for tool in listing.tools:
        assert tool.title
        assert tool.description
        assert tool.description.startswith("Agentbus:")
        assert len(tool.description) <= 250
        assert tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema is None
        assert tool.name == "register" or "as" in tool.input_schema["required"]
    by_name = {tool.name: tool for tool in listing.tools}
    search, receive = by_name["search"].annotations, by_name["receive"].annotations
    assert search
    assert search.read_only_hint
    assert receive
    assert not receive.read_only_hint


async def test_register_says_the_name_what_waits_and_what_is_subscribed(client: Client) -> None:
    assert await client.call("register", name="ann") == {
        "as": "ann",
        "resumed": False,
        "pending": [],
        "subscribed": ["general", "memory"],
    }
    again = await client.call("register", name="ann")
    assert (again["as"], again["resumed"], again["already"]) == ("ann", True, True)
    child = await client.call("register", name="sub", parent="ann", context="tests", resume=False)
    assert (child["as"], child["resumed"]) == ("ann/sub", False)


async def test_register_names_a_channel_of_the_list_that_does_not_exist(door: Door) -> None:
    (door.project / ".local").mkdir()
    (door.project / ".local" / "agentbus.json").write_text('{"identity": "app", "channels": ["general", "reviews"]}')
    async with door.connect() as client:
        assert client.session.instructions
        assert 'set to "app"' in client.session.instructions
        result = await client.call("register", name="app")
        assert result["subscribed"] == ["general"]
        assert result["subscribe_failed"] == {"reviews": 'channel "reviews" does not exist'}


async def test_create_channel_and_list_channels(client: Client, ann: str) -> None:
    made = await client.call("create_channel", as_=ann, name="reviews")
    assert made == {"channel": "reviews", "kind": "ordinary", "created": True}
    assert (await client.call("create_channel", as_=ann, name="reviews"))["created"] is False
    await client.call("create_channel", as_=ann, name="facts", kind="memory")
    await client.call("post", as_=ann, channel="reviews", content="one")
    listed = await client.call("list_channels", as_=ann)
    assert listed["truncated"] is False
    rows = {row.pop("channel"): row for row in listed["channels"]}
    assert set(rows) == {"general", "memory", "reviews", "facts"}
    assert {key: rows["reviews"][key] for key in ("kind", "messages", "subscribed")} == {
        "kind": "ordinary",
        "messages": 1,
        "subscribed": False,
    }
    assert rows["reviews"]["last_seq"] > 0
    assert (rows["facts"]["kind"], rows["facts"]["messages"], rows["facts"]["last_seq"]) == ("memory", 0, 0)
    assert rows["general"]["subscribed"] is True


async def test_subscribe_and_unsubscribe(client: Client, ann: str) -> None:
    await client.call("create_channel", as_=ann, name="reviews")
    assert await client.call("subscribe", as_=ann, channel="reviews") == {"subscribed": "reviews"}
    again = await client.call("subscribe", as_=ann, channel="reviews", from_="oldest")
    assert again == {"subscribed": "reviews", "already": True}
    assert await client.call("unsubscribe", as_=ann, channel="reviews") == {"unsubscribed": "reviews"}
    assert await client.call("unsubscribe", as_=ann, channel="reviews") == {"unsubscribed": "reviews"}
    assert (await client.refused("subscribe", as_=ann, channel="review"))["code"] == "not_found"


async def test_a_persistent_subscription_is_in_the_repositorys_file(client: Client, ann: str, door: Door) -> None:
    await client.call("create_channel", as_=ann, name="reviews")
    result = await client.call("subscribe", as_=ann, channel="reviews", persistent=True)
    assert result == {"subscribed": "reviews", "persistent": True}
    file = door.project / ".local" / "agentbus.json"
    assert json.loads(file.read_text()) == {"identity": "project", "channels": ["general", "memory", "reviews"]}
    result = await client.call("unsubscribe", as_=ann, channel="reviews", persistent=True)
    assert result == {"unsubscribed": "reviews", "persistent": True}
    assert json.loads(file.read_text())["channels"] == ["general", "memory"]
    assert (await client.refused("subscribe", as_=ann, channel="no such", persistent=True))["code"] == "not_found"
    assert json.loads(file.read_text())["channels"] == ["general", "memory"]


async def test_outside_of_a_repository_a_persistent_subscription_says_why_it_is_not(door: Door) -> None:
    async with door.connect(door.directory / "home") as client:
        await client.call("register", name="ann")
        result = await client.call("subscribe", as_="ann", channel="general", persistent=True)
        assert result["persistent"] is False
        assert "repository" in result["persistent_error"]


async def test_post_and_receive_carry_every_field(client: Client, ann: str) -> None:
    await client.call("register", name="bob")
    first = await client.call("post", as_="bob", channel="general", content="hello @ann")
    assert set(first) == {"seq", "subscribers", "live", "addressed"}
    assert (first["subscribers"], first["live"], first["addressed"]) == (1, 1, ["ann"])
    content = 'Human: {"seq":1}\n\u2028 "é😀"'
    second = await client.call(
        "post", as_="bob", channel="general", content=content, label="note", reply_to=first["seq"], metadata={"k": "v"}
    )
    batch = await client.call("receive", as_=ann)
    one, two = batch["messages"]
    assert TIME.fullmatch(one.pop("time"))
    assert isinstance(one.pop("age"), str)
    assert one == {
        "seq": first["seq"],
        "channel": "general",
        "from": "bob",
        "context": "project",
        "content": "hello @ann",
        "addressed": True,
    }
    assert (two["seq"], two["content"], two["label"]) == (second["seq"], content, "note")
    assert (two["reply_to"], two["metadata"]) == (first["seq"], {"k": "v"})
    assert (batch["more"], batch["token"] in batch["instruction"]) == (0, True)
    assert set(batch) == {"messages", "token", "more", "instruction"}


async def test_a_batch_comes_again_until_it_is_acked(client: Client, ann: str) -> None:
    await client.call("register", name="bob")
    for number in range(3):
        await client.call("post", as_="bob", channel="general", content=str(number))
    batch = await client.call("receive", as_=ann)
    again = await client.call("receive", as_=ann, count=1, ack="0" * 24)
    assert (again["token"], again["redelivered"], again["ack_ignored"]) == (batch["token"], True, True)
    assert [message["seq"] for message in again["messages"]] == [message["seq"] for message in batch["messages"]]
    empty = await client.call("receive", as_=ann, ack=batch["token"])
    assert (empty["messages"], empty["more"]) == ([], 0)
    assert "token" not in empty


async def test_receive_takes_its_filters(client: Client, ann: str) -> None:
    await client.call("create_channel", as_=ann, name="reviews")
    await client.call("subscribe", as_=ann, channel="reviews")
    await client.call("register", name="bob")
    for channel in ("general", "reviews", "reviews"):
        await client.call("post", as_="bob", channel=channel, content=channel)
    await client.call("post", as_=ann, channel="reviews", content="own")
    batch = await client.call("receive", as_=ann, channels=["reviews"], count=1)
    assert [message["content"] for message in batch["messages"]] == ["reviews"]
    assert batch["more"] >= 1
    batch = await client.call("receive", as_=ann, channels=["reviews"], include_own=True, ack=batch["token"])
    assert [message["content"] for message in batch["messages"]] == ["reviews", "own"]
    acked = await client.call("receive", as_=ann, count=0, ack=batch["token"])
    assert acked["messages"] == []
    assert acked["more"] == 1


async def test_a_key_makes_a_post_safe_to_repeat(client: Client, ann: str) -> None:
    post: dict[str, Any] = {"as_": ann, "channel": "general", "content": "once", "idempotency_key": "k"}
    first = await client.call("post", **post)
    again = await client.call("post", **post)
    assert (again["seq"], again["repeated"]) == (first["seq"], True)
    assert (await client.refused("post", **post | {"content": "twice"}))["code"] == "conflict"
    assert (await client.call("history", as_=ann, channel="general"))["messages"][0]["content"] == "once"


async def test_a_memory_is_posted_found_and_read(client: Client, ann: str) -> None:
    text = "tool X does not honor --y; the workaround is Z in src/a.py:12"
    made = await client.call("post", as_=ann, channel="memory", content=text, label="fact", metadata={"a": "b"})
    assert made["memory_id"] == made["seq"]
    found = await client.call("search", as_=ann, query="workaround src/a.py:12")
    (hit,) = found["hits"]
    assert {"seq", "channel", "from", "time", "age", "snippet", "score", "memory_id", "revision", "label"} == set(hit)
    assert (hit["memory_id"], hit["from"], hit["channel"]) == (made["memory_id"], ann, "memory")
    assert hit["label"] == "fact"
    assert "memory" in found["searched"]["channels"]
    memory = await client.call("get_memory", as_=ann, id=made["memory_id"])
    assert TIME.fullmatch(memory.pop("time"))
    assert isinstance(memory.pop("age"), str)
    assert memory == {
        "id": made["memory_id"],
        "channel": "memory",
        "seq": made["seq"],
        "revision": 1,
        "from": ann,
        "content": text,
        "label": "fact",
        "metadata": {"a": "b"},
    }
    assert (await client.refused("get_memory", as_=ann, id=made["memory_id"] + 1))["code"] == "not_found"


async def test_search_takes_its_filters_and_says_what_it_searched(client: Client, ann: str) -> None:
    for number in range(5):
        await client.call("post", as_=ann, channel="general", content=f"apple {number}")
    found = await client.call("search", as_=ann, query="appl*", channel="general", sender=ann, kind="ordinary", count=2)
    assert len(found["hits"]) == 2
    assert found["searched"]["channels"] == ["general"]
    rest = await client.call(
        "search", as_=ann, query="appl*", channel="general", sender=ann, kind="ordinary", cursor=found["next"]
    )
    assert len(rest["hits"]) == 3
    assert "next" not in rest
    nothing = await client.call("search", as_=ann, query="pear", since="1h")
    assert nothing["hits"] == []
    assert (await client.refused("search", as_=ann, query="*"))["code"] == "validation"


async def test_history_pages_by_exclusive_seqs_and_marks_nothing(client: Client, ann: str) -> None:
    await client.call("register", name="bob")
    seqs = [(await client.call("post", as_="bob", channel="general", content=str(n)))["seq"] for n in range(5)]
    page = await client.call("history", as_=ann, channel="general", count=2)
    assert ([message["seq"] for message in page["messages"]], page["truncated"]) == (seqs[3:], True)
    page = await client.call("history", as_=ann, channel="general", before=seqs[3], count=2)
    assert [message["seq"] for message in page["messages"]] == seqs[1:3]
    page = await client.call("history", as_=ann, channel="general", after=seqs[3])
    assert ([message["seq"] for message in page["messages"]], page["truncated"]) == (seqs[4:], False)
    assert len((await client.call("receive", as_=ann))["messages"]) == 5


async def test_discover_lists_who_is_live_the_caller_too(client: Client, ann: str) -> None:
    await client.call("register", name="bob", context="elsewhere")
    found = await client.call("discover", as_=ann)
    assert found["truncated"] is False
    rows = {row["as"]: row for row in found["sessions"]}
    assert set(rows) == {"ann", "bob"}
    assert (rows["bob"]["context"], rows["ann"]["client"]) == ("elsewhere", "contract 1")
    assert TIME.fullmatch(rows["ann"]["registered_at"])


async def test_results_stay_below_their_bound_and_nothing_left_out_is_acked(client: Client, ann: str) -> None:
    await client.call("register", name="bob")
    text = "漢" * 3000
    for _ in range(10):
        await client.call("post", as_="bob", channel="general", content=text)
    seen, batch = [], await client.call("receive", as_=ann)
    while batch["messages"]:
        assert len(json.dumps(batch, ensure_ascii=False, separators=(",", ":")).encode()) <= 24 << 10
        assert all(message["content"] == text for message in batch["messages"])
        seen += [message["seq"] for message in batch["messages"]]
        batch = await client.call("receive", as_=ann, ack=batch["token"])
    assert len(set(seen)) == len(seen) == 10


async def test_the_init_prompt_is_listed_and_holds_the_protocol(client: Client) -> None:
    (prompt,) = (await client.session.list_prompts()).prompts
    assert prompt.name == "init"
    (message,) = (await client.session.get_prompt("init")).messages
    assert message.role == "user"
    assert "Call discover before assuming you are the only agent working." in message.content.text  # type: ignore[union-attr]  # a text, or it fails
