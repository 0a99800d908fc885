"""What an auditor's pass sees of a bus in memory: its commits with their events, and witnesses to their fold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from agentbus import wire
from agentbus.audit import late
from agentbus.audit.life import Life
from agentbus.audit.selection import Selection, Sieve
from agentbus.cli import main
from agentbus.fold import fold
from journal import Commit, Place

if TYPE_CHECKING:
    from pathlib import Path

    from agentbus.audit.threads import Threads
    from agentbus.cli.reading import Witness
    from agentbus.events import AnyEvent
    from agentbus.state import State
    from tests.agentbus.building import World

    Pairs = list[tuple[Commit, list[AnyEvent]]]


def pairs(world: World) -> Pairs:
    """Every commit of a bus with its events."""
    offset, found = 0, []
    for seq, (time, events) in world.lines.items():
        place = Place(1, offset, world.line_bytes[seq])
        found.append((Commit(seq, time, 4711, wire.encode(events), "0" * 64, place), events))
        offset += world.line_bytes[seq]
    return found


def witness(found: Pairs, *witnesses: Witness) -> State:
    """Fold commits with witnesses, from the first one on, wherever that is."""
    first = found[0][0].seq
    state = late.begin(first)
    for commit, events in found:
        if first > 1:
            late.admit(state, events, first)
        for each in witnesses:
            each.before(state, commit, events)
        fold(state, commit, events)
        for each in witnesses:
            each.after(state, commit, events)
    for each in witnesses:
        each.end(state)
    return state


def wanted(world: World, selection: Selection, threads: Threads | None = None) -> list[tuple[int, str]]:
    """(seq, type) of each event that a selection lets through."""
    sieve = Sieve(selection, threads)
    return [
        (commit.seq, str(events[index].__struct_config__.tag))
        for commit, events in pairs(world)
        for index in sieve.wanted(commit, events)
    ]


def life_of(found: Pairs, seq: int, **only: Any) -> dict[str, Any]:  # noqa: ANN401  # fields of a selection
    """The life of a message."""
    life = Life(seq, Selection(**only))
    witness(found, life)
    assert not life.is_done(seq)
    assert life.found is not None
    return life.found


def ask(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, str, str]:
    """Exit status, stdout and stderr of ``agentbus replay``."""
    result = CliRunner().invoke(main, ["replay", *map(str, arguments)], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr
