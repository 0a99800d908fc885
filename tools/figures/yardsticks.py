"""The yardsticks, as plainly as they can be written: nothing of agentbus is in them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import time
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from pathlib import Path

_BUSY_S = 120.0
_HASH_BYTES = 64
_TAIL_BYTES = 75
_TABLE = """
CREATE TABLE IF NOT EXISTS messages (
    seq INTEGER PRIMARY KEY, time TEXT, pid INTEGER, sender TEXT, channel TEXT, content TEXT, context TEXT
)"""
_INSERT = "INSERT INTO messages (time, pid, sender, channel, content, context) VALUES (?, ?, ?, ?, ?, ?)"


class HashedLines:
    """Lines as a journal has them, one after the other: orjson.dumps, sha256, os.write, os.fdatasync."""

    def __init__(self, path: Path, content: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._event = {"type": "posted", "as": "alice", "channel": "general", "content": content, "context": "bench"}
        self._seq = 0
        self._hash = "0" * _HASH_BYTES

    def write(self) -> None:
        """One line, durable."""
        self._put()
        os.fdatasync(self._fd)

    def _put(self) -> None:
        self._seq += 1
        line = orjson.dumps(
            {
                "seq": self._seq,
                "time": "2026-11-01T08:00:00.000Z",
                "pid": os.getpid(),
                "events": [self._event],
                "hash": self._hash,
            }
        )
        self._hash = hashlib.sha256(line).hexdigest()
        os.write(self._fd, line + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class GuardedLines(HashedLines):
    """The same, with the system calls by which a writer that others may write beside guards each line.

    Two files are locked and given back; asked are the lock file, the directory, and the file before and after it was
    decided what to write.
    """

    def __init__(self, path: Path, content: str) -> None:
        super().__init__(path, content)
        self._asked = [str(path.parent), str(path), str(path)]
        self._lock_path = f"{path}.lock"
        self._lock_fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self) -> None:
        """One line, durable."""
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(self._lock_path)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in self._asked:
            os.stat(path)
        self._put()
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Close both files."""
        super().close()
        os.close(self._lock_fd)


class SyncedFile:
    """os.write and os.fdatasync, and no more."""

    def __init__(self, path: Path, line_bytes: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._line = b"x" * (line_bytes - 1) + b"\n"

    def write(self) -> None:
        """One line, durable."""
        os.write(self._fd, self._line)
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class SqliteTable:
    """Rows of an SQLite table in WAL mode, each in a transaction of its own that is synced before it is answered."""

    def __init__(self, path: Path, content: str) -> None:
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute(_TABLE)
        self._row = ("2026-11-01T08:00:00.000Z", os.getpid(), "alice", "general", content, "bench")

    def write(self) -> None:
        """One row, durable."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(_INSERT, self._row)
        self._connection.execute("COMMIT")


def read_lines(directory: Path) -> int:
    """Read a journal's lines, check their hashes and parse them, and keep nothing; how many there were."""
    count, hash_before = 0, b"0" * _HASH_BYTES
    for path in sorted(directory.glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n")[:-1]:
            digest = hashlib.sha256(hash_before + line[:-_TAIL_BYTES]).hexdigest()
            parsed: dict[str, Any] = orjson.loads(line)
            if parsed["hash"] != digest:
                raise ValueError(path, parsed["seq"])
            hash_before = digest.encode()
            count += 1
    return count


def load_rows(path: Path) -> float:
    """Seconds that orjson takes for a file of rows; reading the file is not counted."""
    data = path.read_bytes()
    began = time.perf_counter()
    orjson.loads(data)
    return time.perf_counter() - began
