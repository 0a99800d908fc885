"""Puts agentbus into a harness's files, or takes it out. Decides nothing about what stands there.

A file is kept beside itself before the first change, once, or that there was none. Taking out gives that copy back if
nobody has edited the file since, and else takes out what is ours alone; a file that only we made is removed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

from agentbus import replace
from agentbus.harness import jsonc
from agentbus.harness.entries import ForeignServerError, UnusableTextError, merged
from agentbus.harness.setup import FILE_BYTES_MAX
from agentbus.repository import is_present, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentbus.harness.entries import Entry
    from agentbus.harness.setup import ByCommand, Harness, Made

_COMMAND_WAIT_S = 60
_BACKUP = ".agentbus-backup"
_NOTHING = "agentbus: there was no such file\n"
"""What a copy holds of a file that was not there. No client's settings, so it is no copy of any."""
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
            if after == before:
                return "present"
            # A copy that is there stays as long as we are in the file; whoever took us out by hand went on without it.
            if before is None or not is_present(file + _BACKUP) or _without(before, entries) == before:
                _keep(file, before)
            write(after.encode())
    return "added"


def _take(file: str, entries: list[Entry], *, dry: bool) -> Done:
    before = _read(file)
    if before is None or _taken(file, before, entries) == before:
        if not dry:
            _discard(file + _BACKUP)
        return "absent"
    _require_writable(file)
    if not dry:
        with replace.exclusive(file) as write:
            before = _read(file)  # as above
            after = None if before is None else _taken(file, before, entries)
            if after is not None:
                write(after.encode())
            elif before is not None:
                os.unlink(file)
        _discard(file + _BACKUP)
    return "removed"


def _taken(file: str, before: str, entries: list[Entry]) -> str | None:
    """A file's text without ours; None if there is nothing in it but what we put there."""
    kept, after = _read(file + _BACKUP), _without(before, entries)
    if after == before:
        return before
    if kept not in (None, _NOTHING):
        # Byte for byte, if that is all there is to it: what was empty before us, or ours by hand, is not left by taking
        # out. How an entry came to its place shows in empty lines.
        same = (_without(_with(kept, entries), entries), _without(kept, entries))
        return kept if _lines(after) in map(_lines, same) else after
    return None if after.strip(f"{_BOM} \t\r\n") in {"", "{}"} and not os.path.islink(file) else after


def _lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.split("\n")) if line]


def _discard(file: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(file)


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
    return read_regular(file, FILE_BYTES_MAX).decode()


def _require_writable(file: str) -> None:
    """A file would be replaced whole, which its own mode does not hinder: what somebody has made read-only stays."""
    with contextlib.suppress(FileNotFoundError):
        if not os.stat(file).st_mode & 0o222:
            raise PermissionError(errno.EACCES, "it is read-only")
    for path in (file, os.path.realpath(file)):  # the copy is made where the link is
        directory = os.path.dirname(path)
        while not os.path.lexists(directory):
            directory = os.path.dirname(directory)
        if not os.path.isdir(directory):
            raise NotADirectoryError(errno.ENOTDIR, f"{directory} is no directory")
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"nothing may be made in {directory}")


def _keep(file: str, text: str | None) -> None:
    """Keep what is in a file, with its mode, beside it: all of it or nothing. None: that there is no such file."""
    data = (_NOTHING if text is None else text).encode()
    mode = 0o600 if text is None else os.stat(file).st_mode & 0o777
    part = f"{file}{_BACKUP}.new"
    _discard(part)  # whoever left it is dead, for we hold the lock
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as kept:
            os.fchmod(descriptor, mode)
            kept.write(data)
            kept.flush()
            os.fsync(descriptor)
        os.replace(part, file + _BACKUP)
    except BaseException:
        _discard(part)
        raise


def _make(made: Made, *, dry: bool) -> Done:
    if _read(made.file) == made.text:
        return "present"
    _require_writable(made.file)
    if not dry:
        os.makedirs(os.path.dirname(made.file), exist_ok=True)
        with replace.exclusive(made.file) as write:
            before = _read(made.file)
            if before is not None and made.sign not in before:  # another's, who happens to call it the same
                _keep(made.file, before)
            write(made.text.encode())
    return "added"


def _unmake(made: Made, *, dry: bool) -> Done:
    before = _read(made.file)
    if before is None or made.sign not in before:
        return "absent"
    if not dry:
        with replace.exclusive(made.file) as write:
            kept = _read(made.file + _BACKUP)
            if kept is None:
                os.unlink(made.file)
            else:
                write(kept.encode())
        _discard(made.file + _BACKUP)
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
    place, what = command.entry.file, f"{command.entry.what} by {harness.program} {shlex.join(command.add[:2])}"
    found = _noted(command)
    try:
        wanted = merged(found, command.server)
    except ForeignServerError as error:
        return Step("failed", place, what, f"left as it is: {error}")
    if found == wanted:
        return Step("present", place, what)
    if not dry:
        _run(harness, command.remove, environ)  # it would be in the way
        if cause := _run(harness, [*command.add, json.dumps(wanted)], environ):
            if found is not None:
                _run(harness, [*command.add, json.dumps(found)], environ)
            return Step("failed", place, what, cause)
    return Step("added", place, what)


def _remove_by_command(harness: Harness, command: ByCommand, environ: Mapping[str, str], *, dry: bool) -> Step:
    place, what = command.entry.file, f"{command.entry.what} by {harness.program} {shlex.join(command.remove[:2])}"
    with contextlib.suppress(OSError, ValueError):  # the client will say what is wrong with its file
        before = _read(place) or ""
        if command.entry.take(before) == before:
            return Step("absent", place, what)
    if not dry and (cause := _run(harness, command.remove, environ)):
        return Step("failed", place, what, cause)
    return Step("removed", place, what)


def _noted(command: ByCommand) -> object:
    """The server in the client's file; None where there is none, or where the client will say why it cannot be read."""
    try:
        return jsonc.get(jsonc.parse(_read(command.entry.file) or ""), command.path)
    except (OSError, ValueError, KeyError):
        return None


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
