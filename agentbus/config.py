"""The user's settings: where they stand, what each may be, and a refusal that says so. Clamps nothing.

The file is ``--config``, else ``AGENTBUS_CONFIG``, else ``~/.config/agentbus/config.json``. Only the last may
be missing. ``AGENTBUS_DATA_DIR`` overrides ``data_directory``; XDG variables are not looked at, for some
harnesses do not pass them on, and two clients must not find two buses.

A key's default and range are stated once, in ``Settings``: what is refused, and in which words, follows from there.
"""

from __future__ import annotations

import difflib
import json
import os
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from agentbus.errors import VALIDATION, BusError, render_value
from agentbus.jsontext import Document, JSONTextError
from agentbus.limits import ERROR_VALUE_CHARS_MAX
from agentbus.repository import read_regular
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT = "default"
"""Where a setting comes from that nobody has set."""

_OPTION, _FILE_VARIABLE, _DIRECTORY_VARIABLE = "--config", "AGENTBUS_CONFIG", "AGENTBUS_DATA_DIR"
FILE = "~/.config/agentbus/config.json"
_FILE_BYTES_MAX = 64 << 10  # some twenty keys
_FAULTS_MAX = 100
_DATA_DIRECTORY = "~/.local/share/agentbus"


class SettingsError(BusError):
    """The settings cannot be used: names the file or variable, the key, the value, and what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(VALIDATION, render_visible(message))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may set. Ranges include both ends; ``data_directory`` is absolute."""

    data_directory: Path
    allow_network_filesystem: bool = False
    segment_mib: Annotated[int, Meta(ge=1, le=1024)] = 16
    journal_keep_days: Annotated[int, Meta(ge=0, le=3650)] = 0  # 0: nothing is ever archived
    message_retention_hours: Annotated[int, Meta(ge=1, le=8760)] = 168
    cursor_idle_hours: Annotated[int, Meta(ge=1, le=720)] = 72
    cleanup_interval_seconds: Annotated[int, Meta(ge=5, le=86_400)] = 3600
    receipt_retention_minutes: Annotated[int, Meta(ge=1, le=1440)] = 60
    max_message_kib: Annotated[int, Meta(ge=1, le=1024)] = 32
    send_messages_per_second: Annotated[int, Meta(ge=1, le=10_000)] = 100
    send_kib_per_second: Annotated[int, Meta(ge=64, le=65_536)] = 1024
    receive_default_count: Annotated[int, Meta(ge=1, le=1000)] = 100
    receive_max_count: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    receive_max_wait_seconds: Annotated[int, Meta(ge=0, le=240)] = 50
    result_kib: Annotated[int, Meta(ge=1, le=4096)] = 10  # Codex cuts the middle out of longer results, acks go on
    log_level: Literal["debug", "info", "warn", "error"] = "info"


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong in a settings file. What does not apply, or is not known, is None.

    Attributes:
        cause: a clause.
        line, column: from 1; of the value, where a value is at fault.
        value: as JSON, cut.
    """

    file: str
    cause: str
    line: int | None = None
    column: int | None = None
    key: str | None = None
    value: str | None = None
    allowed: str | None = None

    def render(self) -> str:
        """One line, the file's path first."""
        where = "" if self.line is None else f", line {self.line}, column {self.column}"
        return render_visible(f"{self.file}{where}: {self.cause}")


class Loaded(msgspec.Struct, frozen=True):
    """The settings in force, and where they come from.

    Attributes:
        file: the path of the settings file, whether there is one or not.
        named_by: the option or variable that names it; None: it is the usual one.
        origins: for each key ``DEFAULT``, the file's path, or the name of a variable.
    """

    settings: Settings
    file: str
    named_by: str | None
    is_there: bool
    origins: dict[str, str]


def load(path: str | None, environ: Mapping[str, str]) -> Settings:
    """The settings in force; as `trace`."""
    return trace(path, environ).settings


def trace(path: str | None, environ: Mapping[str, str]) -> Loaded:
    """The settings in force, and where each of them comes from.

    Args:
        path: the value of ``--config``, if it was given.
        environ: HOME, AGENTBUS_CONFIG and AGENTBUS_DATA_DIR are looked at; the latter two must not be empty.

    Raises:
        SettingsError: one line; of several faults it names the first, and how to see the others.
    """
    file, named_by = _find_file(path, environ)
    is_there = named_by is not None or os.path.lexists(file)
    values: dict[str, Any] = {}
    faults = _faults(file, environ, values) if is_there else []
    if faults:
        raise SettingsError(_render_first(faults))
    origins = {key: file if key in values else DEFAULT for key in Settings.__struct_fields__}
    values.setdefault("data_directory", Path(_expand(_DATA_DIRECTORY, environ)))
    if _DIRECTORY_VARIABLE in environ:
        values["data_directory"] = _parse_variable(environ[_DIRECTORY_VARIABLE], environ)
        origins["data_directory"] = _DIRECTORY_VARIABLE
    return Loaded(Settings(**values), file, named_by, is_there, origins)


def check(file: str, environ: Mapping[str, str]) -> tuple[list[str], list[Fault]]:
    """Which keys a settings file sets as it may, and all that is wrong in it, the first hundred faults at most."""
    values: dict[str, Any] = {}
    faults = _faults(_expand(file, environ), environ, values)
    return list(values), faults


def render_range(key: str) -> str:
    """What the value of a key may be, shortly: both ends of its range, or each word there is."""
    kind = _kinds()[key]
    if kind is Path:
        return 'an absolute path, or one that begins with "~/"'
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        return ", ".join(get_args(kind))
    _, meta = get_args(kind)
    return f"{meta.ge} to {meta.le}"


def render_allowed(key: str) -> str:
    """The same as a part of a sentence."""
    kind = _kinds()[key]
    lead = "one of " if get_origin(kind) is Literal else "a whole number from " if get_origin(kind) is Annotated else ""
    return lead + render_range(key)


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(Settings, include_extras=True)


def _render_first(faults: list[Fault]) -> str:
    if len(faults) == 1:
        return faults[0].render()
    return f"{faults[0].render()} (and {len(faults) - 1} more: `agentbus config --check FILE` names them all)"


def _find_file(path: str | None, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """The file to read, and what names it."""
    named_by = _OPTION if path is not None else _FILE_VARIABLE if _FILE_VARIABLE in environ else None
    named = environ.get(_FILE_VARIABLE) if path is None else path
    if named == "":
        raise SettingsError(f"{named_by} is empty: leave it out, or name a file")
    return _expand(named or FILE, environ), named_by


def _faults(file: str, environ: Mapping[str, str], values: dict[str, Any]) -> list[Fault]:
    """What is wrong in a file. What may be used of it is put into ``values``."""
    try:
        data = read_regular(file, _FILE_BYTES_MAX)
        document = Document(data.decode("utf-8-sig"))
    except OSError as error:
        return [Fault(file, f"cannot read it: {error.strerror}")]
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8-sig").rpartition("\n")
        return [Fault(file, "this is not UTF-8", error.object.count(b"\n", 0, error.start) + 1, len(before[2]) + 1)]
    except JSONTextError as error:
        return [Fault(file, error.cause, error.line, error.column)]
    return list(islice(_faults_within(file, document, environ, values), _FAULTS_MAX))


def _faults_within(
    file: str, document: Document, environ: Mapping[str, str], values: dict[str, Any]
) -> Iterator[Fault]:
    for key, value in document.value.items():
        try:
            values[key] = _parse(key, value, environ)
        except _RefusedError as error:
            allowed = render_allowed(key) if key in _kinds() else None
            yield Fault(file, error.cause, *document.place(key), key, _render_json(value), allowed)
    given = [key for key in ("receive_default_count", "receive_max_count") if key in document.value]
    if given and all(key in values for key in given):
        default_count = values.get("receive_default_count", _default("receive_default_count"))
        max_count = values.get("receive_max_count", _default("receive_max_count"))
        if default_count > max_count:
            cause = f"receive_default_count {default_count} is above receive_max_count {max_count}"
            yield Fault(file, cause, *document.place(given[0]), given[0], str(values[given[0]]), _ORDER)


_ORDER = "receive_default_count at most receive_max_count"


def _default(key: str) -> Any:  # noqa: ANN401  # a setting of any type
    return getattr(Settings(data_directory=Path("/")), key)


class _RefusedError(Exception):
    """A key or a value that may not be; ``cause`` is a clause."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


def _parse(key: str, value: object, environ: Mapping[str, str]) -> object:
    kind = _kinds().get(key)
    if kind is None:
        near = difflib.get_close_matches(key, _kinds(), n=1)
        hint = f': did you mean "{near[0]}"?' if near else f"; known keys: {', '.join(_kinds())}"
        raise _RefusedError(f"unknown key {render_value(key)}{hint}")
    if kind is Path:
        return _parse_directory(key, value, environ)
    try:
        return msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter for half a surrogate
        raise _RefusedError(f"{key} must be {render_allowed(key)}, not {_render_json(value)}") from None


def _parse_variable(value: str, environ: Mapping[str, str]) -> Path:
    try:
        return _parse_directory(_DIRECTORY_VARIABLE, value, environ)
    except _RefusedError as error:
        raise SettingsError(error.cause) from None


def _parse_directory(what: str, value: object, environ: Mapping[str, str]) -> Path:
    path = _expand(value, environ) if isinstance(value, str) else ""
    # A relative one would be another bus in each working directory.
    if not path.startswith("/") or "\0" in path or not _is_encodable(path):
        raise _RefusedError(f"{what} must be {render_allowed('data_directory')}, not {_render_json(value)}")
    if not os.path.normpath(path).strip("/"):  # it is made private, with all that is in it
        raise _RefusedError(f"{what} must be a directory of its own, not /")
    return Path(path)


def _render_json(value: object) -> str:
    return render_value(value) if isinstance(value, str) else json.dumps(value)[:ERROR_VALUE_CHARS_MAX]


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _expand(path: str, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME")
    if home and (path == "~" or path.startswith("~/")):
        return home + path[1:]
    return os.path.expanduser(path)
