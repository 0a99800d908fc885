"""What a command line asks of a journal: which question, which filters; what does not go together. Reads nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from agentbus.audit.points import END, Point
from agentbus.audit.selection import TYPES, Selection
from agentbus.cli.grouped import NUMBER_MAX
from agentbus.cli.times import parse_when
from journal import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FILTERS: Final = ("channel", "as", "children", "type", "since", "until", "from-seq", "to-seq", "grep", "thread")
READING: Final = "reading"
TAKES: Final[Mapping[str, tuple[str, ...]]] = {
    READING: (*_FILTERS, "limit", "reverse", "follow", "utc", "json", "raw"),
    "message": ("as", "children", "utc", "json"),
    "state": ("at", "utc", "json"),
    "inbox": (*(name for name in _FILTERS if name != "type"), "limit", "at", "utc", "json"),
    "diff": ("channel", "as", "children", "utc", "json"),
    "stats": (*_FILTERS, "utc", "json"),
    "digest": ("at", "utc", "json"),
    "verify": ("anchor", "accept-lost", "json"),
}
"""Which options each question takes; the first is what is done where none is asked."""

_APART: Final = (("json", "raw"), ("follow", "reverse"))
_TIME_HINT: Final = (
    "give RFC 3339, as 2026-09-09T08:00:00Z, the same without a zone, a day, or how long ago: 30m, 2h, 3d"
)


class Asked(NamedTuple):
    """A question and what it is asked with, all of it checked as far as that needs no journal."""

    question: str
    selection: Selection
    at: Point
    between: tuple[Point, Point]
    retention_hours: int


def parse(options: Mapping[str, Any], now_ms: int, retention_hours: int) -> Asked:
    """Make sense of the options, by their names on the command line; one that was not given is None, False or empty.

    Args:
        options: by name.
        now_ms: what "ago" counts from.
        retention_hours: how long messages were shown to agents, as far as that is known.

    Raises:
        click.UsageError: they do not go together, or a value is none.
    """
    given = [name for name, value in options.items() if value is not None and value is not False and value != ()]
    asked = [name for name in given if name in TAKES]
    if len(asked) > 1:
        raise click.UsageError(f"{_names(asked)} exclude each other: ask one at a time.")
    question = asked[0] if asked else READING
    _check_options(question, [name for name in given if name not in TAKES])
    values = _Values(now_ms, utc=bool(options["utc"]))
    selection = _selection(options, values)
    between = options["diff"] or ("", "")
    return Asked(
        question,
        selection,
        values.point("--at", options["at"]) if options["at"] else END,
        (values.point("--diff", between[0]), values.point("--diff", between[1])) if options["diff"] else (END, END),
        retention_hours,
    )


def _check_options(question: str, given: list[str]) -> None:
    for pair in _APART:
        if set(pair) <= set(given):
            raise click.UsageError(f"{_names(pair)} exclude each other.")
    refused = [name for name in given if name not in TAKES[question]]
    if refused:
        takers = [f"--{name}" if name != READING else name for name, takes in TAKES.items() if refused[0] in takes]
        who = "reading" if question == READING else f"--{question}"
        raise click.UsageError(f"{who} does not take {_names(refused)}; --{refused[0]} is for {', '.join(takers)}.")
    if "children" in given and "as" not in given:
        raise click.UsageError("--children takes along the subagents of the identity that --as names: give --as too.")


def _names(options: Iterable[str]) -> str:
    return " and ".join(f"--{name}" for name in options)


def _selection(options: Mapping[str, Any], values: _Values) -> Selection:
    selection = Selection(
        channels=frozenset(options["channel"]),
        identities=frozenset(options["as"]),
        children=options["children"],
        types=frozenset(map(_type, options["type"])),
        since=min((values.time("--since", text) for text in options["since"]), default=None),
        until=max((values.time("--until", text, last=True) for text in options["until"]), default=None),
        from_seq=min(options["from-seq"], default=None),
        to_seq=max(options["to-seq"], default=None),
        patterns=tuple(map(_pattern, options["grep"])),
        threads=frozenset(options["thread"]),
    )
    _check_range("--from-seq", selection.from_seq, "--to-seq", selection.to_seq)
    _check_range("--since", selection.since, "--until", selection.until)
    return selection


def _check_range(first: str, begin: Any, last: str, end: Any) -> None:  # noqa: ANN401  # two of a kind that compare
    if begin is not None and end is not None and begin > end:
        raise click.UsageError(f"{first} {begin} comes after {last} {end}: nothing lies between.")


def _type(text: str) -> str:
    if text not in TYPES:
        raise click.UsageError(f'--type "{text}" is no event type; there are: {", ".join(TYPES)}.')
    return text


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise click.UsageError(
            f'--grep "{text}" is no regular expression: {error}; \\ makes a sign a plain one.'
        ) from error


class _Values:
    """Times and seqs as they are given."""

    def __init__(self, now_ms: int, *, utc: bool) -> None:
        self._now_ms = now_ms
        self._utc = utc

    def time(self, option: str, text: str, *, last: bool = False) -> str:
        """A time in the journal's form; the first moment of a day, or its last."""
        found = parse_when(text, self._now_ms, utc=self._utc, last=last)
        if found is None:
            raise click.UsageError(f'{option} "{text}" is no time: {_TIME_HINT}.')
        return format_time(found)

    def point(self, option: str, text: str) -> Point:
        """A seq or a time."""
        if text.isascii() and text.isdigit():
            seq = int(text[:20])
            if not 1 <= seq <= NUMBER_MAX:
                raise click.UsageError(f"{option} {text} is no seq: they begin with 1 and end at {NUMBER_MAX}.")
            return Point(text, seq=seq)
        found = parse_when(text, self._now_ms, utc=self._utc)
        if found is None:
            raise click.UsageError(f'{option} "{text}" is neither a seq nor a time: {_TIME_HINT}.')
        return Point(text, time=format_time(found))
