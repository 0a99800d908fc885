"""What every mode of tools/crash.py hands back: what was tried, what went wrong. Tries nothing itself.

One module a mode, each with ``run(rounds, seed) -> Summary``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of one mode.

    Attributes:
        mode: its name on the command line.
        tried: count by what was counted, in the order it is printed; the counts of what went wrong among them.
        wrong: one line for each loss or fault, with how to reproduce it; empty if all went as promised.
    """

    mode: str
    tried: dict[str, int]
    wrong: list[str]


def render(summary: Summary) -> str:
    """A line for each thing that went wrong, then ``mode: <count> <what>, ...``; no line end."""
    counts = ", ".join(f"{count} {what}" for what, count in summary.tried.items())
    return "\n".join([*summary.wrong, f"{summary.mode}: {counts}"])


def again_with(mode: str, rounds: int, seed: int) -> str:
    """How to try again what went wrong: the end of a line of `Summary.wrong`."""
    return f"try again: tools/crash.py {mode} --rounds {rounds} --seed {seed}"
