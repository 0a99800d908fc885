"""How much, in words."""

from __future__ import annotations

import pytest

from agentbus.columns import render_bytes


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (999 << 10, "999.0 KiB"),
        (1000 << 10, "1.0 MiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_bytes_are_told_in_the_unit_that_leaves_three_digits(number: int, says: str) -> None:
    assert render_bytes(number) == says
