"""The name rule, and how a refusal shows what it refuses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbus import names
from agentbus.errors import BusError, render_value

ALLOWED = [
    "a",
    "general",
    "a b",
    "検索",
    "#804",
    "don't",
    "-",
    "@x",
    "C++",
    "🦊",
    "a\u0301".encode().decode(),
    "x" * 128,
]


@pytest.mark.parametrize("text", ALLOWED)
def test_a_name_is_taken_in_nfc(text: str) -> None:
    expected = "\u00e1" if text == "a\u0301" else text
    parsed: list[str] = [names.parse_agent_name(text), names.parse_channel_name(text), names.parse_label(text)]
    assert parsed == [expected] * 3


REFUSED = [
    ("", "it must not be empty"),
    (" \u3000", "it must not be empty"),
    (" a", "it must not begin or end with white space"),
    ("a\u00a0", "it must not begin or end with white space"),
    ("a/b", 'it must not hold "/"'),
    ("a\x00b", "it must not hold U+0000"),
    ("a\nb", "it must not hold U+000A"),
    ("a\x7fb", "it must not hold U+007F"),
    ("a\x9bb", "it must not hold U+009B"),
    ("a\u2028b", "it must not hold U+2028"),
    ("a\u2029b", "it must not hold U+2029"),
    ("a\ud83d", "it must not hold U+D83D"),
    ("\udca9a", "it must not hold U+DCA9"),
    *((f"a{mark}b", f"it must not hold U+{ord(mark):04X}") for mark in "\u202a\u202b\u202c\u202d\u202e"),
    *((f"a{mark}b", f"it must not hold U+{ord(mark):04X}") for mark in "\u2066\u2067\u2068\u2069"),
    ("x" * 129, "it must be at most 128 bytes of UTF-8, not 129"),
    ("検" * 43, "it must be at most 128 bytes of UTF-8, not 129"),
    ("\ud83d" * 129, "it must be at most 128 bytes of UTF-8, not 129"),
    (7, "it must be text"),
    (None, "it must be text"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_a_name_that_breaks_the_rule_is_refused_with_the_part_it_breaks(text: object, why: str) -> None:
    for parse, what in (
        (names.parse_agent_name, "name"),
        (names.parse_channel_name, "channel"),
        (names.parse_label, "label"),
    ):
        with pytest.raises(BusError) as refusal:
            parse(text)
        assert refusal.value.code == "validation"
        assert not refusal.value.retryable
        assert refusal.value.message == f"{what} {render_value(text)} is not allowed: {why}"
        assert str(refusal.value) == refusal.value.message


def test_the_bytes_counted_are_those_of_the_name_in_nfc() -> None:
    assert names.parse_channel_name("e\u0301" * 64) == "é" * 64
    assert len(("e\u0301" * 64).encode()) == 192


def test_a_display_name_may_hold_parents_and_1024_bytes() -> None:
    assert names.parse_display_name("Sam/x-2") == "Sam/x-2"
    assert names.parse_display_name("x" * 1024) == "x" * 1024
    with pytest.raises(BusError, match=r'^as "x{200}…" is not allowed: it must be at most 1024 bytes'):
        names.parse_display_name("x" * 1025)


def test_a_context_may_be_a_path() -> None:
    assert names.parse_context("/home/me/shop") == "/home/me/shop"
    with pytest.raises(BusError, match=r'^context "a\\n" is not allowed: it must not begin or end'):
        names.parse_context("a\n")


def parsed_or_refused(text: str) -> tuple[str | None, str]:
    try:
        return names.parse_agent_name(text), ""
    except BusError as refusal:
        return None, refusal.message


@given(st.text(st.characters(), max_size=40))
def test_any_text_is_a_lasting_name_or_is_refused_in_one_line_that_can_be_sent(text: str) -> None:
    name, message = parsed_or_refused(text)
    message.encode()
    assert (name is None) == bool(message)
    assert "\n" not in message
    if name is not None:
        assert names.parse_agent_name(name) == name
        assert 1 <= len(name.encode()) <= 128
        assert "/" not in name


@settings(max_examples=40)
@given(st.text(st.characters(), max_size=300) | st.recursive(st.integers() | st.text(st.characters()), st.lists))
def test_a_value_in_an_error_is_one_line_that_can_be_sent_and_is_cut(value: object) -> None:
    shown = render_value(value)
    shown.encode()
    assert shown.isprintable()
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text.isprintable() and len(text) > 200:
        assert text[:200] + "…" in shown
    if isinstance(value, str) and value.isascii() and value.isprintable() and len(value) <= 200:
        assert shown == f'"{value}"'


def test_a_refused_value_of_200_characters_is_shown_whole_and_one_more_is_cut() -> None:
    assert render_value("x" * 200) == json.dumps("x" * 200)
    assert render_value("x" * 201) == '"' + "x" * 200 + '…"'
