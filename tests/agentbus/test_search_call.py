"""The `search` tool over real journals: the same hits with an index, without one, and with one that is behind."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentbus.control import Cancelled, Control
from agentbus.errors import BusError
from agentbus.limits import SEARCH_PAGES_MAX
from agentbus.search import index as index_room
from agentbus.search.fulltext import FullText
from agentbus.search.matching import parse_query
from tests.agentbus.hosts import call, open_at, refusal
from tests.agentbus.searches import fill, found, index_files, naive

if TYPE_CHECKING:
    from pathlib import Path

    from agentbus.host import Host


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(name="sam", params=["indexed", "behind", "read"])
def _sam(data: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A process whose searches find all in the index, or some, or nothing."""
    host = open_at(data)
    call(host, "register", name="sam")
    if request.param == "read":
        host.search_index = None
    elif request.param == "indexed":
        monkeypatch.setattr(index_room, "SEARCH_BEHIND_MIN", 0)
    else:
        fill(host, (f"filler w{number}" for number in range(100)))
        found(host, "sam", "w5")
    return host


LITERAL = {
    "POL-358": "POL 358, POL-3580",
    "don't": "dont",
    "src/a.py:12": "src/a.py:1 2",
    '"quoted"': "unquoted",
    "C++": "C is, C+",
    "検索": "索検",
    "検": "索",
    "한": "하",
    "🦊": "🐺",
    "foo_bar": "foo bar",
    "Łódź": "Łódźmi",
    "--yes": "-yes",
    "50%": "50",
    "naïve": "naïf",
}


def test_odd_words_find_themselves_and_not_their_neighbours(sam: Host, data: Path) -> None:
    own = {}
    for word, neighbour in LITERAL.items():
        for text in (f"see {word} there", neighbour):
            own[text] = call(sam, "post", as_="sam", channel="general", content=text)["seq"]
    for word, neighbour in LITERAL.items():
        hits = set(found(sam, "sam", word))
        assert own[f"see {word} there"] in hits
        assert own[neighbour] not in hits
        assert hits == naive(data, word)


def test_every_word_is_required_and_a_star_leaves_the_end_open(sam: Host) -> None:
    fill(sam, ["deploy the server", "deployed a server", "the deploy"])
    assert len(found(sam, "sam", "deploy server")) == 1
    assert len(found(sam, "sam", "deploy* SERVER")) == 2
    assert len(found(sam, "sam", "the* deploy")) == 2


def test_own_posts_labels_and_live_revisions_are_found_with_their_memory_in_front(sam: Host) -> None:
    fact = call(sam, "post", as_="sam", channel="memory", content="old wording", label="POL-358")["seq"]
    chat = call(sam, "post", as_="sam", channel="general", content="about POL-358")["seq"]
    gone = call(sam, "post", as_="sam", channel="memory", content="POL-358 is wrong")["seq"]
    call(sam, "search", as_="sam", query="wording")
    edited = call(sam, "edit_memory", as_="sam", id=fact, content="new wording", label="POL-358")["seq"]
    call(sam, "delete_memory", as_="sam", id=gone)
    hits = {hit["seq"]: hit for hit in call(sam, "search", as_="sam", query="pol-358")["hits"]}
    assert set(hits) == {edited, chat}
    assert list(hits[edited])[:3] == ["memory_id", "revision", "seq"]
    assert (hits[edited]["memory_id"], hits[edited]["revision"], hits[edited]["label"]) == (fact, 2, "POL-358")
    assert hits[edited]["snippet"] == "**POL-358**: new wording"
    assert next(iter(hits[chat])) == "seq"
    assert "label" not in hits[chat]
    assert found(sam, "sam", "old") == []
    assert found(sam, "sam", "wrong") == []


