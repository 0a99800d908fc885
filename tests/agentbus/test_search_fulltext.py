"""One file of SQLite's full-text search."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from agentbus.search import matching
from agentbus.search.fulltext import FullText, FullTextError
from agentbus.search.matching import Corpus, Phrase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentbus.search.matching import Word


def make(path: Path, texts: dict[int, str], record: bytes = b"record") -> None:
    if not path.exists():
        path.write_bytes(b"")
    text = FullText(str(path), writable=True)
    text.add((seq, matching.render_tokens(matching.fold(content))) for seq, content in texts.items())
    text.finish(record)
    text.close()


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "a file? 100%#1.db"


def test_what_was_added_is_ranked_the_best_first_of_equals_the_newest(path: Path) -> None:
    make(path, {3: "a b", 5: "a a", 7: "a b", 9: "c"})
    make(path, {11: "a"}, b"later")
    text = FullText(str(path))
    ranked = list(text.rank([Phrase(("a",), open_end=False)], -1))
    assert [seq for seq, _ in ranked] == [5, 11, 7, 3]
    assert ranked[2][1] == ranked[3][1]
    assert [seq for seq, _ in text.rank([Phrase(("a",), open_end=False)], 2)] == [5, 11]
    assert text.record() == b"later"
    assert text.holding(Phrase(("a",), open_end=False)) == 4
    text.close()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_text_weighs_in_the_index_what_it_weighs_without(path: Path) -> None:
    dice = random.Random(5)  # noqa: S311  # repeatable, not secret
    words = ["rare", *["common"] * 20, *["some"] * 5, "é", *["x.y"] * 3]
    texts = {seq: " ".join(dice.choices(words, k=dice.randint(1, 30))) for seq in range(1, 200)}
    make(path, texts)
    text = FullText(str(path))
    folded = {seq: matching.fold(content) for seq, content in texts.items()}
    total = sum(len(matching.tokens(each)) for each in folded.values())
    for query in ("rare", "common", "rare common", "é x.y", "so*", "some x.y common"):
        parsed = matching.parse_query(query)
        corpus = Corpus(len(texts), total, tuple(text.holding(matching.phrase(word)) for word in parsed))
        ranked = dict(text.rank([matching.phrase(word) for word in parsed], -1))
        assert ranked == pytest.approx(_weights(folded, parsed, corpus), rel=1e-9)
    text.close()


def _weights(folded: dict[int, str], words: tuple[Word, ...], corpus: Corpus) -> dict[int, float]:
    counted = {seq: matching.count(words, text) for seq, text in folded.items()}
    return {
        seq: matching.weigh(corpus, counts, len(matching.tokens(folded[seq])))
        for seq, counts in counted.items()
        if all(counts)
    }


def test_words_are_listed_by_their_beginning_and_by_name(path: Path) -> None:
    make(path, {1: "deploy déployed delta 検索", 2: "deploy edploy"})
    text = FullText(str(path))
    assert text.words("de", ["edploy", "nowhere"], 10) == [("delta", 1), ("deploy", 2), ("deployed", 1), ("edploy", 1)]
    assert text.words("検", [], 10) == [("検", 1)]
    assert len(text.words("d", [], 2)) == 2
    text.close()


def test_more_phrases_than_narrow_further_are_no_fault(path: Path) -> None:
    make(path, {1: " ".join(f"w{number}" for number in range(500))})
    text = FullText(str(path))
    phrases = [Phrase((f"w{number}",), open_end=True) for number in range(500)]
    assert [seq for seq, _ in text.rank(phrases, 10)] == [1]
    text.close()


def test_what_a_source_of_texts_raises_comes_out_as_it_is(path: Path) -> None:
    def failing() -> Iterator[tuple[int, str]]:
        yield 1, "a"
        raise LookupError("of its own")

    path.write_bytes(b"")
    text = FullText(str(path), writable=True)
    with pytest.raises(LookupError, match="of its own"):
        text.add(failing())
    text.close()
    with pytest.raises(FullTextError):
        text.add([(1, "a")])


def test_what_the_check_raises_ends_the_work(path: Path) -> None:
    make(path, dict.fromkeys(range(1, 3000), "a b c"))

    def check() -> None:
        raise TimeoutError("enough")

    text = FullText(str(path), check=check)
    with pytest.raises(TimeoutError, match="enough"):
        list(text.rank([Phrase(("a",), open_end=False)], -1))
    text.close()


def test_what_is_no_index_is_told_in_one_error(path: Path) -> None:
    with pytest.raises(FullTextError):
        FullText(str(path))
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(FullTextError):
        FullText(str(path))
    with pytest.raises(FullTextError):
        FullText(str(path), writable=True)
    path.write_bytes(b"")
    with closing(FullText(str(path))) as text, pytest.raises(FullTextError):
        text.record()
    FullText(str(path), writable=True).close()
    make(path, {1: "a"}, b"")
    text = FullText(str(path))
    assert text.record() == b""
    text.close()
