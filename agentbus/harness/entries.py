"""What agentbus puts into a harness's settings file, and how it is taken out again. Pure: texts in, texts out.

A hook of ours is known by the command it runs, so that one written by an earlier agentbus, or by hand from our own
instructions, is replaced and not doubled. What a user has added to an entry of ours stays as long as the entry does.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from agentbus.harness import jsonc
from agentbus.jsontext import Document

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.harness.jsonc import Path

Reads: TypeAlias = Literal["json", "comments", "jsonc"]
"""What a client makes of its settings: JSON and no more; with comments; with trailing commas as well."""
SERVER = "agentbus"
"""What the server is called in every client."""
PASSED_ON = ("AGENTBUS_CONFIG", "AGENTBUS_DATA_DIR")
"""What of the environment says where the bus is: not every client passes it on, so each entry says it."""
_ENVIRONMENTS = ("env", "environment")
_EVENTS = ("session-start", "stop", "wake")


class UnusableTextError(ValueError):
    """A settings file is not what its client would read: it is left alone. The text is a clause that says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What we keep in one file of a harness.

    Attributes:
        file: its path.
        what: for people, such as "hook SessionStart".
        put: the text of the file with the entry; the same text if it is there.
        take: the text without it; the same text if it is not there.

    Both raise UnusableTextError.
    """

    file: str
    what: str
    put: Callable[[str], str]
    take: Callable[[str], str]


def member(file: str, path: Path, value: dict[str, Any], what: str, *, reads: Reads = "jsonc") -> Entry:
    """An object in a JSON file that is ours, such as a server.

    ``reads``: what its client can read. It would ignore a file with more than that, and us with it.
    """
    return Entry(
        file,
        what,
        lambda text: _edited(lambda: _put_member(_readable(text, reads), path, value)),
        lambda text: _edited(lambda: jsonc.drop(text, path)),
    )


def hook(
    file: str,
    path: Path,
    value: dict[str, Any],
    what: str,
    *,
    defaults: dict[str, Any] | None = None,
    reads: Reads = "jsonc",
) -> Entry:
    """An entry of an array of hooks in a JSON file: a command, or a group {"hooks": [commands]}.

    ``defaults`` are members that the file needs beside it, set where they are missing; ``reads`` as for `member`.
    """
    beside = defaults or {}
    return Entry(
        file,
        what,
        lambda text: _edited(lambda: _put_hook(_readable(text, reads), path, value, beside)),
        lambda text: _edited(lambda: _take_hook(text, path, beside)),
    )


def table(file: str, name: str, value: dict[str, Any], what: str) -> Entry:
    """A table ``[name.agentbus]`` of a TOML file."""
    return Entry(
        file,
        what,
        lambda text: _edited(lambda: _put_table(text, name, value)),
        lambda text: _edited(lambda: _take_table(text, name)),
    )


def _edited(edit: Callable[[], str]) -> str:
    try:
        return edit()
    except KeyError as error:
        raise UnusableTextError(f'"{error.args[0]}" in it is not what its client expects there') from error
    except TOMLKitError as error:
        raise UnusableTextError(f"it is no TOML: {error}") from error
    except ValueError as error:
        raise UnusableTextError(str(error)) from error


def _readable(text: str, reads: Reads) -> str:
    jsonc.parse(text)
    if reads != "jsonc" and text.strip():
        try:
            Document(text if reads == "json" else jsonc.blank_comments(text))
        except ValueError as error:
            what = "no comments and no trailing commas" if reads == "json" else "no trailing commas"
            raise UnusableTextError(f"its client reads {what}: {error}") from error
    return text


def _put_member(text: str, path: Path, value: dict[str, Any]) -> str:
    found = jsonc.get(jsonc.parse(text), path)
    if not isinstance(found, dict):
        return jsonc.put(text, path, value)
    for stale in _stale(found, value):
        text = jsonc.drop(text, (*path, *stale))
    for name, wanted in value.items():
        if isinstance(wanted, dict):
            text = _put_member(text, (*path, name), wanted)
        else:
            text = jsonc.put(text, (*path, name), wanted)
    return text


def _stale(found: dict[str, Any], value: dict[str, Any]) -> list[tuple[str, str]]:
    """Where an entry says of a bus that it is elsewhere, and no longer should."""
    return [
        (environment, key)
        for environment in _ENVIRONMENTS
        for key in PASSED_ON
        if isinstance(found.get(environment), dict)
        and key in found[environment]
        and key not in value.get(environment, {})
    ]


def _put_hook(text: str, path: Path, value: dict[str, Any], defaults: dict[str, Any]) -> str:
    present = jsonc.get(jsonc.parse(text), path)
    if isinstance(present, list) and _agree(_ours(present), [each for _, each in _commands(value)]):
        return text
    if present is not None:
        text = _take_hook(text, path, {})
    for name, default in defaults.items():
        if name not in jsonc.parse(text):
            text = jsonc.put(text, (name,), default)
    return jsonc.append(text, path, value)


def _agree(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    """Whether the same commands are run in the same way; how long one may take is the user's to choose."""
    return len(found) == len(wanted) and all(
        ours | each | {"timeout": None} == ours | {"timeout": None} for each, ours in zip(wanted, found, strict=True)
    )


