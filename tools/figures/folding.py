"""P6 and P7: how fast a long journal is read, to be folded and to be proved sound."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tools.figures import children
from tools.figures.journals import Plan
from tools.figures.measuring import MIB, Bar, Figure, Sample

if TYPE_CHECKING:
    from tools.figures.places import Place

_SHORT = 10
"""How much shorter the journal is beside whose memory that of the long one is held."""


class Folding:
    """P6."""

    rounds = 5

    def __init__(self, place: Place) -> None:
        self._commits = place.commits
        self.figures = (
            Figure(
                "P6",
                f"cold fold, {place.commits:,} commits",
                "orjson+sha256 loop, same files",
                "/s",
                Bar(0.35, at_least=True),
            ),
        )
        self._data = place.new("cold")
        place.shelf.put(Plan(place.commits), self._data)

    def sample(self) -> list[Sample]:
        """A new process each; a snapshot that the fold before left behind would make this another figure."""
        shutil.rmtree(self._data / "snapshots", ignore_errors=True)
        folded = children.run("open", self._data)["seconds"]
        read = children.run("read", self._data / "journal")["seconds"]
        return [Sample(self._commits / folded, self._commits / read)]

    def close(self) -> None:
        """Nothing is left running."""


class Verifying:
    """P7."""

    rounds = 5

    def __init__(self, place: Place) -> None:
        self._commits = place.commits
        short = place.commits // _SHORT
        self.figures = (
            Figure(
                "P7",
                f"replay --verify, {place.commits:,} commits",
                "orjson+sha256 loop, same files",
                "/s",
                Bar(0.4, at_least=True),
            ),
            Figure("P7", "the same: peak memory", f"that of {short:,} commits", "MiB", Bar(1.1)),
        )
        self._long = place.shelf.get(Plan(place.commits))
        self._short = place.shelf.get(Plan(short))

    def sample(self) -> list[Sample]:
        """A new process each."""
        verified = children.run("verify", self._long)
        read = children.run("read", self._long)["seconds"]
        short = children.run("verify", self._short)
        return [
            Sample(self._commits / verified["seconds"], self._commits / read),
            Sample(verified["peak_bytes"] / MIB, short["peak_bytes"] / MIB),
        ]

    def close(self) -> None:
        """Nothing is left running."""
