"""A table in a TOML file, [NAME.KEY]: read, put in, taken out. Pure. Knows nothing of what it means.

The library edits, and does not always write what it was told where tables are written in pieces. So every text is read
again, by Python's own parser, and counts only if it says what was wanted and else what it said before.
"""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

Path: TypeAlias = "tuple[str, str]"
_LIBRARY_ERRORS = (TOMLKitError, LookupError, AttributeError, TypeError, ValueError)
"""What tomlkit raises, on purpose and not, at tables that are written in pieces."""


class TableError(ValueError):
    """The text is no TOML, or cannot be edited. The text is a clause that says so."""


def get(text: str, path: Path) -> dict[str, Any] | None:
    """The table at a path; None if there is none.

    Raises:
        TableError: the text is no TOML.
        KeyError: what stands there, or on the way, is no table; args[0] says where it stands, dotted.
    """
    name, key = path
    above = _parse(text).get(name, {})
    if not isinstance(above, dict):
        raise KeyError(name)
    found = above.get(key)
    if found is not None and not isinstance(found, dict):
        raise KeyError(f"{name}.{key}")
    return found


def put(text: str, path: Path, wanted: dict[str, Any]) -> str:
    """The text with that table; the same text if it is there.

    Raises: as `get`; also TableError if it cannot be done without harm to the rest.
    """
    found, before, (name, key) = get(text, path), _parse(text), path
    if found == wanted:
        return text
    if _is_of_windows(text):
        return put(text.replace("\r\n", "\n"), path, wanted).replace("\n", "\r\n")
    ways = [lambda: _appended(text, path, wanted), lambda: _inlined(text, path, wanted)]
    if found is not None:
        # Where the library cannot change it in its place it goes to the end.
        ways = [lambda: _updated(text, path, found, wanted), lambda: _appended(drop(text, path), path, wanted)]
    return _first(ways, path, before | {name: before.get(name, {}) | {key: wanted}})


def drop(text: str, path: Path) -> str:
    """The text without that table; nothing there is no error.

    Raises: as `put`.
    """
    if get(text, path) is None:
        return text
    if _is_of_windows(text):
        return drop(text.replace("\r\n", "\n"), path).replace("\n", "\r\n")
    before, (name, key) = _parse(text), path
    left = {each: value for each, value in before[name].items() if each != key}
    # The library leaves the empty line that stood before, and takes along comments that stand behind.
    return _first([lambda: _cut(text, path), lambda: _deleted(text, path)], path, before | {name: left})


def _is_of_windows(text: str) -> bool:
    """Whether its lines end in CR LF, all of them; the library writes LF alone."""
    return "\r\n" in text and text.count("\n") == text.count("\r\n")


def _first(ways: list[Callable[[], str]], path: Path, wanted: dict[str, Any]) -> str:
    """The first text that says what is wanted, and that alone: the library does not always write what it was told."""
    for way in ways:
        with contextlib.suppress(*_LIBRARY_ERRORS):
            text = way()
            if _canonical(_parse(text), path[0]) == _canonical(wanted, path[0]):
                return text
    raise TableError(f"its {'.'.join(path)} cannot be edited without harm to the rest: take it out by hand")


def _canonical(value: dict[str, Any], name: str) -> str:
    """What a file says, whether or not it says that a table of that name has nothing in it; NaN is like NaN."""
    return json.dumps({key: each for key, each in value.items() if key != name or each}, sort_keys=True, default=repr)


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"it is no TOML: {error}") from error
    except RecursionError:
        raise TableError("it is nested too deeply") from None


def _appended(text: str, path: Path, value: dict[str, Any]) -> str:
    # As text behind all the rest: the library would put it where tables of that name began, without a line between.
    made = tomlkit.document()
    made[path[0]] = {path[1]: value}
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{tomlkit.dumps(made)}"


def _inlined(text: str, path: Path, value: dict[str, Any]) -> str:
    document = tomlkit.parse(text)
    above: Any = document[path[0]]  # an inline table, to which no [table] may be added
    above.update({path[1]: value})
    return tomlkit.dumps(document)


def _updated(text: str, path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> str:
    document = tomlkit.parse(text)
    above: Any = document[path[0]]
    _update(above[path[1]], found, wanted)
    return tomlkit.dumps(document)


def _update(ours: Any, found: dict[str, Any], wanted: dict[str, Any]) -> None:  # noqa: ANN401  # tomlkit's several tables
    """Change a table of the library's member by member, so that comments in it stay."""
    for key in [each for each in found if each not in wanted]:
        del ours[key]
    for key, each in wanted.items():
        inner = found.get(key)
        if isinstance(inner, dict) and isinstance(each, dict):
            _update(ours[key], inner, each)
        elif inner != each:
            ours[key] = each


def _deleted(text: str, path: Path) -> str:
    document = tomlkit.parse(text)
    above: Any = document[path[0]]
    del above[path[1]]
    return tomlkit.dumps(document)


def _cut(text: str, path: Path) -> str:
    """The text without the lines of the table, as far as these can be told by their looks."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    header = re.compile(rf"\[{re.escape('.'.join(path))}(\.[^\]]*)?\]")
    ours = [index for index, line in enumerate(lines) if header.match(line)]
    first, behind = ours[0], ours[-1] + 1
    while behind < len(lines) and not lines[behind].startswith("["):
        behind += 1
    while not lines[behind - 1].strip() or lines[behind - 1].startswith("#"):
        behind -= 1
    if first and not lines[first - 1].strip() and (behind == len(lines) or not lines[behind].strip()):
        first -= 1
    return "".join(lines[:first] + lines[behind:])
