"""Puts agentbus into a harness's files, or takes it out. Decides nothing about what stands there.

A file that was there is kept once beside itself before the first change. Taking out gives that copy back if nobody has
edited the file since, and else takes out what is ours alone; a file that only we made is removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import subprocess
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

from agentbus import replace
from agentbus.harness.entries import UnusableTextError
from agentbus.repository import is_present, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentbus.harness.entries import Entry
    from agentbus.harness.setup import ByCommand, Harness, Made

_FILE_BYTES_MAX = 64 << 20
_COMMAND_WAIT_S = 60
_BACKUP = ".agentbus-backup"
_BOM = "\ufeff"

Done: TypeAlias = Literal["added", "present", "removed", "absent", "failed"]


@dataclass(frozen=True, slots=True)
class Step:
    """What was done, or would be: to which file, with what in it; and why not, if it was not."""

    done: Done
    place: str
    what: str
    cause: str = ""


def install(harness: Harness, environ: Mapping[str, str], *, dry: bool = False) -> Iterator[Step]:
    """Put everything of a harness in its place. A step that fails leaves its file as it was."""
    entries, command = _settings_of(harness, environ)
    if command is not None:
        yield _add_by_command(harness, command, environ, dry=dry)
    for file, what, some in _by_file(entries):
        yield _guarded(file, what, partial(_put, file, some, dry=dry))
    for made in harness.made:
        yield _guarded(made.file, made.what, partial(_make, made, dry=dry))


def uninstall(harness: Harness, environ: Mapping[str, str], *, dry: bool = False) -> Iterator[Step]:
    """Take everything of ours out again, and directories that are empty then."""
    entries, command = _settings_of(harness, environ)
    if command is not None:
        yield _remove_by_command(harness, command, environ, dry=dry)
    work = [(file, what, partial(_take, file, some, dry=dry)) for file, what, some in _by_file(entries)]
    work += [(made.file, made.what, partial(_unmake, made, dry=dry)) for made in harness.made]
    for file, what, take in work:
        step = _guarded(file, what, take)
        if step.done == "removed" and not dry:
            _prune(os.path.dirname(file), harness.directories)
        yield step


def _settings_of(harness: Harness, environ: Mapping[str, str]) -> tuple[tuple[Entry, ...], ByCommand | None]:
    command = harness.by_command
    if command is None or harness.path(environ) is not None:
        return harness.entries, command
    return (command.entry, *harness.entries), None


def _by_file(entries: tuple[Entry, ...]) -> list[tuple[str, str, list[Entry]]]:
    """(file, what of ours it holds, the entries) for each file, in order."""
    grouped = [(file, list(some)) for file, some in groupby(entries, key=lambda entry: entry.file)]
    return [(file, ", ".join(entry.what for entry in some), some) for file, some in grouped]


def _guarded(file: str, what: str, work: Callable[[], Done]) -> Step:
    try:
        return Step(work(), file, what)
    except UnusableTextError as error:
        cause = str(error)
    except UnicodeDecodeError as error:
        cause = f"byte {error.start + 1} is not UTF-8"
    except OSError as error:
        cause = error.strerror or str(error)
    return Step("failed", file, what, f"left as it is: {cause}")


def _put(file: str, entries: list[Entry], *, dry: bool) -> Done:
    before = _read(file)
    if _with(before or "", entries) == before:
        return "present"
    _require_writable(file)
    if not dry:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with replace.exclusive(file) as write:
            before = _read(file)  # another may have edited it meanwhile
            after = _with(before or "", entries)
            if before is not None and not is_present(file + _BACKUP):
                _copy(file, file + _BACKUP)
            write(after.encode())
    return "added"


def _take(file: str, entries: list[Entry], *, dry: bool) -> Done:
    before = _read(file)
    if before is None or _taken(file, before, entries) == before:
        if not dry:
            _forget(file)
        return "absent"
    _require_writable(file)
    if not dry:
        with replace.exclusive(file) as write:
            after = _taken(file, _read(file) or "", entries)  # as above
            if after is None:
                os.unlink(file)
            else:
                write(after.encode())
        _forget(file)
    return "removed"


def _taken(file: str, before: str, entries: list[Entry]) -> str | None:
    """A file's text without ours; None if there is nothing in it but what we put there."""
    kept = _read(file + _BACKUP)
    after = _without(before, entries)
    if kept is not None and _without(_with(kept, entries), entries) == after:
        return kept  # byte for byte: taking out leaves no objects that are empty then, and there may have been some
    ours_alone = kept is None and after != before and not os.path.islink(file)
    return None if ours_alone and after.strip(f"{_BOM} \t\r\n") in {"", "{}"} else after


