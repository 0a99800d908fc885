"""How a command comes to the bus: only to ask, or as a person whose session ends with the command. Logs nothing."""

from __future__ import annotations

import getpass
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agentbus import __version__, config, names
from agentbus.bus import FIRST_EVENTS
from agentbus.cli import working_directory
from agentbus.commands import Register
from agentbus.errors import BusError
from agentbus.events import DEFAULT_CHANNELS
from agentbus.fold import fold
from agentbus.host import open_host, open_journal, open_snapshots
from agentbus.limits import COMMAND_DEADLINE_S
from agentbus.log import open_log
from agentbus.owners import Owners
from agentbus.projection import Projection
from agentbus.state import State
from agentbus.visible import render_visible
from journal import Commit, JournalError, Place, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentbus.config import Settings
    from agentbus.host import Host
    from agentbus.names import AgentName
    from journal import Journal

F = TypeVar("F", bound="Callable[..., Any]")

_CLIENT = f"agentbus {__version__} command line"
_CONTEXT = "shell"  # of a person whose directory has a name that no context may have


def config_option(callback: Callable[..., Any] | None = None) -> Callable[[F], F]:
    """The option --config; its value is the file's path, or what ``callback`` makes of it."""
    return click.option(
        "--config",
        "config_path" if callback is None else "settings",
        metavar="FILE",
        callback=callback,
        help="The settings; default: AGENTBUS_CONFIG, then ~/.config/agentbus/config.json.",
    )


def settings_option(command: F) -> F:
    """The option --config of a command that needs the settings in any case, as its parameter ``settings``."""

    def load(_: click.Context, __: click.Parameter, path: str | None) -> Settings:
        return load_settings(path)

    return config_option(load)(command)


def load_settings(path: str | None) -> Settings:
    """The user's settings. Raises SettingsError."""
    return config.load(path, os.environ)


def read_state(settings: Settings) -> tuple[State, Journal]:
    """The State now, and the journal it was read from; both are empty if there is none. Creates nothing.

    Raises:
        JournalError: corrupt, unsupported, busy, not readable.
    """
    journal = open_journal(settings, read_only=True)
    projection = Projection(journal, open_snapshots(settings))
    projection.catch_up()
    return projection.state, journal


def say_no_journal(place: object, *, err: bool = False) -> None:
    """Tell that nothing has happened yet, and where it would have; on stderr where stdout is for JSON."""
    click.echo(render_visible(f"Agentbus: no journal yet in {place}"), err=err)


def gone_owners(settings: Settings, state: State) -> frozenset[str]:
    """Owners with a session whose process lives no more."""
    return Owners(settings.data_directory / "owners").gone(held.owner for held in state.sessions.values())


def login_name() -> AgentName:
    """Who is at the keyboard, as the system calls them; by number where that is no name."""
    try:
        return names.parse_agent_name(getpass.getuser().replace("/", "-"))
    except (OSError, KeyError, BusError):  # a container may run as a user without a name
        return names.parse_agent_name(f"uid {os.getuid()}")


@contextmanager
def person(settings: Settings, name: AgentName, refuse: Callable[[State], object]) -> Iterator[tuple[Host, AgentName]]:
    """A session of a person until the block ends. It subscribes to nothing.

    Its name is the first suffix of ``name`` that no live session holds and that has no subscriptions: an agent's
    backlog, and what it has to be told of it, is not a person's to take.

    Args:
        settings: the user's.
        name: who it is.
        refuse: raises BusError where what the person is about to do would be refused: then no session is begun for it.

    Raises:
        BusError, JournalError: nothing was written.
    """
    log = open_log(settings.data_directory, settings.log_level)
    host = open_host(settings, working_directory(), _CLIENT, log)
    try:
        host.bus.ask(lambda state: refuse(state if state.channels else _newborn()))
        command = Register(name=name, context=_context(), client=_CLIENT, apart=True)
        yield host, host.bus.execute(command).result.as_
    finally:
        # What was done stands. A session that could not be ended is found gone: its owner's lock is.
        with suppress(JournalError):
            host.close(time.monotonic() + COMMAND_DEADLINE_S)
        log.close()


def _newborn() -> State:
    """What every journal begins with: the commit that registers somebody will make it so."""
    state = State()
    fold(state, Commit(2, format_time(0), os.getpid(), FIRST_EVENTS, "", Place(1, 0, 1)), DEFAULT_CHANNELS)
    return state


def _context() -> str:
    try:
        return names.parse_context(os.path.basename(working_directory()))
    except BusError:
        return _CONTEXT
