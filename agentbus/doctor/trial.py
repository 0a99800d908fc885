"""A second process that holds a lock and writes to a file, so that locks and file events are tried and not believed.

All in a private directory that the second process makes and takes away again: it does so when told to, and when this
process dies, however it dies.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

_CHILD: Final = r"""
import fcntl, os, shutil, signal, sys, tempfile
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
try:
    directory = tempfile.mkdtemp(prefix=".doctor-", dir=sys.argv[1])
    try:
        fd = os.open(directory + "/00000000000000000001.jsonl", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(1, b"in " + os.fsencode(directory) + b"\n")
        while sys.stdin.readline():
            os.write(fd, b"x")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
except OSError as error:
    os.write(1, error.strerror.encode())
"""


class Trial:
    """The second process at work.

    Attributes:
        directory: which it made. file: in there, whose lock it holds.
    """

    def __init__(self, process: subprocess.Popen[bytes], talk: tuple[IO[bytes], IO[bytes]]) -> None:
        self._process = process
        self._to, self._from = talk
        said = os.fsdecode(self._from.readline().rstrip(b"\n"))
        if not said.startswith("in "):
            raise OSError(None, said or "the second process ended without a word")
        self.directory = said.removeprefix("in ")
        self.file = f"{self.directory}/00000000000000000001.jsonl"

    def write(self) -> None:
        """Have it write to the file."""
        self._to.write(b"\n")
        self._to.flush()

    def end(self) -> None:
        """End it; the directory is gone after that."""
        self._to.close()
        self._process.wait()


@contextmanager
def trial(place: str) -> Iterator[Trial]:
    """Such a process in a directory made in ``place``, until the block ends.

    Raises:
        OSError: nothing can be made or locked there; strerror says why.
    """
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CHILD, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None  # noqa: S101  # both are pipes
        assert process.stdout is not None  # noqa: S101  # both are pipes
        yield Trial(process, (process.stdin, process.stdout))
