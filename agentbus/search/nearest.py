"""Words that a misspelt one may stand for. Pure: compares words, and reads no text and no index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_LENGTH_MIN = 3  # anything is near to a shorter word
_LENGTH_LONG = 5  # from here on two slips are allowed


def slips_max(word: str) -> int:
    """How many slips a word may be away from what was meant: letters left out, put in, changed or swapped."""
    if len(word) < _LENGTH_MIN:
        return 0
    return 2 if len(word) >= _LENGTH_LONG else 1


def with_other_beginning(word: str) -> list[str]:
    """What a word may be whose first letter is the slip: an index finds the others by their first letter."""
    swapped = word[1:2] + word[:1] + word[2:]
    made = [word[1:], swapped, *(letter + word[1:] for letter in _LETTERS), *(letter + word for letter in _LETTERS)]
    return [each for each in dict.fromkeys(made) if each and each != word]


def nearest(word: str, vocabulary: Mapping[str, int]) -> list[str]:
    """Words of a vocabulary within reach, the nearest first, of equals the most frequent.

    Args:
        word: folded, as the vocabulary's are.
        vocabulary: words, each with how many texts hold it.
    """
    limit = slips_max(word)
    found = []
    for other, texts in vocabulary.items():
        if other == word or abs(len(other) - len(word)) > limit:
            continue
        away = _slips(word, other)
        if away <= limit:
            found.append((away, -texts, other))
    return [other for _, _, other in sorted(found)]


def _slips(one: str, other: str) -> int:
    """Edits between two words; two letters swapped are one."""
    before: list[int] = []
    above = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        line = [row]
        for column, facing in enumerate(other, 1):
            best = min(above[column] + 1, line[-1] + 1, above[column - 1] + (letter != facing))
            if row > 1 and column > 1 and letter == other[column - 2] and facing == one[row - 2]:
                best = min(best, before[column - 2] + 1)
            line.append(best)
        before, above = above, line
    return above[-1]
