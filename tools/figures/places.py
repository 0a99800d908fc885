"""Where figures are taken: throw-away directories on a real disk, and what a harness gives its server there."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.figures.journals import Shelf

_SETTINGS = '{"send_messages_per_second": 10000, "send_kib_per_second": 65536}'
"""A bench sends without a pause, which the rates are there to prevent."""

_IN_MEMORY = ("tmpfs", "ramfs")


def cache_directory() -> Path:
    """The user's cache folder, for what takes long to make."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentbus-bench"


def filesystem(path: Path) -> str:
    """The type of the filesystem a path lies on, such as ``ext4``; "unknown" where the system does not list it."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    above = {str(path.resolve()), *map(str, path.resolve().parents)}
    # The last of those mounted on one point is the one in force.
    found = [(len(fields[1]), number, fields[2]) for number, fields in enumerate(mounts) if fields[1] in above]
    return max(found, default=(0, 0, "unknown"))[2]


def is_in_memory(path: Path) -> bool:
    """Whether a flush costs nothing there, so that no figure of writing would mean anything."""
    return filesystem(path) in _IN_MEMORY


class Place:
    """A throw-away directory: a home, a repository, and as many data directories as are asked for.

    Attributes:
        repository: the working directory of servers and commands.
        shelf: where ready-made journals come from.
        commits: how long a long journal is here.
        quick: take shorter windows.
    """

    def __init__(self, directory: Path, shelf: Shelf, commits: int, *, quick: bool) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._root = Path(tempfile.mkdtemp(prefix="run-", dir=directory))
        self.shelf = shelf
        self.commits = commits
        self.quick = quick
        self.repository = self._root / "repository"
        (self.repository / ".git").mkdir(parents=True)
        self._home = self._root / "home"
        settings = self._home / ".config" / "agentbus"
        settings.mkdir(parents=True)
        (settings / "config.json").write_text(_SETTINGS)
        self._made = 0

    def new(self, what: str) -> Path:
        """An empty directory of its own."""
        self._made += 1
        path = self._root / f"{what}-{self._made}"
        path.mkdir()
        return path

    def environment(self, data: Path) -> dict[str, str]:
        """What a harness gives its server, and nothing of this machine's own settings.

        PYTHONDONTWRITEBYTECODE would have every start compile agentbus anew: what pip installs is compiled once.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTBUS_", "PYTHON"))}
        return kept | {"HOME": str(self._home), "AGENTBUS_DATA_DIR": str(data)}

    def close(self) -> None:
        """Remove it all."""
        shutil.rmtree(self._root, ignore_errors=True)
