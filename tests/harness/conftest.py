"""`make test-harness` asks for these tests; `make test` must not need clients from a package registry."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.harness.ground import PACKAGES, Ground, version_of
from tests.harness.model import Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

collect_ignore_glob = [] if os.environ.get("AGENTBUS_TEST_HARNESS") else ["test_*.py"]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with Model() as model:
        yield Ground(tmp_path, model)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which versions were tried, and what was measured."""
    terminalreporter.section("clients")
    for program in PACKAGES:
        terminalreporter.write_line(f"{PACKAGES[program]}: {version_of(program)}")
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
