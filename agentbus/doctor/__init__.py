"""Everything the doctor looks at, and how: all at once, each with its bound. Knows of no finding itself."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from agentbus.doctor import chain, checkout, clients, command, people, place, preferences
from agentbus.doctor.findings import of_journal_error, of_late_check, of_system_error, ordered
from agentbus.harness.every import HARNESSES
from journal import JournalError, render_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentbus.doctor.findings import Finding
    from agentbus.doctor.visit import Visit

WAIT_S: Final = 30.0
"""For any check: a program asked for its version may take 10 s, the walk through the journal takes as much."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at: its name for programs, what it is about for people.

    ``settled``: it needs settings, and is left out where there are none to be had; ``folds``: and the State.
    """

    name: str
    about: str
    look: Callable[[Visit], Iterator[Finding]]
    settled: bool = True
    folds: bool = False


CHECKS: Final = (
    Check("command", command.ABOUT, command.on_path, settled=False),
    Check("settings", preferences.ABOUT, preferences.file, settled=False),
    Check("variables", preferences.ABOUT, preferences.variables, settled=False),
    Check("clients", clients.ABOUT, clients.any_connected, settled=False),
    *(Check(name, name, partial(clients.one, name=name), settled=False) for name in HARNESSES),
    Check("directory", place.ABOUT, place.directory),
    Check("filesystem", place.ABOUT, place.filesystem),
    Check("lock", place.ABOUT, place.lock),
    Check("events", place.ABOUT, place.events),
    Check("space", place.ABOUT, place.space),
    Check("log", place.ABOUT, place.log),
    Check("journal", chain.ABOUT, chain.sound),
    Check("set-aside", chain.ABOUT, chain.set_aside),
    Check("snapshot", chain.ABOUT, chain.kept_fold),
    Check("search-index", chain.ABOUT, chain.search_index),
    Check("stopped", people.ABOUT, people.stopped, folds=True),
    Check("writer-lock", people.ABOUT, people.writer_lock),
    Check("dead-letters", people.ABOUT, people.dead_letters, folds=True),
    Check("repository", checkout.ABOUT, checkout.file, settled=False),
    Check("channels", checkout.ABOUT, checkout.channels, folds=True),
    Check("ignored", checkout.ABOUT, checkout.ignored, settled=False),
    Check("project-clients", checkout.ABOUT, checkout.clients, settled=False),
)
"""In the order in which people read of them."""


def examine(visit: Visit, checks: Iterable[Check] = CHECKS, wait_s: float = WAIT_S) -> list[Finding]:
    """Do all checks at once; what they found, the worst first. Ends ``wait_s`` after it began at the latest."""
    deadline = time.monotonic() + wait_s
    looks = [_Look(visit, check) for check in checks if not (check.settled and visit.refused)]
    return ordered(finding for look in looks for finding in look.wait(deadline, wait_s))


class _Look:
    """One check at work, in a thread that is left behind where it hangs."""

    def __init__(self, visit: Visit, check: Check) -> None:
        self._visit = visit
        self._check = check
        self._found: list[Finding] = []
        self._bug: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"doctor-{check.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for finding in self._check.look(self._visit):
                self._take(finding)
        except JournalError as error:
            self._take(of_journal_error(error))
        except OSError as error:
            self._take(of_system_error(self._check.about, render_place(error)))
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
            self._bug = error

    def _take(self, finding: Finding) -> None:
        self._found.append(msgspec.structs.replace(finding, check=self._check.name))

    def wait(self, deadline: float, wait_s: float) -> list[Finding]:
        """What it found by a time.monotonic() deadline; and if it is not done, that."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            late = of_late_check(self._check.about, self._check.name, wait_s, folds=self._check.folds)
            return [*self._found, msgspec.structs.replace(late, check=self._check.name)]
        if self._bug is not None:
            raise self._bug
        return self._found
