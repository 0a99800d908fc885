"""What of a journal a process has verified: places between lines, so that reading on costs one look. Opens no file."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import msgspec

from journal import segment
from journal.segment import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from journal.record import Commit, Place

_MARKS_MAX: Final = 64  # one for each recent read and commit; enough for the threads of a process
_RECENT_MAX: Final = 16  # what others wrote while this process slept, or this one's own last line


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A place between two verified lines, and the file it lies in; inode 0 before that file was opened."""

    position: Position
    device: int = 0
    inode: int = 0


BEGINNING: Final = Mark(segment.start(1))


class Marks:
    """What has been verified since the files were last found to be others."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch  # counts how often the files were found to be others
        self._marks: dict[int, Mark] = {}
        self._mutex = threading.Lock()
        self.tail = BEGINNING  # the furthest mark
        self.recent: list[Commit] = []  # the last lines that were in hand; `after` sees whether the tail follows them

    def add(self, mark: Mark, commits: Sequence[Commit] = ()) -> None:
        """Keep one mark for each seq; the oldest go. ``commits`` are lines right before it that are in hand."""
        position = mark.position
        if position.seq and not position.hash:
            return  # the beginning of a segment opened without the one before it: it knows less than that one's end
        with self._mutex:
            self._marks.pop(position.seq, None)
            self._marks[position.seq] = mark
            if len(self._marks) > _MARKS_MAX:
                del self._marks[next(iter(self._marks))]
            tail = self.tail.position
            if (position.segment, position.offset) >= (tail.segment, tail.offset):
                self.tail = mark
                if commits and self.recent and self.recent[-1].seq + 1 == commits[0].seq:
                    self.recent = [*self.recent, *commits][-_RECENT_MAX:]
                elif commits:
                    self.recent = list(commits[-_RECENT_MAX:])

    def in_hand(self, seq: int, place: Place) -> Commit | None:
        """The line with a seq at a place, if it is in hand."""
        return next((commit for commit in self.recent if commit.seq == seq and commit.place == place), None)

    def after(self, seq: int) -> tuple[Mark, list[Commit] | None]:
        """The tail, and the lines of its segment from a seq to it, if all are in hand; None if they must be read."""
        with self._mutex:
            tail, recent = self.tail, self.recent
        ahead = tail.position.seq - seq
        if not 0 <= ahead <= len(recent):
            return tail, None
        found = recent[len(recent) - ahead :]
        if found:
            first, last, at = found[0], found[-1], tail.position
            if (first.seq, last.seq, first.place.segment) != (seq + 1, at.seq, at.segment):
                return tail, None
        return tail, found

    def nearest(self, seq: int) -> Mark | None:
        """The last mark at or before a seq."""
        with self._mutex:
            exact = self._marks.get(seq)
            if exact is not None:
                return exact
            return max(
                (mark for known, mark in self._marks.items() if known < seq),
                key=lambda mark: mark.position.seq,
                default=None,
            )

    def move(self, first_seq: int, device: int, inode: int) -> None:
        """The segment was put on a new file with the same bytes."""
        with self._mutex:
            for seq, mark in self._marks.items():
                if mark.position.segment == first_seq:
                    self._marks[seq] = Mark(mark.position, device, inode)
            if self.tail.position.segment == first_seq:
                self.tail = Mark(self.tail.position, device, inode)
