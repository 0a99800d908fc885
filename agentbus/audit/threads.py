"""Which messages are of one thread: replies, replies to those, and the edits of memories among them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from agentbus import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentbus.events import AnyEvent


class Roots:
    """What each message replies to, from a journal's beginning on."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}  # of a reply what it replies to; of an edit its memory

    def note(self, seq: int, events: Iterable[AnyEvent]) -> bool:
        """Learn from one commit; whether it holds a message or an edit of a memory."""
        found = False
        for event in events:
            if isinstance(event, ev.Posted):
                found = True
                if event.reply_to is not UNSET:
                    self._parents[seq] = event.reply_to
            elif isinstance(event, ev.MemoryEdited):
                found = True
                self._parents[seq] = event.id
        return found

    def root(self, seq: int) -> int:
        """The message, or the id of the memory, that a thread began with."""
        while (parent := self._parents.get(seq, seq)) < seq:  # a journal that somebody wrote by hand may go in circles
            seq = parent
        return seq


class Threads:
    """Some threads, from what each began with on. Everything of a thread comes after that, and after what it is about.

    Args:
        roots: the seqs they began with.
    """

    def __init__(self, roots: Iterable[int]) -> None:
        self._members = set(roots)

    def holds(self, seq: int, event: AnyEvent) -> bool:
        """Whether an event is a message of one of the threads, or the edit or deletion of a memory among them."""
        if isinstance(event, ev.Posted):
            found = seq in self._members or event.reply_to in self._members
        elif isinstance(event, ev.MemoryEdited | ev.MemoryDeleted):
            found = event.id in self._members
        else:
            return False
        if found:
            self._members.add(seq)
        return found
