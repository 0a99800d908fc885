"""Snapshots: what somebody folded from a journal, kept at a seq. A cache; knows nothing of what is in it.

One file, `<seq, 20 digits>`: the SHA-256 of all that follows in hex digits, LF, a header as one line of JSON, the
payload. It is used only if that checksum, its version and the journal agree with it, and may be deleted at any time.
Whatever is wrong with one makes it as good as absent: the journal is the truth.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from typing import TYPE_CHECKING, Final

import msgspec

from journal.errors import UnwritableError
from journal.files import Files, render_cause
from journal.segment import Position

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK: Final = "lock"
_NAME = re.compile(r"\d{20}", re.ASCII)
_NEW: Final = ".new"
_DIGEST_BYTES: Final = 65  # 64 hex digits and a line feed
_HEAD_BYTES_MAX: Final = 1 << 20  # with the header, which names each segment
_SYSTEM_FILES: Final = Files()


class Bookmark(msgspec.Struct, frozen=True):
    """A place in a journal from which reading may go on: what `Journal.bookmark` gives and `Journal.resume` takes.

    Attributes:
        position: the place, with the hash of the line before it.
        finished: the segments before it: first seq and size in bytes of each.
    """

    position: Position
    finished: list[tuple[int, int]]


class Snapshot(msgspec.Struct, frozen=True):
    """A kept fold: where in the journal it was taken, and the payload as it was given."""

    bookmark: Bookmark
    payload: memoryview


class _Header(msgspec.Struct, frozen=True):
    version: str
    payload_bytes: int
    bookmark: Bookmark


_decode_header = msgspec.json.Decoder(_Header).decode


class Snapshots:
    """The snapshots in one directory, shared by any number of processes.

    Args:
        directory: made, private, by the first `save`.
        files: the system calls; a test's may fail.
    """

    def __init__(self, directory: str | os.PathLike[str], files: Files = _SYSTEM_FILES) -> None:
        self._directory = os.path.abspath(directory)
        self._files = files

    def newest_seq(self) -> int:
        """Seq of the newest by its name; 0 if there is none, or they cannot be listed. It need not be a sound one."""
        return max((int(name) for name in self._listed() if _NAME.fullmatch(name)), default=0)

    def load(self, version: str) -> Iterator[Snapshot]:
        """Those that are whole and of this version, newest first. Whether the journal agrees the caller must see."""
        for name in sorted(filter(_NAME.fullmatch, self._listed()), reverse=True):
            with contextlib.suppress(OSError):
                snapshot = self._read(f"{self._directory}/{name}", version)
                if snapshot is not None:
                    yield snapshot

    def save(self, version: str, bookmark: Bookmark, payload: bytes) -> bool:
        """Keep one in the place of all others; false, and nothing done, while another process is at it.

        Args:
            version: of the software and of the form of the payload; `load` gives it back to the same version only.
            bookmark: where in the journal it was taken.
            payload: anything.

        Raises:
            UnwritableError: the disk refused; the others are still there.
        """
        try:
            with contextlib.suppress(FileExistsError):
                self._files.mkdir(self._directory)
            lock = self._files.open(f"{self._directory}/{LOCK}", os.O_RDWR | os.O_CREAT)
            try:
                if not self._files.try_lock(lock):
                    return False
                name = f"{bookmark.position.seq:020d}"
                self._write(f"{self._directory}/{name}", _head(version, bookmark, payload), payload)
                self._delete(but={name})
            finally:
                self._files.close(lock)
        except OSError as error:
            raise UnwritableError(f"{self._directory}: {render_cause(error)}") from error
        return True

    def clear(self) -> None:
        """Delete all of them, durably.

        Raises:
            UnwritableError: the system refused; some may be there still.
        """
        try:
            if self._delete():
                self._files.fsync_directory(self._directory)
        except OSError as error:
            raise UnwritableError(f"{self._directory}: {render_cause(error)}") from error

    def _listed(self) -> list[str]:
        """Names in the directory; none where the system does not tell: a cache that cannot be read is none."""
        try:
            return self._files.listdir(self._directory)
        except OSError:
            return []

    def _read(self, path: str, version: str) -> Snapshot | None:
        """What a file holds; None if it is not whole, or of another version: then only its beginning is read."""
        fd = self._files.open(path, os.O_RDONLY)
        try:
            data = bytearray(self._files.pread(fd, _HEAD_BYTES_MAX, 0))
            header, begin = _parse_head(data)
            if header is None or header.version != version:
                return None
            if self._files.fstat(fd).st_size != begin + header.payload_bytes:
                return None
            for piece in self._files.read_all(fd, len(data)):
                data += piece
        finally:
            self._files.close(fd)
        whole = memoryview(data)
        if data[:_DIGEST_BYTES] != hashlib.sha256(whole[_DIGEST_BYTES:]).hexdigest().encode() + b"\n":
            return None
        return Snapshot(header.bookmark, whole[begin:])

    def _write(self, path: str, head: bytes, payload: bytes) -> None:
        fd = self._files.open(path + _NEW, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            self._files.write_all(fd, head)
            self._files.write_all(fd, payload)
            self._files.fdatasync(fd)
            self._files.rename(path + _NEW, path)
        except OSError:
            self._files.unlink(path + _NEW)  # on a full disk its space is needed for better things
            raise
        finally:
            self._files.close(fd)

    def _delete(self, but: frozenset[str] | set[str] = frozenset()) -> int:
        """Delete all but some, and what was left half-written; how many."""
        try:
            names = self._files.listdir(self._directory)
        except FileNotFoundError:
            return 0
        old = [name for name in names if _NAME.fullmatch(name.removesuffix(_NEW)) and name not in but]
        for name in old:
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(f"{self._directory}/{name}")
        return len(old)


def _head(version: str, bookmark: Bookmark, payload: bytes) -> bytes:
    header = msgspec.json.encode(_Header(version, len(payload), bookmark)) + b"\n"
    digest = hashlib.sha256(header)
    digest.update(payload)
    return digest.hexdigest().encode() + b"\n" + header


def _parse_head(data: bytearray) -> tuple[_Header | None, int]:
    """The header, and where the payload begins; None if this is none."""
    feed = data.find(b"\n", _DIGEST_BYTES)
    try:
        return _decode_header(memoryview(data)[_DIGEST_BYTES : max(feed, 0)]), feed + 1
    except msgspec.MsgspecError:
        return None, 0
