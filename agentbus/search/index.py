"""The search index of one journal: a cache on disk, for all processes, brought up to date by whoever searches.

It says which texts may hold a word and how well; the State and the texts themselves say which do. Whether it belongs to
this journal, as the journal is now, is asked of the journal. Does not search.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from agentbus.limits import SEARCH_BEHIND_MIN, SEARCH_DEAD_MIN, SEARCH_SCANNED_MAX, SEARCH_TURN_S, SEARCH_WAIT_S
from agentbus.search.adding import Covers, Indexing, lost_lines
from agentbus.search.files import Finished, IndexFiles, UnkeptError
from agentbus.search.fulltext import FullText, FullTextError
from journal import JournalError, render_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.bus import Bus
    from agentbus.state import State
    from journal import Journal

_WAIT_S: Final = 0.02
_END_S: Final = 0.2
_BEHIND_PART: Final = 512


class Reading(Struct, frozen=True):
    """A finished file, open for one search."""

    file: Finished
    text: FullText
    covers: Covers


class Need(Struct, frozen=True):
    """How many texts the index does not have; whether they should be added, and whether most that it has are gone."""

    behind: int
    add: bool
    anew: bool


class Ready(Struct, frozen=True):
    """What a search begins with. ``making``: whoever adds to the index, and is not done, is another."""

    reading: Reading | None
    need: Need
    making: bool


class _ClosingError(Exception):
    """The process ends: whoever searches next goes on."""


class SearchIndex:
    """The index, as one process sees it. Threads share it.

    Args:
        files: where it is kept.
        journal: the one whose texts are in it.
        on_trouble: told what keeps it back, once as long as it is the same; perhaps in a thread of its own.

    Attributes:
        trouble: why it could not be brought up to date the last time; empty if it could.
    """

    def __init__(self, files: IndexFiles, journal: Journal, on_trouble: Callable[[str], None] = lambda _: None) -> None:
        self._files = files
        self._journal = journal
        self._on_trouble = on_trouble
        self._agreed: tuple[str, Callable[[], State | None]] = ("", lambda: None)
        self._worker: threading.Thread | None = None
        self._closing = False
        self.trouble = ""

    def open(self, check: Callable[[], None]) -> Reading | None:
        """The file that covers most, of those that are whole; None if there is none.

        Whether the State `agrees` is asked apart.
        """
        for file in self._files.whole():
            try:
                text = FullText(file.path, check=check)
            except FullTextError:
                continue
            try:
                return Reading(file, text, msgspec.json.decode(text.record(), type=Covers))
            except (FullTextError, msgspec.MsgspecError):
                pass
            text.close()
        return None

    def is_intact(self, reading: Reading) -> bool:
        """Whether what was read is what was checked."""
        return self._files.is_intact(reading.file)

    def agrees(self, reading: Reading, state: State) -> bool:
        """Whether it was made of this journal as it is, and of no later State. To be asked within `Bus.ask`."""
        covers = reading.covers
        if covers.state_seq > state.last_seq or covers.lost != lost_lines(state, covers.state_seq):
            return False
        digest = covers.bookmark.position.hash
        if self._agreed[0] == digest and self._agreed[1]() is state:
            return True
        if not self._journal.resume(covers.bookmark):
            return False
        self._agreed = (digest, weakref.ref(state))
        return True

    def ready(self, bus: Bus, check: Callable[[], None]) -> Ready:
        """The index for a search, after a turn of adding to it if it is behind, or a while of waiting for who does.

        What keeps it back is not raised: ``trouble`` says it.
        """
        began = time.monotonic()
        reading, need = self._look(bus, check)
        had_turn = True
        while need.add:
            close(reading)
            had_turn = not self._is_working() and self._extend(bus, began + SEARCH_TURN_S, check)
            reading, need = self._look(bus, check)
            if had_turn or need.behind <= SEARCH_SCANNED_MAX or time.monotonic() > began + SEARCH_WAIT_S:
                break
            time.sleep(_WAIT_S)  # to read all texts would take longer
        if not need.add:
            self.trouble = ""
        return Ready(reading, need, making=need.add and not had_turn)

    def go_on(self, bus: Bus, need: Need) -> None:
        """Do in a thread what no search has the time for."""
        if self._is_working() or self._closing or self.trouble or not (need.add or need.anew):
            return
        worker = threading.Thread(target=self._work, args=(bus,), kwargs={"anew": need.anew}, daemon=True)
        self._worker = worker
        try:
            worker.start()
        except RuntimeError:  # no thread is to be had now
            self._worker = None

    def _look(self, bus: Bus, check: Callable[[], None]) -> tuple[Reading | None, Need]:
        reading = self.open(check)
        try:
            return reading, bus.ask(lambda state: self._need(state, reading))
        except BaseException:
            close(reading)
            raise

    def _need(self, state: State, reading: Reading | None) -> Need:
        channels = [channel.retained for channel in state.channels.values()]
        live = sum(map(len, channels))
        if reading is None or not self.agrees(reading, state):
            return Need(live, add=live > SEARCH_BEHIND_MIN, anew=False)
        covers = reading.covers
        behind = sum(len(retained) - retained.first_after(covers.seq) for retained in channels)
        return Need(
            behind,
            add=behind > max(SEARCH_BEHIND_MIN, covers.texts // _BEHIND_PART),
            anew=covers.texts > 2 * live + SEARCH_DEAD_MIN,
        )

    def _extend(self, bus: Bus, until: float, check: Callable[[], None], *, anew: bool = False) -> bool:
        """Add what there is time for; false, and nothing done, while another process is at it."""
        try:
            with self._files.alone() as alone:
                if not alone:
                    return False
                self._make(bus, until, check, anew=anew)
        except OSError as error:
            self._meet(render_place(error))
        except (FullTextError, UnkeptError) as error:
            self._meet(str(error))
        else:
            self.trouble = ""
        return True

    def _meet(self, cause: str) -> None:
        if cause != self.trouble:
            self.trouble = cause
            self._on_trouble(cause)

    def _make(self, bus: Bus, until: float, check: Callable[[], None], *, anew: bool) -> None:
        base = None if anew else self.open(check)
        try:
            state, fits = bus.ask(lambda state: (weakref.ref(state), base is not None and self.agrees(base, state)))
            path = self._files.begin(base.file if base is not None and fits else None)
        finally:
            close(base)
        try:
            known = base.covers if base is not None and fits else None
            covers = Indexing(bus, self._journal, until, check).fill(path, known, state)
            if covers is not None:
                self._files.publish(path, covers.seq)
        finally:
            self._files.drop(path)

    def _is_working(self) -> bool:
        """Whether the thread is at it; a forked child has none."""
        return self._worker is not None and self._worker.is_alive()

    def _work(self, bus: Bus, *, anew: bool) -> None:
        try:
            self._extend(bus, float("inf"), self._check_open, anew=anew)
        except JournalError as error:
            self._meet(str(error))
        except _ClosingError:
            pass
        finally:
            self._worker = None

    def _check_open(self) -> None:
        if self._closing:
            raise _ClosingError

    def close(self) -> None:
        """End what is done for later searches."""
        self._closing = True
        worker = self._worker
        if worker is not None:
            worker.join(_END_S)


def close(reading: Reading | None) -> None:
    """Let a file go, if there is one."""
    if reading is not None:
        reading.text.close()
