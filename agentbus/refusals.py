"""Every anticipated failure as the envelope a caller sees: {"code", "message", "retryable"}. Pure.

What the rules refuse (BusError) carries its code already; what the journal meets (JournalError) gets it here.
"""

from __future__ import annotations

from typing import Any

import journal
from agentbus import errors
from agentbus.errors import BusError
from agentbus.visible import render_visible


def render_error(error: BusError | journal.JournalError) -> dict[str, Any]:
    """The envelope of a failure; the message is one line, can be sent as UTF-8 and ends with the next step."""
    if isinstance(error, BusError):
        return {"code": error.code, "message": error.message, "retryable": error.retryable}
    code, next_step, retryable = _MEANINGS.get(type(error), (errors.INTERNAL, "see agentbus.log", False))
    return {"code": code, "message": render_visible(f"{error}: {next_step}"), "retryable": retryable}


def unsynced(error: journal.UnsyncedError, *, retryable: bool) -> BusError:
    """The refusal for a call whose outcome is unknown; retryable if doing it twice is the same as doing it once."""
    next_step = "call again" if retryable else _LOOK_FIRST
    return BusError(errors.UNSYNCED, render_visible(f"{error}: {next_step}"), retryable=retryable)


def unread(error: journal.JournalError) -> BusError:
    """The refusal for a receive that has written its ack or its batch, and then cannot read what is in that."""
    text = f"what was handed out cannot be read: {error}: call receive again, the same messages come again"
    return BusError(errors.UNSYNCED, render_visible(text), retryable=True)


_LOOK_FIRST = "look whether it took effect before you call again, and pass an idempotency_key"

_MEANINGS: dict[type[journal.JournalError], tuple[str, str, bool]] = {
    journal.BusyError: (errors.BUSY, "call again", True),
    journal.TooLargeError: (errors.VALIDATION, "send less at once", False),
    journal.UnwritableError: (
        errors.CAPACITY_EXHAUSTED,
        "see to the disk that data_directory lies on (`agentbus status` names it), then call again",
        False,
    ),
    journal.UnsyncedError: (errors.UNSYNCED, _LOOK_FIRST, False),
    journal.CorruptError: (
        errors.CORRUPT,
        "end all sessions and run `agentbus repair`: it shows what it does, and asks; until then this cannot be done",
        False,
    ),
    journal.UnsupportedError: (errors.UNSUPPORTED, "restart this session with the newer agentbus", False),
    journal.UnusableError: (errors.VALIDATION, "choose another data_directory in the settings", False),
    journal.UnreadableError: (errors.CAPACITY_EXHAUSTED, "see to the machine, then call again", False),
    journal.ReplacedError: (errors.BUSY, "call again", True),
    journal.ChangedError: (errors.BUSY, "run it again", True),
}
"""Error class -> (code, next step, retryable)."""
