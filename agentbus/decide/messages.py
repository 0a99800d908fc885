"""Rules about posting, and what all texts have in common: keys and sizes. Pure."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import UNSET

from agentbus.commands import Decision, Facts, Post, PostResult
from agentbus.decide.channels import require_channel
from agentbus.decide.sessions import require_session
from agentbus.errors import CONFLICT, NOT_FOUND, VALIDATION, BusError, render_value
from agentbus.events import Keyed, MemoryEdited, Posted, payload_digest
from agentbus.limits import MENTIONS_LOOKED_AT_MAX, UNKNOWN_NAMES_MAX
from agentbus.state import addressed_by, is_hidden
from agentbus.wire import encoded_bytes

if TYPE_CHECKING:
    from agentbus.addressing import Identities
    from agentbus.state import Receipt, State

# Not behind a letter or digit, where an @ belongs to a mail address; 64 characters are more than anybody's name.
_MENTION = re.compile(r"(?<![0-9A-Za-z])@(\w[\w/-]{,63})")


def post(state: State, command: Post, facts: Facts) -> Decision[PostResult]:
    """One ``posted``. A key used before is looked up before any other check: a retry must meet its first answer."""
    session = require_session(state, command.as_, facts.owner)
    event = Posted(
        as_=command.as_,
        channel=command.channel,
        content=command.content,
        context=session.context,
        label=UNSET if command.label is None else command.label,
        reply_to=UNSET if command.reply_to is None else command.reply_to,
        metadata=UNSET if command.metadata is None else command.metadata,
        key=UNSET if command.key is None else command.key,
    )
    receipt = earlier_receipt(state, event, facts)
    if receipt is not None:
        return Decision((), _repeated(state, receipt))
    require_channel(state, command.channel)
    if command.reply_to is not None and is_hidden(state, command.reply_to, facts.horizon_ms):
        raise BusError(
            NOT_FOUND,
            f'"reply_to" {command.reply_to} is no message or memory that can still be read: look with history',
        )
    require_size(event, facts)
    addressed = addressed_by(state, command.as_, command.content, command.reply_to)
    return Decision((event,), PostResult(addressed, unknown_names(state.identities, command.content)))


def unknown_names(identities: Identities, content: str) -> tuple[str, ...]:
    """Names behind an ``@`` in ``content`` that no identity ever had: whoever wrote them may believe to be heard.

    The first few of the first mentions; a name is cut where a character stands that is rare in one.
    """
    if "@" not in content:
        return ()
    known = dict.fromkeys(identities.mentioned(content))
    unknown: dict[str, None] = {}
    for found in islice(_MENTION.finditer(content), MENTIONS_LOOKED_AT_MAX):
        name = found[1].rstrip("-/")
        # An identity that matches here ends where no such name goes on: it is this one, or a longer one.
        if not any(len(each) >= len(name) and content.startswith(each, found.start(1)) for each in known):
            unknown[name] = None
    return tuple(unknown)[:UNKNOWN_NAMES_MAX]


def earlier_receipt(state: State, event: Keyed, facts: Facts) -> Receipt | None:
    """What the event's idempotency key was used for within the retention; None if it is new or there is none.

    Raises:
        BusError: conflict; the key was used for another payload.
    """
    if event.key is UNSET:
        return None
    receipt = state.receipts.get((event.as_, event.key))
    if receipt is None or facts.time_ms - receipt.time_ms > facts.policy.receipt_retention_ms:
        return None
    if receipt.digest != payload_digest(event):
        raise BusError(
            CONFLICT,
            f'"idempotency_key" {render_value(event.key)} was used for another payload at seq {receipt.seq}:'
            " use a new key for a new message",
        )
    return receipt


def _repeated(state: State, receipt: Receipt) -> PostResult:
    """The first answer, with whom that message is addressed to, not whom its text would address now."""
    return PostResult(
        addressed=state.addressed.get(receipt.seq, ()),
        repeated=True,
        seq=receipt.seq,
        memory_id=receipt.memory_id,
        revision=receipt.revision,
    )


def require_size(event: Posted | MemoryEdited, facts: Facts) -> None:
    """Refuse a text that takes more than ``max_message_kib`` with all that belongs to it. Raises BusError."""
    size = encoded_bytes(event)
    if size > facts.policy.event_bytes_max:
        what, next_step = ("message", "post it in parts, or post where it can be read")
        if isinstance(event, MemoryEdited):
            what, next_step = ("memory", "shorten it, or store where the whole of it can be read")
        raise BusError(
            VALIDATION,
            f"the {what} takes {size} bytes with its label and metadata, more than max_message_kib"
            f" ({facts.policy.event_bytes_max // 1024} KiB) allows: {next_step}",
        )
