"""A segment packed into one file, and unpacked again. Knows no lines, and not which segments are packed.

An archive is the bytes of a finished segment as one gzip member. It is unpacked into an open file without a name, so
that whoever reads segments reads archives by the same calls.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from journal import segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from journal.files import Files

DIRECTORY: Final = "archive"
SUFFIX: Final = ".gz"
NEW: Final = ".new"
UNPACKED_BYTES_MAX: Final = 2 << 30
"""A segment is smaller; what some forged archives would unpack to has no end."""

_LEVEL: Final = 6
_GZIP: Final = 16 + zlib.MAX_WBITS  # zlib writes no name and no time into the header: same bytes, same archive
_PIECE_BYTES: Final = 1 << 20
_PACKED_BYTES: Final = 64 << 10  # fed at once: what is unpacked again, byte by byte, where one is damaged
_TRAILER_BYTES: Final = 4  # the size of what was packed, the lowest byte first
_ENDLESS: Final = f"unpacks to more than {UNPACKED_BYTES_MAX} bytes"


class Opened(msgspec.Struct, frozen=True):
    """A segment open for reading, wherever it lies.

    Attributes:
        fd: of its lines as they were written; the caller closes it.
        path: the file it lies in, or was unpacked from.
        packed: whether that is an archive: then it is finished, and ``fd`` is a file of this process only.
        fault: why an archive could be unpacked only in part, or is more than its lines; empty if nothing is wrong.
    """

    fd: int
    path: str
    packed: bool = False
    fault: str = ""


def path(directory: str, first_seq: int) -> str:
    """Where the archive of a segment lies in a journal's directory."""
    return f"{directory}/{DIRECTORY}/{segment.name(first_seq)}{SUFFIX}"


def parse_name(text: str) -> int | None:
    """First seq of an archive's file name; None if it is no such name."""
    return segment.parse_name(text.removesuffix(SUFFIX)) if text.endswith(SUFFIX) else None


def open_any(files: Files, path: str) -> Opened:
    """Open a segment, or an archive, whichever its name says. Raises OSError; see `unpack`."""
    if path.endswith(SUFFIX):
        return unpack(files, path)
    return Opened(files.open(path, os.O_RDONLY), path)


def unpack(files: Files, path: str) -> Opened:
    """Open an archive, whatever its name.

    Raises:
        OSError: the system refuses. Damage of the archive is in what is returned.
    """
    source = files.open(path, os.O_RDONLY)
    try:
        target = files.unnamed()
        try:
            return Opened(target, path, packed=True, fault=_unpack(files, source, target))
        except BaseException:
            files.close(target)
            raise
    finally:
        files.close(source)


def unpacked_bytes(files: Files, path: str) -> int:
    """Size of what was packed, as the archive states it; -1 if it is too short to."""
    fd = files.open(path, os.O_RDONLY)
    try:
        size = files.fstat(fd).st_size
        stated = files.pread(fd, _TRAILER_BYTES, max(0, size - _TRAILER_BYTES))
    finally:
        files.close(fd)
    return int.from_bytes(stated, "little") if len(stated) == _TRAILER_BYTES else -1


def pack(files: Files, source: int, path: str, stopped: Callable[[], bool]) -> str | None:
    """Pack an open file into a new one, durable but for its name.

    Args:
        files: the system calls.
        source: the open file; nobody writes to it.
        path: of the new one.
        stopped: asked between pieces; true ends it.

    Returns:
        The SHA-256 of the bytes that were packed; None if it was stopped.
    """
    packer, digest = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP), hashlib.sha256()
    target = files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        for data in files.read_all(source, 0):
            if stopped():
                return None
            digest.update(data)
            files.write_all(target, packer.compress(data))
        files.write_all(target, packer.flush())
        files.fsync(target)
    finally:
        files.close(target)
    return digest.hexdigest()


def _unpack(files: Files, source: int, target: int) -> str:
    """Unpack all that can be; why it is not all, or what is there beside it."""
    unpacker, offset, written = zlib.decompressobj(_GZIP), 0, 0
    while data := files.pread(source, _PACKED_BYTES, offset):
        offset += len(data)
        while data:
            if unpacker.eof:
                return "holds more than one packed segment"
            before = unpacker.copy()
            try:
                piece = unpacker.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                files.write_all(target, _unpack_slowly(before, data))
                return f"cannot be unpacked any further: {str(error).rpartition(': ')[2]}"
            written += len(piece)
            if written > UNPACKED_BYTES_MAX:
                return _ENDLESS
            files.write_all(target, piece)
            data = unpacker.unconsumed_tail or unpacker.unused_data
    return "" if unpacker.eof else "ends too early to be unpacked any further"


def _unpack_slowly(unpacker: zlib._Decompress, data: bytes) -> bytes:
    """What stands before the byte that cannot be unpacked."""
    found, pieces = bytearray(), (data[at : at + 1] for at in range(len(data)))
    with contextlib.suppress(zlib.error, StopIteration):
        while True:
            found += unpacker.decompress(next(pieces))
    return bytes(found)
