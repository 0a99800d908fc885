"""The user's settings: where they stand, what each may be, and a refusal that says so. Clamps nothing.

The file is ``--config``, else ``AGENTBUS_CONFIG``, else ``~/.config/agentbus/config.json``. Only the last may
be missing. ``AGENTBUS_DATA_DIR`` overrides ``data_directory``; XDG variables are not looked at, for some
harnesses do not pass them on, and two clients must not find two buses.
"""

from __future__ import annotations

import json
import os
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
    from collections.abc import Mapping

_FILE = "~/.config/agentbus/config.json"
_FILE_BYTES_MAX = 1 << 20
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
    cursor_idle_hours: Annotated[int, Meta(ge=1, le=720)] = 72
    receipt_retention_minutes: Annotated[int, Meta(ge=1, le=1440)] = 60
    max_message_kib: Annotated[int, Meta(ge=1, le=1024)] = 32
    receive_default_count: Annotated[int, Meta(ge=1, le=1000)] = 100
    receive_max_count: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    receive_max_wait_seconds: Annotated[int, Meta(ge=0, le=240)] = 50
    result_kib: Annotated[int, Meta(ge=1, le=4096)] = 10  # Codex cuts the middle out of longer results, acks go on
    log_level: Literal["debug", "info", "warn", "error"] = "info"


def load(path: str | None, environ: Mapping[str, str]) -> Settings:
    """The settings in force.

    Args:
        path: the value of ``--config``, if it was given.
        environ: HOME, AGENTBUS_CONFIG and AGENTBUS_DATA_DIR are looked at; the latter two must not be empty.

    Raises:
        SettingsError: one sentence.
    """
    file = _find_file(path, environ)
    values = {} if file is None else _read(file)
    values.setdefault("data_directory", _DATA_DIRECTORY)
    parsed: dict[str, Any] = {key: _parse_value(file, key, value) for key, value in values.items()}
    parsed["data_directory"] = _parse_directory(f"{file}: data_directory", values["data_directory"], environ)
    if "AGENTBUS_DATA_DIR" in environ:
        value = environ["AGENTBUS_DATA_DIR"]
        parsed["data_directory"] = _parse_directory("AGENTBUS_DATA_DIR", value, environ)
    settings = Settings(**parsed)
    if settings.receive_default_count > settings.receive_max_count:
        counts = f"{settings.receive_default_count} is above receive_max_count {settings.receive_max_count}"
        raise SettingsError(f"{file}: receive_default_count {counts}")
    return settings


def _find_file(path: str | None, environ: Mapping[str, str]) -> str | None:
    """The file to read; None if there is none, and none was named."""
    named = environ.get("AGENTBUS_CONFIG") if path is None else path
    if named == "":
        source = "AGENTBUS_CONFIG" if path is None else "--config"
        raise SettingsError(f"{source} is empty: leave it out, or name a file")
    file = _expand(named or _FILE, environ)
    return file if named or os.path.lexists(file) else None


def _read(file: str) -> dict[str, Any]:
    try:
        document = Document(read_regular(file, _FILE_BYTES_MAX).decode("utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{file}: cannot read it: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}, byte {error.start + 1}: this is not UTF-8") from None
    except JSONTextError as error:
        raise SettingsError(f"{file}, {error}") from None
    for key in document.value:
        if key not in Settings.__struct_fields__:
            known = ", ".join(Settings.__struct_fields__)
            raise SettingsError(f"{file}: unknown key {render_value(key)}; known keys: {known}")
    return document.value


def _parse_directory(source: str, value: object, environ: Mapping[str, str]) -> Path:
    path = _expand(value, environ) if isinstance(value, str) else ""
    # A relative one would be another bus in each working directory.
    if not path.startswith("/") or "\0" in path or not _is_encodable(path):
        allowed = 'an absolute path, or one that begins with "~/"'
        raise SettingsError(f"{source} must be {allowed}, not {_render_json(value)}")
    if not os.path.normpath(path).strip("/"):  # it is made private, with all that is in it
        raise SettingsError(f"{source} must be a directory of its own, not /")
    return Path(path)


def _parse_value(file: str | None, key: str, value: object) -> object:
    kind = get_type_hints(Settings, include_extras=True)[key]
    if kind is Path:
        return value  # checked by _parse_directory
    try:
        return msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter for half a surrogate
        shown = _render_json(value)
        raise SettingsError(f"{file}: {key} must be {_render_allowed(kind)}, not {shown}") from None


def _render_allowed(kind: Any) -> str:  # noqa: ANN401 - an annotation has no type
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    _, meta = get_args(kind)
    return f"a whole number from {meta.ge} to {meta.le}"


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
