"""Whom a text addresses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbus.addressing import Identities
from agentbus.state import addressed_by
from tests.agentbus.building import World

KNOWN = ["Sam", "Sam2", "Sam/x", "Sam/x-2", "Sam Smith", "agentbus/implement804", "検索", "検", "jo-an", "ÉM"]


def known(*identities: str) -> Identities:
    made = Identities()
    for identity in identities:
        made.add(identity)
    return made


MENTIONS = [
    ("@Sam", ["Sam"]),
    ("hello @Sam, and @Sam2!", ["Sam", "Sam2"]),
    ("@Sam2", ["Sam2"]),
    ("@Sam3", []),
    ("@Sam @jo-an @Sam2", ["Sam", "jo-an", "Sam2"]),
    ("@Sam~", ["Sam"]),
    ("@Sammy", []),
    ("@Sam_", []),
    ("@Sam-", []),
    ("@Sam/", []),
    ("@Sam/y", []),
    ("@Samé", []),
    ("@Sam検", []),
    ("@Sam.", ["Sam"]),
    ("@Sam:x", ["Sam"]),
    ("@Sam\n", ["Sam"]),
    ("@Sam's", ["Sam"]),
    ("(@Sam)", ["Sam"]),
    ("@Sam/x", ["Sam/x"]),
    ("@Sam/x-2 go", ["Sam/x-2"]),
    ("@Sam/x-3 go", []),
    ("@Sam Smith", ["Sam Smith"]),
    ("@Sam Smithers", ["Sam"]),
    ("@Sam  Smith", ["Sam"]),
    ("@agentbus/implement804", ["agentbus/implement804"]),
    ("@agentbus", []),
    ("@検索", ["検索"]),
    ("@検索。", ["検索"]),
    ("@検索さん", []),
    ("@検 ", ["検"]),
    ("@sam", []),
    ("@ Sam", []),
    ("Sam", []),
    ("", []),
    ("@", []),
    ("@@Sam", ["Sam"]),
    ("@Sam@Sam", ["Sam"]),
    ("mail Joe@Sam.org", []),
    ("请@Sam", ["Sam"]),
    ("@jo-an", ["jo-an"]),
    ("@ÉM", ["ÉM"]),
]


@pytest.mark.parametrize(("content", "names"), MENTIONS)
def test_the_longest_identity_that_ends_at_a_border_is_addressed(content: str, names: list[str]) -> None:
    assert list(known(*KNOWN).mentioned(content)) == names
    assert list(known(*reversed(KNOWN)).mentioned(content)) == names


def naive(identities: list[str], content: str) -> list[str]:
    found = []
    for at, char in enumerate(content):
        if char == "@" and not re.match("[A-Za-z0-9]", content[at - 1 : at]):
            fitting = [
                name
                for name in identities
                if content.startswith(name, at + 1) and not is_name_char(content[at + 1 + len(name) :][:1])
            ]
            found += sorted(fitting, key=len)[-1:]
    return found


def is_name_char(char: str) -> bool:
    return char.isalnum() or (char != "" and char in "-_/")


short = st.text("ab/ -検@", min_size=1, max_size=4)


@given(st.lists(short, max_size=6, unique=True), st.lists(short | st.just("@"), max_size=8).map("".join))
def test_mentions_are_those_that_the_rule_read_slowly_gives(identities: list[str], content: str) -> None:
    assert list(known(*identities).mentioned(content)) == naive(identities, content)


def test_identities_are_numbered_in_order_of_appearance() -> None:
    identities = known("b", "a", "b")
    assert identities.names == ["b", "a"]
    assert (identities.find("b"), identities.find("a"), identities.find("c")) == (0, 1, None)
    assert identities.add("a") == 1


def test_a_text_addresses_whom_it_names_and_whom_it_answers_once_and_never_its_author() -> None:
    world = World()
    for identity in ("Ann", "Bob", "Cy"):
        world.register(identity)
    asked = world.post("Bob")
    assert addressed_by(world.state, "Ann", "@Cy @Cy and @Ann", asked) == ("Cy", "Bob")
    assert addressed_by(world.state, "Ann", "@Bob", asked) == ("Bob",)
    assert addressed_by(world.state, "Bob", "myself", asked) == ()
    assert addressed_by(world.state, "Ann", "nobody @Dora", 999) == ()


def test_an_identity_is_known_from_the_seq_on_at_which_it_first_appears() -> None:
    world = World()
    world.register("Ann")
    before = world.post("Ann", content="@Bob")
    world.register("Bob")
    after = world.post("Ann", content="@Bob")
    assert world.state.addressed == {after: ("Bob",)}
    assert before not in world.state.addressed
