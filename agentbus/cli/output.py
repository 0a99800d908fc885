"""What commands print: JSON and aligned rows, with nothing in them that a terminal would obey. Knows no command."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from agentbus.columns import align, cut
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COLUMNS_MIN = 60  # on a narrower terminal a line wraps: less of it would say nothing
# What render_visible escapes and JSON does not: DEL, C1, line and paragraph separators, bidirectional marks. As UTF-8,
# where the bytes of one character are never found within another.
_UNESCAPED = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


def print_json(value: object) -> None:
    """One JSON document on one line."""
    click.echo(escape_json(msgspec.json.encode(value)))


def escape_json(text: bytes) -> bytes:
    """The same JSON value, safe to show: in compact JSON, such characters stand in strings only."""
    return _UNESCAPED.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), text)


def print_rows(rows: Iterable[Sequence[object]], indent: str = "") -> None:
    """Aligned rows of equally many cells; or that there are none."""
    visible = [[render_visible(str(cell)) for cell in row] for row in rows]
    for line in align(visible) or ["(none)"]:
        click.echo(indent + line)


def colours() -> bool:
    """Whether to use colours: on a terminal that has them, unless the user wants none (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return sys.stdout is not None and sys.stdout.isatty() and not plain


def print_line(text: str, **style: Any) -> None:  # noqa: ANN401  # click's own, passed on
    """One line of other people's text; on a terminal no wider than that, and in the style of click.style."""
    shown = render_visible(text)
    if sys.stdout is not None and sys.stdout.isatty():
        shown = cut(shown, max(shutil.get_terminal_size().columns, _COLUMNS_MIN))
    click.echo(click.style(shown, **style) if style and colours() else shown)
