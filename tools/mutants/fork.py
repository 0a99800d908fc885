"""What a function returns in a child process. Knows nothing of tests."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_MS = 200  # how often to look whether a silent child is still there


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``work`` returns in a fork, which leads a group of its own; {} if it dies.

    Whatever the child has started and left is killed with its group.
    """
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(work, theirs)
    os.close(theirs)
    try:
        with os.fdopen(ours, "rb", buffering=0) as pipe:
            data = _told(pipe.fileno(), child)
        return dict(json.loads(data)) if data else {}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def _told(pipe: int, child: int) -> bytes:
    """All that is written until the child ends: what it started may live on, and keeps the pipe open."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    pieces: list[bytes] = []
    ended = False
    while True:
        if poll.poll(0 if ended else LOOK_MS):
            piece = os.read(pipe, 1 << 20)
            if not piece:
                break
            pieces.append(piece)
        elif ended:
            break
        else:
            ended = os.waitpid(child, os.WNOHANG)[0] == child
    return b"".join(pieces)


def _be_child(work: Callable[[], dict[str, Any]], answers: int) -> None:
    status = 1
    try:
        os.setsid()
        answer = json.dumps(work()).encode()
        with os.fdopen(answers, "wb") as pipe:
            pipe.write(answer)
        status = 0
    except BaseException:  # noqa: BLE001  # the outermost shell of a process of its own
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)
