"""One client's connection: its lines in, its answers out, and what becomes of cancelled requests.

It knows no descriptors, signals or processes (stdio.py), and not what the answers say (methods.py).
"""

from __future__ import annotations

import threading
import time

from agentbus import jsonrpc
from agentbus.control import Call
from agentbus.limits import CALLS_IN_FLIGHT_MAX, REQUEST_BYTES_MAX
from agentbus.workers import Workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from agentbus.methods import Methods

    Answer: TypeAlias = Callable[[bytes | None], None]  # None: this request gets no answer

BATCH_REVISION = "2025-03-26"
"""The only revision of MCP that has JSON-RPC batches."""

# These may take as long as a lock or a message does; all other requests are answered from memory, at once.
_SLOW_METHODS = ("tools/call", "tools/list")


class Door:
    """Lines come in by ``take``, from one thread, and go out by ``write``, from any.

    ``take`` never waits and never writes, but for an ``initialize`` that comes first: a client that does not
    read its answers must not keep this process from seeing that it is gone.
    """

    def __init__(self, methods: Methods, write: Callable[[bytes], None]) -> None:
        self._methods = methods
        self._write = write
        self._in_flight: dict[jsonrpc.Id | None, list[Call]] = {}
        self._changed = threading.Condition()  # guards _in_flight
        # Two kinds of threads: a ping is answered while every thread for calls waits for something.
        self._quick = Workers("quick", 1)
        self._slow = Workers("call", CALLS_IN_FLIGHT_MAX)

    def take(self, line: bytes | None) -> None:
        """Have one line answered; None stands for one that is too long. A blank line says nothing."""
        if line is None:
            self._refuse(f"a line is at most {REQUEST_BYTES_MAX} bytes")
        elif line.strip():
            message = jsonrpc.parse_line(line)
            if not isinstance(message, list):
                self._take(message, self._answer)
            elif self._methods.revision == BATCH_REVISION:
                self._take_batch(message)
            else:
                self._refuse(f"only revision {BATCH_REVISION} has batches")

    def cancel_calls(self) -> None:
        """Nobody waits for any answer any more."""
        with self._changed:
            calls = [call for calls in self._in_flight.values() for call in calls]
        for call in calls:
            call.cancel()

    def drain(self, deadline: float) -> bool:
        """Wait until every request is done with, at most until ``deadline`` (monotonic); whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._in_flight, max(0.0, deadline - time.monotonic()))

    def _take(self, message: jsonrpc.Message, answer: Answer) -> None:
        if isinstance(message, jsonrpc.Request):
            self._take_request(message, answer)
        elif isinstance(message, jsonrpc.Malformed):
            line = jsonrpc.render_error(message.id, message.code, message.text)
            self._begin(self._quick, None, lambda _: line, answer)
        elif isinstance(message, jsonrpc.Notification) and message.method == "notifications/cancelled":
            self._cancel(message.params.get("requestId"))

    def _take_request(self, request: jsonrpc.Request, answer: Answer) -> None:
        if request.method == "initialize" and not self._in_flight and self._methods.revision is None:
            answer(self._methods.answer(request, Call(), self._write))
        else:
            workers = self._slow if request.method in _SLOW_METHODS else self._quick
            self._begin(workers, request.id, lambda call: self._methods.answer(request, call, self._write), answer)
        if request.method == "initialize":
            self._slow.submit(self._methods.warm)  # after the answer, which must not wait for it

    def _take_batch(self, messages: list[jsonrpc.Message]) -> None:
        answer = _BatchAnswer(messages, self._answer).add
        for message in messages:
            if isinstance(message, jsonrpc.Request) and message.method == "initialize":
                text = "initialize must not be part of a batch"
                self._take(jsonrpc.Malformed(message.id, jsonrpc.INVALID_REQUEST, text), answer)
            else:
                self._take(message, answer)

    def _refuse(self, text: str) -> None:
        self._take(jsonrpc.Malformed(None, jsonrpc.INVALID_REQUEST, text), self._answer)

    def _answer(self, line: bytes | None) -> None:
        if line is not None:
            self._write(line)

    def _begin(
        self, workers: Workers, id_: jsonrpc.Id | None, work: Callable[[Call], bytes | None], answer: Answer
    ) -> None:
        call = Call()
        with self._changed:
            self._in_flight.setdefault(id_, []).append(call)

        def run() -> None:
            answer(None if call.cancelled else work(call))
            self._end(id_, call)

        workers.submit(run)

    def _end(self, id_: jsonrpc.Id | None, call: Call) -> None:
        with self._changed:
            self._in_flight[id_].remove(call)
            if not self._in_flight[id_]:
                del self._in_flight[id_]
            self._changed.notify_all()

    def _cancel(self, id_: object) -> None:
        if not jsonrpc.is_id(id_):
            return
        with self._changed:
            calls = list(self._in_flight.get(id_, ()))
        for call in calls:  # more than one only if the client gave two requests one id: then both were meant
            call.cancel()


class _BatchAnswer:
    """Collects the answers to one batch, and passes them on as one line when the last is there."""

    def __init__(self, messages: list[jsonrpc.Message], answer: Answer) -> None:
        self._left = sum(isinstance(message, jsonrpc.Request | jsonrpc.Malformed) for message in messages)
        self._lines: list[bytes] = []
        self._answer = answer
        self._lock = threading.Lock()

    def add(self, line: bytes | None) -> None:
        with self._lock:
            self._left -= 1
            if line is not None:
                self._lines.append(line)
            if self._left:
                return
        self._answer(b"[%b]" % b",".join(self._lines) if self._lines else None)
