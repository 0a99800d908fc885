"""``agentbus.log``: one JSON object a line, rotated, shared by all processes. Never stdout or stderr.

Nothing is opened, made or imported before the first line is written. A log that cannot be written is silent:
no tool fails for it, and none waits longer for it than some seconds.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Handler, LogRecord
    from pathlib import Path
    from typing import IO

    Attribute = str | int | float | bool | None

_FILE = "agentbus.log"
_LOCK_FILE = ".__agentbus.lock"  # as concurrent-log-handler calls it
_FILE_BYTES_MAX = 16 << 20
_OLD_FILES = 3
_EARLY_LINES_MAX = 100
_LOCK_TRIES_MAX = 1000  # a millisecond apart
_LEVELS = {"debug": 10, "info": 20, "warn": 30, "error": 40}


def open_log(data_directory: Path, level: str) -> Log:
    """A log in ``data_directory``; ``level`` is one of debug, info, warn, error."""
    return Log(data_directory, level)


class Log:
    """Lines of at least one level. Its methods never raise and may be called from any thread.

    Attributes of a line are plain values; one that is named like the log's own keys is left out.
    """

    def __init__(self, directory: Path, level: str) -> None:
        self._directory = directory
        self._lowest = _LEVELS[level]
        self._handler: Handler | None = None
        self._opening = threading.Lock()
        self._early: list[str] = []  # lines from before there was a data directory

    def debug(self, msg: str, **attributes: Attribute) -> None:
        """What only a developer of agentbus would want to know."""
        self._write(10, "DEBUG", msg, attributes)

    def info(self, msg: str, **attributes: Attribute) -> None:
        """What happens a few times in the life of a server; not for each call."""
        self._write(20, "INFO", msg, attributes)

    def warning(self, msg: str, **attributes: Attribute) -> None:
        """What a user should look at some day."""
        self._write(30, "WARN", msg, attributes)

    def error(self, msg: str, **attributes: Attribute) -> None:
        """What did not work."""
        self._write(40, "ERROR", msg, attributes)

    def close(self) -> None:
        """Let go of the files; a later line opens them again."""
        with self._opening:
            handler, self._handler = self._handler, None
        if handler:
            handler.close()

    def _write(self, rank: int, level: str, msg: str, attributes: dict[str, Attribute]) -> None:
        if rank < self._lowest:
            return
        import logging  # noqa: PLC0415 - most processes never write a line

        line = _render(level, msg, attributes)
        with self._opening:
            self._early.append(line)
            try:
                handler = self._open()
            except FileNotFoundError:  # the first call of all makes the directory; then these lines go first
                del self._early[:-_EARLY_LINES_MAX]
                return
            except OSError:
                self._early.clear()
                return
            lines, self._early = self._early, []
        for each in lines:
            handler.emit(logging.makeLogRecord({"msg": each}))

    def _open(self) -> Handler:
        if self._handler is None:
            _require_own(self._directory)
            self._handler = _make_handler(str(self._directory / _FILE))
        return self._handler


def _require_own(directory: Path) -> None:
    """Raise OSError where there is no data directory yet, or none the journal would live in, or a log that would hang.

    Only the journal makes its directory: it does so durably.
    """
    facts = os.lstat(directory)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & stat.S_ISVTX:
        raise NotADirectoryError(errno.ENOTDIR, "it is no directory of our own", str(directory))
    for name in (_FILE, _LOCK_FILE):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(directory / name).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", str(directory / name))


def _render(level: str, msg: str, attributes: dict[str, Attribute]) -> str:
    """ASCII, so that neither a line separator nor half a surrogate in a value can break a line."""
    from journal import format_time  # noqa: PLC0415 - see _write

    own = {
        "time": format_time(time.time_ns() // 1_000_000),
        "level": level,
        "msg": msg,
        "pid": os.getpid(),
    }
    try:
        return json.dumps(own | attributes | own, default=str, allow_nan=False)
    except ValueError:  # NaN or an infinity, which JSON does not have
        return json.dumps(own | {key: str(value) for key, value in attributes.items()} | own)


def _make_handler(path: str) -> Handler:
    import portalocker  # noqa: PLC0415 - see Log._write
    from concurrent_log_handler import ConcurrentRotatingFileHandler  # noqa: PLC0415 - see Log._write

    class Bounded(ConcurrentRotatingFileHandler):
        """Gives up: on a lock that a stopped process holds, and on a line, without a word on stderr."""

        def _lock_stream_lock(self, stream_lock: IO[str]) -> None:
            portalocker.lock(stream_lock, portalocker.LOCK_EX | portalocker.LOCK_NB)

        def handleError(self, record: LogRecord) -> None:  # noqa: N802 - logging's name
            """Drop the line."""

    # chmod covers the lock file too. No umask here: it is the whole process's, and other threads make files.
    handler = Bounded(path, maxBytes=_FILE_BYTES_MAX, backupCount=_OLD_FILES, encoding="utf-8", chmod=0o600)
    handler.maxLockAttempts = _LOCK_TRIES_MAX
    return handler
