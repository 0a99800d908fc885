"""A small journal to damage, laid out again for each try, and what going on after a bad end must look like.

Damages nothing itself: cut.py and flip.py say where, and what they expect.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from agentbus.bus import FIRST_EVENTS
from journal import Commit, CorruptError, Fault, Files, Journal, verify
from tools.crashes.checks import fold_from_1
from tools.crashes.session import SEGMENT_BYTES_MAX, open_host, script

if TYPE_CHECKING:
    from collections.abc import Iterator

Segments = dict[str, bytes]
"""A journal: the bytes of each segment by its file's name, in order."""

NEW_EVENTS = b'[{"type":"channel_created","channel":"new %d","kind":"ordinary"}]'


class Unflushed(Files):
    """Leaves out the flushes, which only a power cut would show."""

    def fdatasync(self, fd: int) -> None:
        """Nothing."""

    def fsync(self, fd: int) -> None:
        """Nothing."""


def recorded() -> Segments:
    """The journal of the scripted session."""
    with tempfile.TemporaryDirectory(prefix="agentbus-session-") as place:
        data = Path(place) / "data"
        script(lambda: open_host(data, Unflushed()))
        return contents(data / "journal")


def contents(directory: Path) -> Segments:
    """The segments in a directory."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.jsonl"))}


@contextlib.contextmanager
def laid(segments: Segments) -> Iterator[Path]:
    """A data directory with this journal, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="agentbus-damage-") as place:
        data = Path(place) / "data"
        lay(data, segments)
        yield data


def lay(data: Path, segments: Segments) -> None:
    """Write these segments into a data directory."""
    directory = data / "journal"
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in segments.items():
        (directory / name).write_bytes(text)


def lines_of(segments: Segments) -> list[bytes]:
    """The whole lines, each with its LF, in order."""
    return [line for text in segments.values() for line in text.split(b"\n")[:-1]]


def opened(data: Path) -> Journal:
    """A process on this journal that has read nothing yet."""
    return Journal(
        data / "journal",
        first_events=FIRST_EVENTS,
        by="agentbus crash",
        segment_bytes_max=SEGMENT_BYTES_MAX,
        files=Unflushed(),
    )


def commit(journal: Journal, number: int) -> None:
    """Append one line of its own."""
    journal.commit(lambda _: NEW_EVENTS % number, deadline=time.monotonic() + 5)


def read(journal: Journal) -> tuple[list[Commit], CorruptError | None]:
    """What a read from the beginning gives, and the damage that ends it."""
    commits: list[Commit] = []
    try:
        commits.extend(journal.read(0))  # it keeps what it was given before an error
    except CorruptError as error:
        return commits, error
    return commits, None


def go_on(data: Path, kept: list[bytes], torn: bytes, *, finished: bool) -> list[str]:
    """Read, append, open anew, append; what of it went otherwise than it should after a bad end.

    Args:
        data: its journal ends in ``torn``.
        kept: the lines before that, without their LFs.
        torn: the bytes after that.
        finished: they are a whole line that lacks only its LF: it is to be completed, not set aside.
    """
    wrong = _look(data, kept)
    for number in (1, 2):
        journal = opened(data)
        commit(journal, number)
        journal.close()
    lines = lines_of(contents(data / "journal"))
    expected = kept + ([torn] if finished else [])
    if lines[: len(expected)] != expected:
        wrong.append("an earlier line is gone or changed")
    added = [line for line in lines[len(expected) :] if b'"channel":"new ' in line]
    others = len(lines) - len(expected) - len(added)
    if len(added) != 2 or others > 2:  # a segment's first line, and the journal's second
        wrong.append(f"two lines were appended, and {len(added)} and {others} others are there")
    aside = b"".join(path.read_bytes() for path in sorted((data / "journal" / "set-aside").glob("*")))
    if aside != (b"" if finished else torn):
        wrong.append(f"set aside were {len(aside)} bytes, not the {len(torn)} that were torn")
    faults = list(verify([data / "journal"]))
    if len(faults) != 1:
        wrong.append(f"verify finds {faults[0]} in the end")
    else:
        fold_from_1(data)
    return wrong


def _look(data: Path, kept: list[bytes]) -> list[str]:
    """Readers see the lines that are kept, and call nothing damage."""
    wrong = []
    journal = opened(data)
    commits, error = read(journal)
    journal.close()
    if error is not None or len(commits) != len(kept):
        wrong.append(f"a reader finds {len(commits)} of {len(kept)} lines, and then {error}")
    faults = [found for found in verify([data / "journal"]) if isinstance(found, Fault)]
    if faults:
        wrong.append(f"verify calls it damage: {faults[0]}")
    return wrong
