"""Which session a hook or a waiter speaks for: the one that was registered from its own harness process.

The second session in a repository must not be taken for the first, so that nothing is guessed from names or
directories as long as processes can be told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentbus.owners import Owners
    from agentbus.processes import Process
    from agentbus.state import Session, State


def owners_here(owners: Owners, harness: Process | None, directory: str, thread: str | None = None) -> list[str]:
    """Tokens of the live owners of a harness; where some of them work in ``directory`` or above it, only the nearest.

    A harness may have one server for all of its sessions, or one for each. Some tell their servers which session it is
    that calls, and their hooks the same id: ``thread``. Then the servers of its other sessions do not count.
    """
    if harness is None:
        return []
    mine = [
        owner
        for owner in owners.living()
        if owner.get("harness") == harness.named() and _may_serve(owner.get("threads"), thread)
    ]
    above = [owner for owner in mine if _holds(owner.get("directory"), directory)]
    nearest = max((str(owner["directory"]) for owner in above), key=len, default=None)
    there = [owner for owner in above if owner["directory"] == nearest]
    return [str(owner["owner"]) for owner in there or mine]


def _holds(outer: object, directory: str) -> bool:
    """Whether a directory is the other one, or above it."""
    return isinstance(outer, str) and f"{directory}/".startswith(f"{outer.rstrip('/')}/")


def _may_serve(threads: object, thread: str | None) -> bool:
    return thread is None or not isinstance(threads, list) or not threads or thread in threads


def session_of(state: State, owners: Iterable[str]) -> Session | None:
    """The session that speaks for these owners: of those without a parent the one registered last. None without any."""
    tokens = set(owners)
    sessions = [session for session in state.sessions.values() if session.owner in tokens]
    grown = [session for session in sessions if session.parent is None]
    return max(grown or sessions, key=lambda session: session.registered_at, default=None)
