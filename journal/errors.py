"""What can go wrong with a journal, where, and what was written. Raises nothing itself and touches no file.

Every error is a `JournalError` with its facts as attributes and one sentence as its text.
"""

from __future__ import annotations


class JournalError(Exception):
    """Anything the journal refuses or meets; the subclass says what is on disk."""


class BusyError(JournalError):
    """The deadline passed before the lock was free. Nothing was written."""

    def __init__(self, waited_for: str) -> None:
        """Keep what was waited for."""
        self.waited_for = waited_for
        super().__init__(f"busy: {waited_for} was not free in time; nothing was written")


class TooLargeError(JournalError):
    """The commit would be longer than a line may be. Nothing was written."""

    def __init__(self, size: int, limit: int) -> None:
        """Keep both sizes, in bytes."""
        self.size = size
        self.limit = limit
        super().__init__(f"not stored: the commit takes {size} bytes and a line holds at most {limit}")


class UnwritableError(JournalError):
    """The disk refused. Nothing was written, or what was written has been taken back."""

    def __init__(self, cause: str) -> None:
        """Keep the cause: "disk full", or the system's words."""
        self.cause = cause
        super().__init__(f"not stored: {cause}")


class UnsyncedError(JournalError):
    """The outcome is unknown: the commit may or may not outlive a power cut, or even this process."""

    def __init__(self, cause: str) -> None:
        """Keep the cause in the system's words."""
        self.cause = cause
        super().__init__(f"unsynced: it is not known whether the disk holds what was written: {cause}")


class CorruptError(JournalError):
    """The journal is damaged. Nothing was cut, nothing skipped, nothing written.

    Attributes:
        file: path of the segment.
        line: line number in that file, from 1.
        offset: byte offset of that line in the file, from 0.
        seq: the seq that line should carry; 0 where that cannot be known.
        cause: what is wrong with it.
    """

    def __init__(self, file: str, line: int, offset: int, seq: int, cause: str) -> None:
        """Keep the place and the cause."""
        self.file = file
        self.line = line
        self.offset = offset
        self.seq = seq
        self.cause = cause
        super().__init__(f"corrupt: {file} line {line} (byte {offset}, seq {seq}): {cause}")


class UnsupportedError(JournalError):
    """The journal is of a version this software does not know. Nothing was skipped, nothing written.

    Attributes:
        what: the thing that has a version, such as "journal format".
        found: the version met.
        known: the version this software knows.
    """

    def __init__(self, what: str, found: str, known: str) -> None:
        """Keep both versions."""
        self.what = what
        self.found = found
        self.known = known
        super().__init__(
            f"unsupported: {what} is {found}, this software knows {known}; run the newer software that wrote it"
        )


class UnusableError(JournalError):
    """The directory is no place for a journal: another user's, a symlink, a filesystem without sound locks."""

    def __init__(self, directory: str, cause: str) -> None:
        """Keep the directory and the cause."""
        self.directory = directory
        self.cause = cause
        super().__init__(f"cannot use {directory}: {cause}")


class UnreadableError(UnusableError):
    """The system refuses, maybe only now: to read a file, to watch it, or one descriptor more. Nothing was written."""


class ReplacedError(JournalError):
    """The files are not the ones read before. Drop what was folded and read from 0."""

    def __init__(self, file: str, cause: str) -> None:
        """Keep the file and what shows it."""
        self.file = file
        self.cause = cause
        super().__init__(f"{file} is not the file read before: {cause}")
