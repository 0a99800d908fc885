"""The name rule: text becomes an AgentName, ChannelName or label here and nowhere else. Pure.

One rule for every door: MCP, command line, repository file. At fold names are taken as they stand.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from agentbus.errors import VALIDATION, BusError, render_value
from agentbus.limits import DISPLAY_NAME_BYTES_MAX, NAME_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NewType

    AgentName = NewType("AgentName", str)
    ChannelName = NewType("ChannelName", str)
else:  # typing costs a tenth of the start-up budget, and at run time both are plain text
    AgentName = ChannelName = str

# Cc: control; Zl, Zp: line and paragraph separators; Cs: surrogates. All of them break one-line listings or UTF-8.
_REFUSED_CATEGORIES = ("Cc", "Zl", "Zp", "Cs")
# Overrides and isolates can make one name look like another.
_BIDI_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def parse_agent_name(text: object) -> AgentName:
    """One part of an identity, in NFC.

    Raises:
        BusError: validation; says which part of the rule the text breaks.
    """
    return AgentName(_parse_name(text, "name"))


def parse_channel_name(text: object) -> ChannelName:
    """A channel's name, in NFC. Raises BusError (validation)."""
    return ChannelName(_parse_name(text, "channel"))


def parse_label(text: object) -> str:
    """A message's label, in NFC. Raises BusError (validation)."""
    return _parse_name(text, "label")


def parse_context(text: object) -> str:
    """Where an agent works: the name rule, but a path's ``/`` is welcome. Raises BusError (validation)."""
    return _parse_name(text, "context", slash=True)


def parse_display_name(text: object, what: str = "as") -> AgentName:
    """An identity as register returned it, parents and suffix included. Raises BusError (validation)."""
    return AgentName(_parse_name(text, what, slash=True, bytes_max=DISPLAY_NAME_BYTES_MAX))


def _parse_name(text: object, what: str, *, slash: bool = False, bytes_max: int = NAME_BYTES_MAX) -> str:
    if not isinstance(text, str):
        raise _refuse(what, text, "it must be text")
    return _checked_name(text, what, slash, bytes_max)


@lru_cache(maxsize=1024)  # each call names an identity and a channel, nearly always the same ones
def _checked_name(text: str, what: str, slash: bool, bytes_max: int) -> str:  # noqa: FBT001  # only called above
    name = unicodedata.normalize("NFC", text)
    if not name.strip():
        raise _refuse(what, text, "it must not be empty")
    if name != name.strip():
        raise _refuse(what, text, "it must not begin or end with white space")
    if "/" in name and not slash:
        raise _refuse(what, text, 'it must not hold "/"')
    if len(name) > bytes_max:  # looking at each character of a book would take a second
        raise _refuse_length(what, text, name, bytes_max)
    for char in name:
        if char in _BIDI_MARKS or unicodedata.category(char) in _REFUSED_CATEGORIES:
            raise _refuse(what, text, f"it must not hold U+{ord(char):04X}")
    if len(name.encode()) > bytes_max:
        raise _refuse_length(what, text, name, bytes_max)
    return name


def _refuse_length(what: str, value: str, name: str, bytes_max: int) -> BusError:
    size = len(name.encode("utf-8", "replace"))
    return _refuse(what, value, f"it must be at most {bytes_max} bytes of UTF-8, not {size}")


def _refuse(what: str, value: object, why: str) -> BusError:
    return BusError(VALIDATION, f"{what} {render_value(value)} is not allowed: {why}")
