"""P11: search among many memories, beside SQLite's FTS5 with the same texts in a table of its own."""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
import subprocess
import sys
from contextlib import closing
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tools.figures import children
from tools.figures.journals import write_memories
from tools.figures.measuring import Bar, Figure, NotMeasuredError, Sample

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tools.figures.places import Place

_MEMORIES = 100_000
_QUICK_MEMORIES = 20_000
_VOCABULARY = 20_000
_TURNS = 5
_CHILD = (sys.executable, "-m", "tools.figures.search_child")
_KINDS = ("a rare word", "a common word", "two words", "the beginning of a word")


class Search:
    """P11."""

    rounds = 7

    def __init__(self, place: Place) -> None:
        many = _QUICK_MEMORIES if place.quick else _MEMORIES
        alone, process = "FTS5 alone, the same texts", "FTS5 alone, a new process"
        self.figures = (
            Figure("P11", f"search {many:,} memories, four queries", alone, "s", Bar(2)),
            *(Figure("P11", f"  {kind}", alone, "s", None) for kind in _KINDS),
            Figure("P11", "the same, each the first of a process", process, "s", Bar(5)),
            Figure("P11", "  with its imports, fold and register", process, "s", None),
        )
        language = _Language()
        texts = [language.text() for _ in range(many)]
        self._queries = language.queries(texts)
        self._data = place.new("memories")
        (self._data / "journal").mkdir(mode=0o700)
        write_memories(self._data / "journal", texts)
        self._table = place.new("table") / "texts.db"
        _make_table(self._table, texts)
        if not (children.run("snapshot", self._data)["made"] and self._run("index", self._data)["made"]):
            raise NotMeasuredError("no snapshot or no index was made")
        self._warm = subprocess.Popen(
            [*_CHILD, "warm", str(self._data), str(self._table)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._hear()

    def sample(self) -> list[Sample]:
        """Each query by both in turn, a few times over; then a new process for each query and each way."""
        warm = [self._both(query) for query in self._queries]
        first = [
            (self._run("first", self._data, query), self._run("first_alone", self._table, query))
            for query in self._queries
        ]
        alone_s = sum(alone["seconds"] for _, alone in first)
        return [
            Sample(sum(each.figure for each in warm), sum(each.yardstick for each in warm)),
            *warm,
            Sample(sum(ours["seconds"] for ours, _ in first), alone_s),
            Sample(sum(ours["whole_s"] for ours, _ in first), alone_s),
        ]

    def _both(self, query: str) -> Sample:
        assert self._warm.stdin is not None  # noqa: S101  # PIPE
        said = []
        for _ in range(_TURNS):
            self._warm.stdin.write(json.dumps(query).encode() + b"\n")
            self._warm.stdin.flush()
            said.append(self._hear())
        return Sample(*(statistics.median(each[name] for each in said) for name in ("seconds", "alone_s")))

    def _hear(self) -> dict[str, Any]:
        assert self._warm.stdout is not None  # noqa: S101  # PIPE
        line = self._warm.stdout.readline()
        if not line:
            raise NotMeasuredError("the process that searches failed; stderr says why")
        said: dict[str, Any] = json.loads(line)
        return said

    def _run(self, mode: str, *arguments: object) -> dict[str, Any]:
        done = subprocess.run([*_CHILD, mode, *map(str, arguments)], check=False, stdout=subprocess.PIPE)
        if done.returncode:
            raise NotMeasuredError(f'a process for "{mode}" failed; stderr says why')
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    def close(self) -> None:
        """End the process that searches."""
        self._warm.kill()
        self._warm.communicate()


class _Language:
    """Words as often as in any language: the n-th most frequent one is 1/n as frequent as the first."""

    def __init__(self) -> None:
        self._random = random.Random(1)  # noqa: S311  # repeatable, not secret
        letters = "abcdefghijklmnopqrstuvwxyz"
        made = {"".join(self._random.choices(letters, k=self._random.randint(3, 9))): None for _ in range(_VOCABULARY)}
        self._words = list(made)
        self._weights = list(accumulate(1 / number for number in range(1, len(self._words) + 1)))

    def text(self) -> str:
        """10 to 60 words: about 240 bytes."""
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=self._random.randint(10, 60)))

    def queries(self, texts: Sequence[str]) -> list[str]:
        """One of each of _KINDS, by how large a part of the texts holds the words."""
        holding = dict.fromkeys(self._words, 0)
        for text in texts:
            for word in set(text.split()):
                holding[word] += 1

        def held_by(part: float) -> str:
            return min(self._words, key=lambda word: (abs(holding[word] - part * len(texts)), word))

        beginning = next(word for word in self._words[30:] if len(word) > 5)[:4]
        return [held_by(20 / len(texts)), held_by(0.2), f"{held_by(0.06)} {held_by(0.03)}", f"{beginning}*"]


def _make_table(path: Path, texts: Sequence[str]) -> None:
    """As anybody would make it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE VIRTUAL TABLE texts USING fts5 (content)")
        connection.executemany("INSERT INTO texts (content) VALUES (?)", ((text,) for text in texts))
