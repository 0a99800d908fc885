"""The questions of ``agentbus replay``: asked of one pass through a journal, answered as text or as JSON.

What an answer is stands in agentbus/audit; here it is fetched and printed.
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from agentbus import queries
from agentbus.audit import difference, inbox, telling
from agentbus.audit.life import Life
from agentbus.audit.points import Shot
from agentbus.audit.selection import Sieve
from agentbus.audit.threads import Roots, Threads
from agentbus.audit.totals import Totals
from agentbus.cli.output import escape_json
from agentbus.events import MemoryEdited, Posted
from journal import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agentbus.audit.points import Point, Taken
    from agentbus.cli.asked import Asked
    from agentbus.cli.reading import Reading, Witness
    from agentbus.events import AnyEvent
    from agentbus.state import State
    from journal import Commit

    Record = dict[str, Any]
    Clock = Callable[[str], str]

_HOUR_MS: Final = 3_600_000

A = TypeVar("A")


def find_threads(reading: Reading, seqs: Iterable[int]) -> Threads | None:
    """The threads of messages, from the first message of each on; None if none are named. Reads up to the last named.

    Raises:
        click.ClickException: a seq is of no message.
    """
    wanted = set(seqs)
    if not wanted:
        return None
    _refuse_stdin(reading, "--thread")
    roots, found = Roots(), set()
    for commit, events in reading.pairs():
        if roots.note(commit.seq, events) and commit.seq in wanted:
            found.add(commit.seq)
        if commit.seq >= max(wanted):
            break
    for seq in sorted(wanted - found):
        raise _no_message(reading, "--thread", seq)
    return Threads(map(roots.root, found))


def answer(reading: Reading, asked: Asked, options: Record, clock: Clock) -> None:
    """Ask, and print what was found.

    Raises:
        click.ClickException: the journal cannot tell.
        CorruptError, UnsupportedError: it is damaged, or a newer agentbus wrote it.
    """
    ask = {
        "message": _message,
        "state": _state,
        "digest": _digest,
        "inbox": _inbox,
        "diff": _diff,
        "stats": _stats,
    }[asked.question]
    ask(reading, asked, options, clock)


# --- each question


def _message(reading: Reading, asked: Asked, options: Record, clock: Clock) -> None:
    _refuse_stdin(reading, "--message")
    life = Life(options["message"], asked.selection)
    reading.fold([life])
    if not reading.commits:
        return
    if life.found is None:
        raise _no_message(reading, "--message", life.seq)
    _print(life.found, telling.tell_life(life.found, clock), as_json=options["json"])
    reading.tell(missing="; a subscription from then is known only if something was handed out by it since")


def _state(reading: Reading, asked: Asked, options: Record, clock: Clock) -> None:  # noqa: ARG001  # one shape
    taken = _ask(reading, "a state", asked.at, queries.encode_canonical)
    if taken is not None:
        # Canonical bytes for a program, the same value in safer ones for eyes.
        text = escape_json(taken.answer) if sys.stdout.isatty() else taken.answer
        sys.stdout.buffer.write(text + b"\n")
        reading.tell()


def _digest(reading: Reading, asked: Asked, options: Record, clock: Clock) -> None:  # noqa: ARG001  # one shape
    taken = _ask(reading, "a digest", asked.at, queries.encode_canonical)
    if taken is not None:
        digest = hashlib.sha256(taken.answer).hexdigest()
        _print({"seq": taken.seq, "sha256": digest}, [digest], as_json=options["json"])
        reading.tell()


def _inbox(reading: Reading, asked: Asked, options: Record, clock: Clock) -> None:
    identity: str = options["inbox"]
    threads = find_threads(reading, asked.selection.threads)
    texts = _Texts()

    def ask(state: State) -> Record:
        assert reading.last is not None  # noqa: S101  # there is a State because there was a commit
        horizon_ms = parse_time(asked.at.time or reading.last.time) - asked.retention_hours * _HOUR_MS
        known = {"retention_hours": asked.retention_hours, "known": inbox.is_known(state, identity)}
        return inbox.unread(state, identity, horizon_ms) | known

    taken = _ask(reading, "an inbox", asked.at, ask, *([texts] if reading.sources.stdin else ()))
    if taken is None:
        return
    found = taken.answer
    if not found.pop("known"):
        cause = f'after seq {taken.seq} the bus knew no identity "{identity}"'
        raise click.ClickException(f"{cause}; a reset forgets all: --at asks what was before")
    pairs = texts.pairs if reading.sources.stdin else reading.pairs()
    rows = _fill(found["messages"], pairs, Sieve(asked.selection, threads))
    found["messages"] = rows if options["limit"] is None else rows[: options["limit"]]
    _print(found, telling.tell_inbox(found, clock), as_json=options["json"])
    reading.tell()


def _diff(reading: Reading, asked: Asked, options: Record, clock: Clock) -> None:  # noqa: ARG001  # one shape
    first, last = (Shot(point, queries.canonical) for point in asked.between)
    reading.fold([first, last], whole="a comparison of states")
    if not reading.commits:
        return
    before, after = (_reached(reading, shot, point) for shot, point in zip((first, last), asked.between, strict=True))
    if before.seq > after.seq:
        raise click.UsageError(f"--diff wants the earlier point first: seq {before.seq} comes after seq {after.seq}.")
    found = difference.changes(before.answer, after.answer, asked.selection)
    _print(found, telling.tell_changes(found), as_json=options["json"])
    reading.tell()


def _stats(reading: Reading, asked: Asked, options: Record, clock: Clock) -> None:
    totals = Totals(Sieve(asked.selection, find_threads(reading, asked.selection.threads)))
    reading.fold([totals])
    if not reading.commits:
        return
    _print(totals.found, telling.tell_totals(totals.found, clock), as_json=options["json"])
    reading.tell(missing="; latency and backlog are of what was posted since")


# --- what they share


class _Texts:
    """Holds every message, where there is no way back to read those that turn out to be wanted."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Commit, Sequence[AnyEvent]]] = []

    def before(self, state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:  # noqa: ARG002  # a witness
        if any(isinstance(event, Posted | MemoryEdited) for event in events):
            self.pairs.append((commit, events))

    def after(self, state: State, commit: Commit, events: Sequence[AnyEvent]) -> None:
        pass

    def end(self, state: State) -> None:
        pass

    def is_done(self, seq: int) -> bool:  # noqa: ARG002  # a witness
        return True


def _ask(
    reading: Reading, what: str, point: Point, question: Callable[[State], A], *witnesses: Witness
) -> Taken[A] | None:
    """The answer at a point; None if there is no commit at all."""
    shot = Shot(point, question)
    reading.fold([shot, *witnesses], whole=what)
    return _reached(reading, shot, point) if reading.commits else None


def _reached(reading: Reading, shot: Shot[A], point: Point) -> Taken[A]:
    taken, last = shot.taken, reading.last
    if taken is None:
        raise click.ClickException(f"{point.text} comes before the journal, which begins {reading.begin}")
    if point.seq is not None and taken.seq > point.seq:
        raise click.ClickException(
            f"seq {point.seq} was lost, and what is left does not tell the state after it: the next that is known is "
            f"after seq {taken.seq}"
        )
    if point.seq is not None and taken.seq < point.seq:
        end = last.seq if last is not None else 0
        raise click.ClickException(f"seq {point.text} comes after the journal: it ends with seq {end}")
    return taken


def _fill(rows: list[Record], pairs: Iterable[tuple[Commit, Sequence[AnyEvent]]], sieve: Sieve) -> list[Record]:
    """The rows of messages that a sieve wants, with their texts."""
    waiting = {row["seq"]: row for row in rows}
    last, kept = max(waiting, default=0), []
    for commit, events in pairs:
        if commit.seq > last:
            break
        wanted = [events[index] for index in sieve.wanted(commit, events)]
        if wanted and commit.seq in waiting:
            inbox.fill(waiting[commit.seq], wanted)
            kept.append(waiting[commit.seq])
    return kept


def _refuse_stdin(reading: Reading, option: str) -> None:
    if reading.sources.stdin:
        raise click.UsageError(f"{option} has to read twice, which stdin cannot: save it to a file and name that.")


def _no_message(reading: Reading, option: str, seq: int) -> click.ClickException:
    last = reading.last.seq if reading.last is not None else 0
    why = f"the journal ends with seq {last}" if seq > last else "`agentbus replay --type posted` lists them"
    if reading.is_lost(seq):
        return click.ClickException(f"{option} {seq}: whatever that was is lost")
    return click.ClickException(f"{option} {seq}: that is no message; {why}")


def _print(found: Record, lines: Iterable[str], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.buffer.write(escape_json(msgspec.json.encode(found)) + b"\n")
    else:
        sys.stdout.writelines(line + "\n" for line in lines)
