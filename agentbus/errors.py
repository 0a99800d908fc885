"""Refusals: what a caller asked that the bus will not do. Pure; what the environment does to us is journal/errors.py.

A refusal writes nothing. Its message says what was wrong, the value given and the next step, in one line.
Source: design of the error envelope, ``{"code", "message", "retryable"}``.
"""

from __future__ import annotations

import json

from agentbus.limits import ERROR_VALUE_CHARS_MAX

VALIDATION = "validation"
NOT_REGISTERED = "not_registered"
NOT_FOUND = "not_found"
CONFLICT = "conflict"
RATE_LIMITED = "rate_limited"
CAPACITY_EXHAUSTED = "capacity_exhausted"
BUSY = "busy"
UNSYNCED = "unsynced"
UNSUPPORTED = "unsupported"
CORRUPT = "corrupt"
INTERNAL = "internal"

CODES = (
    VALIDATION,
    NOT_REGISTERED,
    NOT_FOUND,
    CONFLICT,
    RATE_LIMITED,
    CAPACITY_EXHAUSTED,
    BUSY,
    UNSYNCED,
    UNSUPPORTED,
    CORRUPT,
    INTERNAL,
)


class BusError(Exception):
    """A refusal. Nothing was written.

    Attributes:
        code: one of ``CODES``.
        message: one sentence or two, one line, always encodable as UTF-8.
        retryable: true if the same call may succeed later without a change.
    """

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable


def render_value(value: object) -> str:
    """A caller's value for an error message: quoted, on one line, encodable, cut to ERROR_VALUE_CHARS_MAX."""
    if isinstance(value, str):
        return f'"{render_cut(value)}"'
    return render_cut(json.dumps(value, ensure_ascii=False, default=repr))


def render_cut(text: str) -> str:
    """Text for an error message, not quoted: on one line, encodable, cut to ERROR_VALUE_CHARS_MAX."""
    if len(text) > ERROR_VALUE_CHARS_MAX:
        text = text[:ERROR_VALUE_CHARS_MAX] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
