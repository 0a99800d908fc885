"""Where a server thinks it is: the directory whose repository speaks for its session. Makes nothing.

Most clients start their servers in the project they work on, some of them elsewhere, as in the user's home. Imports
only what starts fast.
"""

from __future__ import annotations

import os

from agentbus import repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT = "CLAUDE_PROJECT_DIR"
"""What Claude Code names its project by."""


def settle(directory: str | None, environ: Mapping[str, str]) -> None:
    """Change to the directory this server is to work in, from where everything else asks for the working directory.

    Args:
        directory: what ``--directory`` says. Without it the working directory stays; where that lies in no repository,
            the client's project takes its place if it does.
        environ: may name that project.

    Raises:
        OSError: one cannot change to ``directory``.
    """
    if directory is not None:
        os.chdir(directory)
        return
    project = environ.get(PROJECT, "")
    if os.path.isabs(project) and not _is_in_repository(_here()) and _is_in_repository(project):
        os.chdir(project)


def is_everybodys(directory: str) -> bool:
    """Whether a directory is the user's home or the root of the file system: no project, whatever lies in it."""
    return os.path.realpath(directory) in ("/", os.path.realpath(os.path.expanduser("~")))


def _here() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return None


def _is_in_repository(directory: str | None) -> bool:
    if directory is None or not os.path.isdir(directory):
        return False
    root = repository.find(directory).root
    return root is not None and not is_everybodys(root)
