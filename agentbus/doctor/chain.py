"""The journal: whether every line is sound, and what lies beside it. Reads without a lock, and changes nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentbus import snapshot
from agentbus.columns import render_bytes, render_count
from agentbus.doctor.findings import fault, note, of_journal_error, ok
from agentbus.host import open_index_files, open_journal, open_snapshots
from journal import Commit, CorruptError, Fault, UnsupportedError, Verdict, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.doctor.findings import Finding
    from agentbus.doctor.visit import Visit

ABOUT: Final = "journal"
WALK_S: Final = 10.0
_LINES_BETWEEN_LOOKS: Final = 256
_FAULTS_MAX: Final = 5


def sound(visit: Visit, walk_s: float = WALK_S) -> Iterator[Finding]:
    """Every line from the first on, as far as ``walk_s`` seconds go."""
    if not _is_there(visit):
        if os.path.isdir(visit.data):
            yield note(ABOUT, f"there is none yet in {visit.data}", "The first agent that registers begins it.")
        return
    deadline = time.monotonic() + walk_s
    try:
        faults, verdict, last_seq = _walk(visit, deadline)
        if faults and verdict is not None:
            # Segments may be archived, or taken to pieces by a repair, while they are walked: what is damage stays.
            again, verdict, last_seq = _walk(visit, deadline)
            faults = [each for each in faults if each in again] if verdict is not None else faults
    except UnsupportedError as error:
        yield of_journal_error(error)
        return
    for each in faults[:_FAULTS_MAX]:
        yield of_journal_error(CorruptError(each.file, each.line, each.offset, each.seq, each.cause))
    if len(faults) > _FAULTS_MAX:
        more = render_count(len(faults) - _FAULTS_MAX, "more damaged line")
        yield fault(ABOUT, more, "They are as bad.", "agentbus replay --verify names every one of them.")
    if verdict is None:
        yield note(
            ABOUT,
            f"looked at up to seq {last_seq} in {walk_s:g} s, and not at the rest",
            "It is longer than this look may take.",
            "agentbus replay --verify looks at every line, however long it takes.",
        )
    elif not faults:
        yield from _judge(verdict)


def _walk(visit: Visit, deadline: float) -> tuple[list[Fault], Verdict | None, int]:
    """Faults, the verdict if it came to the end in time, and the last seq seen. Raises UnsupportedError, OSError."""
    faults: list[Fault] = []
    last_seq = lines = 0
    for found in walk([Path(visit.data) / "journal"]):
        match found:
            case Commit():
                last_seq, lines = found.seq, lines + 1
            case Fault():
                faults.append(found)
            case Verdict():
                return faults, found, last_seq
        if lines % _LINES_BETWEEN_LOOKS == 0 and time.monotonic() >= deadline:
            break
    return faults, None, last_seq


def _judge(verdict: Verdict) -> Iterator[Finding]:
    yield ok(ABOUT, f"{render_count(verdict.commits, 'line')}, all sound, up to seq {verdict.last_seq}")
    if verdict.tail is not None:
        what = "a whole line without its line feed" if verdict.tail.unfinished_line else "a torn tail"
        yield note(
            ABOUT,
            f"{what} of {render_count(verdict.tail.bytes, 'byte')} at the end of {verdict.tail.file}",
            "A writer was stopped in the middle of a line, which nobody was told was written."
            " The next one mends it; nothing is to be done.",
        )
    if verdict.lost:
        yield note(
            ABOUT,
            f"{render_count(len(verdict.lost), 'range')} of lines were lost, and a repair says so in their place",
            "What stood there is gone; all else is as it was.",
            "agentbus replay --verify names them.",
        )


def set_aside(visit: Visit) -> Iterator[Finding]:
    """What was taken out of it."""
    pieces = open_journal(visit.settings, read_only=True).set_aside() if _is_there(visit) else []
    if pieces:
        yield note(
            ABOUT,
            f"{render_count(len(pieces), 'piece')} set aside in {visit.data}/journal/set-aside",
            "Torn tails and damage that were taken out of the journal; nothing reads them any more.",
            "Delete them once you know that you need none of them.",
        )


def kept_fold(visit: Visit) -> Iterator[Finding]:
    """Whether the newest snapshot can be used."""
    snapshots = open_snapshots(visit.settings)
    seq = snapshots.newest_seq()
    if not seq:
        return
    if any(each.bookmark.position.seq == seq for each in snapshots.load(snapshot.VERSION)):
        yield ok(ABOUT, f"the snapshot at seq {seq} is whole")
    else:
        yield note(
            ABOUT,
            f"the snapshot at seq {seq} is damaged, or another version's",
            "It is passed over: the next start takes longer, and then there is a new one. Nothing is to be done.",
        )


def search_index(visit: Visit) -> Iterator[Finding]:
    """Whether the search index can be used."""
    files = open_index_files(visit.settings)
    found = files.size()
    if found is None:
        return
    if any(os.path.basename(each.path).startswith(f"{found[0]:020d}-") for each in files.whole()):
        yield ok(ABOUT, f"the search index up to seq {found[0]} is whole ({render_bytes(found[1])})")
    else:
        yield note(
            ABOUT,
            "the search index does not hold what its name says",
            "It is passed over, and the next search makes a new one. Nothing is to be done.",
        )


def _is_there(visit: Visit) -> bool:
    return open_journal(visit.settings, read_only=True).exists
