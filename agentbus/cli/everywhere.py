"""``agentbus init --global``: every harness of this user. Says what it did, and what is left to do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from agentbus.cli import complain
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentbus.harness.install import Step
    from agentbus.harness.setup import Harness

NAMES = ("claude", "codex", "gemini", "opencode", "cursor", "vscode")
_VERBS = {"added": "added", "present": "is there", "removed": "removed", "absent": "was not there", "failed": "FAILED"}
_DRY_VERBS = _VERBS | {"added": "would add", "removed": "would remove", "failed": "WOULD FAIL"}


def set_up(names: tuple[str, ...], config_path: str | None, *, dry: bool, uninstall: bool) -> int:
    """Set up the named harnesses, or those that are found; the exit status.

    Raises: SettingsError: no server would start with the settings that each of them would be told. Nothing is written.
    """
    from agentbus import config  # noqa: PLC0415  # not for a repository
    from agentbus.harness import setup  # noqa: PLC0415  # as above
    from agentbus.harness.every import HARNESSES  # noqa: PLC0415  # as above

    if not uninstall:
        config.load(config_path, os.environ)
    environ = {**os.environ, **({} if config_path is None else {"AGENTBUS_CONFIG": config_path})}
    try:
        here = setup.here(environ)
    except FileNotFoundError as error:
        raise click.ClickException(str(error.strerror)) from error
    every = [HARNESSES[name](here) for name in dict.fromkeys(names or NAMES)]
    if uninstall:
        return _take_out(every, environ, here.home, dry=dry, named=bool(names))
    found = [harness for harness in every if names or harness.is_found(environ)]
    if not found:
        titles = ", ".join(harness.title for harness in every)
        click.echo(f"Agentbus: found none of {titles}. Name one with --harness to set it up all the same.")
    for doubt in here.doubts if found else ():
        complain(doubt)
    return max([_set_up(harness, environ, here.home, dry=dry) for harness in found], default=0)


def _set_up(harness: Harness, environ: Mapping[str, str], home: str, *, dry: bool) -> int:
    """Set one up and tell of it; the exit status."""
    from agentbus.harness import install  # noqa: PLC0415  # as above

    click.echo(f"{harness.title}:")
    done = [_tell(step, home, dry=dry) for step in install.install(harness, environ, dry=dry)]
    for sentence in (*(harness.todo if "added" in done and not dry else ()), *harness.notes):
        click.echo(f"  {sentence}")
    return int("failed" in done)


def _take_out(every: list[Harness], environ: Mapping[str, str], home: str, *, dry: bool, named: bool) -> int:
    """Take us out of each and tell of it; of one that is not on this machine only if it had any of ours."""
    from agentbus.harness import install  # noqa: PLC0415  # as above

    failed = told = False
    for harness in every:
        is_found = named or harness.is_found(environ)
        steps = list(install.uninstall(harness, environ, dry=dry))
        if is_found or any(step.done != "absent" for step in steps):
            told = True
            click.echo(f"{harness.title}:")
            failed |= "failed" in [_tell(step, home, dry=dry) for step in steps]
    if not told:
        click.echo(f"Agentbus: found none of {', '.join(harness.title for harness in every)}, and nothing of ours.")
    return int(failed)


def _tell(step: Step, home: str, *, dry: bool) -> str:
    click.echo(render_visible(f"  {_render(step, home, _DRY_VERBS if dry else _VERBS)}"))
    return step.done


def _render(step: Step, home: str, verbs: Mapping[str, str]) -> str:
    place = step.place.replace(f"{home}/", "~/") if home != "/" else step.place
    return f"{verbs[step.done]}: {step.what}, {place}" + (f" ({step.cause})" if step.cause else "")
