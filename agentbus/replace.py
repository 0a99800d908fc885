"""Replace one small file whole, among other processes that do the same; knows nothing of what is in it.

The lock is the kernel's, on the file's directory itself: no litter in a repository, and nothing that could go
stale. Readers need no lock: they find the old file or the new one. POSIX only, as a lock on a directory is.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# An edit takes milliseconds; 20 at once, each with three flushes on a slow disk, are still below it.
LOCK_WAIT_S = 5.0
_POLL_S = 0.005


@contextlib.contextmanager
def exclusive(path: str) -> Iterator[Callable[[bytes], None]]:
    """Be the only editor of ``path``; gives the function that replaces it.

    The directory of ``path`` is made if it is missing, and unmade if nothing was then written into it. A
    symbolic link is written through: its target is replaced. Mode and owner are kept; a new file's mode is
    the umask's.

    Raises:
        TimeoutError: another process held the lock for LOCK_WAIT_S; nothing was written.
        OSError: nothing was written, unless its text says so. Also raised by the function given.
    """
    target = _resolve(path)
    directory = os.path.dirname(target)
    made = _make(directory)
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _lock(descriptor, directory)
            yield lambda data: _replace(target, descriptor, data)
        finally:
            os.close(descriptor)
    finally:
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(directory)


def _resolve(path: str) -> str:
    if os.path.lexists(path):
        return os.path.realpath(path, strict=True)
    directory, name = os.path.split(path)
    if os.path.lexists(directory):
        return os.path.join(os.path.realpath(directory, strict=True), name)
    return path


def _make(directory: str) -> bool:
    try:
        os.mkdir(directory)
    except FileExistsError:
        return False
    return True


def _lock(descriptor: int, directory: str) -> None:
    """Lock ``directory``, which ``descriptor`` was opened on."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while not _try_lock(descriptor):
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, "another process is editing it; try again")
        time.sleep(_POLL_S)
    if not os.path.samestat(os.fstat(descriptor), os.stat(directory)):
        raise OSError(errno.EAGAIN, "its directory was replaced meanwhile; try again")


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replace(target: str, directory: int, data: bytes) -> None:
    # One fixed name: whoever left such a file behind is dead, for we hold the lock.
    temporary = f"{target}.agentbus-new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    try:
        _write_like(target, temporary, data)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    try:
        os.fsync(directory)
    except OSError as error:
        raise OSError(error.errno, f"written, but it may not survive a power cut: {error.strerror}") from error


def _write_like(target: str, temporary: str, data: bytes) -> None:
    try:
        before = os.stat(target)
    except FileNotFoundError:
        before = None
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if before else 0o666)
    with open(descriptor, "wb") as file:
        if before:
            with contextlib.suppress(PermissionError):  # only root may give files away
                os.fchown(descriptor, before.st_uid, before.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
        file.write(data)
        file.flush()
        os.fsync(descriptor)