def test_what_is_over_age_is_not_found_before_it_is_evicted(sam: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = call(sam, "post", as_="sam", channel="general", content="same words")["seq"]
    fact = call(sam, "post", as_="sam", channel="memory", content="same words")["seq"]
    assert set(found(sam, "sam", "same words")) == {chat, fact}
    monkeypatch.setattr(sam.bus, "horizon_ms", lambda: 1 << 60)
    assert found(sam, "sam", "same words") == [fact]
    assert call(sam, "search", as_="sam", query="sane", channel="general") == {
        "hits": [],
        "searched": {"channels": ["general"], "since": None, "until": None},
    }


def test_filters_narrow_a_search_of_many_hits(sam: Host) -> None:
    fill(sam, (f"word {number}" for number in range(700)))
    root = call(sam, "post", as_="sam", channel="general", content="word of mine")["seq"]
    reply = call(sam, "post", as_="sam", channel="memory", content="word in reply", reply_to=root)["seq"]
    fill(sam, (f"word word {number}" for number in range(700)))
    assert set(found(sam, "sam", "word", sender="sam")) == {root, reply}
    assert set(found(sam, "sam", "word", thread=reply)) == {root, reply}
    assert found(sam, "sam", "word", kind="memory") == [reply]
    assert found(sam, "sam", "word", channel="memory", since="1h", until="2100-01-01T00:00:00Z") == [reply]
    assert found(sam, "sam", "word", until="1h") == []
    assert found(sam, "sam", "word", since="2h", until="2h") == []


def test_a_filter_that_can_find_nothing_is_refused_and_not_answered_by_no_hits(sam: Host) -> None:
    call(sam, "post", as_="sam", channel="general", content="word")
    answer = refusal(sam, "search", as_="sam", query="word", sender="Sammy")
    assert (answer["code"], answer["message"]) == (
        "not_found",
        '"sender" "Sammy" is nobody who was ever here: did you mean "sam"?',
    )
    answer = refusal(sam, "search", as_="sam", query="word", since="2h", until="3h")
    assert answer["code"] == "validation"
    assert answer["message"] == '"since" "2h" comes after "until" "3h": nothing lies between'


def test_a_word_that_stands_everywhere_still_has_a_score(sam: Host) -> None:
    fill(sam, ["word"] * 300)
    scores = {hit["score"] for hit in call(sam, "search", as_="sam", query="word", channel="general")["hits"]}
    assert scores == {0.001}


def test_pages_neither_repeat_nor_skip_while_others_post_edit_and_delete(sam: Host, data: Path) -> None:
    dice = random.Random(3)  # noqa: S311  # repeatable, not secret
    fill(sam, (f"word {'word ' * (number % 5)}{number}" for number in range(60)))
    facts = [
        call(sam, "post", as_="sam", channel="memory", content=f"word fact {number}")["seq"] for number in range(40)
    ]
    before = naive(data, "word")
    edited, deleted = dict[int, int](), set()
    seen: list[int] = []
    page = call(sam, "search", as_="sam", query="word", count=7)
    while True:
        seen += [hit.get("memory_id", hit["seq"]) for hit in page["hits"]]
        if "next" not in page:
            break
        fill(sam, ["word word word word word word news"] * 5)
        fact = dice.choice([each for each in facts if each not in deleted])
        if dice.random() < 0.3:
            call(sam, "delete_memory", as_="sam", id=fact)
            deleted.add(fact)
        else:
            edited[fact] = call(sam, "edit_memory", as_="sam", id=fact, content="word, again")["seq"]
        page = call(sam, "search", as_="sam", query="word", count=7, cursor=page["next"])
    assert len(seen) == len(set(seen))
    assert before - deleted <= set(seen) <= before


def test_who_lost_an_answer_asks_again_with_the_same_cursor(sam: Host) -> None:
    fill(sam, (f"word {number}" for number in range(20)))
    first = call(sam, "search", as_="sam", query="word", count=5)
    pages = [call(sam, "search", as_="sam", query="word", count=5, cursor=first["next"])["hits"] for _ in range(2)]
    assert [hit["seq"] for hit in pages[0]] == [hit["seq"] for hit in pages[1]]


def test_a_cursor_goes_on_with_its_own_search_only(sam: Host) -> None:
    fill(sam, (f"word {number}" for number in range(9)))
    cursor = call(sam, "search", as_="sam", query="word", count=2, since="2h")["next"]
    for other in ({"query": "words", "since": "2h"}, {"query": "word", "since": "3h"}, {"query": "word"}):
        answer = refusal(sam, "search", as_="sam", cursor=cursor, **other)
        assert answer["code"] == "validation"
        assert "goes on with another search" in answer["message"]
    answer = refusal(sam, "search", as_="sam", query="word", cursor="7-1-2")
    assert answer["code"] == "validation"
    assert '"cursor" "7-1-2" is none that is known here' in answer["message"]
    for _ in range(SEARCH_PAGES_MAX):
        call(sam, "search", as_="sam", query="word", count=2)
    answer = refusal(sam, "search", as_="sam", query="word", since="2h", cursor=cursor)
    assert "is none that is known here" in answer["message"]


def test_the_best_come_first_and_of_equals_the_newest(sam: Host) -> None:
    fill(sam, ["rare", "x " * 30, "rare common common", "common", "rare rare", "common"])
    hits = call(sam, "search", as_="sam", query="rare")["hits"]
    assert [hit["snippet"] for hit in hits] == ["**rare** rare", "**rare**", "**rare** common common"]
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    same = found(sam, "sam", "common")
    assert same.index(max(same)) < same.index(max(same) - 2)


# --- nothing found


def test_what_is_not_found_is_answered_by_words_that_stand_there(sam: Host) -> None:
    fill(sam, ["deploy the staging server", "POL-358 is done", "deployed twice"])
    answer = call(sam, "search", as_="sam", query="deplyo server")
    assert answer["hits"] == []
    assert answer["nearest"] == {"deplyo": ["deploy", "deployed"]} or answer["nearest"] == {"deplyo": ["deploy"]}
    assert call(sam, "search", as_="sam", query="POL-385")["nearest"] == {"pol-385": ["pol-358"]}
    assert call(sam, "search", as_="sam", query="stag POL")["nearest"] == {"stag": ["stag*"]}
    assert call(sam, "search", as_="sam", query="done twi*")["hits"] == []
    assert call(sam, "search", as_="sam", query="xerver")["nearest"] == {"xerver": ["server"]}
    for query in ("nothingnear", "ab", "索", "deploy done", "deploy twice staging"):
        assert "nearest" not in call(sam, "search", as_="sam", query=query)


def test_no_word_is_offered_that_stands_only_in_what_nobody_may_see(sam: Host) -> None:
    gone = call(sam, "post", as_="sam", channel="memory", content="swordfish")["seq"]
    call(sam, "post", as_="sam", channel="memory", content="else")
    assert call(sam, "search", as_="sam", query="swordfihs")["nearest"] == {"swordfihs": ["swordfish"]}
    assert "nearest" not in call(sam, "search", as_="sam", query="swordfihs", channel="general")
    call(sam, "delete_memory", as_="sam", id=gone)
    assert "nearest" not in call(sam, "search", as_="sam", query="swordfihs")


def test_offered_words_keep_to_the_size_of_a_result(data: Path) -> None:
    small = open_at(data, result_kib=1)
    call(small, "register", name="sam")
    words = [f"{letter * 40}{number}" for letter in "abcdefgh" for number in range(3)]
    fill(small, [" ".join(words)])
    answer = call(small, "search", as_="sam", query=" ".join(letter * 40 for letter in "abcdefgh"))
    assert answer["more_nearest"] + len(answer["nearest"]) == 8


# --- what cannot be answered


def test_a_search_that_takes_too_long_says_how_to_narrow_it(sam: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(sam, ["word"] * 3)
    monkeypatch.setattr("agentbus.search.hits.SEARCH_TIME_S", -1.0)
    answer = refusal(sam, "search", as_="sam", query="word")
    assert (answer["code"], answer["retryable"]) == ("busy", True)
    assert answer["message"].endswith("narrow the search by channel, sender or since, or use rarer words")


def test_a_search_whose_index_cannot_be_kept_says_that_when_it_is_busy(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = open_at(data)
    call(host, "register", name="sam")
    fill(host, ["word"] * 99)
    monkeypatch.setattr("agentbus.search.files.SEARCH_DISK_BYTES_MIN", 1 << 60)
    found(host, "sam", "word")
    monkeypatch.setattr("agentbus.search.hits.SEARCH_TIME_S", 0.0)
    message = refusal(host, "search", as_="sam", query="word")["message"]
    assert "too many to read in time, and the search index cannot be kept (less than" in message


def test_a_cancelled_search_ends(sam: Host) -> None:
    fill(sam, ["word"] * 3)
    control = Control(sam.bus)
    control.cancel()
    with pytest.raises(Cancelled):
        call(sam, "search", control, as_="sam", query="word")


def test_who_is_not_registered_finds_nothing_and_makes_no_index(data: Path) -> None:
    host = open_at(data)
    call(host, "register", name="sam")
    fill(host, ["word"] * 99)
    assert refusal(host, "search", as_="tom", query="word")["code"] == "not_registered"
    assert index_files(data) == []


def test_what_the_index_does_wrong_is_made_good_by_reading(
    sam: Host, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sam, (f"word {number}" for number in range(99)))
    before = found(sam, "sam", "word")
    if sam.search_index is None:
        return
    for cause in ("fails", "was changed"):
        with monkeypatch.context() as patch:
            if cause == "fails":
                patch.setattr(FullText, "holding", _fail)
                patch.setattr(FullText, "rank", _fail)
            else:
                patch.setattr(sam.search_index, "is_intact", lambda _: False)
            assert set(found(sam, "sam", "word")) == set(before)
    assert set(before) == naive(data, "word")


def _fail(*_: object) -> None:
    from agentbus.search.fulltext import FullTextError  # noqa: PLC0415  # only here

    raise FullTextError("database disk image is malformed")


# --- any text, any query

SCRIPTS = "abcÄéß検索가나ｶ\uff21ﬁ_-+.:/*\"'(\n\u0301\u093fनमस्ते🦊🏽½Σςİ\u202819 "


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data_=st.data())
def test_any_query_finds_what_a_plain_reading_of_all_texts_finds(sam: Host, data: Path, data_: st.DataObject) -> None:
    texts = data_.draw(st.lists(st.text(SCRIPTS, min_size=1, max_size=12), min_size=1, max_size=8))
    fill(sam, texts, label=data_.draw(st.none() | st.sampled_from(["a-b", "検", "c"])))
    pieces = st.sampled_from(texts).flatmap(
        lambda text: st.integers(0, len(text)).map(lambda at: text[at : at + 4])
    ) | st.text(SCRIPTS, min_size=1, max_size=3)
    for query in data_.draw(st.lists(st.lists(pieces, min_size=1, max_size=2).map(" ".join), min_size=1, max_size=4)):
        try:
            parse_query(query)
        except BusError:
            continue
        hits = found(sam, "sam", query, count=100)
        assert len(hits) == len(set(hits))
        assert set(hits) == naive(data, query), query
