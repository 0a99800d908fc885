"""Rules about memories: edit, delete. Pure. Making one is a post on a memory channel.

The last commit wins: nobody is asked which revision they have seen, but each answer names the one that was replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from agentbus.commands import Decision, DeleteMemory, DeleteResult, EditMemory, EditResult, Facts
from agentbus.decide.messages import earlier_receipt, require_size
from agentbus.decide.sessions import require_session
from agentbus.errors import NOT_FOUND, BusError
from agentbus.events import MemoryDeleted, MemoryEdited

if TYPE_CHECKING:
    from agentbus.state import Memory, State


def require_memory(state: State, number: int) -> Memory:
    """The live memory with this id.

    Raises:
        BusError: not_found; if the number is a live revision's seq, with the id that was meant.
    """
    memory = state.memories.get(number)
    if memory is None:
        revision = state.memory_at(number)
        if revision is not None:
            meant = f"{number} is the seq of revision {revision.revision}, not the id of a memory: pass {revision.id}"
            raise BusError(NOT_FOUND, meant)
        raise BusError(NOT_FOUND, f"memory {number} does not exist, or was deleted: search shows those that do")
    return memory


def edit_memory(state: State, command: EditMemory, facts: Facts) -> Decision[EditResult]:
    """One ``memory_edited``. A key used before is looked up first: edit, delete, edit again by its key is answered."""
    session = require_session(state, command.as_, facts.owner)
    live = state.memories.get(command.id)
    event = MemoryEdited(
        as_=command.as_,
        id=command.id,
        content=command.content,
        context=session.context,
        label=UNSET if command.label is None else command.label,
        metadata=UNSET if command.metadata is None else command.metadata,
        key=UNSET if command.key is None else command.key,
        replaces=live.revision if live else 0,
    )
    receipt = earlier_receipt(state, event, facts)
    if receipt is not None:
        assert receipt.revision is not None  # noqa: S101  # the fold keeps it for each event about a memory
        return Decision((), EditResult(command.id, receipt.revision, repeated=True, seq=receipt.seq))
    require_memory(state, command.id)
    require_size(event, facts)
    return Decision((event,), EditResult(command.id, event.replaces + 1))


def delete_memory(state: State, command: DeleteMemory, facts: Facts) -> Decision[DeleteResult]:
    """One ``memory_deleted``. Without a key a second one is not_found: the memory is gone."""
    require_session(state, command.as_, facts.owner)
    live = state.memories.get(command.id)
    event = MemoryDeleted(
        as_=command.as_,
        id=command.id,
        key=UNSET if command.key is None else command.key,
        replaces=live.revision if live else 0,
    )
    receipt = earlier_receipt(state, event, facts)
    if receipt is not None:
        assert receipt.revision is not None  # noqa: S101  # as above
        return Decision((), DeleteResult(command.id, receipt.revision, repeated=True))
    require_memory(state, command.id)
    return Decision((event,), DeleteResult(command.id, event.replaces))
