"""A user to be examined by the doctor: a home, a data directory, a repository, clients, all thrown away after it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from agentbus.cli import main
from agentbus.doctor.visit import Visit
from tests.agentbus.hosts import WAIT_S, call, open_at

if TYPE_CHECKING:
    import pytest

    from agentbus.doctor.findings import Finding

_CLEARED = (
    "AGENTBUS_CONFIG",
    "AGENTBUS_DATA_DIR",
    "XDG_CONFIG_HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
)
CLIENTS = {
    "claude": ".claude",
    "codex": ".codex",
    "gemini": ".gemini",
    "opencode": ".config/opencode",
    "cursor": ".cursor",
    "vscode": ".config/Code/User",
}


def tree(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a path: its mode and its content."""
    found = {}
    for each in sorted([path, *path.rglob("*")]):
        facts = each.lstat()
        found[str(each)] = (facts.st_mode, each.read_bytes() if stat.S_ISREG(facts.st_mode) else b"")
    return found


class Patient:
    """Whoever runs the doctor here. The PATH holds nothing but ``bin``, where git and this agentbus are.

    Attributes:
        root: all the rest is below it.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.home, self.bin, self.repository = root / "home", root / "bin", root / "shop"
        for each in (self.home, self.bin, self.repository):
            each.mkdir()
        self.data = self.home / ".local" / "share" / "agentbus"
        git = shutil.which("git")
        if git is not None:
            (self.bin / "git").symlink_to(git)
        (self.bin / "agentbus").symlink_to(Path(sys.executable).parent / "agentbus")
        for name in [*_CLEARED, *(name for name in os.environ if name.startswith("AGENTBUS"))]:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.chdir(self.repository)

    def born(self) -> None:
        """A journal with a message, and nobody there any more."""
        self.data.parent.mkdir(parents=True, exist_ok=True)
        host = open_at(self.data, self.repository)
        call(host, "register", name="sam")
        call(host, "post", as_="sam", channel="general", content="hello")
        host.close(time.monotonic() + WAIT_S)

    def has(self, *clients: str) -> None:
        """These clients were used once; none has a command."""
        for name in clients:
            (self.home / CLIENTS[name]).mkdir(parents=True, exist_ok=True)

    def set_up(self, *clients: str) -> None:
        """These are there, and connected."""
        self.has(*clients)
        assert self.run("init", "--global")[0] == 0

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """A command, to its end: exit status, stdout, stderr; anything but an exit is raised here."""
        result = CliRunner().invoke(main, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.stdout, result.stderr

    def examined(self, *arguments: str) -> dict[str, Any]:
        """What the doctor says, as JSON; it has changed nothing, and exits 1 for a fault only."""
        before = tree(self.root)
        status, out, err = self.run("doctor", "--json", *arguments)
        assert tree(self.root) == before
        assert err == ""
        found: dict[str, Any] = json.loads(out)
        assert status == (1 if found["faults"] else 0)
        return found

    def found(self, check: str, *arguments: str) -> list[dict[str, Any]]:
        """What one of its checks found."""
        return [each for each in self.examined(*arguments)["findings"] if each["check"] == check]

    def bad(self, check: str, *arguments: str) -> list[tuple[str, str]]:
        """(level, what) of what one of its checks found, without what is ok."""
        found = [each for each in self.found(check, *arguments) if each["level"] != "ok"]
        assert [each for each in found if not each.get("why")] == []
        assert [each for each in found if each["level"] == "fault" and not each.get("do")] == []
        return [(each["level"], each["what"]) for each in found]

    def visit(self) -> Visit:
        """What the checks are given."""
        return Visit(None, os.environ, str(Path.cwd()))

    @property
    def segment(self) -> Path:
        """The journal's first."""
        return self.data / "journal" / "00000000000000000001.jsonl"


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    """(level, what) of each."""
    return [(each.level, each.what) for each in findings]
