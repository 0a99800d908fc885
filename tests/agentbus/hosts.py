"""Hosts on throw-away data directories, as the tests of the bus drive them: real journals, real locks, no doubles."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from agentbus import queries, tools, wire
from agentbus.config import Settings
from agentbus.control import Control
from agentbus.errors import BusError
from agentbus.fold import fold
from agentbus.host import Host, open_host, open_journal
from agentbus.state import State
from journal import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Result = dict[str, Any]
FAST = {"send_messages_per_second": 10_000, "send_kib_per_second": 65_536}
"""A test sends faster than any agent."""

WAIT_S = 20.0
"""How long a test waits for another thread or process before it fails: never reached where all is well."""


def open_at(data: Path, directory: Path | None = None, **settings: Any) -> Host:  # noqa: ANN401  # any setting
    """A process of its own, as far as the bus can see: its own journal object, State and owner."""
    where = data.parent / "work" if directory is None else directory
    where.mkdir(exist_ok=True)
    return open_host(Settings(data_directory=data, **(FAST | settings)), str(where), "test 1.0")


def call(host: Host, tool: str, control: Control | None = None, **arguments: Any) -> Result:  # noqa: ANN401  # JSON
    """A tool's result; ``as_`` and ``from_`` stand for the arguments that Python keeps for itself."""
    raw = {name.rstrip("_"): value for name, value in arguments.items()}
    return tools.call(tool, raw, host, control or Control(host.bus))


def refusal(host: Host, tool: str, **arguments: Any) -> Result:  # noqa: ANN401  # JSON
    """The envelope with which a call fails."""
    try:
        result = call(host, tool, **arguments)
    except (BusError, JournalError) as error:
        return tools.render_error(error)
    raise AssertionError(result)


def crash(host: Host) -> None:
    """What the kernel does to a process that dies: its locks are gone, and nothing was said."""
    host.bus.owners.release()
    host.bus._journal.close()


def lines(data: Path) -> list[bytes]:
    """Every line of the journal, in order."""
    segments = sorted((data / "journal").glob("*.jsonl"))
    return [line for segment in segments for line in segment.read_bytes().split(b"\n")[:-1]]


def events(data: Path) -> list[Result]:
    """Every event of the journal, with its ``seq``."""
    parsed = [json.loads(line) for line in lines(data)]
    return [{"seq": line["seq"], **event} for line in parsed for event in line["events"]]


def replayed(data: Path) -> bytes:
    """The canonical state that an auditor's fold from seq 1 gives."""
    journal = open_journal(Settings(data_directory=data), read_only=True)
    state = State()
    for commit in journal.read(0):
        fold(state, commit, wire.decode(commit.events))
    journal.close()
    return queries.encode_canonical(state)


def live(host: Host) -> bytes:
    """The canonical state as this host sees it."""
    return host.bus.ask(queries.encode_canonical)


class Background:
    """A call in a thread of its own, with its control, and what became of it."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self.result: Result | None = None
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001  # handed to the thread that asks
            self.error = error

    def outcome(self) -> Result:
        """Wait for the end: the result, or the call's own error raised here."""
        self.finish()
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    def finish(self) -> None:
        """Wait for the end, whatever it is."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the call never ended"
