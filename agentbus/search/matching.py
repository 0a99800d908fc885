"""Which texts hold the words of a query, and how well. Pure: knows texts only; where they stand is for others.

Plain and exact: every word is looked for literally, with case, accents, composition and typography folded. An index
narrows that by `tokens`: a text that holds a word holds the word's tokens, one right after the other.
"""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from agentbus.errors import VALIDATION, BusError, render_value
from agentbus.limits import SNIPPET_CHARS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EDGES = "\"'`()[]{}<>.,;:!?“”„‘’«»…「」『』（）【】《》。、，：；！？"  # noqa: RUF001  # as they are written elsewhere
# Signs that some models write where others, and people, write the plain ones.
_PLAIN = {"‘": "'", "’": "'", "“": '"', "”": '"', "‐": "-", "‑": "-", "‒": "-", "–": "-", "−": "-"}  # noqa: RUF001  # see above
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Scripts that put no space between words, searched without word borders: Thai, Lao, Burmese, Khmer; Han, kana, Hangul
# and their compatibility forms.
_UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1100, 0x11FF),
    (0x1780, 0x17FF),
    (0x2E80, 0x30FF),
    (0x3130, 0x318F),
    (0x31C0, 0x9FFF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7FF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFFDC),
    (0x20000, 0x3FFFF),
)
# As SQLite has them, so that a text weighs the same whether its index or this room weighs it.
_K1: Final = 1.2
_B: Final = 0.75
_RARITY_MIN: Final = 1e-6


class Word(Struct, frozen=True):
    """One word of a query, folded; a ``prefix`` may go on behind its end."""

    text: str
    prefix: bool


class Phrase(Struct, frozen=True):
    """A word's tokens, at least one, as they follow one another in every text that holds it.

    With ``open_end`` the text's token may go on behind the last.
    """

    tokens: tuple[str, ...]
    open_end: bool


class Corpus(Struct, frozen=True):
    """What all texts together say about a word's weight.

    Attributes:
        texts: how many there are, and ``tokens`` how many tokens they have.
        holding: for each word of a query how many texts hold it.
    """

    texts: int
    tokens: int
    holding: tuple[int, ...]


def parse_query(text: str) -> tuple[Word, ...]:
    """The words of a query: split at white space, quotation marks and brackets around a word dropped.

    Raises:
        BusError: validation; there is no word in it.
    """
    words = []
    for part in text.split():
        bare = part.strip(_EDGES).rstrip("*").strip(_EDGES)
        folded = fold(bare)
        if any(_is_searchable(char) for char in folded):
            words.append(Word(folded, prefix=part.rstrip(_EDGES).endswith("*")))
    if not words:
        raise BusError(VALIDATION, f'"query" {render_value(text)} holds no word to search for: give at least one')
    return tuple(dict.fromkeys(words))


def parse_when(text: str, what: str, now_ms: int) -> int:
    """A time as a filter gives it, in ms since 1970 UTC: RFC 3339, or ``90s``, ``30m``, ``2h``, ``3d`` ago.

    Raises:
        BusError: validation; ``what`` names the argument.
    """
    if len(text) < 10 and text[:-1].isascii() and text[:-1].isdigit() and text[-1] in _UNIT_MS:
        return max(0, now_ms - int(text[:-1]) * _UNIT_MS[text[-1]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BusError(
            VALIDATION,
            f'"{what}" {render_value(text)} is no time: give RFC 3339 with a zone, as 2026-09-09T08:00:00Z, or "2h"',
        )
    return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))


# --- matching


def whole(content: str, label: str | None) -> str:
    """A text with its label, folded, as it is searched. No word reaches over the end of a line, so it is in one."""
    return fold(content if label is None else f"{content}\n{label}")


def count(words: tuple[Word, ...], folded: str) -> tuple[int, ...]:
    """How often a `whole` text holds each word; it is a hit if there is no 0."""
    return tuple(sum(1 for _ in _occurrences(folded, word)) for word in words)


def snippet(words: tuple[Word, ...], content: str, label: str | None) -> str:
    """The part of a hit around the first word in it, on one line, the word between ``**``.

    Where only the label holds a word, the label and the beginning of the text.
    """
    span = _first_span(words, content)
    if span is not None:
        return _cut(unicodedata.normalize("NFC", content), *span, SNIPPET_CHARS)
    span = None if label is None else _first_span(words, label)
    assert label is not None and span is not None  # noqa: PT018, S101  # it was a hit
    shown = _cut(unicodedata.normalize("NFC", label), *span, SNIPPET_CHARS)
    return f"{shown}: {_begin(content, max(0, SNIPPET_CHARS - len(shown)))}"