def _take_hook(text: str, path: Path, defaults: dict[str, Any]) -> str:
    groups = jsonc.get(jsonc.parse(text), path)
    if not isinstance(groups, list):
        return text
    for index in reversed(range(len(groups))):
        commands = _commands(groups[index])
        ours = [place for place, each in commands if _is_ours(each)]
        if ours and len(ours) == len(commands):
            text = jsonc.drop(text, (*path, index))
            continue
        for place in reversed(ours):
            text = jsonc.drop(text, (*path, index, *place))
    if defaults and jsonc.parse(text) == defaults:
        for name in defaults:
            text = jsonc.drop(text, (name,))
    return text


def _ours(groups: list[Any]) -> list[dict[str, Any]]:
    return [each for group in groups for _, each in _commands(group) if _is_ours(each)]


def _commands(group: object) -> list[tuple[Path, dict[str, Any]]]:
    """(where in the group, the hook) of each hook of an entry."""
    if not isinstance(group, dict):
        return []
    hooks = group.get("hooks")
    if not isinstance(hooks, list):
        return [((), group)]
    return [(("hooks", index), each) for index, each in enumerate(hooks) if isinstance(each, dict)]


def _is_ours(each: dict[str, Any]) -> bool:
    """Whether a hook runs our command for hooks and nothing else; or ``agentbus identity``, as setup texts had it."""
    try:
        words = shlex.split(str(each.get("command")))
    except ValueError:
        return False
    words = words[1:] if words[:1] == ["env"] else words
    while words and words[0].partition("=")[0] in PASSED_ON:
        words = words[1:]
    if not words or words[0].rpartition("/")[2] != "agentbus":
        return False
    match words[1:]:
        case ["hook", event, "--for", _] | ["hook", event, "--for", _, "--config", _]:
            return event in _EVENTS
        case ["identity"] | ["identity", "--format", _]:
            return True
    return False


def _put_table(text: str, name: str, value: dict[str, Any]) -> str:
    document = tomlkit.parse(text)
    above = document.get(name)
    if above is not None and not isinstance(above, dict):
        raise KeyError(name)
    if above is None or SERVER not in above:
        return _with_table(text, document, name, value)
    if not isinstance(above[SERVER], dict):
        raise KeyError(f"{name}.{SERVER}")
    return tomlkit.dumps(document) if _update(above[SERVER], value) else text


def _update(ours: Any, value: dict[str, Any]) -> bool:  # noqa: ANN401  # one of tomlkit's several kinds of tables
    """Bring a table up to date, with what else its user keeps in it; whether anything changed."""
    before = ours.unwrap()
    for environment, key in _stale(before, value):
        del ours[environment][key]
        if not ours[environment]:
            del ours[environment]
    for key, wanted in value.items():
        if isinstance(wanted, dict) and isinstance(ours.get(key), dict):
            _update(ours[key], wanted)
        elif key not in ours or ours[key].unwrap() != wanted:
            ours[key] = wanted
    changed: bool = ours.unwrap() != before
    return changed


def _with_table(text: str, document: tomlkit.TOMLDocument, name: str, value: dict[str, Any]) -> str:
    if isinstance(document.get(name), InlineTable):  # no [table] may be added to it
        document[name].update({SERVER: value})
        return tomlkit.dumps(document)
    # As text behind all the rest: the library would put it where tables of that name began, without a line between.
    made = tomlkit.document()
    made[name] = {SERVER: value}
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    return f"{text}{gap}{tomlkit.dumps(made).replace(chr(10), newline)}"


def _take_table(text: str, name: str) -> str:
    document = tomlkit.parse(text)
    above = document.get(name)
    if not isinstance(above, dict) or SERVER not in above:
        return text
    del above[SERVER]
    cut = _cut_table(text, name)
    # The library leaves the empty line that stood before, and takes along comments that stand behind.
    if cut is not None and _holds(cut, name) == _holds(tomlkit.dumps(document), name):
        return cut
    return tomlkit.dumps(document)


def _cut_table(text: str, name: str) -> str | None:
    """The text without the lines of our table, as far as these can be told by their looks; None if they cannot."""
    lines = text.splitlines(keepends=True)
    header = re.compile(rf"\[{re.escape(name)}\.{SERVER}(\.[^\]]*)?\]")
    ours = [index for index, line in enumerate(lines) if header.match(line)]
    if not ours:
        return None
    first, behind = ours[0], ours[-1] + 1
    while behind < len(lines) and not lines[behind].startswith("["):
        behind += 1
    while not lines[behind - 1].strip() or lines[behind - 1].startswith("#"):
        behind -= 1
    if first and not lines[first - 1].strip() and (behind == len(lines) or not lines[behind].strip()):
        first -= 1
    return "".join(lines[:first] + lines[behind:])


def _holds(text: str, name: str) -> dict[str, Any] | None:
    """What a TOML text says, whether or not it says that there is nothing in a table; None if it is no TOML."""
    try:
        value: dict[str, Any] = tomlkit.parse(text).unwrap()
    except TOMLKitError:
        return None
    return value if value.get(name) else {**value, name: {}}
