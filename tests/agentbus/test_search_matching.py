"""Which texts hold the words of a query."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbus.errors import BusError
from agentbus.limits import SNIPPET_CHARS
from agentbus.search import matching
from agentbus.search.matching import Corpus, Phrase, Word
from journal import format_time
from tests.agentbus.building import HOUR_MS, START_MS


def found(query: str, text: str, label: str | None = None) -> bool:
    return all(matching.count(matching.parse_query(query), matching.whole(text, label)))


THEMSELVES = [
    "POL-358",
    "src/a.py:12",
    "don't",
    "C++",
    "foo_bar",
    "1.5",
    "a@b",
    "#804",
    "tool X",
    "検索",
    "検",
    "가나",
    "🦊",
]
THEMSELVES += [
    "Łódź",
    "naïve",
    "ﬁ",
    "Straße",
    "x.y()",
    "ﾊﾟ",
    "-v",
    "--yes",
    "50%",
    "é",
    "مرحبا",
    "हिन्दी",
    "ภาษา",
    "မြန်မာ",
    "ខ្មែរ",
]


@pytest.mark.parametrize("word", THEMSELVES)
def test_a_word_finds_itself_wherever_it_stands_and_however_it_is_written(word: str) -> None:
    for text in (word, f"see {word} there", f"({word}),", f'"{word}"', word.upper(), word.lower()):
        assert found(word, text), text
        for form in ("NFC", "NFD"):
            assert found(unicodedata.normalize(form, word), text)
            assert found(word, unicodedata.normalize(form, text))


CASES = [
    ("C++", "C is", False),
    ("C++", "C+", False),
    ("POL-358", "POL-3589", False),
    ("POL-358", "XPOL-358", False),
    ("POL-35", "POL-358", False),
    ("POL-35*", "POL-358", True),
    ("58*", "POL-358", False),
    ("src/a.py", "src/a.py:12", True),
    ("a.py:12", "src/a.py:12", True),
    ("foo", "foo_bar", False),
    ("foo", "foo-bar", True),
    ("foo*", "foo_bar", True),
    ("foo*", "a foo", True),
    ("foo*", "afoo", False),
    ("foo**", "foobar", True),
    ('"foo*"', "foobar", True),
    ("FOO", "foo", True),
    ("cafe", "Café", True),
    ("Café", "CAFE", True),
    ("ÉTÉ", "été", True),
    ("strasse", "Straße", True),
    ("ΣΑΣ", "σας", True),
    ("two words", "words that are two", True),
    ("two words", "two word", False),
    ('"two words"', "words, two", True),
    ("索", "検索する", True),
    ("検索", "全文検索です", True),
    ("検索", "検と索", False),
    ("한국", "대한국민", True),
    ("가", "각", False),
    ("각", "가", False),
    ("カナ", "全カナ文", True),
    ("ภาษา", "เรียนภาษาไทย", True),
    ("ចម្ការ", "ក្នុងចម្ការ", True),
    ("x検", "ax検", False),
    ("検x", "検xy", False),
    ("foo", "検foo索", True),
    ("don't", "dont", False),
    ("don't", "don\u2019t", True),
    ("don\u2019t", "don't", True),
    ("POL-358", "POL\u2011358 is done", True),
    ("\u201cflock\u201d", "flock hangs", True),
    ("\u300c検索\u300d", "全文検索です", True),
    ("a\u2013b", "a-b", True),
    ("a-b", "a\u2014b", False),
]


@pytest.mark.parametrize(("query", "text", "expected"), CASES)
def test_words_are_taken_whole_and_literally(query: str, text: str, *, expected: bool) -> None:
    assert found(query, text) is expected


@pytest.mark.parametrize("query", ["", " ", "*", "(", "** ()", '"', "++ -", "\u0301"])
def test_a_query_without_a_word_is_refused(query: str) -> None:
    with pytest.raises(BusError) as refusal:
        matching.parse_query(query)
    assert refusal.value.code == "validation"
    assert "holds no word to search for: give at least one" in refusal.value.message


def test_marks_around_a_word_are_dropped_and_marks_alone_are_no_words() -> None:
    assert matching.parse_query('(Foo) "bar*", -- b*r') == (Word("foo", False), Word("bar", True), Word("b*r", False))


SCRIPTS = "abÄé検索가나ｶ\uff21ﬁ_-+.: *(\n\u0301\u093f🦊🏽½Σςİ1"


@given(st.text(SCRIPTS, max_size=12), st.text(SCRIPTS, max_size=30), st.none() | st.text(SCRIPTS, max_size=8))
def test_any_query_is_answered_or_refused(query: str, text: str, label: str | None) -> None:
    try:
        words = matching.parse_query(query)
    except BusError:
        return
    if all(matching.count(words, matching.whole(text, label))):
        assert matching.snippet(words, text, label).count("**") >= 2


@settings(max_examples=40)
@given(st.lists(st.text("abÄé検가_-", min_size=1).filter(lambda word: matching._is_searchable(word[0])), min_size=1))
def test_each_text_is_found_by_its_own_words(words: list[str]) -> None:
    assert found(" ".join(words), " ".join(reversed(words)))


def test_a_label_is_searched_as_the_text_is_and_no_word_stands_in_both() -> None:
    assert found("POL-358 fixed", "it is fixed", "POL-358")
    assert not found("fixedpol", "it is fixed", "pol")
    assert not found("fixed-pol", "it is fixed-", "pol")
    assert matching.count(matching.parse_query("a"), matching.whole("a b a", "A")) == (3,)


def test_each_word_is_counted_overlaps_too() -> None:
    assert matching.count(matching.parse_query("a b"), "a b a") == (2, 1)
    assert matching.count((Word("aa", prefix=True),), "aaa aa") == (2,)
    assert matching.parse_query('a A "a"') == (Word("a", prefix=False),)


# --- tokens


def follows(phrase: Phrase, tokens: list[str]) -> bool:
    """Whether a phrase stands in the tokens, as an index looks for it."""
    many = len(phrase.tokens)
    for at in range(len(tokens) - many + 1):
        *whole, last = tokens[at : at + many]
        ends = last.startswith(phrase.tokens[-1]) if phrase.open_end else last == phrase.tokens[-1]
        if ends and tuple(whole) == phrase.tokens[:-1]:
            return True
    return False


@settings(max_examples=400)
@given(st.text(SCRIPTS, min_size=1, max_size=4), st.lists(st.text(SCRIPTS, max_size=6), max_size=4))
def test_a_text_that_holds_a_word_holds_its_tokens_in_their_order(word: str, around: list[str]) -> None:
    text = matching.fold(word.join(around))
    try:
        words = matching.parse_query(word)
    except BusError:
        return
    for each in words:
        phrase = matching.phrase(each)
        assert phrase.tokens
        if all(matching.count((each,), text)):
            assert follows(phrase, matching.tokens(text)), (phrase, text)


TOKENS = [
    ("src/a.py:12 C++", ["src", "a", "py", "12", "c"]),
    ("foo_bar-baz", ["foo_bar", "baz"]),
    ("検索x가", ["検", "索", "x", "가"]),
    ("ไทยx ລາວ", ["ไ", "ท", "ย", "x", "ລ", "າ", "ວ"]),
    ("a🦊b", ["a", "🦊", "b"]),
    ("Łódź, naïve", ["łodz", "naive"]),
]


@pytest.mark.parametrize(("text", "tokens"), TOKENS)
def test_tokens_are_runs_of_letters_and_what_stands_for_itself(text: str, tokens: list[str]) -> None:
    folded = matching.fold(text)
    assert matching.tokens(folded) == tokens
    assert matching.tokens(matching.render_tokens(folded)) == tokens


def test_only_an_open_word_that_ends_in_letters_goes_on() -> None:
    assert matching.phrase(Word("a.py", prefix=True)) == Phrase(("a", "py"), open_end=True)
    assert matching.phrase(Word("a.py", prefix=False)) == Phrase(("a", "py"), open_end=False)
    assert matching.phrase(Word("検索", prefix=True)) == Phrase(("検", "索"), open_end=False)
    assert matching.phrase(Word("a-", prefix=True)) == Phrase(("a",), open_end=False)


def test_more_often_in_fewer_words_weighs_more_and_a_rare_word_more_than_a_common_one() -> None:
    corpus = Corpus(100, 1000, (5, 60))
    assert matching.weigh(corpus, (2, 0), 10) > matching.weigh(corpus, (1, 0), 10) > matching.weigh(corpus, (1, 0), 20)
    assert matching.weigh(corpus, (1, 0), 10) > matching.weigh(corpus, (0, 9), 10) > 0
    assert matching.weigh(Corpus(0, 0, (0,)), (1,), 0) > 0


# --- snippets

SNIPPETS = [
    ("b", "a b c", "a **b** c"),
    ("b", "a\n\n b\tc", "a **b** c"),
    ("CAFE", "the Cafe\u0301 there", "the **Café** there"),
    ("ss", "ß", "**ß**"),
    ("late early", "early and late", "**early** and late"),
    ("a", "ba ab a", "ba ab **a**"),
]


@pytest.mark.parametrize(("query", "text", "snippet"), SNIPPETS)
def test_a_snippet_marks_the_first_hit_on_one_line(query: str, text: str, snippet: str) -> None:
    assert matching.snippet(matching.parse_query(query), text, None) == snippet
    assert matching.snippet(matching.parse_query(query), text, "label") == snippet


def test_a_snippet_is_cut_around_the_hit() -> None:
    words = matching.parse_query("hit")
    shown = matching.snippet(words, "x" * 500 + " hit " + "y" * 500, None)
    assert shown == "…" + "x" * 77 + " **hit** " + "y" * 77 + "…"
    assert matching.snippet(matching.parse_query("z" * 300), "a " + "z" * 300 + " b", None) == "…**" + "z" * 300 + "**…"


def test_where_only_the_label_holds_a_word_it_is_shown_before_the_text() -> None:
    words = matching.parse_query("pol-358 rest")
    assert matching.snippet(words, "how\nit went", "the POL-358") == "the **POL-358**: how it went"
    long = matching.snippet(words, "x" * 500, "POL-358")
    assert long.startswith("**POL-358**: xxx")
    assert long.endswith("x…")
    assert len(long) == SNIPPET_CHARS + 3


NOW = START_MS
TIMES = [
    ("90s", NOW - 90_000),
    ("30m", NOW - 1_800_000),
    ("2h", NOW - 2 * HOUR_MS),
    ("3d", NOW - 72 * HOUR_MS),
    ("0s", NOW),
    ("99999999d", 0),
    ("2026-09-09T08:00:00Z", NOW),
    ("2026-09-09T10:00:00.049+02:00", NOW + 49),
    ("2026-09-09T08:00:07.049Z", NOW + 7049),
    ("1969-12-31T00:00:00Z", 0),
    ("0001-01-01T00:00:00+23:59", 0),
]


@pytest.mark.parametrize(("text", "time_ms"), TIMES)
def test_a_time_is_a_date_with_a_zone_or_so_long_ago(text: str, time_ms: int) -> None:
    assert matching.parse_when(text, "since", NOW) == time_ms


@given(st.integers(0, 4_000_000_000_000))
def test_the_time_of_any_message_is_a_filter_to_the_millisecond(time_ms: int) -> None:
    assert matching.parse_when(format_time(time_ms), "until", NOW) == time_ms


NO_TIMES = [
    "",
    "2",
    "h",
    "2w",
    "-2h",
    "²h",
    "1.5h",
    "yesterday",
    "2026-09-09",
    "2026-09-09T08:00:00",
    "\ud83d",
    "9" * 5000 + "d",
]


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_time_is_refused_by_name(text: str) -> None:
    with pytest.raises(BusError) as refusal:
        matching.parse_when(text, "until", NOW)
    assert refusal.value.code == "validation"
    assert refusal.value.message.startswith('"until" "')
    assert refusal.value.message.endswith('is no time: give RFC 3339 with a zone, as 2026-09-09T08:00:00Z, or "2h"')
    refusal.value.message.encode()
