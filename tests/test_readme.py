"""The README's worked examples, done as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks() -> list[str]:
    return re.findall(r"^```\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def transcript(containing: str) -> list[tuple[str, str]]:
    """Each command of the block that holds a text, with what it prints there."""
    (block,) = [block for block in blocks() if containing in block]
    return re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, flags=re.MULTILINE)


def run(command: str, directory: Path, home: Path) -> str:
    environ = {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-c", command], check=False, cwd=directory, env=environ, capture_output=True, text=True
    )
    assert ended.stderr == ""
    return ended.stdout


def test_the_tampering_is_found_as_the_readme_shows(tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    commands = transcript("replay --verify copy")
    assert len(commands) == 4
    for command, printed in commands:
        assert run(command, tmp_path, tmp_path) == printed
        for path in (tmp_path / "copy").rglob("*"):
            path.chmod(0o600)  # the golden journal may be read-only where it was checked out


def test_the_life_of_a_message_is_told_as_the_readme_shows(tmp_path: Path) -> None:
    ((command, printed),) = transcript("--message 5")
    assert run(command, ROOT, tmp_path) == printed


def test_the_damage_of_the_example_is_taken_out_as_the_readme_shows(tmp_path: Path) -> None:
    data = tmp_path / ".local" / "share" / "agentbus"
    data.mkdir(parents=True)
    shutil.copytree(ROOT / "tests" / "golden" / "journal-v1", data / "journal")
    (segment,) = (data / "journal").iterdir()
    segment.chmod(0o600)
    segment.write_bytes(segment.read_bytes().replace(b"starting", b"finished"))
    ((command, printed),) = transcript("agentbus repair --yes")
    assert mask(run(command, tmp_path, tmp_path).replace(str(tmp_path), "~")) == mask(printed)


def mask(text: str) -> str:
    """Without what is another at each repair: the time and the process in the name of what was set aside."""
    return re.sub(r"-\d{19}-\d+\.damaged", "-TIME-PID.damaged", text)


def test_the_persistent_list_is_edited_as_the_readme_shows(tmp_path: Path) -> None:
    repository = tmp_path / "shop"
    (repository / ".git").mkdir(parents=True)
    for command, printed in transcript("agentbus subscribe reviews"):
        assert run(command, repository, tmp_path) == printed
