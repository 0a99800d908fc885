"""One JSON object as a person wrote it: checked strictly, edited without harm to the rest.

Pure. Knows nothing of what the keys mean. Values keep their literal text through an edit: ``1.0``, ``1e400``,
integers of any length, escapes in strings; only the white space between them becomes two-space indentation.
Refused, with line and column: what is not JSON (NaN too), what is no object, and duplicate keys, of which an
edit would lose one.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Splits text that json has accepted; it could not check any.
_TOKENS = r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+'
_OPENING = frozenset("{[")
_CLOSING = frozenset("}]")
_CONSTANTS = frozenset(("NaN", "Infinity", "-Infinity"))
# Longer integers are compared with nothing here, and Python refuses to read those of more than 4300 digits.
_INTEGER_CHARS_MAX = 400


class JSONTextError(ValueError):
    """The text cannot be used. ``cause`` is a clause; ``line`` and ``column`` count from 1."""

    def __init__(self, cause: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {cause}")
        self.cause = cause
        self.line = line
        self.column = column


class Document:
    """A JSON object: its ``value`` as Python reads it, and its text.

    Raises:
        JSONTextError: the text is not one JSON object, or holds a duplicate key at any depth.
    """

    __slots__ = ("_text", "value")

    def __init__(self, text: str) -> None:
        self._text = text
        self.value = _load(text)

    def place(self, key: str) -> tuple[int, int]:
        """Line and column of the value of ``key``, which is there."""
        tokens = list(re.finditer(_TOKENS, self._text))
        start, _ = _members([token.group() for token in tokens])[key]
        return _place(self._text, tokens[start].start())

    def entries(self, key: str) -> list[str]:
        """The JSON texts of the entries of the array at ``key``, which is one."""
        tokens = re.findall(_TOKENS, self._text)
        start, end = _members(tokens)[key]
        array = tokens[start:end]
        return ["".join(array[first:last]) for first, last in _spans(array)]

    def with_member(self, key: str, value_json: str) -> str:
        """The whole text with ``key`` set to ``value_json``, in its old place or else last."""
        tokens = re.findall(_TOKENS, self._text)
        members = _members(tokens)
        value = re.findall(_TOKENS, value_json)
        if key in members:
            start, end = members[key]
            tokens[start:end] = value
        else:
            tokens[-1:-1] = [*([","] if members else []), json.dumps(key), ":", *value]
        return _render(tokens)


def _load(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_int=_parse_int, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        cause = re.sub("( starting)? at$", "", error.msg)  # which the line and column follow in Python's own text
        raise JSONTextError(cause, error.lineno, error.colno) from None
    except RecursionError:
        raise JSONTextError("nested too deeply", 1, 1) from None
    except _SuspectError:
        cause, offset = next(_faults(text))
        raise JSONTextError(cause, *_place(text, offset)) from None
    if not isinstance(value, dict):
        offset = len(text) - len(text.lstrip())
        raise JSONTextError("the file must hold one JSON object", *_place(text, offset))
    return value


class _SuspectError(Exception):
    """Something json accepts and we do not; json does not say where."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise _SuspectError
    return value


def _parse_int(text: str) -> int | float:
    return int(text) if len(text) <= _INTEGER_CHARS_MAX else float(text)


def _refuse_constant(_name: str) -> None:
    raise _SuspectError


def _faults(text: str) -> Iterator[tuple[str, int]]:
    """What makes a text suspect, in order: a clause and its offset."""
    keys: list[set[str]] = []
    for token, following in pairwise(re.finditer(_TOKENS, text)):  # pragma: no branch - there is one before the end
        mark = token.group()
        if mark in _OPENING:
            keys.append(set())
        elif mark in _CLOSING:
            keys.pop()
        elif mark in _CONSTANTS:
            yield f"{mark} is not JSON", token.start()
        elif following.group() == ":":
            key = json.loads(mark)
            if key in keys[-1]:
                yield f"duplicate key {mark}", token.start()
            keys[-1].add(key)


def _place(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _members(tokens: list[str]) -> dict[str, tuple[int, int]]:
    """Key -> the range of its value's tokens, of the object all ``tokens`` are."""
    return {json.loads(tokens[start]): (start + 2, end) for start, end in _spans(tokens)}


def _spans(tokens: list[str]) -> list[tuple[int, int]]:
    """The token ranges between the commas of the one object or array all ``tokens`` are."""
    spans = []
    depth, start = 0, 1
    for i, mark in enumerate(tokens):
        depth += (mark in _OPENING) - (mark in _CLOSING)
        if depth == 0 or (depth == 1 and mark == ","):
            if i > start:
                spans.append((start, i))
            start = i + 1
    return spans


def _render(tokens: list[str]) -> str:
    """The layout of ``json.dumps(value, indent=2)``, and a newline."""
    parts = []
    depth = 0
    for before, mark in pairwise([":", *tokens]):
        if mark in _CLOSING:
            depth -= 1
            broken = before not in _OPENING
        else:
            broken = before in _OPENING or before == ","
        parts.append("\n" + "  " * depth if broken else "")
        parts.append(": " if mark == ":" else mark)
        depth += mark in _OPENING
    return "".join(parts) + "\n"
