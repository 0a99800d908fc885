"""docs/auditing.md, done as it stands there: its programs are run, and what its commands print is compared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOC = (ROOT / "docs" / "auditing.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", DOC, flags=re.MULTILINE | re.DOTALL)
PROGRAMS = {text.split()[1]: text.partition("\n")[2] for language, text in BLOCKS if language}


def commands() -> list[tuple[str, str]]:
    """Each command of the page with what it prints there."""
    page = "".join(text for language, text in BLOCKS if not language)
    return re.findall(r"^\$ (.*)\n((?:[^$].*\n|\n)*)", page, flags=re.MULTILINE)


def run(command: str, directory: Path) -> str:
    environ = {"HOME": str(directory), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-c", f"{command} 2>&1"], check=False, cwd=directory, env=environ, stdout=subprocess.PIPE, text=True
    )
    return ended.stdout


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """An auditor's directory: the documents, and the page's programs."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for path in (tmp_path / "docs" / "incident").iterdir():
        path.chmod(0o600)
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_command_prints_what_the_page_says(desk: Path) -> None:
    page = [(command, printed) for command, printed in commands() if "node " not in command]
    assert len(page) == 12
    for command, printed in page:
        assert run(command, desk) == printed, command


@pytest.mark.skipif(shutil.which("node") is None, reason="the program is for Node.js")
def test_the_program_in_another_language_verifies_and_finds_the_change(desk: Path) -> None:
    (desk / "copy").mkdir()
    page = [(command, printed) for command, printed in commands() if "node " in command]
    assert len(page) == 2
    for command, printed in page:
        assert run(command, desk) == printed, command


def test_the_programs_are_as_short_as_the_page_says() -> None:
    assert {name: sum(map(bool, text.splitlines())) for name, text in PROGRAMS.items()} == {
        "forge.py": 6,
        "verify.js": 18,
        "posts.py": 10,
    }
