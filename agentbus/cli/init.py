"""``agentbus init``: sets a repository up and prints what is left to do; with --global, every harness here."""

from __future__ import annotations

import os
import subprocess

import click

from agentbus import replace, repoconfig
from agentbus.cli import working_directory
from agentbus.cli.everywhere import NAMES, set_up
from agentbus.protocol import render_setup
from agentbus.repository import FILE, is_present, read_regular
from agentbus.visible import render_visible

_IGNORED = ".local/"
_IGNORING_LINES = frozenset((b".local", b".local/", b"/.local", b"/.local/"))
_FILE_BYTES_MAX = 1 << 20
_GIT_WAIT_S = 10


@click.command(short_help="Set this repository up, or every coding agent.")
@click.option("--identity", "name", metavar="NAME", help="The identity; default: the repository root's basename.")
@click.option(
    "--agents-md/--no-agents-md",
    default=None,
    help="Put the session protocol into AGENTS.md as a section of its own, for agents that read that file; or take"
    " it out.",
)
@click.option("--global", "everywhere", is_flag=True, help="Set up the harnesses of this user, not a repository.")
@click.option(
    "--harness", "names", multiple=True, type=click.Choice(NAMES), help="With --global: only this one; repeatable."
)
@click.option("--dry-run", "dry", is_flag=True, help="With --global: change nothing, say what would be done.")
@click.option("--uninstall", is_flag=True, help="With --global: take everything out again.")
@click.option("--config", "config_path", metavar="FILE", help="With --global: the settings that every harness is told.")
@click.pass_context
def init(  # noqa: PLR0913  # one option each
    ctx: click.Context,
    name: str | None,
    agents_md: bool | None,  # noqa: FBT001  # an option
    names: tuple[str, ...],
    config_path: str | None,
    *,
    everywhere: bool,
    dry: bool,
    uninstall: bool,
) -> None:
    """Set this repository up, or with --global every coding agent here; print what is left.

    In a repository: writes .local/agentbus.json at its root and adds .local/ to .gitignore if nothing there ignores
    it. With --global: adds the server, the hooks and the wake-up to each harness that is found. A second run changes
    nothing.
    """
    if everywhere:
        if name is not None or agents_md is not None:
            raise click.UsageError("--identity and --agents-md go with a repository, not with --global.")
        ctx.exit(set_up(names, config_path, dry=dry, uninstall=uninstall))
    if names or dry or uninstall or config_path:
        raise click.UsageError("--harness, --dry-run, --uninstall and --config go with --global.")
    _init_repository(name, agents_md=agents_md)


def _init_repository(name: str | None, *, agents_md: bool | None) -> None:
    done = repoconfig.init(working_directory(), name)
    verb = "wrote" if done.written else "nothing to change in"
    click.echo(render_visible(f'Agentbus: {verb} {done.path} (identity "{done.identity}").'))
    gitignore = f"{done.home}/.gitignore"
    added = _ignore(done.home, gitignore)
    ignored = f"added {_IGNORED} to {gitignore}" if added else f"git ignores {_IGNORED} already"
    click.echo(render_visible(f"Agentbus: {ignored}."))
    if agents_md is not None:
        path = f"{done.home}/AGENTS.md"
        changed = _edit_agents_md(path, done.identity if agents_md else None)
        verb = (
            ("wrote the protocol into" if agents_md else "took the protocol out of") if changed else "nothing to do in"
        )
        click.echo(render_visible(f"Agentbus: {verb} {path}."))
    click.echo("")
    click.echo(render_setup(done.identity, os.environ), nl=False)


def _edit_agents_md(path: str, identity: str | None) -> bool:
    """Put the protocol for an identity into a file of rules, or with None take it out; whether anything changed."""
    from agentbus.harness import section  # noqa: PLC0415  # only on request

    def edited(text: str) -> str:
        return section.drop(text) if identity is None else section.put(text, identity)

    try:
        text = _read(path).decode()
        if edited(text) == text:
            return False
        with replace.exclusive(path) as write:
            after = edited(_read(path).decode())
            if after:
                write(after.encode())
            else:
                os.unlink(path)
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path}: byte {error.start + 1} is not UTF-8; left as it is") from error
    except section.BrokenSectionError as error:
        raise click.ClickException(f"{path}: {error}; mend it by hand") from error
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}; left as it is") from error
    return True


def _ignore(home: str, gitignore: str) -> bool:
    """Have git ignore ``.local/`` in ``home``; whether a line had to be added."""
    try:
        if _is_ignored(home, _read(gitignore)):
            return False
        with replace.exclusive(gitignore) as write:
            write(_with_line(_read(gitignore)))
    except OSError as error:
        message = f"{gitignore}: {error.strerror}; add the line {_IGNORED} yourself"
        raise click.ClickException(message) from error
    return True


def _read(path: str) -> bytes:
    return read_regular(path, _FILE_BYTES_MAX) if is_present(path) else b""


def _is_ignored(home: str, text: bytes) -> bool:
    if not _IGNORING_LINES.isdisjoint(line.strip() for line in text.splitlines()):
        return True  # so that a later line which un-ignores it does not make us add one at every run
    # --no-index: a file somebody has committed is not ignored, whatever .gitignore says.
    command = ["git", "-C", home, "check-ignore", "-q", "--no-index", FILE]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        return (
            subprocess.run(command, env=environ, capture_output=True, timeout=_GIT_WAIT_S, check=False).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False  # no git: the text alone decides


def _with_line(text: bytes) -> bytes:
    newline = b"\r\n" if b"\r\n" in text else b"\n"
    if text and not text.endswith(b"\n"):
        text += newline
    return text + _IGNORED.encode() + newline
