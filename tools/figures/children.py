"""Starts what child.py measures: one process at a time, or several that work in the same stretch of time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from tools.figures.measuring import NotMeasuredError

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHILD = (sys.executable, "-m", "tools.figures.child")
_LEAD_S = 0.05
"""Between the word to begin and the beginning: all of them must have heard it."""


def run(mode: str, *arguments: object) -> dict[str, Any]:
    """What a child process of this mode says before it ends.

    Raises:
        NotMeasuredError: it failed.
    """
    done = subprocess.run([*_CHILD, mode, *map(str, arguments)], check=False, stdout=subprocess.PIPE)
    if done.returncode:
        raise NotMeasuredError(f'a process for "{mode}" failed; stderr says why')
    said: dict[str, Any] = json.loads(done.stdout)
    return said


class Crew:
    """Processes that all do the same work whenever they are told to."""

    def __init__(self, modes: Sequence[Sequence[object]]) -> None:
        self._processes = [
            subprocess.Popen([*_CHILD, *map(str, mode)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for mode in modes
        ]
        for process in self._processes:
            _hear(process)  # that it is ready

    def work(self, seconds: float) -> tuple[float, float]:
        """Let them all work for a while: how often a second they did, all together, and the longest single wait."""
        begin = time.monotonic() + _LEAD_S
        for process in self._processes:
            assert process.stdin is not None  # noqa: S101  # PIPE
            process.stdin.write(f"{begin} {begin + seconds}\n".encode())
            process.stdin.flush()
        said = [_hear(process) for process in self._processes]
        ended = max(each["ended"] for each in said)
        return sum(each["count"] for each in said) / (ended - begin), max(each["worst_s"] for each in said)

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.kill()
            process.communicate()


def _hear(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None  # noqa: S101  # PIPE
    line = process.stdout.readline()
    if not line:
        raise NotMeasuredError(f"{process.args!r} failed; stderr says why")
    said: dict[str, Any] = json.loads(line)
    return said
