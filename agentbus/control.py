"""One call's line to the door it came through: how it hears of a cancel, and says how far it is. Pure.

The door has the ``Call`` from the moment the request comes in; what the table does with it has the ``Control``.
"""

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


class Call:
    """One request in flight, and the way to cancel it, be it in the table's hands already or not."""

    __slots__ = ("_control", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        self._control: Control | None = None

    def attach(self, control: Control) -> None:
        """From now on ``control`` hears of a cancellation, of an earlier one too."""
        self._control = control
        if self.cancelled:
            control.cancel()

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        # attach writes and reads these two in the opposite order: one of the two sees what the other did.
        self.cancelled = True
        if self._control is not None:
            self._control.cancel()
