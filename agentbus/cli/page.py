"""What ``agentbus status`` found, as people read it. Finds nothing itself.

The first lines answer why nobody answers: who lives and has not asked for its messages, and who is gone and has some.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from agentbus import results
from agentbus.cli.output import print_line
from agentbus.columns import align, cut, render_bytes, render_count
from agentbus.limits import DISK_FREE_LOW_BYTES
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Record = dict[str, Any]
    Row = tuple[str, ...]

_ROWS_MAX = 25
_NAME_COLUMNS = 32
_CELL_COLUMNS = 28
_NAMED_MAX = 3
_NOBODY, _WAITS = "red", "yellow"


def show(found: Record, now_ms: int, *, whole: bool) -> None:
    """Print it; ``whole``: every row, and no cell cut."""
    _Page(found, now_ms, whole=whole).print()


class _Page:
    def __init__(self, found: Record, now_ms: int, *, whole: bool) -> None:
        self._found = found
        self._now_ms = now_ms
        self._whole = whole
        everybody = found["identities"]
        waits = sorted((each for each in everybody if each["unread"]), key=lambda each: str(each["oldest"]))
        self._live = [each for each in waits if each["live"]]
        self._live += [each for each in everybody if each["live"] and not each["unread"]]
        self._unasked = [each for each in self._live if "unasked_since" in each]
        # Who has just died is missed most.
        self._dead = [each for each in waits if not each["live"]]
        self._dead.sort(key=lambda each: str(each["last_active"]), reverse=True)
        self._away = [each for each in everybody if not (each["live"] or each["unread"])]

    def print(self) -> None:
        """From what is asked most to what is asked least."""
        print_line(f"Agentbus: {self._verdict()}", bold=True)
        self._print_live()
        self._print_dead()
        self._print_away()
        self._print_channels()
        click.echo()
        for line in align([(name, render_visible(text)) for name, text in self._facts()]):
            print_line(line)
        for warning in self._warnings():
            print_line(warning, fg=_NOBODY)

    def _verdict(self) -> str:
        parts = [f"{len(self._live)} live" if self._live else "nobody is live"]
        if self._unasked:
            have = "has" if len(self._unasked) == 1 else "have"
            parts.append(f"{_names(self._unasked, ' of them')} {have} not asked for what waits")
        if self._dead:
            messages = render_count(sum(each["unread"] for each in self._dead), "unread message")
            are = "is" if len(self._dead) == 1 else "are"
            parts.append(f"{_names(self._dead)} {are} gone, with {messages}")
        return "; ".join(parts)

    def _print_live(self) -> None:
        if not self._live:
            return
        head = (f"live ({len(self._live)})", "unread", "to it", "oldest", "state", "last active", "in", "pid", "client")
        rows = [self._live_row(each) for each in self._live]
        self._print_table(head, rows, [_WAITS if "unasked_since" in each else "" for each in self._live])
        if self._unasked:
            print_line("  An agent is shown messages when it calls receive; one that is idle has to be woken.")

    def _live_row(self, each: Record) -> Row:
        return (
            *self._counts(each),
            _render_doing(each),
            self._ago(each["last_active"]),
            self._cell(each["context"]),
            str(each["pid"] or "?"),
            self._cell(each["client"] or "?"),
        )

    def _counts(self, each: Record) -> Row:
        oldest = results.age(each["oldest"], self._now_ms) if "oldest" in each else "-"
        return (self._name(each["as"]), str(each["unread"]), str(each["addressed"] or "-"), oldest)

    def _print_dead(self) -> None:
        if not self._dead:
            return
        head = (f"dead letters ({len(self._dead)})", "unread", "to it", "oldest", "last active", "in the channels")
        rows = [
            (*self._counts(each), self._ago(each["last_active"]), self._cell(_render_channels(each)))
            for each in self._dead
        ]
        self._print_table(head, rows, [_NOBODY] * len(rows))
        if any("expired" not in each for each in self._dead):
            print_line("  Each is handed its messages when it registers again under its name.")
        if any("expired" in each for each in self._dead):
            print_line("  (!) Idle longer than cursor_idle_hours: will only be told how many there were.")
        name = self._dead[-1]["as"]
        ends = "-- " if name.startswith("-") else ""  # else it would be taken for options
        print_line(f"  For one that will not come back: agentbus ack-all {ends}{shlex.quote(name)}")

    def _print_away(self) -> None:
        if self._away:
            names = ", ".join(self._name(each["as"]) for each in self._shown(self._away))
            more = len(self._away) - len(self._shown(self._away))
            click.echo()
            print_line(f"gone, nothing unread ({len(self._away)}): {names}{f' and {more} more' if more else ''}")

    def _print_channels(self) -> None:
        channels = sorted(self._found["channels"], key=lambda row: -row["last_seq"])
        head = (f"channels ({len(channels)})", "kind", "messages", "subscribed", "live", "newest")
        rows = [
            (
                self._name(row["channel"]),
                row["kind"],
                str(row["messages"]),
                str(row["subscribers"]),
                str(row["live"]),
                self._ago(row["newest"]) if "newest" in row else "-",
            )
            for row in channels
        ]
        self._print_table(head, rows, [""] * len(rows))

    def _print_table(self, head: Row, rows: Sequence[Row], colours: Sequence[str]) -> None:
        """A line of heads and the first rows, each in its colour."""
        click.echo()
        shown = self._shown(rows)
        titles, *lines = align([head, *([render_visible(cell) for cell in row] for row in shown)])
        print_line(titles, bold=True)
        for line, colour in zip(lines, colours, strict=False):
            print_line(line, **({"fg": colour} if colour else {}))
        if len(shown) < len(rows):
            print_line(f"  and {len(rows) - len(shown)} more: agentbus status --all")

    def _facts(self) -> Iterator[tuple[str, str]]:
        """What there is beside people: name and value."""
        found, disk, kept = self._found, self._found["disk"], self._found["retention"]
        size = f"{render_bytes(found['bytes'])} in {render_count(found['segments'], 'segment')}"
        yield "journal", f"last seq {found['last_seq']}, {size}"
        yield "anchor", found["anchor"]
        yield "snapshot", "none" if found["snapshot"] is None else f"at seq {found['snapshot']}"
        if found["torn_bytes"]:
            yield "torn tail", f"{render_count(found['torn_bytes'], 'byte')}, never acknowledged"
        if found["set_aside"]:
            pieces = render_count(len(found["set_aside"]), "piece")
            yield "set aside", f"{pieces} in {found['data_directory']}/journal/set-aside"
        yield "search index", _render_index(found["search"], found["last_seq"])
        yield "retention", _render_retention(kept, self._now_ms)
        yield "archive", _render_archive(kept["journal_keep_days"], found["archives"])
        yield "disk", _render_disk(disk)
        yield "directory", found["data_directory"]

    def _warnings(self) -> Iterator[str]:
        free = self._found["disk"]["free"]
        if self._found["lost"]:
            lost = render_count(len(self._found["lost"]), "range")
            yield f"LOST: {lost} of the journal; `agentbus replay --verify` names what"
        if free is not None and free < DISK_FREE_LOW_BYTES:
            yield f"the disk is nearly full: {render_bytes(free)} free; a full one refuses every post"

    def _shown(self, rows: Sequence[Any]) -> Sequence[Any]:
        return rows if self._whole else rows[:_ROWS_MAX]

    def _name(self, text: str) -> str:
        return self._cell(text, _NAME_COLUMNS)

    def _cell(self, text: str, columns: int = _CELL_COLUMNS) -> str:
        shown = render_visible(text)
        return shown if self._whole else cut(shown, columns)

    def _ago(self, time: str) -> str:
        return _render_ago(time, self._now_ms)


def _render_ago(time: str, now_ms: int) -> str:
    age = results.age(time, now_ms)
    return age if age == "now" else f"{age} ago"


def _names(people: Sequence[Record], of: str = "") -> str:
    """Who they are; of many, how many."""
    if len(people) > _NAMED_MAX:
        return f"{len(people)}{of}"
    return " and ".join(cut(render_visible(each["as"]), _NAME_COLUMNS) for each in people)


def _render_doing(each: Record) -> str:
    if not each["unread"]:
        return "up to date" if each["channels"] else "subscribed to nothing"
    if not each["handed_out"]:
        return "has not asked for them"
    waiting = each["unread"] - each["handed_out"]
    return f"has {each['handed_out']} in hand" + (f", {waiting} more waiting" if waiting else ", not acked")


def _render_channels(each: Record) -> str:
    listed = ", ".join(f"{channel} {unread}" for channel, unread in each["channels"].items() if unread)
    return f"(!) {listed}" if "expired" in each else listed


def _render_retention(kept: Record, now_ms: int) -> str:
    text = f"messages are shown for {kept['message_retention_hours']} h, memories for good"
    if kept["over_age"]:
        text += f"; {render_count(kept['over_age'], 'message')} over age"
    return text + (f"; last cleanup {_render_ago(kept['last_cleanup'], now_ms)}" if "last_cleanup" in kept else "")


def _render_index(index: Record | None, last_seq: int) -> str:
    if index is None:
        return "none: a search makes it where there are many texts"
    behind = last_seq - index["indexed_seq"]
    rest = f", and {render_count(behind, 'line')} since" if behind else ""
    return f"up to seq {index['indexed_seq']}, {render_bytes(index['bytes'])}{rest}"


def _render_archive(days: int, archives: int) -> str:
    when = f"what is older than {render_count(days, 'day')}" if days else "off (journal_keep_days is 0)"
    return f"{when}; holds {render_count(archives, 'segment')}" if archives else when


def _render_disk(disk: Record) -> str:
    parts = [
        f"{name.replace('_', '-')} {render_bytes(disk[name])}"
        for name in ("journal", "archive", "set_aside", "snapshots", "search", "log", "other")
        if disk[name]
    ]
    free = "" if disk["free"] is None else f"; {render_bytes(disk['free'])} free of {render_bytes(disk['size'])}"
    return f"{render_bytes(disk['total'])}: {', '.join(parts)}{free}"
