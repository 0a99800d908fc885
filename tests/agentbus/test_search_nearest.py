"""Words that a misspelt one may stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbus.search.nearest import nearest, slips_max, with_other_beginning

NEAR = [
    ("deplyo", "deploy"),
    ("deploi", "deploy"),
    ("deply", "deploy"),
    ("deeploy", "deploy"),
    ("edploy", "deploy"),
    ("dploy", "deploy"),
    ("mesage", "messages"),
    ("naive", "naïve"),
    ("абвгд", "абвгг"),
]


@pytest.mark.parametrize(("word", "meant"), NEAR)
def test_a_slip_or_two_lead_to_what_was_meant(word: str, meant: str) -> None:
    assert nearest(word, {meant: 1, "elsewhere": 9}) == [meant]


FAR = [
    ("ab", "ac"),
    ("abcd", "abxx"),
    ("abcd", "badc"),
    ("deploy", "deployment"),
    ("deploy", "employed"),
    ("same", "same"),
]


@pytest.mark.parametrize(("word", "other"), FAR)
def test_what_is_further_away_or_the_word_itself_is_not_meant(word: str, other: str) -> None:
    assert nearest(word, {other: 1}) == []


def test_the_nearest_comes_first_and_of_equals_what_more_texts_hold() -> None:
    vocabulary = {"planes": 1, "planet": 5, "plants": 50, "planed": 5}
    assert nearest("planex", vocabulary) == ["planed", "planet", "planes", "plants"]


def test_a_short_word_may_be_one_slip_away_and_a_longer_one_two() -> None:
    assert [slips_max("x" * many) for many in (2, 3, 4, 5)] == [0, 1, 1, 2]


def test_other_beginnings_are_all_that_one_slip_at_the_first_letter_makes_of_a_word() -> None:
    made = with_other_beginning("abc")
    assert {"bc", "bac", "xbc", "xabc", "7bc", "7abc"} <= set(made)
    assert "abc" not in made
    assert len(set(made)) == len(made)
    assert with_other_beginning("a")[:2] == ["b", "c"]


@given(st.text("abc", min_size=1, max_size=6), st.text("abc", min_size=1, max_size=6))
def test_to_be_near_goes_both_ways(one: str, other: str) -> None:
    if slips_max(one) == slips_max(other):
        assert bool(nearest(one, {other: 1})) == bool(nearest(other, {one: 1}))
