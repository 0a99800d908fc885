"""Other people's text on a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbus.visible import render_visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é, 漢字, \\n", "plain, é, 漢字, \\n"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x1b[31mred\x07\x7f\x9b", "\\x1b[31mred\\x07\\x7f\\x9b"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("\u202egnp.exe\u2066\u200f\u061c", "\\u202egnp.exe\\u2066\\u200f\\u061c"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_what_moves_a_cursor_or_reorders_a_line_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert render_visible(text) == shown


@settings(deadline=None)
@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_the_result_is_one_encodable_line_and_shown_again_it_is_the_same(text: str) -> None:
    shown = render_visible(text)
    assert shown.encode().decode() == shown
    assert len(f"{shown}.".splitlines()) == 1
    assert not any(unicodedata.category(char) == "Cc" for char in shown)
    assert render_visible(shown) == shown
