"""Daemon threads that run jobs, made as needed, up to a bound. What a job does is not their business."""

from __future__ import annotations

import collections.abc  # noqa: F401  # in Python 3.13.0 it fails if two threads import it first at the same time
import threading
from _queue import SimpleQueue  # queue.py, around it, imports more than start-up can afford

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Job = Callable[[], None]


class Workers:
    """Up to ``threads_max`` threads; a job beyond that waits. A job that hangs never keeps the process.

    ``submit`` is for one thread only. A job must not raise: whoever makes it knows where its faults go.
    """

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_left = threads_max
        self._turn = threading.Lock()
        self._waiting: list[Job] = []
        self._idle: list[
            SimpleQueue[Job]
        ] = []  # of each thread that waits the box it waits at; the last one is warmest

    def submit(self, job: Job) -> None:
        """Have ``job`` run in a thread, soon."""
        with self._turn:
            box = self._idle.pop() if self._idle else None
            starts = box is None and self._threads_left > 0
            if starts:
                self._threads_left -= 1
            elif box is None:
                self._waiting.append(job)
        if box is not None:
            box.put(job)
        elif starts:
            threading.Thread(target=self._work, args=(job,), name=self._name, daemon=True).start()

    def _work(self, job: Job) -> None:
        box: SimpleQueue[Job] = SimpleQueue()
        while True:
            job()
            with self._turn:
                if self._waiting:
                    job = self._waiting.pop(0)
                    continue
                self._idle.append(box)
            del job  # or a finished call would stay in memory until the next
            job = box.get()
