"""Text for people on a terminal: in columns, how wide, padded, cut, aligned; counts. Pure; expects visible text."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_ELLIPSIS = "…"
_GAP = "  "


def render_count(number: int, one: str, many: str = "") -> str:
    """How many of something: ``1 line``, ``2 lines``; ``many`` where that is not ``one`` with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def render_bytes(number: int) -> str:
    """How much of a disk: ``812 bytes``, ``1.2 MiB``."""
    size, unit = float(number), ""
    for unit in ("KiB", "MiB", "GiB", "TiB"):  # noqa: B007  # the last one reached is used
        size /= 1024
        if size < 1000:
            break
    return render_count(number, "byte") if number < 1024 else f"{size:.1f} {unit}"


def width(text: str) -> int:
    """Columns on a terminal: wide characters take two, marks that join the one before them none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)


def pad(text: str, columns: int) -> str:
    """At least so many columns."""
    return text + " " * (columns - width(text))


def cut(text: str, columns: int) -> str:
    """At most so many columns; an ellipsis shows that there was more."""
    if width(text) <= columns:
        return text
    kept = text[: columns - 1]
    while width(kept) > columns - 1:
        kept = kept[:-1]
    return kept + _ELLIPSIS


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equally many cells as lines, each column as wide as its widest cell."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return [_GAP.join(map(pad, row, widths)).rstrip() for row in rows]
