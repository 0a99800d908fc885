"""Figures beside their yardsticks, round by round, and the table they end in. Measures nothing itself."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MIB = 1 << 20


class NotMeasuredError(Exception):
    """A figure cannot be taken on this machine, or the product does not do yet what it measures; the text says why."""


@dataclass(frozen=True)
class Bar:
    """What the median must keep: to stay at or below ``limit``, or at or above it."""

    limit: float
    at_least: bool = False

    def is_met_by(self, value: float) -> bool:
        """Whether a median keeps it."""
        return value >= self.limit if self.at_least else value <= self.limit

    def render(self) -> str:
        """As in the table of the design."""
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        name: P1 and so on.
        what: what is measured.
        beside: its yardstick. Empty: the bar is on the figure itself, in its own unit.
        unit: of both: "s", "/s", "MiB" or what else is counted.
        bar: on the ratio figure / yardstick; None where the figure only shows what the next one rests on.
    """

    name: str
    what: str
    beside: str
    unit: str
    bar: Bar | None


@dataclass(frozen=True)
class Sample:
    """One round of one figure. Without a yardstick the ratio is the figure itself."""

    figure: float
    yardstick: float = 1.0

    @property
    def ratio(self) -> float:
        """Figure by yardstick."""
        return self.figure / self.yardstick


class Experiment(Protocol):
    """Takes the samples of one or more figures, with all that has to run meanwhile."""

    @property
    def figures(self) -> Sequence[Figure]:
        """What `sample` measures, in the order of its answer."""

    @property
    def rounds(self) -> int:
        """How many are taken unless told."""

    def sample(self) -> Sequence[Sample]:
        """One round: each figure and its yardstick in turn.

        Raises:
            NotMeasuredError
        """

    def close(self) -> None:
        """End what it started."""


@dataclass(frozen=True)
class Measured:
    """A figure's rounds; ``failure`` says why there are none."""

    figure: Figure
    samples: tuple[Sample, ...]
    failure: str = ""

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(sample.ratio for sample in self.samples)

    @property
    def met(self) -> bool:
        """Whether the median ratio keeps the bar."""
        return bool(self.samples) and (self.figure.bar is None or self.figure.bar.is_met_by(self.ratio))

    def record(self) -> dict[str, Any]:
        """All of it, for ``--json``."""
        found: dict[str, Any] = asdict(self.figure) | {"met": self.met}
        found["bar"] = None if self.figure.bar is None else self.figure.bar.render()
        if not self.samples:
            return found | {"failure": self.failure}
        ratios = [sample.ratio for sample in self.samples]
        found |= {"ratio": self.ratio, "ratio_min": min(ratios), "ratio_max": max(ratios)}
        return found | {"rounds": [asdict(sample) for sample in self.samples]}


def measure(experiment: Experiment, rounds: int | None) -> Iterator[Measured]:
    """One round to warm up, then ``rounds`` that count (None: as many as the experiment takes by itself)."""
    try:
        experiment.sample()
        taken = [experiment.sample() for _ in range(rounds or experiment.rounds)]
    except NotMeasuredError as error:
        for figure in experiment.figures:
            yield Measured(figure, (), str(error))
        return
    for index, figure in enumerate(experiment.figures):
        yield Measured(figure, tuple(samples[index] for samples in taken))


def in_turns(times: int, *works: Callable[[], list[float]]) -> list[float]:
    """Medians of what each of ``works`` gives, all of them called in turn ``times`` times: a drift meets them alike."""
    found: list[list[float]] = [[] for _ in works]
    for _ in range(times):
        for values, work in zip(found, works, strict=True):
            values.extend(work())
    return [statistics.median(values) for values in found]


HEAD = f"{'':4} {'figure':42} {'beside':34} {'figure':>9} {'yardstick':>9}  {'ratio, median (min to max)':26} {'bar':7}"


def render(measured: Measured) -> str:
    """One line of the table."""
    figure = measured.figure
    begin = f"{figure.name:4} {figure.what:42} {figure.beside or '-':34}"
    if not measured.samples:
        return f"{begin} NOT MEASURED: {measured.failure}"
    value = _render_value(statistics.median(sample.figure for sample in measured.samples), figure.unit)
    yardstick = statistics.median(sample.yardstick for sample in measured.samples)
    beside = _render_value(yardstick, figure.unit) if figure.beside else "-"
    ratios = [sample.ratio for sample in measured.samples]
    ratio = f"{_render_ratio(measured.ratio)} ({_render_ratio(min(ratios))} to {_render_ratio(max(ratios))})"
    verdict = "" if figure.bar is None else f"{figure.bar.render():7} {'met' if measured.met else 'NOT MET'}"
    return f"{begin} {value:>9} {beside:>9}  {ratio:26} {verdict}".rstrip()


def _render_ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def _render_value(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms" if value >= 0.01 else f"{value * 1e6:.0f} us"
    return f"{value:,.0f}{unit}" if unit == "/s" else f"{value:,.4g} {unit}".rstrip()
