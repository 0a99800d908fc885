"""Which messages hold the words of a query. Pure: candidates from a State, matching on texts; others read the bodies.

Plain and exact: every word is looked for literally in each candidate's text, with case, accents and composition folded.
"""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from agentbus.decide.channels import require_channel
from agentbus.errors import NOT_FOUND, VALIDATION, BusError, render_value
from agentbus.limits import SNIPPET_CHARS
from agentbus.queries import located

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    from agentbus.queries import Body, Located
    from agentbus.state import Channel, State

    Hit: TypeAlias = tuple[Body, "Match"]

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EDGES = "\"'`()[]{}<>.,;:!?"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Han, kana, Hangul and their compatibility forms: scripts searched without word borders.
_CJK = (
    (0x1100, 0x11FF),
    (0x2E80, 0x30FF),
    (0x3130, 0x318F),
    (0x31C0, 0x9FFF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7FF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFFDC),
    (0x20000, 0x3FFFF),
)


class Word(Struct, frozen=True):
    """One word of a query, folded; a ``prefix`` may go on behind its end."""

    text: str
    prefix: bool


class Scope(Struct, frozen=True):
    """Where to look: None leaves a filter out. ``since_ms`` and ``until_ms`` both count as inside."""

    channel: str | None = None
    kind: str | None = None
    sender: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    thread: int | None = None


class Match(Struct, frozen=True):
    """How often a text holds the words, and the part of it around the first one, the hit between ``**``."""

    score: int
    snippet: str


class After(Struct, frozen=True):
    """Where a page of hits ended: the next one goes on behind that hit, among what stood at ``last_seq``."""

    last_seq: int
    score: int
    seq: int


def parse_query(text: str) -> tuple[Word, ...]:
    """The words of a query: split at white space, quotation marks and brackets around a word dropped.

    Raises:
        BusError: validation; there is no word in it.
    """
    words = []
    for part in text.split():
        bare = part.strip(_EDGES).rstrip("*").strip(_EDGES)
        folded, _ = _fold(unicodedata.normalize("NFC", bare))
        if any(_is_searchable(char) for char in folded):
            words.append(Word(folded, prefix=part.rstrip(_EDGES).endswith("*")))
    if not words:
        raise BusError(VALIDATION, f'"query" {render_value(text)} holds no word to search for: give at least one')
    return tuple(words)


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


def render_cursor(after: After) -> str:
    """The continuation as a caller passes it back."""
    return f"{after.last_seq}-{after.score}-{after.seq}"


def parse_cursor(text: str) -> After:
    """What render_cursor rendered.

    Raises:
        BusError: validation.
    """
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 17 for part in parts):
        raise BusError(
            VALIDATION,
            f'"cursor" {render_value(text)} is none: pass the "next" of an earlier search, or leave it out',
        )
    return After(*map(int, parts))


def look(state: State, scope: Scope, after: After | None) -> tuple[int, list[str], list[Located]]:
    """The seq up to which this search looks, the channels it looks into, and the candidates."""
    last_seq = state.last_seq if after is None else after.last_seq
    looked_in = [channel.name for channel in channels(state, scope)]
    return last_seq, looked_in, list(candidates(state, scope, last_seq))


def ranked(hits: Iterable[Hit], after: After | None) -> list[Hit]:
    """Hits with the most occurrences first, newer before older; those up to ``after`` left out."""
    ordered = sorted(hits, key=_rank)
    if after is None:
        return ordered
    return [hit for hit in ordered if _rank(hit) > (-after.score, -after.seq)]


def _rank(hit: Hit) -> tuple[int, int]:
    body, match = hit
    return -match.score, -body.at.seq


def channels(state: State, scope: Scope) -> list[Channel]:
    """The channels a scope looks into, by name.

    Raises:
        BusError: not_found; there is no such channel, or the thread's message cannot be read any more.
    """
    if scope.channel is not None:
        require_channel(state, scope.channel)
    if scope.thread is not None and state.author_of(scope.thread) is None:
        raise BusError(
            NOT_FOUND,
            f'"thread" {scope.thread} is no message that can still be read: history shows those that can',
        )
    return [
        state.channels[name]
        for name in sorted(state.channels)
        if scope.channel in (None, name) and scope.kind in (None, state.channels[name].kind)
    ]


