"""JSON-RPC 2.0 as lines of bytes: cuts a stream into lines, reads lines as messages, makes answers lines.

Pure: no descriptors, no threads. It knows no method of MCP and nothing of the bus.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias, TypeGuard

    Id: TypeAlias = str | int
    Message: TypeAlias = "Request | Notification | Response | Malformed"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

render_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Request:
    """A question that must be answered under its ``id``.

    Attributes:
        not_text: the keys in ``params`` that lead to the first string UTF-8 cannot hold, if there is one.
    """

    __slots__ = ("id", "method", "not_text", "params")

    def __init__(
        self, id_: Id, method: str, params: dict[str, object], not_text: tuple[str, ...] | None = None
    ) -> None:
        self.id = id_
        self.method = method
        self.params = params
        self.not_text = not_text


class Notification:
    """Something said that is never answered."""

    __slots__ = ("method", "params")

    def __init__(self, method: str, params: dict[str, object]) -> None:
        self.method = method
        self.params = params


class Response:
    """An answer to a question. This server asks none: it is read and dropped."""

    __slots__ = ()


class Malformed:
    """A line, or an entry of a batch, that is none of the above; answered with an error."""

    __slots__ = ("code", "id", "text")

    def __init__(self, id_: Id | None, code: int, text: str) -> None:
        self.id = id_
        self.code = code
        self.text = text


class LineSplitter:
    """Cuts a stream of bytes into lines, at LF and at nothing else; holds at most one, within its bound."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._begun = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """The lines that end in ``chunk``, without their LF; None, once, for one that is too long."""
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes | None] = []
        for end in ends:
            self._extend(end, lines)
            if not self._skipping:
                lines.append(bytes(self._begun))
            self._begun.clear()
            self._skipping = False
        self._extend(rest, lines)
        return lines

    def last_line(self) -> bytes:
        """What stands after the last LF when the stream has ended; mostly nothing."""
        return bytes(self._begun)

    def _extend(self, part: bytes, lines: list[bytes | None]) -> None:
        if self._skipping:
            return
        if len(self._begun) + len(part) > self._line_bytes_max:
            self._begun.clear()
            self._skipping = True
            lines.append(None)
        else:
            self._begun += part


def parse_line(line: bytes) -> Message | list[Message]:
    """One line as a message, or as those of a batch. Never raises: what cannot be read is Malformed."""
    try:
        # Bytes that are not UTF-8 become lone surrogates: the request around them still has an id to answer.
        value = _decode(line.decode("utf-8", "surrogateescape"))
    except RecursionError:
        return Malformed(None, PARSE_ERROR, "this line is nested too deeply")
    except ValueError as error:
        return Malformed(None, PARSE_ERROR, f"this line is not JSON: {error}")
    suspect = not line.isascii() or b"\\u" in line
    if not isinstance(value, list):
        return _parse_message(value, suspect=suspect)
    if not value:
        return Malformed(None, INVALID_REQUEST, "this batch is empty")
    return [_parse_message(entry, suspect=suspect) for entry in value]


def _refuse_constant(name: str) -> object:
    raise ValueError(f"it has no {name}")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def _parse_message(value: object, *, suspect: bool) -> Message:
    if not isinstance(value, dict):
        return Malformed(None, INVALID_REQUEST, "a message is a JSON object")
    if "method" in value:
        return _parse_asked(value, suspect=suspect)
    if "result" in value or "error" in value:
        return Response()
    return Malformed(None, INVALID_REQUEST, "this message has no method")


def _parse_asked(value: dict[str, object], *, suspect: bool) -> Message:
    id_ = value.get("id")
    if not is_id(id_):
        if "id" in value:
            return Malformed(None, INVALID_REQUEST, "an id is a string or an integer")
        id_ = None
    method, params = value["method"], value.get("params")
    if value.get("jsonrpc") != "2.0" or not isinstance(method, str):
        return Malformed(id_, INVALID_REQUEST, 'jsonrpc must be "2.0", and method a string')
    if not isinstance(params, dict | None):
        return Malformed(id_, INVALID_PARAMS, "params must be an object")
    params = params or {}
    if id_ is None:
        return Notification(method, params)
    return Request(id_, method, params, find_not_text(params) if suspect else None)


def is_id(value: object) -> TypeGuard[Id]:
    """Whether ``value`` may be the id of a request, or a progress token: text, or an integer."""
    if isinstance(value, str):
        return _is_text(value)
    return isinstance(value, int) and not isinstance(value, bool)


def find_not_text(value: object) -> tuple[str, ...] | None:
    """The keys that lead to the first string in ``value`` that UTF-8 cannot hold; None if there is none."""
    # A stack of our own: what json could still read may be nested deeper than Python's calls may be.
    todo: list[tuple[tuple[str, ...], object]] = [((), value)]
    while todo:
        path, item = todo.pop()
        if isinstance(item, str):
            if not _is_text(item):
                return path
        elif isinstance(item, dict):
            for key, inner in reversed(item.items()):
                todo += (((*path, key), inner), ((*path, key), key))
        elif isinstance(item, list):
            todo += ((path, inner) for inner in reversed(item))
    return None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode(value: object) -> bytes:
    """Compact JSON in UTF-8, without a character at which any client might break a line."""
    return escape_breaks(render_json(value))


def escape_breaks(text: str) -> bytes:
    """JSON text for a line. Raw, these three are legal in it, but clients that split as Python or Node do cut there."""
    for raw, escaped in (("\x85", "\\u0085"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(raw, escaped)
    return text.encode("utf-8", "replace")


def render_result(id_: Id, result: bytes) -> bytes:
    """The answer to request ``id_``; ``result`` is a JSON object, already encoded."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(id_), result)


def render_error(id_: Id | None, code: int, text: str) -> bytes:
    """The answer to request ``id_``, or to what was no request (None), that says what was wrong."""
    return encode({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": text}})


def render_notification(method: str, params: Mapping[str, object]) -> bytes:
    """Something this server says without being asked."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params})
