"""Take damage out of a journal: say what would be done, then do it, under the writer lock. Destroys nothing.

What is damage, and which lines stay, is the walker's to say: there is no second parser here. A segment is never edited
in place: what is cut out is copied to set-aside/, then a new file is written whole and renamed over the old one. Killed
anywhere, it is run again and finds what is left to do.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from journal import archive, clock, directory, record, segment
from journal.errors import JournalError, ReplacedError, UnwritableError
from journal.files import Files, render_place
from journal.findings import Damage, LostRange
from journal.journal import SEGMENT_BYTES_MAX
from journal.lock import WriterLock
from journal.plan import Check, Plan, make_plan
from journal.reader import Reader
from journal.writer import SET_ASIDE, Settings, Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from journal.snapshot import Snapshots

_NEW: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
_PIECE_BYTES: Final = 1 << 20
_EVENTS_MAX: Final = 1000  # in one commit: well below what a line holds
_SYSTEM_FILES: Final = Files()


class ChangedError(JournalError):
    """The journal is not as it was when the plan was made. Nothing was done."""

    def __init__(self, place: str) -> None:
        """Keep the directory."""
        self.directory = place
        super().__init__(f"{place} has changed since it was looked at; nothing was done")


class Mended(msgspec.Struct, frozen=True):
    """A damage taken out: the name of its bytes in set-aside/ and the line in its place; None where there is none.

    ``archive`` is the name in set-aside/ of the archive it was the last damage of, if it lay in one.
    """

    damage: Damage
    piece: str | None
    lost: LostRange | None
    archive: str | None = None


class Repair:
    """The repair of one journal directory.

    Args:
        place: ``<data>/journal``.
        snapshots: of what was folded from it; deleted before anything is changed.
        first_events, by, segment_bytes_max, on_set_aside, allow_network_filesystem: as of a `Journal`; it writes the
            last commit.
        new_check: makes what judges the lines that verify; asked for each look at the journal.
        files: the system calls; a test's may fail.

    Attributes:
        mended: by the last `perform`, in order; what stands of it also where that failed.
    """

    def __init__(  # noqa: PLR0913 -- as of a Journal: the settings are keywords of one object, set once
        self,
        place: Path | str,
        snapshots: Snapshots,
        *,
        first_events: bytes,
        by: str = "",
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        on_set_aside: Callable[[str], None] = lambda _: None,
        new_check: Callable[[], Check] = lambda: lambda _commit, _damaged: None,
        files: Files = _SYSTEM_FILES,
        allow_network_filesystem: bool = False,
    ) -> None:
        self._directory = os.path.abspath(place)
        self._aside = f"{self._directory}/{SET_ASIDE}"
        self._snapshots = snapshots
        self._settings = Settings(first_events, by, segment_bytes_max, on_set_aside)
        self._new_check = new_check
        self._files = files
        self._allow_network = allow_network_filesystem
        self.mended: list[Mended] = []

    def plan(self) -> Plan:
        """Look at every line. Changes nothing and takes no lock.

        Raises:
            UnsupportedError: the journal, or what it holds, is of another version.
            UnreadableError: the system refuses to read, or what has a segment's name is no file.
        """
        return make_plan(self._directory, self._new_check(), self._files)

    def perform(self, plan: Plan, prepare: Callable[[], None], *, wait_s: float) -> list[Mended]:
        """Do what a plan says.

        Args:
            plan: from `plan`; the journal must still be so.
            prepare: called under the writer lock before anything is changed; what it raises goes to the caller.
            wait_s: for each lock.

        Returns:
            Each damage with what became of it.

        Raises:
            ChangedError, UnusableError: nothing was done.
            BusyError, ReplacedError, UnwritableError, UnsyncedError: what is in `mended` stands, and is sound; plan
                anew for the rest.
        """
        self.mended = []
        directory.prepare(self._directory, self._files, allow_network=self._allow_network)
        lock = WriterLock(self._directory, self._files)
        try:
            lock.acquire(time.monotonic() + wait_s)
            try:
                self._perform(plan, prepare, lock, wait_s)
            finally:
                lock.release()
        except OSError as error:
            raise UnwritableError(render_place(error)) from error
        finally:
            lock.close()
        return self.mended

    def _perform(self, plan: Plan, prepare: Callable[[], None], lock: WriterLock, wait_s: float) -> None:
        now = self.plan()
        if (now.damages, now.unnamed) != (plan.damages, plan.unnamed):
            raise ChangedError(self._directory)
        prepare()
        self._snapshots.clear()
        for _, damages in groupby(plan.damages, key=lambda damage: damage.file):
            self._mend(list(damages), lock, wait_s)
        lost = plan.unnamed + [each.lost for each in self.mended if each.lost is not None]
        if self.mended or lost:
            self._finish(lost, lock, wait_s)

    # --- one segment

    def _mend(self, damages: list[Damage], lock: WriterLock, wait_s: float) -> None:
        """Put a mended file in the place of a segment; before that, its damaged bytes are in set-aside/, durably."""
        path, action = damages[0].file, damages[0].action
        if action == "take":
            self._take_away(damages[0])
            return
        if action == "make":
            self._write_anew(-1, path, damages)
            return
        if path.endswith(archive.SUFFIX):
            self._unpack(path, damages)
            return
        source = self._files.open(path, os.O_RDWR)
        try:
            lock.acquire_file(source, time.monotonic() + wait_s)
            if not self._files.is_at(source, path):
                raise ReplacedError(path, "it is another file now")
            self._write_anew(source, path, damages)
        finally:
            self._files.close(source)

    def _unpack(self, path: str, damages: list[Damage]) -> None:
        """Put a mended file in the place of an archive: it is not packed any more, and the archive is set aside."""
        source = archive.unpack(self._files, path).fd
        try:
            self._write_anew(source, f"{self._directory}/{segment.name(damages[0].segment)}", damages)
        finally:
            self._files.close(source)
        # From here on the file counts, whether the archive is still beside it or not.
        self._make_aside()
        name = _piece_name(damages[0]) + archive.SUFFIX
        self._files.rename(path, f"{self._aside}/{name}")
        self._files.fsync_directory(self._aside)
        last = self.mended[-1]
        self.mended[-1] = msgspec.structs.replace(last, archive=name)

    def _take_away(self, damage: Damage) -> None:
        self._make_aside()
        name = _piece_name(damage) + (archive.SUFFIX if damage.file.endswith(archive.SUFFIX) else "")
        self._files.rename(damage.file, f"{self._aside}/{name}")
        self.mended.append(Mended(damage, name, None))
        self._files.fsync_directory(self._aside)
        self._files.fsync_directory(os.path.dirname(damage.file))

    def _write_anew(self, source: int, path: str, damages: list[Damage]) -> None:
        """Write the file that takes the place of ``path``: what is sound in ``source``, and lines for what is lost."""
        made = [path + ".new"]
        try:
            pieces = [self._set_aside(source, damage, made) for damage in damages]
            done = self._write_mended(source, made[0], damages, pieces)
        except OSError:
            for each in made:  # in vain: the damage still stands where it stood
                with contextlib.suppress(OSError):
                    self._files.unlink(each)
            raise
        self._files.rename(made[0], path)
        self.mended += done
        self._files.fsync_directory(self._directory)

    def _write_mended(
        self, source: int, path: str, damages: list[Damage], pieces: list[tuple[str | None, str]]
    ) -> list[Mended]:
        done, at = [], 0
        target = self._files.open(path, _NEW)
        try:
            for damage, (name, digest) in zip(damages, pieces, strict=True):
                self._copy(source, at, damage.offset, target)
                line, lost = _replacement(damage, digest)
                self._files.write_all(target, line)
                done.append(Mended(damage, name, lost))
                at = damage.offset + damage.bytes
            if source >= 0:
                self._copy(source, at, self._files.fstat(source).st_size, target)
            self._files.fsync(target)
        finally:
            self._files.close(target)
        return done

    def _set_aside(self, source: int, damage: Damage, made: list[str]) -> tuple[str | None, str]:
        """Copy a damage's bytes, durably: the copy's name, and the SHA-256 of the bytes. ``made`` gets its path."""
        if not damage.bytes:
            return None, hashlib.sha256().hexdigest()
        self._make_aside()
        name = _piece_name(damage)
        made.append(f"{self._aside}/{name}")
        target = self._files.open(made[-1], _NEW)
        try:
            digest = self._copy(source, damage.offset, damage.offset + damage.bytes, target)
            self._files.fsync(target)
        finally:
            self._files.close(target)
        self._files.fsync_directory(self._aside)
        return name, digest

    def _make_aside(self) -> None:
        with contextlib.suppress(FileExistsError):
            self._files.mkdir(self._aside)
        self._files.fsync_directory(self._directory)

    def _copy(self, source: int, begin: int, end: int, target: int) -> str:
        """Copy a range of bytes; their SHA-256."""
        digest = hashlib.sha256()
        while begin < end:
            data = self._files.pread(source, min(_PIECE_BYTES, end - begin), begin)
            if not data:
                raise OSError(errno.EIO, "a segment is shorter than when it was looked at")
            self._files.write_all(target, data)
            digest.update(data)
            begin += len(data)
        return digest.hexdigest()

    # --- the last commit

    def _finish(self, lost: list[LostRange], lock: WriterLock, wait_s: float) -> None:
        """Write `repaired` for each lost range; or one, if none was lost. All lines are verified before it."""
        events = [{"type": "repaired", "lost": each.seq, "hash": each.hash} for each in lost] or [{"type": "repaired"}]
        writer = Writer(Reader(self._directory, self._files, lock), lock, self._files, self._settings)
        try:
            writer.open(time.monotonic() + wait_s)
            for begin in range(0, len(events), _EVENTS_MAX):
                line = msgspec.json.encode(events[begin : begin + _EVENTS_MAX])
                end = writer.append(clock.now(), line, time.monotonic() + wait_s).end
            writer.active.flusher.confirm(end, time.monotonic() + wait_s)
        finally:
            writer.close()


def _piece_name(damage: Damage) -> str:
    return f"{damage.segment:020d}-{damage.offset}-{time.time_ns()}-{os.getpid()}.damaged"


def _replacement(damage: Damage, digest: str) -> tuple[bytes, LostRange | None]:
    """What is written in the place of a damage: a `lost` line, the LF a line lacks, or nothing."""
    if damage.last < damage.first:
        return (b"\n" if damage.action == "end" else b""), None
    event = {
        "type": "lost",
        "first": damage.first,
        "last": damage.last,
        "bytes": damage.bytes,
        "sha256": digest,
        "next_prev": damage.next_prev,
        "reason": "damage",
    }
    line, own = record.encode(damage.first, clock.now(), os.getpid(), msgspec.json.encode([event]), damage.prev)
    return line, LostRange(damage.first, own, damage.last, "damage")