def _forget(file: str) -> None:
    """Remove the copy from before the first change."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(file + _BACKUP)


def _with(text: str, entries: list[Entry]) -> str:
    mark, text = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    for entry in entries:
        text = entry.put(text)
    return mark + text


def _without(text: str, entries: list[Entry]) -> str:
    mark, text = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    for entry in reversed(entries):
        text = entry.take(text)
    return mark + text


def _read(file: str) -> str | None:
    """A file's text; None if there is none. A dangling link is an error."""
    if not is_present(file):
        return None
    return read_regular(file, _FILE_BYTES_MAX).decode()


def _require_writable(file: str) -> None:
    """A file would be replaced whole, which its own mode does not hinder: what somebody has made read-only stays."""
    with contextlib.suppress(FileNotFoundError):
        if not os.stat(file).st_mode & 0o222:
            raise PermissionError(errno.EACCES, "it is read-only")


def _copy(file: str, backup: str) -> None:
    """Keep a file as it is, with its mode."""
    data, mode = read_regular(file, _FILE_BYTES_MAX), os.stat(file).st_mode & 0o777
    descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as kept:
        os.fchmod(descriptor, mode)
        kept.write(data)
        kept.flush()
        os.fsync(descriptor)


def _make(made: Made, *, dry: bool) -> Done:
    if _read(made.file) == made.text:
        return "present"
    _require_writable(made.file)
    if not dry:
        os.makedirs(os.path.dirname(made.file), exist_ok=True)
        with replace.exclusive(made.file) as write:
            write(made.text.encode())
    return "added"


def _unmake(made: Made, *, dry: bool) -> Done:
    if not is_present(made.file):
        return "absent"
    if not dry:
        os.unlink(made.file)
    return "removed"


def _prune(directory: str, within: tuple[str, ...]) -> None:
    """Remove a directory that nothing is left in, and those above it, as far as they are the client's."""
    while any(directory == each or directory.startswith(f"{each}/") for each in within):
        try:
            os.rmdir(directory)
        except OSError:
            return
        directory = os.path.dirname(directory)


def _add_by_command(harness: Harness, command: ByCommand, environ: Mapping[str, str], *, dry: bool) -> Step:
    place, entry = f"{harness.program} {shlex.join(command.add)}", command.entry
    with contextlib.suppress(OSError, ValueError):  # the client will say what is wrong with its file
        before = _read(entry.file) or ""
        if entry.put(before) == before:
            return Step("present", place, entry.what)
    if not dry:
        _run(harness, command.remove, environ)  # one of an earlier agentbus would be in the way
        if cause := _run(harness, command.add, environ):
            return Step("failed", place, entry.what, cause)
    return Step("added", place, entry.what)


def _remove_by_command(harness: Harness, command: ByCommand, environ: Mapping[str, str], *, dry: bool) -> Step:
    place, entry = f"{harness.program} {shlex.join(command.remove)}", command.entry
    with contextlib.suppress(OSError, ValueError):  # as above
        before = _read(entry.file) or ""
        if entry.take(before) == before:
            return Step("absent", place, entry.what)
    if not dry and (cause := _run(harness, command.remove, environ)):
        return Step("failed", place, entry.what, cause)
    return Step("removed", place, entry.what)


def _run(harness: Harness, arguments: list[str], environ: Mapping[str, str]) -> str:
    """Run a client's command; "" if it went well, else what it said."""
    argv = [harness.path(environ) or harness.program, *arguments]
    try:
        done = subprocess.run(
            argv, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_WAIT_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}").splitlines()
    return "" if done.returncode == 0 else said[-1]
