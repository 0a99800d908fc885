"""``agentbus mcp``: the process around one connection over stdin and stdout, its life and above all its death.

The main thread sleeps in one poll over all that can end the process, and does nothing that might block it:
EXIT_S after stdin's end, a signal, its parent's death or stdout's end, it is gone. It knows no method of MCP.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time

from agentbus.door import Door
from agentbus.jsonrpc import LineSplitter
from agentbus.limits import REQUEST_BYTES_MAX
from agentbus.methods import Methods

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn, Protocol, TypeAlias

    from agentbus.service import Service

    class AnyDoor(Protocol):
        """door.py's, or another that is used the same way."""

        def take(self, line: bytes | None, /) -> None:
            """Have one line answered; None stands for one that is too long."""

        def cancel_calls(self) -> None:
            """Nobody waits for any answer any more."""

        def drain(self, deadline: float, /) -> bool:
            """Wait until every request is done with."""

    OpenDoor: TypeAlias = Callable[[Service, Callable[[bytes], None]], AnyDoor]

EXIT_S = 1.8
"""From the first reason to end until the process is gone, whatever hangs: clients kill after 2 s."""

FINISH_S = 0.8
"""How long what was asked before stdin ended may take to be answered: ``printf … | agentbus mcp`` is a client."""

ABANDON_S = 0.3
"""How long cancelled calls have to notice. A call past its commit ends by itself."""

CLOSE_S = 0.5
"""How long ending this process's sessions in the journal may take. With the two above, less than EXIT_S."""

PARENT_CHECK_S = 2.0
"""How often we ask for our parent where the kernel does not tell of its death."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_CHUNK_BYTES = 64 << 10  # as much as a pipe holds


def open_plain(service: Service, write: Callable[[bytes], None]) -> Door:
    """The door that needs nothing but the standard library until it is asked for a tool."""
    return Door(Methods(service), write)


def serve(service: Service, parent: int, open_door: OpenDoor = open_plain) -> NoReturn:
    """Serve one client over stdin and stdout until there is a reason to end; then end the process.

    ``parent`` is whose death ends it: asked for before the imports, which take long enough for it to die.
    """
    watch = Watch(_take_stdout(), parent)
    door = open_door(service, Stdout(watch.stdout, watch.wake).write_line)
    lines = LineSplitter(REQUEST_BYTES_MAX)
    for chunk in watch.chunks():
        for line in lines.feed(chunk):
            door.take(line)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, EXIT_S)  # the kernel's own, which needs neither a thread nor Python's lock
    if watch.stdin_ended:
        door.take(lines.last_line())
        service.end_waits()
        if not door.drain(time.monotonic() + FINISH_S):
            service.complain("stdin ended before all that was asked was done; the rest is given up")
    door.cancel_calls()
    door.drain(time.monotonic() + ABANDON_S)
    service.close(time.monotonic() + CLOSE_S)
    signal.setitimer(signal.ITIMER_REAL, 0)
    os._exit(0)  # at once: what others registered to run at exit might print, or wait for our threads


def _take_stdout() -> int:
    """Keep stdout for us alone: what any library prints from now on goes to stderr."""
    for fd in (_STDIN, _STDERR):
        if not _is_open(fd):
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, and keeps it from our own descriptors
    if not _is_open(_STDOUT):
        sys.exit("agentbus: stdout is closed: there is no client to serve")
    stdout = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    return stdout


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


class Stdout:
    """The way to the client: whole lines, from any thread, in no promised order."""

    def __init__(self, fd: int, on_gone: Callable[[], None]) -> None:
        self._fd = fd
        self._on_gone = on_gone
        self._gone = False
        self._lock = threading.Lock()

    def write_line(self, line: bytes) -> None:
        """Write ``line`` and its LF, or nothing once nobody reads any more. Waits for a slow reader."""
        data = memoryview(line + b"\n")
        with self._lock:
            while data and not self._gone:
                try:
                    data = data[os.write(self._fd, data) :]
                except BlockingIOError:  # somebody who shares the descriptor made it non-blocking
                    select.select([], [self._fd], [])
                except OSError:
                    self._gone = True
                    self._on_gone()


class Watch:
    """One poll over stdin and over all that ends the process: signals, the parent's death, stdout's end.

    Attributes:
        stdout: the descriptor it was given; only looked at.
        stdin_ended: true if chunks() ended because stdin did.
    """

    def __init__(self, stdout: int, parent: int) -> None:
        self.stdout = stdout
        self.stdin_ended = False
        self._parent = parent
        self._parent_fd = _open_pidfd(self._parent)
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # so that the number is written to the descriptor below
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(_STDIN, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        self._poll.register(stdout, 0)  # nothing but errors: its other end was closed
        if self._parent_fd is not None:
            self._poll.register(self._parent_fd, select.POLLIN)

    def wake(self) -> None:
        """End chunks(), from any thread."""
        os.write(self._wake, b"\0")

    def chunks(self) -> Iterator[bytes]:
        """What comes in on stdin, until there is a reason to end. On Linux it sleeps without waking."""
        timeout_ms = PARENT_CHECK_S * 1000 if self._parent_fd is None else None
        # The parent's number changes when it dies: also in the instant before its descriptor was opened.
        while os.getppid() == self._parent:
            ready = {fd for fd, _ in self._poll.poll(timeout_ms)}
            if ready - {_STDIN}:
                return
            if ready:
                chunk = read_chunk(_STDIN)
                if chunk == b"":
                    self.stdin_ended = True
                    return
                if chunk:
                    yield chunk


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, a sandbox, or a parent in another pid namespace
        return None


def read_chunk(fd: int) -> bytes | None:
    """The bytes that wait; none at the end of whatever kind; None if another reader of the same pipe was faster."""
    try:
        return os.read(fd, _CHUNK_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""
