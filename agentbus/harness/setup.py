"""What a harness is to agentbus, and how its server is to be started from it. Looks at the system, changes nothing."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentbus.harness.entries import PASSED_ON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentbus.harness.entries import Entry


FILE_BYTES_MAX = 64 << 20
"""For a client's settings: Claude Code's grow with every session."""
_CACHES = ("/uv/archive-v", "/uv/environments-v", "/.cache/uv/", "/pipx/.cache/", "/.cache/pipx/")
_VARIABLE = re.compile(r"\$\w|\$\{|\{(?:env|file):")


@dataclass(frozen=True, slots=True)
class Setup:
    """How a client is to start agentbus.

    Attributes:
        home: the user's home directory.
        environ: the environment in which the set-up runs.
        command: absolute path of the ``agentbus`` command.
    """

    home: str
    environ: Mapping[str, str]
    command: str

    @property
    def doubts(self) -> list[str]:
        """Why clients may not find the command, or not the bus, as they are told of it; each a sentence."""
        told = []
        if any(mark in self.command for mark in _CACHES):  # where uvx and pipx run keep what they may throw away
            how = "install agentbus (`uv tool install`, `pipx install`), and run this again with that"
            told.append(f"{self.command} lies in a cache that may be emptied: {how}")
        doubtful = filter(_VARIABLE.search, [self.command, *self.moved.values()])
        why = "some clients take a part of it for a variable, and look elsewhere; use another path"
        return told + [f"{path}: {why}" for path in doubtful]

    @property
    def moved(self) -> dict[str, str]:
        """What of the environment says where the bus is: not every client passes it on, so each entry says it."""
        return {key: self._absolute(self.environ[key]) for key in PASSED_ON if self.environ.get(key)}

    @property
    def arguments(self) -> list[str]:
        """Of the server."""
        return ["mcp"]

    def hook(self, event: str, harness: str) -> str:
        """The command of a hook, as a shell reads it."""
        moved = [f"{key}={value}" for key, value in self.moved.items()]
        words = [*(["env", *moved] if moved else []), self.command, "hook", event, "--for", harness]
        return shlex.join(words)

    def place(self, *parts: str) -> str:
        """A path below the home directory."""
        return os.path.join(self.home, *parts)

    def named(self, variable: str) -> str | None:
        """The directory that an environment variable names; None where it is not set, or empty."""
        value = self.environ.get(variable)
        return self._absolute(value) if value else None

    def _absolute(self, path: str) -> str:
        """As the settings read a path: "~/" is the home directory, which no shell has put in its place in A=~/b."""
        return os.path.abspath(os.path.join(self.home, path[2:]) if path.startswith("~/") else path)


@dataclass(frozen=True, slots=True)
class Made:
    """A file that is wholly ours. ``sign``: what stands in every version of it, and in nobody else's."""

    file: str
    what: str
    text: str
    sign: str


@dataclass(frozen=True, slots=True)
class ByCommand:
    """A server entry that the client's own command writes, since its file is the client's live state.

    Attributes:
        add: arguments of the command that writes it, but for the last: the server as JSON.
        remove: of the one that takes it out, also before `add`, which replaces nothing.
        path, server: where in the client's JSON it comes to stand, and what it is.
        entry: the same in the client's file, to edit where there is no such command.
    """

    add: list[str]
    remove: list[str]
    path: tuple[str, ...]
    server: dict[str, Any]
    entry: Entry


@dataclass(frozen=True, slots=True)
class Harness:
    """A coding agent's client.

    Attributes:
        name: in ``--harness`` and ``hook --for``.
        title: for people.
        program: its command; "" if it has none to ask.
        directories: one of them is there if the client was ever used.
        entries: what stands in files of it; made: files of ours; by_command: a server entry its command writes.
        todo: what its user still has to do, each a sentence; notes: what it cannot do.
    """

    name: str
    title: str
    program: str
    directories: tuple[str, ...]
    entries: tuple[Entry, ...] = ()
    made: tuple[Made, ...] = ()
    by_command: ByCommand | None = None
    todo: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def is_found(self, environ: Mapping[str, str]) -> bool:
        """Whether it is on this machine."""
        return self.path(environ) is not None or any(map(os.path.isdir, self.directories))

    def path(self, environ: Mapping[str, str]) -> str | None:
        """Where its command is; None if it is nowhere on the PATH."""
        return shutil.which(self.program, path=environ.get("PATH")) if self.program else None


def here(environ: Mapping[str, str]) -> Setup:
    """The set-up for this user and this command.

    Raises:
        FileNotFoundError: no ``agentbus`` is to be found that a client could start.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    beside = [sys.argv[0], os.path.join(os.path.dirname(sys.executable), "agentbus")]
    named = [path for path in beside if os.path.basename(path) == "agentbus" and os.access(path, os.X_OK)]
    command = named[0] if named else shutil.which("agentbus", path=environ.get("PATH"))
    if command is None:
        raise FileNotFoundError(errno.ENOENT, "found no command called agentbus: install it first")
    setup = Setup(home, environ, os.path.abspath(command))
    for path in (setup.command, *setup.moved.values()):
        try:
            path.encode()
        except UnicodeEncodeError:
            raise FileNotFoundError(
                errno.ENOENT, f"no client can be told of {path!r}, which is not UTF-8: use another path"
            ) from None
    return setup


def server(setup: Setup, **more: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    """The entry most clients have for a stdio server."""
    return {**more, "command": setup.command, "args": setup.arguments, **({"env": setup.moved} if setup.moved else {})}
