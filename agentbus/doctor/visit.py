"""What the doctor looks at: one user's environment, settings and working directory. Judges nothing, creates nothing."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from agentbus import config
from agentbus.config import SettingsError
from agentbus.harness import setup
from agentbus.host import open_journal, open_snapshots
from agentbus.owners import Owners
from agentbus.projection import Projection
from journal import JournalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentbus.config import Settings
    from agentbus.state import State

CONFIG_VARIABLE: Final = "AGENTBUS_CONFIG"
DATA_VARIABLE: Final = "AGENTBUS_DATA_DIR"


class Visit:
    """One examination; its checks run at once, each in a thread of its own.

    Attributes:
        config_path: the value of ``--config``, if it was given.
        environ: the user's.
        told: the same with ``config_path`` in it: what a client has to be told to reach this bus.
        directory: the working directory; None if it is gone.
        refused: why the settings cannot be used; "" if they can.
    """

    def __init__(self, config_path: str | None, environ: Mapping[str, str], directory: str | None) -> None:
        self.config_path = config_path
        self.environ = dict(environ)
        self.told = self.environ | ({} if config_path is None else {CONFIG_VARIABLE: os.path.abspath(config_path)})
        self.directory = directory
        self.refused = ""
        self._settings: Settings | None = None
        try:
            self._settings = config.load(config_path, environ)
        except SettingsError as error:
            self.refused = error.message
        self._reading = threading.Lock()
        self._state: State | JournalError | None = None

    @property
    def settings(self) -> Settings:
        """The user's; not to be asked for where they were refused."""
        assert self._settings is not None, "checks that need settings are left out without"  # noqa: S101  # invariant
        return self._settings

    @property
    def data(self) -> str:
        """Path of the data directory."""
        return os.fspath(self.settings.data_directory)

    @property
    def home(self) -> str:
        """The user's home directory."""
        return self.environ.get("HOME") or os.path.expanduser("~")

    @property
    def owners(self) -> Owners:
        """Which processes live."""
        return Owners(self.settings.data_directory / "owners")

    @property
    def setup(self) -> setup.Setup:
        """How a client is to start agentbus; by its name alone where no command is to be found."""
        try:
            return setup.here(self.told)
        except FileNotFoundError:  # the check of the command says so
            return setup.Setup(self.home, self.told, "agentbus")

    def state(self) -> State:
        """The State now, read once for all who ask; empty if there is no journal.

        Raises:
            JournalError: corrupt, unsupported, busy, not readable.
        """
        with self._reading:
            if self._state is None:
                try:
                    projection = Projection(open_journal(self.settings, read_only=True), open_snapshots(self.settings))
                    projection.catch_up()
                    self._state = projection.state
                except JournalError as error:
                    self._state = error
            if isinstance(self._state, JournalError):
                raise self._state
            return self._state


def nearest_existing(path: str) -> str:
    """A path, or the nearest directory above it that something stands at."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path
