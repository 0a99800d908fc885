"""What agentbus puts into a harness's settings file, and how it is taken out again. Pure: texts in, texts out.

An entry of ours is known by the command it runs, so that one written by an earlier agentbus, or from another place, is
replaced and not doubled, and one that its user has merged into a group of their own is taken out alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from agentbus.harness import jsonc

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.harness.jsonc import Path

SERVER = "agentbus"
"""What the server is called in every client."""
_OURS = re.compile(r"agentbus['\"]? (hook (session-start|stop|wake) --for|identity\b)")


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


def member(file: str, path: Path, value: object, what: str) -> Entry:
    """A member of a JSON file that is wholly ours, such as a server."""
    return Entry(
        file,
        what,
        lambda text: _edited(lambda: jsonc.put(text, path, value)),
        lambda text: _edited(lambda: jsonc.drop(text, path)),
    )


def hook(file: str, path: Path, value: dict[str, Any], what: str, defaults: dict[str, Any] | None = None) -> Entry:
    """An entry of an array of hooks in a JSON file: a command, or a group {"hooks": [commands]}.

    ``defaults`` are members that the file needs beside it, set where they are missing.
    """
    return Entry(
        file,
        what,
        lambda text: _edited(lambda: _put_hook(text, path, value, defaults or {})),
        lambda text: _edited(lambda: _take_hook(text, path, defaults or {})),
    )


def _put_hook(text: str, path: Path, value: dict[str, Any], defaults: dict[str, Any]) -> str:
    present = jsonc.get(jsonc.parse(text), path)
    if isinstance(present, list) and [each for each in present if _holds_ours(each)] == [value]:
        return text
    if present is not None:
        text = _take_hook(text, path, {})
    for name, default in defaults.items():
        if name not in jsonc.parse(text):
            text = jsonc.put(text, (name,), default)
    return jsonc.append(text, path, value)


def _take_hook(text: str, path: Path, defaults: dict[str, Any]) -> str:
    groups = jsonc.get(jsonc.parse(text), path)
    if not isinstance(groups, list):
        return text
    for index in reversed(range(len(groups))):
        commands = _commands(groups[index])
        ours = [place for place, command in commands if _is_ours(command)]
        if ours and len(ours) == len(commands):
            text = jsonc.drop(text, (*path, index))
            continue
        for place in reversed(ours):
            text = jsonc.drop(text, (*path, index, *place))
    if defaults and jsonc.parse(text) == defaults:
        for name in defaults:
            text = jsonc.drop(text, (name,))
    return text


def _holds_ours(group: object) -> bool:
    return any(_is_ours(command) for _, command in _commands(group))


def _is_ours(command: object) -> bool:
    return isinstance(command, str) and _OURS.search(command) is not None


def _commands(group: object) -> list[tuple[Path, object]]:
    """(where in the group, command) of each hook of an entry."""
    if not isinstance(group, dict):
        return []
    hooks = group.get("hooks")
    if not isinstance(hooks, list):
        return [((), group.get("command"))]
    return [(("hooks", index), each.get("command")) for index, each in enumerate(hooks) if isinstance(each, dict)]


def table(file: str, name: str, value: dict[str, Any], what: str) -> Entry:
    """A table ``[name.agentbus]`` of a TOML file."""
    return Entry(
        file,
        what,
        lambda text: _edited(lambda: _put_table(text, name, value)),
        lambda text: _edited(lambda: _take_table(text, name)),
    )


def _put_table(text: str, name: str, value: dict[str, Any]) -> str:
    above = tomlkit.parse(text).get(name)
    if above is not None and not isinstance(above, dict):
        raise KeyError(name)
    if above is not None and SERVER in above and above[SERVER].unwrap() == value:
        return text
    text = _take_table(text, name)
    document = tomlkit.parse(text)
    if isinstance(document.get(name), InlineTable):  # no [table] may be added to it
        document[name].update({SERVER: value})
        return tomlkit.dumps(document)
    # As text behind all the rest: the library would put it where tables of that name began, without a line between.
    made = tomlkit.document()
    made[name] = {SERVER: value}
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text or text.endswith(newline * 2) else newline if text.endswith(newline) else newline * 2
    return f"{text}{gap}{tomlkit.dumps(made).replace(chr(10), newline)}"


def _take_table(text: str, name: str) -> str:
    document = tomlkit.parse(text)
    above = document.get(name)
    if not isinstance(above, dict) or SERVER not in above:
        return text
    del above[SERVER]
    if not above:
        del document[name]
    return tomlkit.dumps(document)


def _edited(edit: Callable[[], str]) -> str:
    try:
        return edit()
    except KeyError as error:
        raise UnusableTextError(f'"{error.args[0]}" in it is not what its client expects there') from error
    except TOMLKitError as error:
        raise UnusableTextError(f"it is no TOML: {error}") from error
    except ValueError as error:
        raise UnusableTextError(str(error)) from error
