"""Event <-> the JSON array in a journal line. Pure. Type names on disk are the tags in events.py, never class names.

A reader stops at what it does not know and never skips: an unknown type or field is ``UnsupportedError``, anything else
that does not fit is ``MalformedError``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from agentbus.events import AnyEvent
from journal import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

_decode = msgspec.json.Decoder(Annotated[list[AnyEvent], msgspec.Meta(min_length=1)]).decode
_encoder = msgspec.json.Encoder()

# Msgspec's sentence about a type, a field or a word of a closed list that is not among ours.
_UNKNOWN = re.compile(
    r"(Invalid value|Object contains unknown field|Invalid enum value) ['`](.*)['`] - at `.*`", flags=re.DOTALL
)
_WHAT = {
    "Invalid value": "event type",
    "Object contains unknown field": "event field",
    "Invalid enum value": "word in an event",
}


class MalformedError(Exception):
    """A line that verifies holds no events: no version of agentbus wrote it. ``cause`` says what is wrong."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


def encode(events: Sequence[AnyEvent]) -> bytes:
    """The JSON array for a line: compact, ``type`` first in each object, unset fields left out.

    Raises:
        UnicodeEncodeError: a text holds half a surrogate pair; the doors refuse those before they come here.
    """
    return _encoder.encode(events)


def encoded_bytes(event: AnyEvent) -> int:
    """How many bytes the event takes in its line."""
    return len(_encoder.encode(event))


def decode(events: bytes) -> list[AnyEvent]:
    """The events of one line, in order.

    Raises:
        UnsupportedError: an event type, field or reason this version does not know.
        MalformedError: no list of events.
    """
    try:
        return _decode(events)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.fullmatch(str(error))
        if unknown:
            raise UnsupportedError(_WHAT[unknown[1]], f'"{unknown[2]}"', "those of format 1") from error
        raise MalformedError(str(error)) from error
    except msgspec.DecodeError as error:
        raise MalformedError(str(error)) from error
