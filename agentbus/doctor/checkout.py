"""The repository file that holds in the working directory, and what it asks for. Changes nothing."""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import subprocess
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agentbus import repoconfig, repository
from agentbus.doctor.findings import fault, note, ok
from agentbus.doctor.runs import find_runs, parse_file
from agentbus.doctor.started import Owner, judge_run
from agentbus.harness.every import HARNESSES
from agentbus.harness.setup import FILE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.doctor.findings import Finding
    from agentbus.doctor.visit import Visit
    from agentbus.repository import Where

ABOUT: Final = "repository"
_GIT_WAIT_S: Final = 10
_NOT_IGNORED, _IGNORED = 1, 0
_CLIENT_FILES: Final = (
    ".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".gemini/settings.json", ".claude/settings.json",
    ".codex/config.toml", "opencode.json",
)  # fmt: skip
_CLIENT_FILE_BYTES_MAX: Final = 1 << 20


def file(visit: Visit) -> Iterator[Finding]:
    """Which file holds, what it says, and what of it cannot be used."""
    if visit.directory is None:
        why = "Sessions that begin there have no repository, and the identity agent."
        yield note(ABOUT, "the working directory is gone", why, "Change to a directory that is there.")
        return
    found, where = repoconfig.read(visit.directory), repository.find(visit.directory)
    for warning in found.warnings:
        yield _of_warning(warning, where)
    if not found.warnings:
        by = f"by {found.path}" if found.path else "by the directory's name, as there is no repository file"
        yield ok(ABOUT, f'the identity here is "{found.identity}", {by}')
    yield from _worktree(where)


def _of_warning(warning: str, where: Where) -> Finding:
    if warning.startswith("the directory gives no identity"):
        return note(ABOUT, warning, "Several repositories would share that name.", "agentbus init --identity NAME")
    if warning.startswith(f"{repository.FILE}: "):  # one entry of its list
        why = "Sessions here are not subscribed to it."
        return fault(ABOUT, warning, why, f"Take it out of the list in {where.path}, or mend it there.")
    if where.path and warning.startswith(where.path):
        why = "Sessions here have the directory's name, and the default channels, until it can be read."
        return fault(ABOUT, warning, why, f"Mend {where.path} by hand; agentbus identity then says nothing more.")
    why = "Sessions here do not use the main checkout's file."
    return fault(ABOUT, warning, why, "git worktree repair, in the main checkout")


def _worktree(where: Where) -> Iterator[Finding]:
    if where.root is None or where.home is None:
        return
    beside = None if where.path is None else where.path.removesuffix(f"/{repository.FILE}")
    if beside not in (None, where.root, where.home):
        yield note(
            ABOUT,
            f"a file below the root holds here: {where.path}",
            f"Sessions elsewhere in {where.root} do not use it.",
            f"Delete it if that is not meant: rm {shlex.quote(str(where.path))}",
        )
    elif where.root != where.home:
        which = "the main checkout's file" if beside == where.home else "its own file" if beside else "no file"
        yield ok(ABOUT, f"this is a linked worktree of {where.home}, with {which}")


def channels(visit: Visit) -> Iterator[Finding]:
    """Whether every channel of the persistent list exists."""
    if visit.directory is None:
        return
    found, state = repoconfig.read(visit.directory), visit.state()
    there = list(state.channels) if state.last_seq else list(repoconfig.DEFAULT_CHANNELS)
    missing = [name for name in found.channels if name not in there]
    for name in missing:
        near = difflib.get_close_matches(name, there, n=1)
        meant = f', or mend the name in {found.path} if it should be "{near[0]}"' if near else ""
        yield fault(
            ABOUT,
            f'the persistent list names the channel "{name}", which does not exist',
            "Sessions here are told so when they register, and hear nothing of it.",
            f"agentbus channel create {shlex.quote(name)}{meant}",
        )
    if not missing:
        yield ok(ABOUT, f"persistent channels: {', '.join(found.channels) or '(none)'}")


def ignored(visit: Visit) -> Iterator[Finding]:
    """Whether git leaves the file alone: the identity is this checkout's, and no business of others."""
    where = None if visit.directory is None else repository.find(visit.directory)
    if where is None or where.root is None or where.path is None:
        return
    holder = where.path.removesuffix(f"/{repository.FILE}")
    environ = {key: value for key, value in visit.environ.items() if not key.startswith("GIT_")}
    command = ["git", "-C", holder, "check-ignore", "-q", repository.FILE]
    try:
        done = subprocess.run(command, env=environ, capture_output=True, timeout=_GIT_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return  # no git, nothing that could be committed by it
    if done.returncode == _IGNORED:
        yield ok(ABOUT, f"git ignores {os.path.dirname(repository.FILE)}/")
    elif done.returncode == _NOT_IGNORED:
        yield note(
            ABOUT,
            f"git does not ignore {where.path}",
            "Once committed, every clone has this identity and these channels.",
            "agentbus init adds .local/ to .gitignore; where it is committed: git rm --cached .local/agentbus.json",
        )


def clients(visit: Visit) -> Iterator[Finding]:
    """Whether what this repository has clients start leads to this bus too: it comes before the user's own."""
    where = None if visit.directory is None else repository.find(visit.directory)
    if where is None or where.root is None:
        return
    for name in _CLIENT_FILES:
        path = os.path.join(where.root, name)
        if not repository.is_present(path):
            continue
        try:
            document = parse_file(path, repository.read_regular(path, _CLIENT_FILE_BYTES_MAX).decode())
        except (OSError, ValueError):
            continue  # not ours to judge, as long as nothing of ours is to be seen in it
        owner = Owner(ABOUT, f"Mend it in {path}", passes_on=not name.startswith(".codex"))
        yield from _judge(visit, owner, path, document)
    yield from _claude_s_own(visit, where.root)


def _claude_s_own(visit: Visit, root: str) -> Iterator[Finding]:
    """What Claude Code notes for this repository, as `claude mcp add` does unless it is told otherwise."""
    by_command = HARNESSES["claude"](visit.setup).by_command
    file = "" if by_command is None else by_command.entry.file
    if not repository.is_present(file):
        return
    with contextlib.suppress(OSError, ValueError):  # who looks at the client says so
        projects = parse_file(file, repository.read_regular(file, FILE_BYTES_MAX).decode()).get("projects")
        noted = projects.get(root) if isinstance(projects, dict) else None
        if isinstance(noted, dict):
            owner = Owner(ABOUT, f"In {root}: claude mcp remove -s local agentbus", passes_on=True)
            yield from _judge(visit, owner, f"{file} for this repository", noted)


def _judge(visit: Visit, owner: Owner, where: str, document: dict[str, Any]) -> Iterator[Finding]:
    for run in find_runs(document):
        yield from judge_run(visit, owner, msgspec.structs.replace(run, what=f"{where}: {run.what}"))
