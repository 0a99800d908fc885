"""What the tools' calls ask first: who calls, whether an argument fits, what the State says. Answers nothing itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from msgspec import UnsetType

from agentbus import names
from agentbus.decide.sessions import require_session
from agentbus.errors import VALIDATION, BusError
from agentbus.limits import HISTORY_COUNT_MAX, RESULT_FRAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus import arguments as args
    from agentbus.host import Host
    from agentbus.state import State

T = TypeVar("T")


def ask(given: args.SessionArguments, host: Host, question: Callable[[State], T]) -> T:
    """A question of a registered session."""
    identity = identity_of(given)

    def asked(state: State) -> T:
        require_session(state, identity, host.bus.owners.token)
        return question(state)

    return host.bus.ask(asked)


def identity_of(given: args.SessionArguments) -> names.AgentName:
    """Who calls."""
    return names.parse_display_name(given.as_)


def require(holds: bool, message: str) -> None:  # noqa: FBT001  # reads as a sentence
    """Refuse what does not hold. Raises BusError (validation)."""
    if not holds:
        raise BusError(VALIDATION, message)


def require_count(count: int) -> None:
    """Refuse to list more than a page may have."""
    require(count <= HISTORY_COUNT_MAX, f'"count" {count} is more than {HISTORY_COUNT_MAX}: ask for fewer')


def or_none(value: T | UnsetType) -> T | None:
    """An argument that may have been left out."""
    return None if isinstance(value, UnsetType) else value


def room(host: Host) -> int:
    """How many bytes the records of a result may take."""
    return host.bus.policy.result_bytes_max - RESULT_FRAME_BYTES


def now_ms() -> int:
    """The time, in ms since 1970 UTC."""
    return time.time_ns() // 1_000_000
