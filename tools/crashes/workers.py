"""Processes of their own that a mode starts, listens to, stops and kills. Knows nothing of what they do.

They are forked from one warm process that has imported the bus and holds nothing open, so that a life of a few
milliseconds is worth its start; each is a real process to the kernel, with its own pid and locks.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WAIT_S = 30.0
"""How long anything is waited for: never reached where all is well, whatever else the machine does."""

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["__main__", "agentbus.calls", "tools.crashes.session", "tools.crashes.kill"])


class HungError(Exception):
    """A process neither spoke nor died in time."""


class Ears:
    """The worker's side: what it is told, and what it says. One write a message: a kill leaves none in half."""

    def __init__(self, words: connection.Connection, said: connection.Connection) -> None:
        self._words = words
        self._said = said

    def say(self, message: object) -> None:
        """Tell whoever started this process."""
        self._said.send(message)

    def word(self, wait_s: float | None = 0.0) -> str | None:
        """What this process is told; None if nothing within the time, which may be for ever."""
        return str(self._words.recv()) if self._words.poll(wait_s) else None


class Worker:
    """One process.

    Attributes:
        heard: everything it has said so far, in order.
        ended: it will say nothing more.
        exit_code: once it is buried; minus the signal that ended it.
    """

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        """Start it: ``target(ears, *arguments)``, which must be a module's own function."""
        their_words, self._words = _CONTEXT.Pipe(duplex=False)
        self._said, their_said = _CONTEXT.Pipe(duplex=False)
        self.heard: list[Any] = []
        self.ended = False
        self.exit_code = 0
        self._buried = False
        self._process = _CONTEXT.Process(target=_live, args=(their_words, their_said, target, *arguments), daemon=True)
        self._process.start()
        their_words.close()
        their_said.close()

    def tell(self, word: str) -> None:
        """Send it a word; one that is gone does not hear it."""
        try:
            self._words.send(word)
        except BrokenPipeError:
            return

    def kill(self) -> None:
        """SIGKILL, and no waiting."""
        if not self._buried:
            self._process.kill()

    def listen(self, wait_s: float = 0.0) -> bool:
        """Take in what it has said by now, or its first message within the time; whether there was any."""
        before = len(self.heard)
        while not self.ended and self._said.poll(0.0 if len(self.heard) > before else wait_s):
            try:
                self.heard.append(self._said.recv())
            except EOFError:
                self.ended = True
        return len(self.heard) > before

    def await_word(self, holds: Callable[[Any], bool]) -> Any:  # noqa: ANN401  # whatever it says
        """The next message for which ``holds``; None if it ends without one.

        Raises:
            HungError: nothing came in time.
        """
        seen = len(self.heard)
        deadline = time.monotonic() + WAIT_S
        while True:
            for message in self.heard[seen:]:
                if holds(message):
                    return message
            seen = len(self.heard)
            if self.ended:
                return None
            if not self.listen(max(0.0, deadline - time.monotonic())) and not self.ended:
                raise HungError

    def bury(self) -> None:
        """Wait for its end, hear its last words, and let go of it; once.

        Raises:
            HungError: it lives on.
        """
        if self._buried:
            return
        self._process.join(WAIT_S)
        if self._process.exitcode is None:
            raise HungError
        self.exit_code = self._process.exitcode
        while not self.ended:
            self.listen(WAIT_S)
        self._buried = True
        self._words.close()
        self._said.close()
        self._process.close()


def listen_to_all(workers: Iterable[Worker], wait_s: float = 0.0) -> None:
    """Take in what any of them says, within the time if there is nothing yet."""
    speaking = {worker._said: worker for worker in workers if not worker.ended}  # noqa: SLF001  # of this module
    for said in connection.wait(list(speaking), wait_s):
        speaking[said].listen()  # type: ignore[index]  # it waits on what it was given


def _live(
    words: connection.Connection, said: connection.Connection, target: Callable[..., None], *arguments: object
) -> None:
    target(Ears(words, said), *arguments)
