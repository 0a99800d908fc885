"""What an auditor asked, in words: lines for a terminal from the record that ``--json`` prints. Pure.

Other people's text is made visible; every line of it is indented, so that none can pass for one of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agentbus.columns import align, render_count
from agentbus.replay import render_name
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Record = dict[str, Any]
    Clock = Callable[[str], str]

_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_INDENT = "  "
_MINUTE_TEXT = 16  # 2026-09-09 08:00
_PARTS: Final = {
    "channels": ("channel {channel}", ("channel",)),
    "sessions": ("session {as}", ("as",)),
    "subscriptions": ("subscription of {as} to {channel}", ("as", "channel")),
    "batches": ("pending batch of {as}", ("as",)),
    "memories": ("memory {id}", ("id",)),
}
"""How a row of each list of a State is called, and which of its fields that says."""


def render_span(ms: int) -> str:
    """How long something took: ``49 ms``, ``1.9 s``, ``12 min``, ``3.5 h``, ``2 days``."""
    if ms < _SECOND_MS:
        return f"{ms} ms"
    if ms < 2 * _MINUTE_MS:
        return f"{ms / _SECOND_MS:.1f} s"
    if ms < 2 * _HOUR_MS:
        return f"{ms // _MINUTE_MS} min"
    return f"{ms / _HOUR_MS:.1f} h" if ms < 2 * _DAY_MS else f"{ms // _DAY_MS} days"


# --- the life of a message


def tell_life(found: Record, clock: Clock) -> Iterator[str]:
    """Lines about one message; ``clock`` turns the journal's form of a time into the reader's."""
    is_edit = found["type"] == "memory_edited"
    what = f"edited memory {found['id']}" if is_edit else "posted"
    where, who = render_name(found["channel"]), render_name(found["as"])
    yield f"seq {found['seq']}  {clock(found['time'])}  {what} on {where} by {who}"
    for name, text in _about(found):
        yield f"{_INDENT}{name}: {text}"
    yield from _quote(found["content"])
    yield ""
    yield from _tell_readers(found["readers"], found.get("only"), clock)
    yield from _tell_list("replies", found["replies"], clock)
    if "memory_id" in found:
        yield from _tell_list("later edits", found["edits"], clock)
    if "end" in found:
        yield f"gone since {_at(found['end'], clock)}: {_why(found['end'])}"
    yield f"told from the journal up to seq {found['upto']}; a batch handed out again before its ack is not journaled"


def _about(found: Record) -> Iterator[tuple[str, str]]:
    yield "from", f"{render_name(found['context'])}, process {found['pid']}"
    if "memory_id" in found:
        yield "memory", f"{found['memory_id']}, revision {found['revision']}"
    if "reply_to" in found:
        yield "in reply to", str(found["reply_to"])
    if found["addressed"]:
        yield "addressed to", ", ".join(map(render_name, found["addressed"]))
    for key in ("label", "key"):
        if key in found:
            yield key, render_name(found[key])
    if "metadata" in found:
        yield "metadata", " ".join(f"{render_name(key)}={render_name(text)}" for key, text in found["metadata"].items())


def _tell_readers(readers: list[Record], only: list[str] | None, clock: Clock) -> Iterator[str]:
    then = [row for row in readers if row["subscribed"]]
    names = ", ".join(render_name(row["as"]) + ("" if row["live"] else " (not live)") for row in then)
    nobody = "nobody else" if only is None else "none of those asked for"
    yield f"subscribed then: {names or nobody}"
    rows = []
    for row in readers:
        late = "" if row["subscribed"] else "subscribed later; "
        handed = [f"handed out {_at(each, clock)}, {render_span(each['after_ms'])} after" for each in row["delivered"]]
        story = "; ".join([*handed, _outcome(row["outcome"], clock, handed=bool(handed))])
        rows.append((_INDENT + render_name(row["as"]), late + story))
    yield from _rows(rows)


def _outcome(outcome: Record, clock: Clock, *, handed: bool) -> str:
    what = outcome["what"]
    if what == "unread":
        return "not handed out again, so unread" if handed else "not handed out, so unread"
    if what == "handed_out":
        return "not acknowledged"
    took = f", {render_span(outcome['after_ms'])} after" if "after_ms" in outcome else ""
    never = "" if handed or what in ("acked", "acked_all") else "never handed out: "
    return f"{never}{_why(outcome)} {_at(outcome, clock)}{took}"


def _why(what: Record) -> str:
    by = render_name(what.get("as", what.get("by", "")) or "")
    return {
        "acked": "acknowledged",
        "acked_all": f"acknowledged for it by {by}",
        "unsubscribed": f"unsubscribed ({what.get('reason')})",
        "replaced": f"replaced by {by}",
        "deleted": f"deleted by {by}",
        "evicted": "too old to be shown",
        "reset": f"the bus was reset by {by}",
    }[str(what["what"])]


def _at(what: Record, clock: Clock) -> str:
    return f"seq {what['seq']} {clock(what['time'])}"


def _tell_list(title: str, rows: list[Record], clock: Clock) -> Iterator[str]:
    yield f"{title}:{'' if rows else ' none'}"
    for row in rows:
        where = f" on {render_name(row['channel'])}" if "channel" in row else ""
        revision = f" revision {row['revision']}" if "revision" in row else ""
        text = "deleted it" if "deleted" in row else render_visible(row["content"])
        yield f"{_INDENT}seq {row['seq']}  {clock(row['time'])}  {render_name(row['as'])}{where}{revision}: {text}"


# --- an inbox


def tell_inbox(found: Record, clock: Clock) -> Iterator[str]:
    """Lines about what was unread for an identity."""
    alive = "" if found["live"] else ", which had no session then"
    yield f"{render_name(found['as'])} after seq {found['seq']}{alive}"
    if not found["channels"]:
        yield f"{_INDENT}subscribed to nothing"
    yield from _rows(
        (_INDENT + render_name(row["channel"]), _unread(row), f"acknowledged up to {row['cursor']}")
        for row in found["channels"]
    )
    if "batch" in found:
        yield f"{_INDENT}handed out and not acknowledged: batch {render_name(found['batch'])}"
    for gap in found["gaps"]:
        yield f"{_INDENT}not yet told of a gap: {render_name(gap['channel'])} {gap['from']} to {gap['to']}"
    total = sum(row["unread"] for row in found["channels"])
    if total != len(found["messages"]):
        yield f"{_INDENT}{len(found['messages'])} of {total} unread messages shown"
    if any(row["over_age"] for row in found["channels"]):
        kept = f"older than {found['retention_hours']} h (message_retention_hours, which no journal tells)"
        yield f"{_INDENT}over age: {kept}, so not handed out any more, though not evicted yet"
    for row in found["messages"]:
        marks = "".join(f", {mark.replace('_', ' ')}" for mark in ("addressed", "handed_out", "over_age") if row[mark])
        who, where = render_name(row["from"]), render_name(row["channel"])
        head = f"seq {row['seq']}  {clock(row['time'])}  {who} on {where}{marks}"
        yield f"{head}: {render_visible(row['content'])}"


def _unread(row: Record) -> str:
    return f"{row['unread']} unread" + (f", {row['over_age']} of them over age" if row["over_age"] else "")


# --- what changed


def tell_changes(found: Record) -> Iterator[str]:
    """Lines about what changed: ``+`` came, ``-`` went, ``~`` is another."""
    yield f"from seq {found['from']} to seq {found['to']}"
    lines = [line for part in _PARTS for line in _tell_part(found[part], *_PARTS[part])]
    yield from lines or ["nothing changed"]


def _tell_part(part: Record, title: str, keys: tuple[str, ...]) -> Iterator[str]:
    def called(row: Record) -> str:
        return title.format_map({key: render_name(str(row[key])) for key in keys})

    for sign, rows in (("+", part["added"]), ("-", part["removed"])):
        for row in rows:
            rest = ", ".join(f"{key} {_value(value)}" for key, value in row.items() if key not in keys)
            yield f"{sign} {called(row)}: {rest}"
    for pair in part["changed"]:
        old, new = pair["before"], pair["after"]
        differs = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        changed = (f"{key} {_value(old.get(key))} -> {_value(new.get(key))}" for key in differs)
        yield f"~ {called(new)}: {', '.join(changed)}"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{render_name(key)}:{each}" for key, each in value.items()) or "nothing"
    return "none" if value is None else render_name(value) if isinstance(value, str) else str(value)


# --- totals


def tell_totals(found: Record, clock: Clock) -> Iterator[str]:
    """Lines with the numbers."""
    if not found["commits"]:
        yield "nothing matches"
        return
    yield (
        f"{render_count(found['events'], 'event')} in {render_count(found['commits'], 'commit')}, seq "
        f"{found['first_seq']} to {found['last_seq']}, {clock(found['first_time'])} to {clock(found['last_time'])}"
    )
    for title, key in (("types", "type"), ("identities", "as"), ("channels", "channel"), ("hours", "hour")):
        yield ""
        yield from _table(title, key, found[title], clock)
    yield ""
    yield from align(
        [
            ("latency", "count", "p50", "p95", "max"),
            ("posted to handed out", *_spread(found["delivery_ms"])),
            ("handed out to acknowledged", *_spread(found["ack_ms"])),
        ]
    )
    yield ""
    yield f"backlog after seq {found['backlog_seq']}:{'' if found['backlog'] else ' none'}"
    yield from _rows(
        (_INDENT + render_name(row["as"]), render_name(row["channel"]), f"{row['unread']} unread")
        for row in found["backlog"]
    )
    gaps = found["gaps"]
    known = f"{gaps['told']}, of {render_count(gaps['messages'], 'message')} as far as that is known"
    yield f"gaps told: {known if gaps['told'] else 'none'}"
    lost = [f"seq {row['first']} to {row['last']} ({row['reason']})" for row in found["lost"]]
    yield f"lost: {', '.join(lost) or 'nothing'}"


def _table(title: str, key: str, rows: list[Record], clock: Clock) -> Iterable[str]:
    if not rows:
        return [f"{title}: none"]
    columns = [name for name in rows[0] if name != key]

    def show(text: str) -> str:
        return clock(text)[:_MINUTE_TEXT] if key == "hour" else render_name(text)

    return align(
        [
            (title, *(name.replace("_", " ") for name in columns)),
            *((_INDENT + show(str(row[key])), *(str(row[name]) for name in columns)) for row in rows),
        ]
    )


def _spread(found: Record) -> tuple[str, ...]:
    spans = ("-" if found[name] is None else render_span(found[name]) for name in ("p50", "p95", "max"))
    return str(found["count"]), *spans


# --- all


def _rows(rows: Iterable[tuple[str, ...]]) -> list[str]:
    found = list(rows)
    return align(found) if found else []


def _quote(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        yield f"{_INDENT}| {render_visible(line)}"
