"""`make test-harness` asks for these tests; `make test` must not need clients from a package registry."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.harness.ground import Ground
from tests.harness.model import Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

collect_ignore_glob = [] if os.environ.get("AGENTBUS_TEST_HARNESS") else ["test_*.py"]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with Model() as model:
        yield Ground(tmp_path, model)
