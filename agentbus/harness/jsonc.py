"""JSON with comments and trailing commas, as people keep it in the settings of editors and harnesses: edited in place.

Pure. An edit splices text: whatever it does not touch keeps its bytes, comments, indentation and line ends. To take
out what was put in gives the text from before. Knows nothing of what the keys mean.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from agentbus.jsontext import Document

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

Path: TypeAlias = "tuple[str | int, ...]"
"""From the whole text to a value in it: keys of objects, indexes of arrays."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])')
_LINE_END = re.compile(r"(?:[ \t]|/\*(?:[^*\r\n]|\*(?!/))*\*/)*(?://[^\r\n]*)?(?=[\r\n]|\Z)")
_INDENTED = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_DEFAULT_STEP = "  "


@dataclass(slots=True)
class _Node:
    """A value: its span in the text, and what it holds if it is an object or an array, each with its own span."""

    start: int
    end: int = 0
    members: list[tuple[str, int, _Node]] = field(default_factory=list)  # key ("" in an array), start, value


def parse(text: str) -> dict[str, Any]:
    """The value of a text; of one with nothing in it but comments, that of an empty object.

    Raises:
        JSONTextError: it is no JSON object, even with comments and trailing commas allowed; or has a duplicate key.
    """
    blanked = _blank(text)
    return Document(blanked).value if blanked.strip() else {}


def get(value: Any, path: Path) -> Any:  # noqa: ANN401  # JSON
    """What a parsed value holds at ``path``; None if a member on the way is missing.

    Raises:
        KeyError: something on the way holds no such members; args[0] says where it stands, dotted.
    """
    for depth, name in enumerate(path):
        if not _may_hold(value, name):
            raise KeyError(".".join(map(str, path[:depth])))
        if isinstance(name, str) and name not in value:
            return None
        value = value[name]
    return value


def _may_hold(value: object, name: str | int) -> bool:
    return isinstance(value, dict if isinstance(name, str) else list)


def put(text: str, path: Path, value: object) -> str:
    """The text with the member at ``path`` set; objects on the way are made. An empty text is an empty object.

    Raises: as `parse` and `get`.
    """
    if get(parse(text), path) == value:
        return text
    return _put(text, path, value)


def append(text: str, path: Path, value: object) -> str:
    """The text with ``value`` as one more entry of the array at ``path``; made, with objects on the way, if missing.

    Raises: as `parse` and `get`; also KeyError if what stands there is no array.
    """
    present = get(parse(text), path)
    if present is None:  # missing, or null
        return _put(text, path, [value])
    if not isinstance(present, list):
        raise KeyError(".".join(map(str, path)))
    node = _find(text, path)
    assert node is not None  # noqa: S101  # it is an array
    return _insert(text, node, "", value)


def drop(text: str, path: Path) -> str:
    """The text without what is at ``path``, and without objects and arrays on the way that hold nothing then.

    One in which a comment is left stays.

    Raises: as `parse` and `get`; nothing there is no error.
    """
    if get(parse(text), path) is None and _find(text, path) is None:
        return text
    *above, name = path
    node = _find(text, tuple(above))
    assert node is not None  # noqa: S101  # there is something in it
    index = name if isinstance(name, int) else [key for key, _, _ in node.members].index(name)
    text = _cut(text, node, index)
    left = _find(text, tuple(above)) if above else None
    return drop(text, tuple(above)) if left is not None and not text[left.start + 1 : left.end - 1].strip() else text


def _put(text: str, path: Path, value: object) -> str:
    if not blank_comments(text).strip():
        text = f"{text.rstrip()}{_newline(text)}{{}}{_newline(text)}".lstrip()
    depth = len(path)
    while (node := _find(text, path[:depth])) is None:
        depth -= 1
    rest = path[depth:]
    if not rest:  # it is there, with another value
        step, newline = _step(text), _newline(text)
        return text[: node.start] + _render(value, _indent(text, node.start), step, newline) + text[node.end :]
    for name in reversed(rest[1:]):
        value = {name: value}
    return _insert(text, node, f"{json.dumps(rest[0], ensure_ascii=False)}: ", value)


def _insert(text: str, node: _Node, head: str, value: object) -> str:
    """The text with one more member at the end of an object or array."""
    step, newline = _step(text), _newline(text)
    if node.members and "\n" not in text[node.start : node.end]:  # all of it stands on one line
        end = node.members[-1][2].end
        return f"{text[:end]}, {head}{json.dumps(value, ensure_ascii=False)}{text[end:]}"
    outer = _indent(text, node.start)
    indent = _indent(text, node.members[0][1]) if node.members else outer + step
    member = f"{newline}{indent}{head}{_render(value, indent, step, newline)}"
    close = node.end - 1
    if not node.members:
        before = text[:close].rstrip(" \t\r\n") if "\n" in text[node.start : close] else text[:close]
        return f"{before}{member}{newline}{outer}{text[close:]}"
    end = node.members[-1][2].end
    comma = blank_comments(text).find(",", end, close)
    if comma >= 0:  # a trailing comma; the new last member has one as well
        at = _line_end(text, comma + 1, close)
        return f"{text[:at]}{member},{text[at:]}"
    at = _line_end(text, end, close)
    return f"{text[:end]},{text[end:at]}{member}{text[at:]}"


