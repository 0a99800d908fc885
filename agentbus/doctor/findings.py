"""What the doctor finds: how bad it is, what, why it matters, and what to do. Pure: looks at nothing itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from agentbus.columns import render_count
from agentbus.replay import shorten_hashes
from journal import BusyError, CorruptError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from journal import JournalError

Level: TypeAlias = Literal["fault", "note", "ok"]
LEVELS: Final[tuple[Level, ...]] = ("fault", "note", "ok")
_UNEXPLAINED: Final = "Nothing can be read from the bus, or written to it, until this is mended."


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at.

    Attributes:
        level: fault: something does not work, or will not; note: worth knowing; ok.
        about: what it belongs to, for people: "Codex", "journal".
        what: a clause.
        why: one sentence on what follows from it; "" where it is ok.
        do: a command or a sentence; "" where nothing is to be done.
        check: which check found it, for programs.
    """

    level: Level
    about: str
    what: str
    why: str = ""
    do: str = ""
    check: str = ""


def fault(about: str, what: str, why: str, do: str) -> Finding:
    """Something that has to be mended."""
    return Finding("fault", about, what, why, do)


def note(about: str, what: str, why: str = "", do: str = "") -> Finding:
    """Something to know."""
    return Finding("note", about, what, why, do)


def ok(about: str, what: str) -> Finding:
    """Something that is as it should be."""
    return Finding("ok", about, what)


def of_journal_error(error: JournalError, about: str = "journal") -> Finding:
    """What keeps the bus from its journal, and the way out of it."""
    match error:
        case CorruptError():
            why = "The bus reads up to there, and writes nothing, so that nothing is built on damaged lines."
            do = "If you have a good copy, put it back; else run agentbus repair: it shows what it will do, and asks."
        case UnsupportedError():
            why = "Software that does not know it would tell a wrong story, so this one stops there."
            do = "Install the agentbus that wrote it, and restart the sessions with it."
        case BusyError():
            why = "Somebody has held a lock for longer than any command takes."
            do = "Run agentbus doctor again; if it stays so, look for a stopped process among the notes."
        case _:
            why, do = _UNEXPLAINED, "Mend what it names, then run agentbus doctor again."
    return fault(about, shorten_hashes(str(error)), why, do)


def of_system_error(about: str, cause: str) -> Finding:
    """A check that could not be done."""
    why = "What this check is for is therefore not known."
    return fault(about, f"could not be looked at: {cause}", why, "Mend what it names, then run agentbus doctor again.")


def of_late_check(about: str, check: str, wait_s: float, *, folds: bool = False) -> Finding:
    """A check that did not end; ``folds``: it has to read the journal first, which may be long."""
    what = f'the check "{check}" did not end within {wait_s:g} s'
    if folds:
        why = "To read a long journal takes that long where no server has kept a snapshot of it."
        return note(about, what, why, "agentbus status takes its time, and shows who is there and what waits.")
    return fault(
        about,
        what,
        "A disk or a program does not answer; whatever needs it hangs too.",
        "Look for a network drive that is away or a process that is stopped, then run agentbus doctor again.",
    )


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Faults, then notes, then what is ok; each thing once, whichever check saw it first."""
    found: dict[tuple[str, str], Finding] = {}
    for each in findings:
        found.setdefault((each.about, each.what), each)
    return sorted(found.values(), key=lambda each: LEVELS.index(each.level))


def count(findings: Iterable[Finding], level: Level) -> int:
    """How many are of a level."""
    return sum(each.level == level for each in findings)


def render_verdict(findings: list[Finding]) -> str:
    """How it stands, in one sentence."""
    faults, notes = count(findings, "fault"), count(findings, "note")
    if not faults:
        return f"no fault, {render_count(notes, 'note')}" if notes else "all is well"
    return f"{render_count(faults, 'fault')}, {render_count(notes, 'note')}"


def record(findings: list[Finding], **more: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    """All of it for programs; ``ok`` is whether there is no fault."""
    return {
        "ok": not count(findings, "fault"),
        **more,
        "faults": count(findings, "fault"),
        "notes": count(findings, "note"),
        "findings": findings,
    }
