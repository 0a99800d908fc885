"""The golden journals: read as every process reads them, they fold to the states beside them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from agentbus import queries, wire
from agentbus.fold import fold
from agentbus.state import State
from journal import Journal
from tests.agentbus.auditing import ask

GOLDEN = Path(__file__).parent.parent / "golden"
INCIDENT = GOLDEN.parent.parent / "docs" / "incident"
STATES = sorted(GOLDEN.glob("*.state-at-*.json"))
DIGESTS = {
    (GOLDEN / "journal-v1", 6): "dc3f0682b401efb2ae4b85598814bf9636b9512476a5ccba4f8404cc6e8cc08f",
    (GOLDEN / "journal-v1", 9): "36e305c5f4f80fb42ef3a6336f3d1a268ac0d920373777d80aad7ad1e2fae179",
    (GOLDEN / "journal-v1-more", 22): "d5c9c18ed953d40fd32728e8aedf74e7427795b4c0cf9040ae1c3066a6f72fec",
    (GOLDEN / "journal-v1-more", 24): "8d0a33fc18f297f8b6a3b06d2cfaf44d7b4cd4b3f1f4b696fb784fd76081389d",
    (INCIDENT, 16): "ba63fbfb924a9701238935786d9b7cfcccc0da7442251617dd7d4c91c52e427a",
    (INCIDENT, 28): "47a4036e9cdebfe310e265b2cae0f95ea7e116805a88b18f769096bfe05b87d5",
}
"""What `replay --digest` gives at a seq, on any machine and any version of Python; never renewed."""


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


@pytest.mark.parametrize(("journal", "at"), DIGESTS, ids=lambda value: getattr(value, "name", str(value)))
def test_a_state_has_the_same_bytes_wherever_it_is_made(journal: Path, at: int) -> None:
    assert ask("--digest", "--at", str(at), journal)[:2] == (0, DIGESTS[journal, at] + "\n")
    status, state, _ = ask("--state", "--at", str(at), journal)
    assert (status, hashlib.sha256(state.removesuffix("\n").encode()).hexdigest()) == (0, DIGESTS[journal, at])


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
