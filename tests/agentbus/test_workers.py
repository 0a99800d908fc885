"""Threads for jobs: no more than needed, no more than allowed, and no job lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from queue import SimpleQueue

from agentbus.workers import Workers

WAIT_S = 20.0


def test_what_two_threads_must_not_import_first_at_the_same_time_is_there_before_any_thread() -> None:
    code = "import sys, agentbus.workers; print(sys.modules['collections.abc'].Callable)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert "Callable" in done.stdout


def test_jobs_one_after_the_other_share_a_thread() -> None:
    workers = Workers("one-after-the-other", 8)
    done: SimpleQueue[int | None] = SimpleQueue()
    for _ in range(20):
        workers.submit(lambda: done.put(threading.current_thread().ident))
        done.get(timeout=WAIT_S)
        while not workers._idle:  # until the thread says that it waits again
            pass
    assert [thread.name for thread in threading.enumerate()].count("one-after-the-other") == 1


def test_jobs_at_the_same_time_have_a_thread_each_up_to_the_bound() -> None:
    workers = Workers("at-the-same-time", 3)
    begun: SimpleQueue[int] = SimpleQueue()
    release = threading.Semaphore(0)

    def job(number: int) -> None:
        begun.put(number)
        assert release.acquire(timeout=WAIT_S)

    for number in range(5):
        workers.submit(lambda number=number: job(number))  # type: ignore[misc]  # mypy cannot infer a lambda's default
    assert {begun.get(timeout=WAIT_S) for _ in range(3)} == {0, 1, 2}
    assert begun.empty()
    release.release(2)
    assert {begun.get(timeout=WAIT_S) for _ in range(2)} == {3, 4}
    release.release(3)
