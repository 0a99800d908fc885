"""Many calls, many servers, one journal: concurrency, waiting, cancellation, and a lock that somebody else holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client as SdkClient
from mcp import stdio_client

from tests.contract.harness import DOORS, Door, check_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.contract.harness import Client

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(client: Client) -> Client:
    """Ann is registered."""
    await client.call("register", name="ann")
    return client


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> list[Door]:
    """All doors, on one bus."""
    directory = tmp_path_factory.mktemp("common")
    return [Door(argv, directory) for _, argv in DOORS]


@pytest.fixture(scope="module")
async def common_clients(common: list[Door]) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(door.connect()) for door in common]


@pytest.fixture
def everyone(common: list[Door], common_clients: list[Client]) -> list[Client]:
    """A server of each kind on one bus, which is empty: for what takes long, and can be tried with all at once."""
    common[0].reset()
    return common_clients


async def test_servers_of_all_doors_meet_on_one_bus(everyone: list[Client]) -> None:
    names = [(await client.call("register", name=f"n{number}"))["as"] for number, client in enumerate(everyone)]
    for name, client in zip(names, everyone, strict=True):
        assert (await client.call("post", as_=name, channel="general", content=name))["live"] == len(names) - 1
    for name, client in zip(names, everyone, strict=True):
        batch = await client.call("receive", as_=name)
        assert [message["from"] for message in batch["messages"]] == [other for other in names if other != name]
        assert [row["as"] for row in (await client.call("discover", as_=name))["sessions"]] == names


async def test_a_client_of_the_newest_revision_finds_a_way_to_the_tools(door: Door) -> None:
    parameters = door.parameters()
    async with SdkClient(stdio_client(parameters), mode="auto") as client:
        listing = await client.list_tools()
        assert "register" in {tool.name for tool in listing.tools}
        registered = await client.call_tool("register", {"name": "new"})
        assert registered.structured_content
        assert registered.structured_content["as"] == "new"
    check_record(door.records[-1])


async def test_fifty_calls_at_once_on_one_connection_are_each_answered_once(client: Client) -> None:
    seqs: list[int] = []

    async def post(number: int) -> None:
        seqs.append((await client.call("post", as_="ann", channel="general", content=str(number)))["seq"])

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(post, number)
    assert len(set(seqs)) == 50
    messages: list[Any] = []
    while True:
        before = {"before": messages[0]["seq"]} if messages else {}
        page = await client.call("history", as_="ann", channel="general", **before)
        messages = page["messages"] + messages
        if not page["truncated"]:
            break
    assert {message["content"] for message in messages} == {str(number) for number in range(50)}
    assert [message["seq"] for message in messages] == sorted(seqs)


async def test_a_post_by_one_server_ends_the_wait_of_another(client: Client, other: Client) -> None:
    async with anyio.create_task_group() as group:
        assert (await other.call("register", name="bob"))["as"] == "bob"

        async def wait() -> None:
            batch = await other.call("receive", as_="bob", wait_seconds=25)
            assert [message["content"] for message in batch["messages"]] == ["news"]

        group.start_soon(wait)
        posted = await client.call("post", as_="ann", channel="general", content="news")
        assert (posted["subscribers"], posted["live"]) == (1, 1)


async def test_two_servers_with_one_name_are_two_identities(client: Client, other: Client) -> None:
    await client.call("post", as_="ann", channel="general", content="x")
    assert (await other.call("register", name="ann"))["as"] == "ann2"
    assert (await other.call("receive", as_="ann2"))["messages"] == []
    found = await client.call("discover", as_="ann")
    assert [row["as"] for row in found["sessions"]] == ["ann", "ann2"]


async def test_who_comes_back_finds_name_backlog_and_batch(client: Client, door: Door) -> None:
    async with door.connect() as other:
        await other.call("register", name="bob")
        for number in range(3):
            await client.call("post", as_="ann", channel="general", content=str(number))
        first = await other.call("receive", as_="bob")
    async with door.connect() as other:
        again = await other.call("register", name="bob")
        assert (again["as"], again["resumed"]) == ("bob", True)
        assert again["pending"] == [{"channel": "general", "count": 3}]
        second = await other.call("receive", as_="bob")
        assert (second["token"], second["redelivered"]) == (first["token"], True)


async def test_a_cancelled_wait_delivers_nothing_and_the_next_one_delivers(client: Client, door: Door) -> None:
    await client.call("register", name="bob")
    with anyio.move_on_after(0.5) as scope:
        await client.call("receive", as_="bob", wait_seconds=25)
    assert scope.cancelled_caught
    await client.call("post", as_="ann", channel="general", content="x")
    batch = await client.call("receive", as_="bob")
    assert [message["content"] for message in batch["messages"]] == ["x"]
    assert "redelivered" not in batch
    assert door.records


async def test_cancelled_posts_are_in_the_journal_once_or_not_at_all(client: Client) -> None:
    answered: set[str] = set()

    async def post(text: str, delay_s: float) -> None:
        with anyio.move_on_after(delay_s):
            await client.call("post", as_="ann", channel="general", content=text)
            answered.add(text)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(post, str(number), number / 2000)
    page = await client.call("history", as_="ann", channel="general")
    contents = [message["content"] for message in page["messages"]]
    assert len(set(contents)) == len(contents)
    assert answered <= set(contents)


async def test_a_long_wait_says_how_it_goes_on(everyone: list[Client]) -> None:
    async def wait(client: Client) -> None:
        heard: list[float] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001 - the SDK's
            heard.append(progress)

        name = (await client.call("register", name="ann"))["as"]
        batch = await client.call_watched("receive", hear, as_=name, wait_seconds=16)
        assert batch["messages"] == []
        assert len(heard) >= 1
        assert heard == sorted(heard)

    async with anyio.create_task_group() as group:
        for client in everyone:
            group.start_soon(wait, client)


STOPPED = """
import os, signal, sys
import portalocker
file = open(sys.argv[1], "ab")
portalocker.lock(file, portalocker.LOCK_EX)
print("locked", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextmanager
def stopped_holder(lock: str) -> Iterator[None]:
    """The writer lock, held by a process that has been stopped."""
    with subprocess.Popen([sys.executable, "-c", STOPPED, lock], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"locked\n"
        assert os.WIFSTOPPED(os.waitpid(holder.pid, os.WUNTRACED)[1])
        try:
            yield
        finally:
            holder.send_signal(signal.SIGKILL)


async def test_while_a_stopped_process_holds_the_lock_readers_and_ping_are_served_and_writers_told(
    everyone: list[Client], common: list[Door]
) -> None:
    names = [(await client.call("register", name="ann"))["as"] for client in everyone]
    with stopped_holder(str(common[0].data / "journal" / "writer.lock")):
        async with anyio.create_task_group() as group:
            for client, name in zip(everyone, names, strict=True):
                group.start_soon(check_service_while_locked, client, name)
    for count, (client, name) in enumerate(zip(everyone, names, strict=True), start=1):
        posted = await client.call("post", as_=name, channel="general", content="x", idempotency_key="k")
        assert "repeated" not in posted
        page = await client.call("history", as_=name, channel="general")
        assert len(page["messages"]) == count


async def check_service_while_locked(client: Client, name: str) -> None:
    told = []

    async def try_post() -> None:
        told.append(await client.refused("post", as_=name, channel="general", content="x", idempotency_key="k"))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(try_post)
        await client.session.send_ping()
        assert await client.call("history", as_=name, channel="general")
        assert await client.call("list_channels", as_=name)
        assert (await client.call("receive", as_=name))["messages"] == []
        assert told == [], "these answers had to wait for those"
    assert [(refused["code"], refused["retryable"]) for refused in told] == [("busy", True)] * 10
