"""The golden journals: read as every process reads them, they fold to the states beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentbus import queries, wire
from agentbus.fold import fold
from agentbus.state import State
from journal import Journal

GOLDEN = Path(__file__).parent.parent / "golden"
STATES = sorted(GOLDEN.glob("*.state-at-*.json"))


def copied(name: str, tmp_path: Path) -> Path:
    """The journal in a directory that is ours, whoever checked the project out."""
    directory = tmp_path / "data" / "journal"
    directory.mkdir(parents=True, mode=0o700)
    for segment in (GOLDEN / name).glob("*.jsonl"):
        (directory / segment.name).write_bytes(segment.read_bytes())
    return directory


def folded(directory: Path, last_seq: int) -> State:
    journal = Journal(directory, first_events=b"[]", read_only=True)
    state = State()
    for commit in journal.read(0):
        fold(state, commit, wire.decode(commit.events))
        if state.last_seq >= last_seq:
            break
    journal.close()
    return state


def test_there_are_four_states() -> None:
    assert len(STATES) == 4


@pytest.mark.parametrize("expected", STATES, ids=lambda path: path.stem)
def test_a_golden_journal_folds_to_the_state_beside_it(expected: Path, tmp_path: Path) -> None:
    name, _, at = expected.stem.partition(".state-at-")
    state = folded(copied(name, tmp_path), int(at))
    assert state.last_seq == int(at)
    assert queries.encode_canonical(state) == expected.read_bytes().rstrip(b"\n")


def test_the_lost_lines_are_a_gap_for_each_who_had_not_come_so_far(tmp_path: Path) -> None:
    state = folded(copied("journal-v1-more", tmp_path), 18)
    assert (bool(state.lost), state.orphans) == (True, [])
    gaps = {
        (identity, channel): [(gap.from_, gap.to, gap.cause) for gap in subscription.gaps]
        for identity, mine in state.subscriptions.items()
        for channel, subscription in mine.items()
    }
    assert gaps == {
        ("alice", "general"): [(14, 16, "damage")],
        ("alice", "memory"): [(14, 16, "damage")],
        ("bob", "general"): [(14, 16, "damage")],
    }
