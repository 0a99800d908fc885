"""What a client's files say is run for agentbus: which program, and where it is told the bus is. Pure: texts in."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agentbus.harness import jsonc
from agentbus.harness.entries import SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVER_ENTRY: Final = "server entry"
_SERVERS: Final = ("mcpServers", "mcp_servers", "servers", "mcp")
_HOOK: Final = re.compile(r"agentbus['\"]? (hook|identity)\b")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_IN_PLUGIN: Final = re.compile(r"^const (COMMAND|ENVIRONMENT) = (.*)$", re.MULTILINE)


class Run(msgspec.Struct, frozen=True):
    """One program that a client starts: ``what`` of ours it is, its words, and the variables it is given.

    ``off``: its user has switched it off.
    """

    what: str
    words: tuple[str, ...]
    environ: dict[str, str]
    off: bool = False

    @property
    def is_server(self) -> bool:
        """Whether it is the server."""
        return self.what == _SERVER_ENTRY

    @property
    def program(self) -> str:
        """What is started."""
        return self.words[0]


def parse_file(file: str, text: str) -> dict[str, Any]:
    """A client's file: TOML by its name, else JSON, comments allowed. Raises ValueError."""
    text = text.removeprefix("\ufeff")
    return tomllib.loads(text) if file.endswith(".toml") else jsonc.parse(text)


def find_runs(document: dict[str, Any]) -> Iterator[Run]:
    """What of ours stands in a parsed file, servers first."""
    for key in _SERVERS:
        servers = document.get(key)
        entry = servers.get(SERVER) if isinstance(servers, dict) else None
        if isinstance(entry, dict):
            yield from _server(entry)
    for command in _commands(document.get("hooks")):
        if _HOOK.search(command):
            yield from _hook(command)


def find_in_plugin(text: str) -> Iterator[Run]:
    """What a plugin of ours starts."""
    told: dict[str, Any] = {}
    for name, value in _IN_PLUGIN.findall(text):
        try:
            told[name] = json.loads(value)
        except ValueError:
            return
    if isinstance(told.get("COMMAND"), str):
        yield Run("plugin", (told["COMMAND"], "hook"), _strings(told.get("ENVIRONMENT")))


def _server(entry: dict[str, Any]) -> Iterator[Run]:
    command, arguments = entry.get("command"), entry.get("args")
    words = command if isinstance(command, list) else [command, *(arguments if isinstance(arguments, list) else [])]
    if words and all(isinstance(word, str) for word in words):
        off = entry.get("enabled") is False or entry.get("disabled") is True
        yield Run(_SERVER_ENTRY, tuple(words), _strings(entry.get("env") or entry.get("environment")), off)


def _hook(command: str) -> Iterator[Run]:
    try:
        words = shlex.split(command)
    except ValueError:
        return
    environ = {}
    while words and (words[0] == "env" or _ASSIGNMENT.fullmatch(words[0])):
        given = _ASSIGNMENT.fullmatch(words.pop(0))
        if given:
            environ[given[1]] = given[2]
    if words:
        event = words[2] if words[1:2] == ["hook"] and len(words) > 2 else "session-start"
        yield Run(f"hook {event}", tuple(words), environ)


def _commands(value: object) -> Iterator[str]:
    """Every text called "command" below a value."""
    if isinstance(value, list):
        for each in value:
            yield from _commands(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key == "command" and isinstance(each, str):
                yield each
            else:
                yield from _commands(each)


def _strings(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {key: each for key, each in value.items() if isinstance(each, str)}
