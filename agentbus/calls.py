"""Each tool's name and the function that does it, from checked arguments and the host to a result object.

The functions stand in rooms of their own: joining.py, sending.py, delivering.py, looking.py; search in search/call.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentbus import delivering, joining, looking, sending
from agentbus.refusals import unsynced
from agentbus.search import call as searching
from journal import UnsyncedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbus.control import Control
    from agentbus.host import Host

Result = dict[str, Any]


def run(name: str, given: Any, host: Host, control: Control, *, repeatable: bool) -> Result:  # noqa: ANN401  # by name
    """What the tool of this name does with its checked arguments.

    Args:
        name: in the tool table.
        given: of the struct that the table names.
        host: whose call it is.
        control: the call's.
        repeatable: the call may be repeated after an unknown outcome without doing anything twice.

    Raises:
        BusError, JournalError, Cancelled
    """
    try:
        return _CALLS[name](given, host, control)
    except UnsyncedError as error:
        raise unsynced(error, retryable=repeatable) from error


_CALLS: dict[str, Callable[[Any, Host, Control], Result]] = {
    "register": joining.register,
    "create_channel": joining.create_channel,
    "list_channels": looking.list_channels,
    "subscribe": joining.subscribe,
    "unsubscribe": joining.unsubscribe,
    "post": sending.post,
    "receive": delivering.receive,
    "history": looking.history,
    "search": searching.search,
    "get_memory": looking.get_memory,
    "edit_memory": sending.edit_memory,
    "delete_memory": sending.delete_memory,
    "discover": looking.discover,
}
