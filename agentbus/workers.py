"""Daemon threads that run jobs, made as needed, up to a bound. What a job does is not their business."""

from __future__ import annotations

import threading
from _queue import Empty, SimpleQueue  # queue.py, around these two, imports more than start-up can afford

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Workers:
    """Up to ``threads_max`` threads; a job beyond that waits. A job that hangs never keeps the process.

    ``submit`` is for one thread only. A job must not raise: whoever makes it knows where its faults go.
    """

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_left = threads_max
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        # A permit for each thread that waits and has no job promised to it.
        self._idle = threading.Semaphore(0)

    def submit(self, job: Callable[[], None]) -> None:
        """Have ``job`` run in a thread, soon."""
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and self._threads_left:
            self._threads_left -= 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                self._idle.release()
                job = self._jobs.get()
            job()
            del job  # or a finished call would stay in memory until the next
