"""What a function returns in a child process. Knows nothing of tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


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
        with os.fdopen(ours, "rb") as pipe:
            data = pipe.read()
        return dict(json.loads(data)) if data else {}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


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