def candidates(state: State, scope: Scope, last_seq: int) -> Iterator[Located]:
    """The messages and live revisions up to ``last_seq`` that pass the scope's filters, in no promised order."""
    sender = None if scope.sender is None else state.identities.find(scope.sender)
    if scope.sender is not None and sender is None:
        return
    root = None if scope.thread is None else _root(state, scope.thread)
    for channel in channels(state, scope):
        retained = channel.retained
        for index in range(retained.first_after(last_seq)):
            if sender is not None and retained.authors[index] != sender:
                continue
            if not _within(scope, retained.times[index]):
                continue
            if root is None or _root(state, retained.seqs[index]) == root:
                yield located(state, channel, index)


def _within(scope: Scope, time_ms: int) -> bool:
    return (scope.since_ms is None or scope.since_ms <= time_ms) and (
        scope.until_ms is None or time_ms <= scope.until_ms
    )


def _root(state: State, seq: int) -> int:
    """The message (of a memory: its id) a thread began with. A reply's seq is above what it replies to: this ends."""
    seq = state.revised.get(seq, seq)
    while seq in state.replies:
        seq = state.replies[seq]
    return seq


def match(words: tuple[Word, ...], text: str) -> Match | None:
    """What a text has of the words; None unless it holds every one."""
    text = unicodedata.normalize("NFC", text)
    folded, origin = _fold(text)
    score = 0
    first: tuple[int, int] | None = None
    for word in words:
        found = list(_occurrences(folded, word))
        if not found:
            return None
        score += len(found)
        if first is None or found[0] < first[0]:
            first = (found[0], found[0] + len(word.text))
    assert first is not None  # noqa: S101  # a query has at least one word
    start, end = (origin[first[0]], origin[first[1] - 1] + 1) if origin else first
    return Match(score, _snippet(text, start, end))


def _occurrences(folded: str, word: Word) -> Iterator[int]:
    at = folded.find(word.text)
    while at >= 0:
        end = at + len(word.text)
        starts = not (_joins(word.text[0]) and at > 0 and _joins(folded[at - 1]))
        ends = word.prefix or not (_joins(word.text[-1]) and end < len(folded) and _joins(folded[end]))
        if starts and ends:
            yield at
        at = folded.find(word.text, at + 1)


def _joins(char: str) -> bool:
    """Whether a character makes one word with its like beside it."""
    return (char.isalnum() or char == "_") and not _is_cjk(char)


def _is_cjk(char: str) -> bool:
    code = ord(char)
    return any(low <= code <= high for low, high in _CJK)


def _is_searchable(char: str) -> bool:
    return unicodedata.category(char)[0] in "LN" or unicodedata.category(char) == "So"


def _fold(text: str) -> tuple[str, list[int]]:
    """A text in NFC without case and accents, and for each character the index it comes from.

    The list is empty where every index is its own: plain ASCII, which most texts are.
    """
    if text.isascii():
        return text.lower(), []
    folded: list[str] = []
    origin: list[int] = []
    for index, char in enumerate(text):
        parts = char.lower() if char.isascii() else _bare(char)
        folded += parts
        origin += [index] * len(parts)
    return "".join(folded), origin


def _bare(char: str) -> str:
    parts = unicodedata.normalize("NFD", unicodedata.normalize("NFD", char).casefold())
    # Composed again, so that one Hangul syllable does not begin another.
    return unicodedata.normalize("NFC", "".join(part for part in parts if unicodedata.category(part) != "Mn"))


def _snippet(text: str, start: int, end: int) -> str:
    """The hit between ``**`` with what stands around it, on one line, cut with ``…``."""
    around = max(0, SNIPPET_CHARS - (end - start)) // 2
    left, right = max(0, start - around), min(len(text), end + around)
    shown = text[left:start] + "**" + text[start:end] + "**" + text[end:right]
    return ("…" if left else "") + " ".join(shown.split()) + ("…" if right < len(text) else "")
