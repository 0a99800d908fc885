"""What agentbus puts into a harness's settings file, and how it is taken out again. Pure: texts in, texts out.

A hook of ours is known by the command it runs, so that one written by an earlier agentbus, or by hand from our own
instructions, is replaced and not doubled. What a user has added to an entry of ours stays as long as the entry does.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from agentbus.harness import jsonc, tables
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
_ADDRESSES = ("url", "httpUrl", "serverUrl")
_EVENTS = ("session-start", "stop", "wake")


class UnusableTextError(ValueError):
    """A settings file is not what its client would read: it is left alone. The text is a clause that says why."""


class ForeignServerError(UnusableTextError):
    """A server has our name, and is another's."""


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
        lambda text: _edited(lambda: _take_member(text, path)),
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
        lambda text: _edited(lambda: tables.put(text, (name, SERVER), merged(tables.get(text, (name, SERVER)), value))),
        lambda text: _edited(lambda: _take_table(text, name)),
    )


def merged(found: object, value: dict[str, Any]) -> dict[str, Any]:
    """A server entry as it should be: the one that is there, with what its user added, brought up to date.

    Raises:
        ForeignServerError: that one is reached at an address. It is not ours, and no client takes one that is both.
    """
    if not isinstance(found, dict):
        return value
    if address := _address(found):
        cause = f'there is another\'s server "{SERVER}" in it, at {address}: give that one another name, or take it out'
        raise ForeignServerError(cause)
    wanted = found | value
    for key in _ENVIRONMENTS:
        given = found.get(key)
        if isinstance(given, dict):
            theirs = {name: each for name, each in given.items() if name not in PASSED_ON}
            wanted[key] = theirs | value.get(key, {})
            if given and not wanted[key]:
                del wanted[key]
    return wanted


def _address(found: object) -> str:
    """Where a server is that its client does not start; "" if it starts it."""
    named = [found[key] for key in _ADDRESSES if found.get(key)] if isinstance(found, dict) else []
    return str(named[0]) if named else ""


def _edited(edit: Callable[[], str]) -> str:
    try:
        return edit()
    except KeyError as error:
        raise UnusableTextError(f'"{error.args[0]}" in it is not what its client expects there') from error
    except UnusableTextError:
        raise
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
    wanted = merged(found, value)
    return _updated(text, path, found, wanted) if isinstance(found, dict) else jsonc.put(text, path, wanted)


def _updated(text: str, path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The text with an object that is there changed member by member, so that comments in it stay."""
    for name in [each for each in found if each not in wanted]:
        text = jsonc.drop(text, (*path, name))
    for name, each in wanted.items():
        inner = found.get(name)
        if isinstance(inner, dict) and isinstance(each, dict):
            text = _updated(text, (*path, name), inner, each)
        else:
            text = jsonc.put(text, (*path, name), each)
    return text


def _take_member(text: str, path: Path) -> str:
    return text if _address(jsonc.get(jsonc.parse(text), path)) else jsonc.drop(text, path)


def _take_table(text: str, name: str) -> str:
    return text if _address(tables.get(text, (name, SERVER))) else tables.drop(text, (name, SERVER))


def _put_hook(text: str, path: Path, value: dict[str, Any], defaults: dict[str, Any]) -> str:
    present = jsonc.get(jsonc.parse(text), path)
    groups = present if isinstance(present, list) else []
    ours = [((index, *place), each) for index, group in enumerate(groups) for place, each in _commands(group)]
    ours = [(place, each) for place, each in ours if _event(each)]
    wanted = [each for _, each in _commands(value)]
    if [_event(each) for _, each in ours] == [_event(each) for each in wanted]:
        for (place, found), each in zip(ours, wanted, strict=True):
            # How long a hook may take is its user's to choose.
            told = {name: part for name, part in each.items() if name != "timeout"}
            text = _updated(text, (*path, *place), found, found | told)
        return text
    if ours:
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
        ours = [place for place, each in commands if _event(each)]
        if ours and len(ours) == len(commands):
            text = jsonc.drop(text, (*path, index))
            continue
        for place in reversed(ours):
            text = jsonc.drop(text, (*path, index, *place))
    if defaults and jsonc.parse(text) == defaults:
        for name in defaults:
            text = jsonc.drop(text, (name,))
    return text


def _commands(group: object) -> list[tuple[Path, dict[str, Any]]]:
    """(where in the group, the hook) of each hook of an entry."""
    if not isinstance(group, dict):
        return []
    hooks = group.get("hooks")
    if not isinstance(hooks, list):
        return [((), group)]
    return [(("hooks", index), each) for index, each in enumerate(hooks) if isinstance(each, dict)]


def _event(each: dict[str, Any]) -> str:
    """What a hook that runs our command, and nothing else, is there for; "" for any other.

    ``agentbus identity`` is what setup texts had for the start of a session.
    """
    try:
        words = shlex.split(str(each.get("command")))
    except ValueError:
        return ""
    words = words[1:] if words[:1] == ["env"] else words
    while words and words[0].partition("=")[0] in PASSED_ON:
        words = words[1:]
    if not words or words[0].rpartition("/")[2] != "agentbus":
        return ""
    match words[1:]:
        case ["hook", event, "--for", _] | ["hook", event, "--for", _, "--config", _]:
            return event if event in _EVENTS else ""
        case ["identity"] | ["identity", "--format", _]:
            return _EVENTS[0]
    return ""
