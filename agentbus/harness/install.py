"""Puts agentbus into a harness's files, or takes it out. Decides nothing about what stands there.

A file that was there is kept once beside itself before the first change. Taking out gives that copy back if nobody has
edited the file since, and else takes out what is ours alone; a file that only we made is removed.
"""

from __future__ import annotations

import contextlib
import os
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
    for file, some in _by_file(entries):
        yield _guarded(file, some, partial(_put, dry=dry))
    for made in harness.made:
        yield _make(made, dry=dry)


def uninstall(harness: Harness, environ: Mapping[str, str], *, dry: bool = False) -> Iterator[Step]:
    """Take everything of ours out again."""
    entries, command = _settings_of(harness, environ)
    if command is not None:
        yield _remove_by_command(harness, command, environ, dry=dry)
    for file, some in _by_file(entries):
        yield _guarded(file, some, partial(_take, dry=dry))
    for made in harness.made:
        yield _unmake(made, dry=dry)


def _settings_of(harness: Harness, environ: Mapping[str, str]) -> tuple[tuple[Entry, ...], ByCommand | None]:
    command = harness.by_command
    if command is None or harness.path(environ) is not None:
        return harness.entries, command
    return (command.instead, *harness.entries), None


def _by_file(entries: tuple[Entry, ...]) -> list[tuple[str, list[Entry]]]:
    return [(file, list(some)) for file, some in groupby(entries, key=lambda entry: entry.file)]


def _guarded(file: str, entries: list[Entry], work: Callable[[str, list[Entry]], Done]) -> Step:
    what = ", ".join(entry.what for entry in entries)
    try:
        return Step(work(file, entries), file, what)
    except UnusableTextError as error:
        return Step("failed", file, what, f"left as it is: {error}")
    except UnicodeDecodeError as error:
        return Step("failed", file, what, f"left as it is: byte {error.start + 1} is not UTF-8")
    except OSError as error:
        return Step("failed", file, what, f"left as it is: {error.strerror or error}")


def _put(file: str, entries: list[Entry], *, dry: bool) -> Done:
    before = _read(file)
    after = _with(before or "", entries)
    if after == before:
        return "present"
    if not dry:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with replace.exclusive(file) as write:
            before = _read(file)
            backup = file + _BACKUP
            if before is not None and not is_present(backup):
                _copy(file, backup)
            write(_with(before or "", entries).encode())
    return "added"


def _take(file: str, entries: list[Entry], *, dry: bool) -> Done:
    before = _read(file)
    if before is None:
        return "absent"
    after, backup = _without(before, entries), file + _BACKUP
    kept = _read(backup)
    untouched = kept is not None and _with(kept, entries) == before
    if not untouched and after == before:
        return "absent"
    if not dry:
        with replace.exclusive(file) as write:
            if untouched and kept is not None:
                write(kept.encode())
            elif kept is None and _is_empty(after):
                os.unlink(os.path.realpath(file))
            else:
                write(after.encode())
        with contextlib.suppress(FileNotFoundError):
            os.unlink(backup)
    return "removed"


def _is_empty(text: str) -> bool:
    return text.strip() in {"", "{}"}


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


def _copy(file: str, backup: str) -> None:
    """Keep a file as it is, with its mode."""
    data, mode = read_regular(file, _FILE_BYTES_MAX), os.stat(file).st_mode & 0o777
    descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as kept:
        os.fchmod(descriptor, mode)
        kept.write(data)
        kept.flush()
        os.fsync(descriptor)


def _make(made: Made, *, dry: bool) -> Step:
    try:
        if _read(made.file) == made.text:
            return Step("present", made.file, made.what)
        if not dry:
            os.makedirs(os.path.dirname(made.file), exist_ok=True)
            with replace.exclusive(made.file) as write:
                write(made.text.encode())
    except (OSError, UnicodeDecodeError) as error:
        return Step("failed", made.file, made.what, f"left as it is: {error}")
    return Step("added", made.file, made.what)


def _unmake(made: Made, *, dry: bool) -> Step:
    try:
        if not is_present(made.file):
            return Step("absent", made.file, made.what)
        if not dry:
            os.unlink(made.file)
            with contextlib.suppress(OSError):  # others may have files there
                os.rmdir(os.path.dirname(made.file))
    except OSError as error:
        return Step("failed", made.file, made.what, f"left as it is: {error.strerror}")
    return Step("removed", made.file, made.what)


def _add_by_command(harness: Harness, command: ByCommand, environ: Mapping[str, str], *, dry: bool) -> Step:
    place = f"{harness.program} {' '.join(command.add)}"
    if command.present():
        return Step("present", place, command.instead.what)
    if not dry:
        _run(harness, command.remove, environ)  # one of an earlier agentbus would be in the way
        cause = _run(harness, command.add, environ)
        if cause:
            return Step("failed", place, command.instead.what, cause)
    return Step("added", place, command.instead.what)


def _remove_by_command(harness: Harness, command: ByCommand, environ: Mapping[str, str], *, dry: bool) -> Step:
    place = f"{harness.program} {' '.join(command.remove)}"
    if not dry and (cause := _run(harness, command.remove, environ)):
        return Step("absent", place, command.instead.what, cause)
    return Step("removed", place, command.instead.what)


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
