"""A walk through a journal that goes on after each fault; for verification and for repair. Opens files to read only.

It goes on at the next line that can be kept (salvage.py). It uses the one scanner there is, so it cannot disagree with
the reader about what a sound line is.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from journal import archive, salvage, segment, survey
from journal.errors import UnsupportedError
from journal.findings import Damage, Fault, Tail, Verdict
from journal.record import LINE_BYTES_MAX, Commit
from journal.salvage import Next, Raw
from journal.segment import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from journal.files import Files
    from journal.segment import Scan
    from journal.survey import Found

_CHUNK_BYTES: Final = 64 << 10  # as in reader.py
_NOWHERE: Final = msgspec.structs.replace(segment.start(1), next_seq=0)
_FOLLOWS_NOTHING: Final = "continues neither the damaged line before it nor the last sound one"
_OUT_OF_PLACE: Final = "stands where it does not belong"


class Walker:
    """One walk: where it stands, and what it has found.

    Attributes:
        verdict: so far.
        damages: so far, in order; each is there once its last fault was given.
    """

    def __init__(self, files: Files) -> None:
        self.verdict = Verdict()
        self.damages: list[Damage] = []
        self._files = files
        self._segments: list[Found] = []
        self._journal: str | None = None
        self._number = 0  # index of the segment that is walked
        self._fd = -1
        self._broken = ""  # why the archive that is walked could be unpacked only in part
        self._last_packed = False  # whether the last file that has a place in the chain was an archive
        self._at = _NOWHERE
        self._line = 1
        self._begun = False  # whether a line of the segment was kept, or a `lost` line will stand in it

    @property
    def file(self) -> str:
        """Path of the file that is walked: a line that was just given stands in it."""
        return str(self._path)

    def walk(self, paths: Iterable[Path], *, from_first: bool = True) -> Iterator[Commit | Fault]:
        """Everything in order; see the function `walk`."""
        whole = False
        for path in paths:
            if path.is_dir():
                whole = whole or not self._segments
                self._segments += [survey.look(self._files, found) for found in survey.files_of(self._files, path)]
            else:
                self._segments.append(survey.look(self._files, path))
        journals = Counter(each.journal for each in self._segments if each.journal is not None)
        self._journal = journals.most_common(1)[0][0] if journals else None
        if whole and from_first:
            self._start(1)
        for number, here in enumerate(self._segments):
            self._number = number
            yield from self._walk_segment(here)
        if whole and self._last_packed:
            yield self._make_end()

    def _start(self, first_seq: int) -> None:
        self._at = msgspec.structs.replace(segment.start(first_seq), journal=self._journal)

    # --- one segment

    def _walk_segment(self, here: Found) -> Iterator[Commit | Fault]:
        """Walk one file, and what should have come before it."""
        begins = here.first_seq or self._at.next_seq or 1
        if not self._at.next_seq:
            self._start(begins)
        next_seq, foreign = self._at.next_seq, self._is_foreign(here)
        mixed = f"two journals mixed: {self._journal} and {here.journal}"
        if begins < next_seq or (begins > next_seq and self._is_stray(here)):
            begun = f"begins with seq {here.opens or begins} where {next_seq} is next"
            yield self._take_away(here, mixed if foreign else begun)
            return
        if begins > next_seq:
            yield self._make_up(here)
        try:
            opened = self._open(here)
        except FileNotFoundError:
            yield self._fault(here.path, 1, 0, begins, "the segment is missing")
            return
        self._fd, self._broken, self._last_packed = opened.fd, opened.fault, here.packed
        try:
            self.verdict.segments += 1
            self._line, self._begun = 1, False
            self._at = segment.follow(self._at)
            yield from self._finish(mixed) if foreign else self._lines()
        finally:
            self._files.close(self._fd)

    def _open(self, here: Found) -> archive.Opened:
        """Open a segment; one that was packed since it was found is read where it lies now. Raises OSError."""
        try:
            return archive.open_any(self._files, str(here.path))
        except FileNotFoundError:
            return archive.unpack(self._files, archive.path(str(here.path.parent), here.first_seq))

    def _is_foreign(self, here: Found) -> bool:
        return here.journal not in (None, self._journal)

    def _is_stray(self, here: Found) -> bool:
        """Whether a file leaves no gap before it: it is another journal's, or a copy under a name that was free."""
        return self._is_foreign(here) or (
            here.opens > 0 and any(each.first_seq == here.opens and each.size >= here.size for each in self._segments)
        )

    def _take_away(self, here: Found, cause: str) -> Fault:
        """Leave out a file that has no place in the chain."""
        seq, size = self._at.next_seq, self._files.stat(str(here.path)).st_size
        self.damages.append(Damage(str(here.path), here.first_seq, 1, 0, size, seq, seq - 1, "", None, cause, "take"))
        return self._fault(here.path, 1, 0, seq, cause)

    def _make_up(self, here: Found) -> Fault:
        """Pass over the segments that are missing before one."""
        seq, cause = self._at.next_seq, "the segment that begins with it is missing"
        path = here.beside(seq)
        damage = Damage(str(path), seq, 1, 0, 0, seq, here.first_seq - 1, "", None, cause, "make")
        self._note(damage, _stated(here))
        return self._fault(path, 1, 0, seq, cause)

    def _make_end(self) -> Fault:
        """The segment after the last one is missing: only those are packed that another one follows."""
        seq, cause = self._at.next_seq, "the segment that begins with it is missing: what is packed is never the last"
        path = self._segments[-1].beside(seq)
        self._note(Damage(str(path), seq, 1, 0, 0, seq, seq, "", None, cause, "make", guessed=True), None)
        return self._fault(path, 1, 0, seq, cause)

    def _lines(self) -> Iterator[Commit | Fault]:
        """Walk the file that is open."""
        want = _CHUNK_BYTES
        while True:
            data = self._files.pread(self._fd, want, self._at.offset)
            try:
                found = segment.scan(data, self._at)
            except UnsupportedError:
                if self._at.prev is not None:  # else it is judged with what follows
                    raise
                yield from self._rest()
                return
            found = _within(found, self._at, self._limit())
            yield from self._take(found)
            if found.fault is not None:
                yield from self._rest()
                return
            if not found.commits and len(data) < want:
                yield from self._finish(size=self._at.offset + len(data))  # a writer may have gone on since
                return
            if not found.commits and want == LINE_BYTES_MAX:
                yield from self._rest()
                return
            want = _CHUNK_BYTES if found.commits else LINE_BYTES_MAX

    def _take(self, found: Scan) -> Iterator[Commit]:
        """Give sound lines, and stand after them."""
        self.verdict.take(found)
        if found.commits:
            self._at, self._begun = found.end, True
        self._line += len(found.commits)
        yield from found.commits

    # --- from a fault on

    def _rest(self) -> Iterator[Commit | Fault]:
        """Walk on from a line that fails, to the end of the file."""
        following = self._following()
        if following is not None or not self._is_torn():
            for kept in salvage.salvage(self._raws(), self._at, self._limit()):
                at = self._at
                if kept.offset > at.offset or kept.seq > at.next_seq:
                    missing = "" if kept.offset > at.offset else f"seq {at.next_seq} is missing, this is seq {kept.seq}"
                    yield from self._cut(kept.offset, kept.seq, Next(kept.seq, kept.base), missing)
                line = self._files.pread(self._fd, kept.length, kept.offset)
                if line.endswith(b"\n"):
                    yield from self._take(salvage.judge(line[:-1], self._at, first=not self._begun))
        yield from self._finish()

    def _finish(self, mixed: str = "", size: int = -1) -> Iterator[Commit | Fault]:
        """Judge what follows the last sound line of a file, up to its end or to the ``size`` that was read.

        ``mixed`` says that all of it is another journal's.
        """
        following = self._following()
        size = size if size >= 0 else self._files.fstat(self._fd).st_size
        if following is None:
            yield from self._finish_last(size, mixed)
            return
        unfinished = None if mixed or self._broken else self._unfinished(size)
        if unfinished is not None:
            cause = "lacks its line feed, in a segment that is not the last"
            self.damages.append(
                Damage(str(self._path), self._at.segment, self._line, size, 0, 0, -1, "", None, cause, "end")
            )
            yield self._fault(self._path, self._line, self._at.offset, self._at.next_seq, cause)
            yield from self._take(unfinished)
        elif size > self._at.offset or self._broken or not self._begun:
            cause = self._broken or (mixed if size else "the segment is empty and is not the last")
            yield from self._cut(size, following.first_seq or self._at.next_seq, _stated(following), cause)

    def _finish_last(self, size: int, mixed: str) -> Iterator[Fault]:
        if self._segments[self._number].packed:
            if size > self._at.offset or self._broken:
                lines = sum(1 for _ in self._raws())
                yield from self._cut(size, self._at.next_seq + lines, None, self._broken or mixed)
                self.damages[-1] = msgspec.structs.replace(self.damages[-1], guessed=lines > 0)
        elif not self._is_torn():
            end, lines = self._at.offset, 0
            for raw in self._raws(size):
                if raw.ended:
                    end, lines = raw.offset + raw.length, lines + salvage.count_lines(raw)
            if lines:
                yield from self._cut(end, self._at.next_seq + lines, None, mixed)
                self.damages[-1] = msgspec.structs.replace(self.damages[-1], guessed=True)
        offset = self._at.offset
        if size > offset:
            unfinished = self._unfinished(size) is not None
            self.verdict.tail = Tail(str(self._path), offset, size - offset, unfinished)

    def _cut(self, end: int, next_seq: int, following: Next | None, cause: str) -> Iterator[Fault]:
        """Report the bytes up to ``end`` and stand after them: a fault a line, or one with the ``cause`` given."""
        at, line, causes = self._at, self._line, [cause] if cause else []
        for raw in self._raws(end):
            if not cause:
                causes.append(_FOLLOWS_NOTHING if causes else self._why(raw))
                yield self._fault(self._path, self._line, raw.offset, at.next_seq + len(causes) - 1, causes[-1])
            self._line += 1
        if cause:
            yield self._fault(self._path, line, at.offset, at.next_seq, cause)
        length, path = end - at.offset, str(self._path)
        damage = Damage(
            path, at.segment, line, at.offset, length, at.next_seq, next_seq - 1, "", None, causes[0], "cut"
        )
        self._note(damage, following)

    def _note(self, damage: Damage, following: Next | None) -> None:
        """Stand after a damage, as readers will once it is repaired. Where nothing says what follows, we choose."""
        at = self._at
        prev = at.prev or at.hash
        next_prev = following.prev if following is not None else prev
        end = damage.offset + damage.bytes
        if damage.last < damage.first:
            self._at = msgspec.structs.replace(at, offset=end)
            self.damages.append(damage)
            return
        self.damages.append(msgspec.structs.replace(damage, prev=prev, next_prev=next_prev))
        self._at = Position(at.segment, end, damage.first, prev, damage.last + 1, next_prev, at.journal)
        self._begun = True

    def _why(self, raw: Raw) -> str:
        """What is wrong with the first line of a damage."""
        if raw.length > LINE_BYTES_MAX:
            return f"is longer than {LINE_BYTES_MAX} bytes"
        if not raw.ended:
            return "bytes after the last line of a segment that is not the last"
        try:
            found = salvage.judge(raw.line, self._at, first=not self._begun)
        except UnsupportedError as error:
            return str(error)  # what a damaged line says of its format
        return found.fault or _OUT_OF_PLACE

    # --- what stands there

    @property
    def _path(self) -> Path:
        return self._segments[self._number].path

    def _following(self) -> Found | None:
        """The segment that will come next, those left out that have no place in the chain."""
        next_seq = self._at.next_seq
        for each in self._segments[self._number + 1 :]:
            begins = each.first_seq or next_seq
            if begins >= next_seq and not (begins > next_seq and self._is_stray(each)):
                return each
        return None

    def _limit(self) -> Next | None:
        """Where a later segment begins for certain: lines from there on do not belong into this one."""
        for each in self._segments[self._number + 1 :]:
            if each.held and each.first_seq > self._at.segment and not self._is_foreign(each):
                return Next(each.first_seq, each.prev)
        return None

    def _is_torn(self) -> bool:
        if self._segments[self._number].packed:
            return False
        line = self._files.pread(self._fd, LINE_BYTES_MAX, self._at.offset).partition(b"\n")[0]
        return segment.is_torn_line(line, self._at.offset)

    def _unfinished(self, size: int) -> Scan | None:
        """The line that the bytes up to the end are, but for its LF; None if they are none."""
        length = size - self._at.offset
        if not 0 < length < LINE_BYTES_MAX:
            return None
        line = self._files.pread(self._fd, length, self._at.offset)
        found = None if b"\n" in line else salvage.judge(line, self._at, first=not self._begun)
        return found if found is not None and found.commits else None

    def _raws(self, end: float = float("inf")) -> Iterator[Raw]:
        """The bytes from here to ``end``, or to the end of the file, line by line."""
        return survey.raws(self._files, self._fd, self._at.offset, end)

    def _fault(self, path: Path, line: int, offset: int, seq: int, cause: str) -> Fault:
        self.verdict.faults += 1
        return Fault(str(path), line, offset, seq, cause)


def _within(found: Scan, at: Position, limit: Next | None) -> Scan:
    """What was scanned, without the lines that the next segment holds as well: somebody wrote on here, others there."""
    if limit is None or limit.prev is None or found.end.next_seq <= limit.seq:
        return found
    number = next((number for number, commit in enumerate(found.commits) if commit.seq >= limit.seq), 0)
    last = found.commits[number - 1] if number else None
    if (at.prev if last is None else last.hash) != limit.prev:
        return found
    offset = at.offset if last is None else last.place.offset + last.place.line_bytes
    seq = at.seq if last is None else last.seq
    end = Position(at.segment, offset, seq, limit.prev, limit.seq, limit.prev, found.end.journal)
    return segment.Scan(found.commits[:number], end, _OUT_OF_PLACE, [each for each in found.unchecked if each <= seq])


def _stated(following: Found) -> Next | None:
    """What the next segment says it continues; None if it is damaged where it begins."""
    return Next(following.first_seq, following.prev) if following.sound else None
