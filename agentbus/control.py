"""One call's line to the door it came through: how it hears of a cancel, and says how far it is. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Interruptible(Protocol):
        """What a cancelled call may be waiting in."""

        def interrupt(self) -> None:
            """Wake all who wait, so that they look whether they still should."""


class Cancelled(Exception):  # noqa: N818  # the caller went away; no error
    """The call was cancelled before it wrote anything, and never will."""


class Control:
    """What a door and a call share.

    Attributes:
        cancelled: the caller does not want the answer any more.
        progress: called by a waiting call with the seconds it has waited; None if nobody listens.
    """

    def __init__(self, bus: Interruptible, progress: Callable[[float], None] | None = None) -> None:
        self.cancelled = False
        self.progress = progress
        self._bus = bus

    def cancel(self) -> None:
        """Ask the call to end. It either has committed already, or never will."""
        self.cancelled = True
        self._bus.interrupt()

    def check(self) -> None:
        """Raise Cancelled if the call was cancelled."""
        if self.cancelled:
            raise Cancelled
