"""One commit <-> one line, with its hash. Pure: no files, no clock.

Does not know which line may follow which: that is segment.py. The bytes are stated in FORMAT.md, section 2.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

LINE_BYTES_MAX: Final = 2 << 20  # with its LF; bounds what a reader must hold to judge one line
TAIL_BYTES: Final = 75  # ,"hash":"<64 hex>"}
ZERO_HASH: Final = "0" * 64  # stands before seq 1
_HEAD: Final = b'{"seq":%d,"time":"%b","pid":%d,"events":%b'


class Place(msgspec.Struct, frozen=True, gc=False, order=True):
    """Where a line lies: its segment (by first seq), the byte it begins at, its length with the LF."""

    segment: int
    offset: int
    line_bytes: int


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One verified line. ``events`` is the JSON array exactly as it stands in the line."""

    seq: int
    time: str
    pid: int
    events: bytes
    hash: str
    place: Place


class BadLineError(ValueError):
    """A line is not what it must be; its text is the cause."""


class _Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    seq: int
    time: str
    pid: int
    events: msgspec.Raw
    hash: str


# Locals of the hot loop: a cold fold decodes a million lines.
_parse = msgspec.json.Decoder(_Line).decode
_sha256 = hashlib.sha256


def encode(seq: int, time: str, pid: int, events: bytes, prev_hash: str) -> tuple[bytes, str]:
    """Make the line of a commit, its LF included, and its hash.

    Args:
        seq: from 1.
        time: in the form of `journal.clock`.
        pid: the writer's process id.
        events: a compact JSON array of one or more objects, ``type`` first in each; taken as it is.
        prev_hash: 64 hex digits of the line before, `ZERO_HASH` for seq 1.
    """
    head = _HEAD % (seq, time.encode(), pid, events)
    digest = _sha256(prev_hash.encode() + head).hexdigest()
    return b'%b,"hash":"%b"}\n' % (head, digest.encode()), digest


def decode(line: bytes, prev_hash: str | None, segment: int = 0, offset: int = 0) -> Commit:
    """Verify a line on its raw bytes, then parse it.

    Args:
        line: without its LF.
        prev_hash: hash of the line before; None where it is not known: then the hash the line states is taken.
        segment: for the commit's place.
        offset: for the commit's place.

    Raises:
        BadLineError: the hash is another, or the line is no such JSON object, or it is spelt in another way: two
            readers of it might not read the same.
    """
    if prev_hash is None:
        digest = stated_hash(line)
        if digest is None:
            raise BadLineError("does not end in a hash")
    else:
        digest = _sha256(prev_hash.encode() + line[:-75]).hexdigest()
        if line[-75:] != b',"hash":"%b"}' % digest.encode():
            raise BadLineError(_mismatch(line, digest))
    try:
        parsed = _parse(line)
    except msgspec.MsgspecError as error:
        raise BadLineError(f"does not parse: {error}") from None
    events = bytes(parsed.events)
    if events[:2] != b"[{":
        raise BadLineError("does not parse: events is no array of objects")
    if line[:-75] != _HEAD % (parsed.seq, parsed.time.encode(), parsed.pid, events):
        raise BadLineError("does not parse: it is not spelt as the format has it")
    return Commit(parsed.seq, parsed.time, parsed.pid, events, digest, Place(segment, offset, len(line) + 1))


def stated_hash(line: bytes) -> str | None:
    """The hash a line (without its LF) ends in, unchecked; None if it does not end in one."""
    digits = line[-66:-2]
    if line[-75:-66] != b',"hash":"' or line[-2:] != b'"}' or digits.translate(None, b"0123456789abcdef"):
        return None
    return digits.decode()


def _mismatch(line: bytes, digest: str) -> str:
    stated = stated_hash(line)
    if stated is None:
        return "does not end in a hash"
    return f"does not verify: its bytes give the hash {digest}, it states {stated}"
