"""Rules about posting. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from agentbus.commands import Decision, Facts, Post, PostResult
from agentbus.decide.channels import require_channel
from agentbus.decide.sessions import require_session
from agentbus.errors import CONFLICT, NOT_FOUND, VALIDATION, BusError, render_value
from agentbus.events import Keyed, Posted, payload_digest
from agentbus.state import addressed_by
from agentbus.wire import encoded_bytes

if TYPE_CHECKING:
    from agentbus.state import Receipt, State


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
    if command.reply_to is not None and state.author_of(command.reply_to) is None:
        raise BusError(
            NOT_FOUND,
            f'"reply_to" {command.reply_to} is no message or memory that can still be read: look with history',
        )
    _require_size(event, facts)
    return Decision((event,), PostResult(addressed_by(state, command.as_, command.content, command.reply_to)))


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


def _require_size(event: Keyed, facts: Facts) -> None:
    size = encoded_bytes(event)
    if size > facts.policy.event_bytes_max:
        raise BusError(
            VALIDATION,
            f"the message takes {size} bytes with its label and metadata, more than max_message_kib"
            f" ({facts.policy.event_bytes_max // 1024} KiB) allows: post it in parts, or post where it can be read",
        )