def _first_span(words: tuple[Word, ...], text: str) -> tuple[int, int] | None:
    """Where the first word stands in a text, once that is in NFC."""
    folded, origin = _fold_with_origin(unicodedata.normalize("NFC", text))
    found = [(at, at + len(word.text)) for word in words for at in _occurrences(folded, word)]
    if not found:
        return None
    first, last = min(found)
    return (origin[first], origin[last - 1] + 1) if origin else (first, last)


def _cut(text: str, start: int, end: int, chars: int) -> str:
    """The hit between ``**`` with what stands around it, on one line, cut with ``…``."""
    around = max(0, chars - (end - start)) // 2
    left, right = max(0, start - around), min(len(text), end + around)
    shown = text[left:start] + "**" + text[start:end] + "**" + text[end:right]
    return ("…" if left else "") + " ".join(shown.split()) + ("…" if right < len(text) else "")


def _begin(text: str, chars: int) -> str:
    return " ".join(text[:chars].split()) + ("…" if len(text) > chars else "")


def _occurrences(folded: str, word: Word) -> Iterator[int]:
    at = folded.find(word.text)
    if at < 0:
        return
    closed_start, closed_end = _joins(word.text[0]), _joins(word.text[-1]) and not word.prefix
    while at >= 0:
        end = at + len(word.text)
        starts = not (closed_start and at > 0 and _joins(folded[at - 1]))
        ends = not (closed_end and end < len(folded) and _joins(folded[end]))
        if starts and ends:
            yield at
        at = folded.find(word.text, at + 1)


# --- tokens and weights


def render_tokens(folded: str) -> str:
    """A folded text for an index with one rule for all scripts.

    It takes every run of ASCII letters, digits, ``_`` and of what is not ASCII for one token, all else for borders.
    """
    return folded if folded.isascii() else folded.translate(_TOKENS)


def tokens(folded: str) -> list[str]:
    """The tokens of a folded text: words, and each character that stands for itself."""
    return folded.translate(_TOKENS).split()


def phrase(word: Word) -> Phrase:
    """What an index looks for to find the texts that may hold a word."""
    return Phrase(tuple(tokens(word.text)), word.prefix and _joins(word.text[-1]))


def weigh(corpus: Corpus, counts: Sequence[int], length: int) -> float:
    """How well a text of ``length`` tokens answers a query whose words it holds so often: BM25; more is better."""
    average = max(corpus.tokens, 1) / max(corpus.texts, 1)
    total = 0.0
    for often, holding in zip(counts, corpus.holding, strict=True):
        rarity = math.log((corpus.texts - holding + 0.5) / (holding + 0.5))
        damped = often + _K1 * (1 - _B + _B * length / average)
        total += max(rarity, _RARITY_MIN) * often * (_K1 + 1) / damped
    return total


# --- characters


def fold(text: str) -> str:
    """A text in NFC without case and accents, typographic signs as plain ones."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text).translate(_FOLDED)


def _fold_with_origin(text: str) -> tuple[str, list[int]]:
    """`fold` of a text in NFC, and for each character the index it comes from.

    The list is empty where every index is its own: plain ASCII, which most texts are.
    """
    if text.isascii():
        return text.lower(), []
    folded: list[str] = []
    origin: list[int] = []
    for index, char in enumerate(text):
        parts = _FOLDED[ord(char)]
        folded += parts
        origin += [index] * len(parts)
    return "".join(folded), origin


def _bare(char: str) -> str:
    if char.isascii():
        return char.lower()
    if char in _PLAIN:
        return _PLAIN[char]
    parts = unicodedata.normalize("NFD", unicodedata.normalize("NFD", char).casefold())
    # Composed again, so that one Hangul syllable does not begin another.
    return unicodedata.normalize("NFC", "".join(part for part in parts if unicodedata.category(part) != "Mn"))


def _joins(char: str) -> bool:
    """Whether a character makes one word with its like beside it."""
    return char != " " and _TOKENS[ord(char)] == char


def _as_token(char: str) -> str:
    if (char.isalnum() or char == "_") and not _is_unspaced(char):
        return char
    return f" {char} " if _is_searchable(char) else " "


def _is_unspaced(char: str) -> bool:
    code = ord(char)
    return any(low <= code <= high for low, high in _UNSPACED)


def _is_searchable(char: str) -> bool:
    return unicodedata.category(char)[0] in "LN" or unicodedata.category(char) == "So"


class _Folded(dict[int, str]):
    """What each character folds to; those met before are not worked out again, which a text of another script needs."""

    def __missing__(self, code: int) -> str:
        self[code] = _bare(chr(code))
        return self[code]


class _Tokens(dict[int, str]):
    """What stands for each character of a folded text between the borders of tokens, likewise."""

    def __missing__(self, code: int) -> str:
        self[code] = _as_token(chr(code))
        return self[code]


_FOLDED: Final = _Folded()
_TOKENS: Final = _Tokens()
