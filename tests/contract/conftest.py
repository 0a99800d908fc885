"""Each test of this folder runs once for each door. Servers are shared by the tests of a module, the bus is not.

A server behind the SDK needs a second to start: between two tests the bus is emptied, and the servers live on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.harness import DOORS, Door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.contract.harness import Client


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=DOORS, ids=[name for name, _ in DOORS])
def shared_door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Door:
    """One for all tests of a module, with all that they leave behind."""
    return Door(request.param[1], tmp_path_factory.mktemp("door"))


@pytest.fixture(scope="module")
async def shared_client(shared_door: Door) -> AsyncIterator[Client]:
    """The first server of the module."""
    async with shared_door.connect() as client:
        yield client


@pytest.fixture(scope="module")
async def other_client(shared_door: Door) -> AsyncIterator[Client]:
    """The second, started by the first test that asks for it."""
    async with shared_door.connect() as client:
        yield client


@pytest.fixture
def door(shared_door: Door) -> Door:
    """The door, on an empty bus."""
    shared_door.reset()
    return shared_door


@pytest.fixture
def client(door: Door, shared_client: Client) -> Client:  # noqa: ARG001  # empty the bus first
    """One server on an empty bus."""
    return shared_client


@pytest.fixture
def other(door: Door, other_client: Client) -> Client:  # noqa: ARG001  # as above
    """Another server on the same bus."""
    return other_client


@pytest.fixture
async def ann(client: Client) -> str:
    """A session of the first server."""
    name = (await client.call("register", name="ann"))["as"]
    assert isinstance(name, str)
    return name
