"""Anchors: ``seq:hash`` of a line, kept elsewhere, as people and programs write them down. Pure.

They are found in what `agentbus status`, `replay --verify` and the log print, with `--json` or without.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_ANCHOR = re.compile(r"(?<![0-9A-Za-z.:-])(0*[1-9]\d{0,15}):([0-9a-fA-F]{64})(?![0-9A-Za-z])", re.ASCII)
_ALMOST = re.compile(r"\s*\d+:[0-9a-fA-F]+\s*", re.ASCII)
_KEY = "anchor"


class Anchor(NamedTuple):
    """The line with a seq, by its hash. As text it is what was given."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


class NoAnchorError(ValueError):
    """A text that should be an anchor, or hold one, does not; its text says why."""


def parse_anchor(text: str) -> Anchor | None:
    """The one anchor that a text is, nothing else around it; None if it is none."""
    found = _ANCHOR.fullmatch(text.strip())
    return _made(found) if found is not None else None


def find_anchors(text: str) -> list[Anchor]:
    """All anchors in a text of lines, each once, in order.

    A line that is a JSON object is asked for its ``anchor``: nothing else in the log is one.

    Raises:
        NoAnchorError: there is none, or a line is one that was cut short.
    """
    found: dict[Anchor, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if _ALMOST.fullmatch(line) and parse_anchor(line) is None:
            raise NoAnchorError(f"line {number} is no whole anchor: after the colon come 64 hex digits")
        found |= dict.fromkeys(_anchors_of(line))
    if not found:
        raise NoAnchorError("it holds no anchor: those are SEQ:HASH, with a hash of 64 hex digits")
    return list(found)


def _anchors_of(line: str) -> Iterator[Anchor]:
    if line.startswith("#"):
        return
    if line.startswith("{"):
        line = _anchor_in(line)
    for found in _ANCHOR.finditer(line):
        yield _made(found)


def _anchor_in(line: str) -> str:
    try:
        value: Any = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError:
        return line
    return str(value.get(_KEY) or "")


def _made(found: re.Match[str]) -> Anchor:
    return Anchor(int(found[1]), found[2].lower())
