"""Each test of this folder runs once for each door."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.harness import DOORS, Door

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=DOORS, ids=[name for name, _ in DOORS])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Door:
    return Door(request.param[1], tmp_path)


@pytest.fixture(scope="module", params=DOORS, ids=[name for name, _ in DOORS])
def shared_door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Door:
    """One for all tests of a module: for those that leave nothing behind."""
    return Door(request.param[1], tmp_path_factory.mktemp("door"))
