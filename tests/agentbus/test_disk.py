"""What the data directory takes of the disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentbus.disk import Usage, measure

if TYPE_CHECKING:
    from pathlib import Path


def test_each_file_counts_for_what_it_is(tmp_path: Path) -> None:
    sizes = {
        "journal/00000000000000000001.jsonl": 1,
        "journal/writer.lock": 2,
        "journal/archive/00000000000000000001.jsonl.gz": 4,
        "journal/set-aside/piece": 8,
        "snapshots/00000000000000000009": 16,
        "search/index.db": 32,
        "search/deeper/down": 64,
        "agentbus.log.1": 128,
        ".__agentbus.lock": 256,
        "owners/x.lock": 512,
        "journal-of-old": 1024,
    }
    for name, size in sizes.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / "loop").symlink_to(tmp_path)
    found = measure(tmp_path)
    assert found.free is not None
    assert found.size is not None
    assert found.free <= found.size
    assert found == Usage(3, 4, 8, 16, 96, 128, 1792, found.free, found.size)
    assert found.total == 2047


def test_what_is_not_there_takes_nothing(tmp_path: Path) -> None:
    assert measure(tmp_path / "nowhere") == Usage()


def test_only_regular_files_count(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    assert measure(tmp_path).total == 1
