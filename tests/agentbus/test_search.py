"""Which texts hold the words of a query."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbus import events as ev
from agentbus import queries, search
from agentbus.errors import BusError
from agentbus.search import After, Match, Scope, Word
from journal import format_time
from tests.agentbus.building import HOUR_MS, START_MS, World


def found(query: str, text: str) -> bool:
    return search.match(search.parse_query(query), text) is not None


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
THEMSELVES += ["Łódź", "naïve", "ﬁ", "Straße", "x.y()", "ﾊﾟ", "-v", "--yes", "50%", "é", "مرحبا", "हिन्दी"]


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
    ("x検", "ax検", False),
    ("検x", "検xy", False),
    ("foo", "検foo索", True),
    ("don't", "dont", False),
]


@pytest.mark.parametrize(("query", "text", "expected"), CASES)
def test_words_are_taken_whole_and_literally(query: str, text: str, *, expected: bool) -> None:
    assert found(query, text) is expected


@pytest.mark.parametrize("query", ["", " ", "*", "(", "** ()", '"', "++ -", "\u0301"])
def test_a_query_without_a_word_is_refused(query: str) -> None:
    with pytest.raises(BusError) as refusal:
        search.parse_query(query)
    assert refusal.value.code == "validation"
    assert "holds no word to search for: give at least one" in refusal.value.message


def test_marks_around_a_word_are_dropped_and_marks_alone_are_no_words() -> None:
    assert search.parse_query('(Foo) "bar*", -- b*r') == (Word("foo", False), Word("bar", True), Word("b*r", False))


@given(st.text("abÄé検가_-*( ", max_size=12), st.text("abÄé検가_- ", max_size=30))
def test_any_query_is_answered_or_refused(query: str, text: str) -> None:
    try:
        words = search.parse_query(query)
    except BusError:
        return
    match = search.match(words, text)
    if match is not None:
        assert match.score >= len(words)
        assert match.snippet.count("**") == 2


@settings(max_examples=40)
@given(st.lists(st.text("abÄé検가_-", min_size=1).filter(lambda word: search._is_searchable(word[0])), min_size=1))
def test_each_text_is_found_by_its_own_words(words: list[str]) -> None:
    assert found(" ".join(words), " ".join(reversed(words)))


def test_the_score_is_how_often_the_words_stand_there() -> None:
    words = search.parse_query("a b")
    assert search.match(words, "a b a") == Match(3, "**a** b a")
    assert search.match(words, "a") is None
    assert search.match((Word("aa", True),), "aaa aa") == Match(2, "**aa**a aa")


SNIPPETS = [
    ("b", "a b c", "a **b** c"),
    ("b", "a\n\n b\tc", "a **b** c"),
    ("CAFE", "the Cafe\u0301 there", "the **Café** there"),
    ("ss", "ß", "**ß**"),
    ("late early", "early and late", "**early** and late"),
]


@pytest.mark.parametrize(("query", "text", "snippet"), SNIPPETS)
def test_a_snippet_marks_the_first_hit_on_one_line(query: str, text: str, snippet: str) -> None:
    match = search.match(search.parse_query(query), text)
    assert match is not None
    assert match.snippet == snippet


def test_a_snippet_is_cut_around_the_hit() -> None:
    match = search.match(search.parse_query("hit"), "x" * 500 + " hit " + "y" * 500)
    assert match is not None
    assert match.snippet == "…" + "x" * 77 + " **hit** " + "y" * 77 + "…"
    long = search.match(search.parse_query("z" * 300), "a " + "z" * 300 + " b")
    assert long == Match(1, "…**" + "z" * 300 + "**…")


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
    assert search.parse_when(text, "since", NOW) == time_ms


@given(st.integers(0, 4_000_000_000_000))
def test_the_time_of_any_message_is_a_filter_to_the_millisecond(time_ms: int) -> None:
    assert search.parse_when(format_time(time_ms), "until", NOW) == time_ms


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
        search.parse_when(text, "until", NOW)
    assert refusal.value.code == "validation"
    assert refusal.value.message.startswith('"until" "')
    assert refusal.value.message.endswith('is no time: give RFC 3339 with a zone, as 2026-09-09T08:00:00Z, or "2h"')
    refusal.value.message.encode()


@given(st.builds(After, st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1)))
def test_a_cursor_comes_back_as_it_went(after: After) -> None:
    assert search.parse_cursor(search.render_cursor(after)) == after


@pytest.mark.parametrize("text", ["", "1-2", "1-2-3-4", "1--3", "1-2-x", "1-2-²", "1-2-" + "9" * 17, " 1-2-3"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(BusError) as refusal:
        search.parse_cursor(text)
    assert refusal.value.code == "validation"
    assert refusal.value.message.endswith('is none: pass the "next" of an earlier search, or leave it out')


@pytest.fixture
def world() -> World:
    return World()


def seqs(world: World, scope: Scope, after: After | None = None) -> list[int]:
    _, _, located = search.look(world.state, scope, after)
    return sorted(at.seq for at in located)


def test_candidates_are_what_can_still_be_read(world: World) -> None:
    evicted, chat = world.post("Ann"), world.post("Ann")
    world.commit(ev.Evicted("general", chat))
    memory, gone = world.post("Ann", "memory"), world.post("Ann", "memory")
    live = world.edit("Bob", memory)
    world.delete("Ann", gone)
    assert seqs(world, Scope()) == [chat, live]
    assert evicted < chat


def test_a_scope_is_narrowed_by_channel_kind_sender_and_time(world: World) -> None:
    world.channel("facts", "memory")
    one, two, three = world.post("Ann"), world.post("Bob", "memory"), world.post("Ann", "facts")
    times = [world.lines[seq][0] for seq in (one, two, three)]
    when = [search.parse_when(time, "since", 0) for time in times]
    assert seqs(world, Scope(channel="memory")) == [two]
    with pytest.raises(BusError, match='channel "fact" does not exist: did you mean "facts"'):
        seqs(world, Scope(channel="fact"))
    assert seqs(world, Scope(kind="memory")) == [two, three]
    assert seqs(world, Scope(kind="memory", channel="general")) == []
    assert seqs(world, Scope(sender="Ann")) == [one, three]
    assert seqs(world, Scope(sender="Zoe")) == []
    assert seqs(world, Scope(since_ms=when[1])) == [two, three]
    assert seqs(world, Scope(until_ms=when[1])) == [one, two]
    assert seqs(world, Scope(since_ms=when[1], until_ms=when[1])) == [two]
    assert search.look(world.state, Scope(kind="memory"), None)[:2] == (three, ["facts", "memory"])


def test_a_thread_is_a_message_and_what_answers_it_and_the_answers_across_channels(world: World) -> None:
    root = world.post("Ann")
    world.post("Ann", reply_to=world.post("Ann"))
    answer = world.post("Bob", "memory", reply_to=root)
    last = world.post("Cy", reply_to=answer)
    for seq in (root, answer, last):
        assert seqs(world, Scope(thread=seq)) == [root, answer, last]


def test_the_thread_of_a_memory_outlives_its_revisions(world: World) -> None:
    memory = world.post("Ann", "memory")
    first = world.post("Bob", reply_to=memory)
    second_revision = world.edit("Ann", memory)
    second = world.post("Bob", reply_to=second_revision)
    live = world.edit("Ann", memory)
    for thread in (memory, live, first, second):
        assert seqs(world, Scope(thread=thread)) == [first, second, live]


def test_the_thread_of_what_cannot_be_read_is_not_found(world: World) -> None:
    with pytest.raises(BusError) as refusal:
        search.look(world.state, Scope(thread=99), None)
    assert refusal.value.code == "not_found"
    assert refusal.value.message == ('"thread" 99 is no message that can still be read: history shows those that can')


def test_the_best_come_first_and_of_equals_the_newest(world: World) -> None:
    texts = ["a", "a a", "a", "b", "a a a"]
    made = [world.post("Ann", content=text) for text in texts]
    _, _, located = search.look(world.state, Scope(), None)
    words = search.parse_query("a")
    hits = [
        (body, match)
        for body in map(world.body, located)
        if (match := search.match(words, body.event.content)) is not None
    ]
    best = [made[4], made[1], made[2], made[0]]
    assert [body.at.seq for body, _ in search.ranked(hits, None)] == best
    for page in range(1, 5):
        body, match = search.ranked(hits, None)[page - 1]
        after = After(world.state.last_seq, match.score, body.at.seq)
        assert [hit.at.seq for hit, _ in search.ranked(hits, after)] == best[page:]


def test_a_next_page_looks_at_what_stood_when_the_first_was_made(world: World) -> None:
    one = world.post("Ann")
    after = After(world.state.last_seq, 1, one)
    world.post("Ann")
    assert search.look(world.state, Scope(), after)[0] == one
    assert seqs(world, Scope(), after) == [one]


def test_what_is_located_for_a_search_is_what_a_page_shows(world: World) -> None:
    seq = world.post("Ann", "memory")
    _, _, located = search.look(world.state, Scope(), None)
    assert located == queries.locate(world.state, [(seq, "memory")])
