"""What a repair would do: every damage of a journal, and what one that was stopped has left. Changes nothing.

What is damage, and which lines stay, is the walker's to say; beyond that, whoever reads the events may find that a line
which verifies makes no sense.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from journal import archive, record, segment
from journal.errors import UnreadableError
from journal.files import render_place
from journal.findings import Damage, LostRange
from journal.record import Commit
from journal.walker import Walker

if TYPE_CHECKING:
    from journal.files import Files

Check = Callable[[Commit, bool], str | None]
"""What is wrong with a line that verifies, for whoever reads its events; None if nothing is. The second argument is
whether something was damaged or lost before it."""

_REPAIRED: Final = b'[{"type":"repaired"'


class Plan(msgspec.Struct, frozen=True):
    """What is to be done.

    Attributes:
        damages: in order.
        unnamed: `lost` lines of an earlier repair that was stopped before its last commit.
        commits: how many sound lines there are; all of them stay.
    """

    damages: list[Damage]
    unnamed: list[LostRange]
    commits: int


def make_plan(directory: str, check: Check, files: Files) -> Plan:
    """Look at every line of a journal.

    Raises:
        UnsupportedError: the journal, or what it holds, is of another version.
        UnreadableError: the system refuses to read, or what has a segment's name is no file.
    """
    place, walker = Path(directory), Walker(files)
    look = _Look(walker, check, files)
    try:
        for found in walker.walk([place] if place.is_dir() else []):
            look.note(walker.damages)
            if isinstance(found, Commit):
                look.take(found)
        look.note(walker.damages)
    except OSError as error:
        raise UnreadableError(directory, _render_refusal(error)) from error
    lost = [each for each in walker.verdict.lost if each.reason == "damage"]
    settled = look.named | look.refused
    return Plan(look.damages, [each for each in lost if (each.seq, each.hash) not in settled], look.commits)


class _Repaired(msgspec.Struct):
    lost: int = 0
    hash: str = ""


_repaired = msgspec.json.Decoder(list[_Repaired]).decode


class _Look:
    """What is gathered from one walk."""

    def __init__(self, walker: Walker, check: Check, files: Files) -> None:
        self.damages: list[Damage] = []
        self.named: set[tuple[int, str]] = set()  # seq and hash of the `lost` lines that a `repaired` names
        self.refused: set[tuple[int, str]] = set()  # the same of lines that nobody can read
        self.commits = 0
        self._walker = walker
        self._check = check
        self._files = files
        self._noted = 0  # how many damages of the walker are among ours
        self._lost = False
        self._base = record.ZERO_HASH  # what the next line continues

    def note(self, damages: list[Damage]) -> None:
        """Take over the damages that are new since the last call."""
        if len(damages) == self._noted:
            return
        for damage in damages[self._noted :]:
            self.damages.append(damage)
            if damage.last >= damage.first:
                self._base = damage.next_prev or damage.prev
        self._noted = len(damages)

    def take(self, commit: Commit) -> None:
        """Count a line that verifies; or take it for damaged, if whoever reads its events cannot."""
        lost = segment.parse_lost(commit.events)
        cause = self._check(commit, self._lost or bool(self.damages))
        if cause is not None:
            self._add(commit, lost, cause)
            self.refused.add((commit.seq, commit.hash))
        else:
            self.commits += 1
            self._lost = self._lost or lost is not None
            if commit.events.startswith(_REPAIRED):
                self.named |= {(each.lost, each.hash) for each in _repaired(commit.events)}
        self._base = commit.hash if lost is None else lost.next_prev or commit.hash

    def _add(self, commit: Commit, lost: segment.Lost | None, cause: str) -> None:
        place, path = commit.place, self._walker.file
        length = place.line_bytes
        last, next_prev = (commit.seq, commit.hash) if lost is None else (lost.last, lost.next_prev)
        before = self.damages[-1] if self.damages else None
        if before is not None and before.file == path and before.action == "end":
            # The line that lacks its LF is the damaged one: there is nothing to be ended.
            self.damages.pop()
            length -= 1
            before = self.damages[-1] if self.damages else None
        if (
            before is not None
            and (before.file, before.offset + before.bytes, before.last + 1) == (path, place.offset, commit.seq)
            and before.first <= before.last
        ):
            self.damages[-1] = msgspec.structs.replace(
                before, bytes=before.bytes + length, last=last, next_prev=next_prev
            )
            return
        line = self._line_number(path, place.offset)
        damage = Damage(path, place.segment, line, place.offset, length, commit.seq, last, "", None, cause, "cut")
        self.damages.append(msgspec.structs.replace(damage, prev=self._base, next_prev=next_prev))

    def _line_number(self, path: str, offset: int) -> int:
        opened = archive.open_any(self._files, path)
        try:
            return 1 + self._files.count_lines(opened.fd, offset)
        finally:
            self._files.close(opened.fd)


def _render_refusal(error: OSError) -> str:
    """Why the system does not read, and what to do where nothing but a file may stand."""
    cause = render_place(error)
    if error.errno == errno.ELOOP:
        return f"{cause}: put the file itself in its place, or remove it"
    # A segment is opened for reading only: so the system speaks of directories, pipes, devices and sockets.
    return f"{cause}: remove it, it is no segment" if error.errno in (errno.EINVAL, errno.ENXIO) else cause
