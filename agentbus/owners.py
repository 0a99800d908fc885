"""Which server processes are alive: a kernel lock that each one holds, not a heartbeat, a pid or a time-out.

An owner is a random token made at process start. Its file ``<data>/owners/<owner>.lock`` is locked as long as the
process lives; the kernel lets go when it dies, however it dies. Who asks opens the file and tries a shared lock.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

from agentbus import processes
from journal import Files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

_OWNER = re.compile(r"[0-9a-f]{24}")
_SUFFIX = ".lock"
_THREADS_MAX = 32
"""A client has few sessions on one server; should it have more, the latest count."""
_SYSTEM_FILES: Final = Files()


class Owners:
    """This process as an owner, and its view of the others.

    Attributes:
        token: this process's owner token; 24 hex characters.
    """

    def __init__(self, directory: Path, files: Files = _SYSTEM_FILES) -> None:
        """``directory`` is ``<data>/owners``; the first ``hold`` makes it, in a data directory that is there."""
        self.token = os.urandom(12).hex()
        self._directory = os.fspath(directory)
        self._files = files
        self._fd = -1
        self._threads: tuple[str, ...] = ()
        self._mutex = threading.Lock()
        # A forked child shares the lock with us and must not keep it when we die. Weakly: a hook is never taken back.
        forget = weakref.WeakMethod(self._after_fork)
        os.register_at_fork(after_in_child=lambda: (method := forget()) and method())

    def _after_fork(self) -> None:
        """In the child: it is an owner of its own. Closing its copy leaves the parent's lock; the mutex may be held."""
        self.token = os.urandom(12).hex()
        fd, self._fd = self._fd, -1
        self._mutex = threading.Lock()
        if fd >= 0:
            os.close(fd)

    def hold(self) -> None:
        """Make sure this process's own file is at its path and locked: others judge us by it. Any thread may call it.

        Raises:
            OSError: it cannot be made.
        """
        with self._mutex:
            if self._fd < 0 or not self._at_path():
                self._let_go()
                self._fd = self._make()

    def serve(self, thread: str) -> None:
        """Note that a client's session of that id uses this process: its hooks know themselves by the same id."""
        with self._mutex:
            if thread in self._threads:
                return
            self._threads = (*self._threads, thread)[-_THREADS_MAX:]
            if self._fd >= 0:
                with contextlib.suppress(OSError):  # its hooks then go by process and directory
                    self._write(self._fd)

    def _make(self) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._directory)
        if os.path.islink(self._directory):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self._directory)
        os.chmod(self._directory, 0o700)
        # Locked under another name first: nobody may ever find it at its path without its lock.
        temporary = f"{self._directory}/{self.token}.new"
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
            self._write(fd)
            self._files.try_lock(fd)  # nobody else knows the file
            os.rename(temporary, self._path(self.token))
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        return fd

    def _write(self, fd: int) -> None:
        data = json.dumps({**_facts_of_process(), "threads": self._threads}).encode()
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))

    def _at_path(self) -> bool:
        try:
            there = os.stat(self._path(self.token))
        except FileNotFoundError:
            return False
        own = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)

    def lives(self, owner: str) -> bool:
        """Whether the process behind an owner token lives. An owner without a file is gone; when in doubt it lives."""
        if owner == self.token:
            return True
        if not _OWNER.fullmatch(owner):
            return False
        try:
            fd = self._files.open(self._path(owner), os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        try:
            return not self._files.try_share(fd)
        except OSError:
            return True
        finally:
            os.close(fd)

    def gone(self, owners: Iterable[str]) -> frozenset[str]:
        """Those of the owners whose process lives no more."""
        return frozenset(owner for owner in set(owners) if not self.lives(owner))

    def living(self) -> list[dict[str, object]]:
        """What each live owner's file says of it: owner, pid, started, directory, threads, harness {pid, started}."""
        found: list[dict[str, object]] = []
        for owner in self._listed():
            if self.lives(owner):
                facts: Any = None
                with contextlib.suppress(OSError, ValueError):  # it lives whatever can be read of it
                    facts = json.loads(self._read(owner))
                found.append({"owner": owner, **(facts if isinstance(facts, dict) else {})})
        return found

    def sweep(self, keep: Collection[str]) -> None:
        """Unlink the files of owners that are gone and not in ``keep``. Only under the writer lock."""
        for owner in self._listed():
            if owner not in keep and not self.lives(owner):
                with contextlib.suppress(OSError):  # the next sweep tries again
                    os.unlink(self._path(owner))

    def _listed(self) -> list[str]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))

    def release(self) -> None:
        """Let go: from here on this process counts as gone. Its file is left for the next sweep."""
        with self._mutex:
            self._let_go()

    def _let_go(self) -> None:
        if self._fd >= 0:
            # Closing is not enough: a child forked this instant still has a copy, and the lock with it.
            self._files.unlock(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self, owner: str) -> bytes:
        fd = self._files.open(self._path(owner), os.O_RDONLY)
        try:
            return b"".join(self._files.read_all(fd, 0))
        finally:
            self._files.close(fd)

    def _path(self, owner: str) -> str:
        return f"{self._directory}/{owner}{_SUFFIX}"


def _facts_of_process() -> dict[str, object]:
    own, harness = processes.system_look()(os.getpid()), processes.harness()
    return {
        "pid": os.getpid(),
        "started": own.started if own else None,
        "harness": harness.named() if harness else None,
        "directory": _directory(),
    }


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return None
