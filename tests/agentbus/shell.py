"""The command line as a person's shell runs it, on a throw-away data directory; and journals written line by line."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from journal.record import ZERO_HASH, encode

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 60.0
OPENED = {"type": "segment_opened", "format": 1, "journal": "3f2b8c1e-7a54-4d0e-9a51-0c6d2f9be001", "prev": ZERO_HASH}
CHANNELS = (
    {"type": "channel_created", "channel": "general", "kind": "ordinary"},
    {"type": "channel_created", "channel": "memory", "kind": "memory"},
)


def environ(data: Path, **more: str) -> dict[str, str]:
    """Nothing of the user's own settings; ``data`` is the data directory."""
    settings = data.parent / "settings.json"
    settings.write_text("{}")
    return os.environ | {"AGENTBUS_DATA_DIR": str(data), "AGENTBUS_CONFIG": str(settings), "TZ": "UTC"} | more


def run(data: Path, *arguments: str, stdin: bytes = b"", **more: str) -> subprocess.CompletedProcess[bytes]:
    """One command, to its end."""
    command = [sys.executable, "-m", "agentbus", *arguments]
    return subprocess.run(
        command, env=environ(data, **more), input=stdin, capture_output=True, timeout=WAIT_S, check=False
    )


def posted(content: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    """A message of alice, as an event in a line."""
    return {"type": "posted", "as": "alice", "channel": "general", "content": content, "context": "shop", **fields}


class Writer:
    """A segment written as FORMAT.md says, without the journal's own writer: sound or not, as the test wants it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "00000000000000000001.jsonl"
        self.seq = 1
        self.prev = ZERO_HASH
        self.write(OPENED)
        self.write(*CHANNELS)

    def write(self, *events: dict[str, Any], time: str = "2026-09-09T08:00:07.049Z", raw: bytes = b"") -> str:
        """A line that verifies, of these events or of ``raw`` in their place; its hash."""
        line, self.prev = encode(self.seq, time, 4711, raw or msgspec.json.encode(events), self.prev)
        with self.path.open("ab") as file:
            file.write(line)
        self.seq += 1
        return self.prev