def _cut(text: str, node: _Node, index: int) -> str:
    """The text without one member of an object or array: the reverse of `_insert`."""
    _, start, value = node.members[index]
    blanked = blank_comments(text)
    last = index == len(node.members) - 1
    limit = node.end - 1 if last else node.members[index + 1][1]
    comma = blanked.find(",", value.end, limit)
    if comma >= 0 and (between := text[value.end : comma]).strip():  # a comment before its comma
        return text[:start] + between.lstrip(" \t") + text[comma + 1 :]
    end = value.end if comma < 0 else comma + 1
    floor = node.members[index - 1][2].end if index else node.start + 1
    begin = floor + len(text[floor:start].rstrip(" \t"))
    if begin > floor and text[begin - 1] == "\n" and _is_line_s_end(text, end):  # it takes its line with it
        begin -= 2 if text[begin - 2 : begin] == "\r\n" else 1
    else:
        begin = start
        end += 0 if last else len(text[end:limit]) - len(text[end:limit].lstrip(" \t"))
    if last and not index and not text[node.start + 1 : begin].strip() and not text[end : node.end - 1].strip():
        return text[: node.start + 1] + text[node.end - 1 :]  # nothing is left in it, not even a comment
    if last and index and comma < 0:  # the one before is the last now
        before = blanked.find(",", floor, start)
        return text[:before] + text[before + 1 : begin].rstrip(" \t") + text[end:]
    return text[:begin] + text[end:]


def _find(text: str, path: Path) -> _Node | None:
    """The value at a path on which nothing is of the wrong kind; None if a member on the way is missing."""
    blanked = _blank(text)
    if not blanked.strip():
        return None
    node = _tree(blanked)
    for name in path:
        keys = [key for key, _, _ in node.members]
        if isinstance(name, str) and name not in keys:
            return None
        node = node.members[name if isinstance(name, int) else keys.index(name)][2]
    return node


def _tree(blanked: str) -> _Node:
    """The spans of a text that is known to be JSON."""
    tokens = list(_TOKEN.finditer(blanked))
    top = _Node(0)
    open_: list[_Node] = [top]
    key: tuple[str, int] | None = None
    for token, following in pairwise([*tokens, tokens[-1]]):
        mark = token.group()
        if mark in "}]":
            open_.pop().end = token.end()
        elif mark in ":,":
            continue
        elif following.group() == ":" and key is None and blanked[open_[-1].start] == "{" and open_[-1] is not top:
            key = (json.loads(mark), token.start())
        else:
            node = _Node(token.start(), token.end())
            name, start = key or ("", token.start())
            open_[-1].members.append((name, start, node))
            key = None
            if mark in "{[":
                open_.append(node)
    return top.members[0][2]


def _blank(text: str) -> str:
    """The text with comments and trailing commas as spaces: every place stays where it is."""
    return _TRAILING_COMMA.sub(_spaces_for(","), blank_comments(text))


def blank_comments(text: str) -> str:
    """The text with comments as spaces: every place stays where it is."""
    return _COMMENT.sub(_spaces_for("/"), text)


def _spaces_for(first: str) -> Callable[[re.Match[str]], str]:
    def blanked(found: re.Match[str]) -> str:
        return re.sub(r"[^\r\n]", " ", found[0]) if found[0].startswith(first) else found[0]

    return blanked


def _line_end(text: str, start: int, limit: int) -> int:
    """Where what follows on the line of ``start`` ends, comments that begin on it included; at most ``limit``."""
    at = start
    for found in _COMMENT.finditer(text, start, limit):
        if not found[0].startswith("/") or "\n" in text[at : found.start()] or text[at : found.start()].strip():
            break
        at = found.end()
    return at


def _is_line_s_end(text: str, at: int) -> bool:
    """Whether nothing follows on a line but comments that end on it, so that it may be joined to a comment before."""
    return bool(_LINE_END.match(text, at))


def _indent(text: str, at: int) -> str:
    """The white space that begins the line of a place."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(text: str) -> str:
    found = _INDENTED.search(text)
    return found[1] if found else _DEFAULT_STEP


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _render(value: object, indent: str, step: str, newline: str) -> str:
    lines = json.dumps(value, indent=step, ensure_ascii=False).split("\n")
    return f"{newline}{indent}".join(lines)
