"""The command line: the click group ``main``, one file a command. Knows no rule of the bus.

A command's module is imported when the command is asked for, or for ``agentbus --help``: ``agentbus
subscribe`` loads neither msgspec nor the MCP SDK. The command ``NAME`` is the click command called ``NAME``
in ``agentbus/cli/NAME.py``, without the dash it may have.

Exit status: 0 done, 1 refused or failed, 2 usage. A command that is done returns None; one that printed a
finding calls ``ctx.exit(1)``; a refusal is raised as BusError, JournalError or click.ClickException, and is
shown here as one line on stderr that begins ``agentbus: ``.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from agentbus.visible import render_visible

_COMMANDS = (
    "mcp",
    "identity",
    "init",
    "subscribe",
    "unsubscribe",
    "channel",
    "post",
    "wait",
    "status",
    "doctor",
    "ack-all",
    "config",
    "reset",
    "replay",
    "repair",
    "demo",
    "hook",
)
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_MODULES = {"unsubscribe": "subscribe", "ack-all": "ackall"}


def complain(text: str) -> None:
    """One warning or error as one line on stderr, whatever is in it."""
    click.echo(f"agentbus: {render_visible(text)}", err=True)


def complain_of_usage(error: click.UsageError) -> None:
    """The same for words a command does not know, and where to learn them."""
    path = error.ctx.command_path if error.ctx else "agentbus"
    says = " ".join(error.format_message().split())
    complain(f"{says}{'' if says.endswith(('.', '?', '!')) else '.'} Try '{path} --help'.")


def working_directory() -> str:
    """The directory the command was started in."""
    try:
        return str(Path.cwd())
    except OSError as error:
        raise click.ClickException(f"the working directory is gone: {error.strerror}") from error


class _Commands(click.Group):
    """Loads commands by name, and turns every refusal into one line and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """The commands' names, in the order of --help."""
        return list(_COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - as click calls it
        cmd_name: str,
    ) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"agentbus.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def main(self, *args: Any, **extra: Any) -> NoReturn:  # noqa: ANN401 - click's own, passed on
        """Run one command line and exit."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # an old locale must not turn a name into a traceback
                stream.reconfigure(errors="backslashreplace")
        extra |= {"prog_name": "agentbus", "standalone_mode": False}
        try:
            status = super().main(*args, **extra)
            if sys.stdout is not None:
                sys.stdout.flush()
        except click.Abort:
            complain("interrupted")
            sys.exit(1)
        except click.UsageError as error:
            complain_of_usage(error)
            sys.exit(2)
        except click.ClickException as error:
            complain(error.format_message())
            sys.exit(1)
        except OSError as error:
            _tell_output_error(error)
            sys.exit(1)
        except Exception as error:
            text = _render_refusal(error)
            if text is None:
                raise
            complain(text)
            sys.exit(1)
        sys.exit(status if isinstance(status, int) else 0)


def _tell_output_error(error: OSError) -> None:
    """Say in one line that stdout takes nothing; nothing at all to a reader that is gone. Raises what is a bug."""
    if error.errno not in (*_OUTPUT_ERRORS, errno.EPIPE) or error.filename is not None:
        raise error
    _abandon_stdout()
    if error.errno != errno.EPIPE:
        complain(f"the output: {error.strerror}")


def _abandon_stdout() -> None:
    """What could not be written must not be tried again at exit, where nobody could say why it fails."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _render_refusal(error: Exception) -> str | None:
    """What a refusal says, its next step included; None for a bug."""
    # Imported here: a command that did not fail has no use for them.
    from agentbus.errors import BusError  # noqa: PLC0415 - see above
    from agentbus.refusals import render_error  # noqa: PLC0415 - see above
    from journal import JournalError  # noqa: PLC0415 - see above

    return str(render_error(error)["message"]) if isinstance(error, (BusError, JournalError)) else None


@click.command(cls=_Commands, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="agentbus-journal", prog_name="agentbus", message="%(prog)s %(version)s")
def main() -> None:
    """A message bus for coding agents on one machine: MCP over stdio, one journal, no daemon.

    Where things are: AGENTBUS_CONFIG names the settings file, AGENTBUS_DATA_DIR the data directory.
    """
