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
    """Set up the named harnesses, or those that are found; the exit status."""
    from agentbus.harness import setup  # noqa: PLC0415  # not for a repository
    from agentbus.harness.every import HARNESSES  # noqa: PLC0415  # not for a repository

    environ = {**os.environ, **({"AGENTBUS_CONFIG": config_path} if config_path else {})}
    try:
        here = setup.here(environ)
    except FileNotFoundError as error:
        raise click.ClickException(str(error.strerror)) from error
    every = [HARNESSES[name](here) for name in names or NAMES]
    found = [harness for harness in every if names or harness.is_found(environ)]
    if not found:
        titles = ", ".join(harness.title for harness in every)
        click.echo(f"Agentbus: found none of {titles}. Name one with --harness to set it up all the same.")
        return 0
    if here.will_go and not uninstall:
        complain(
            f"{here.command} lies in a cache that may be emptied: install agentbus (`uv tool install`, `pipx"
            " install`), and run this again with that"
        )
    failed = [_set_up(harness, environ, here.home, dry=dry, uninstall=uninstall) for harness in found]
    return 1 if any(failed) else 0


def _set_up(harness: Harness, environ: Mapping[str, str], home: str, *, dry: bool, uninstall: bool) -> bool:
    """Set one up and tell of it; whether anything failed."""
    from agentbus.harness import install  # noqa: PLC0415  # as above

    click.echo(f"{harness.title}:")
    done = set()
    for step in (install.uninstall if uninstall else install.install)(harness, environ, dry=dry):
        done.add(step.done)
        click.echo(render_visible(f"  {_render(step, home, _DRY_VERBS if dry else _VERBS)}"))
    if not uninstall:
        for sentence in (*(harness.todo if "added" in done and not dry else ()), *harness.notes):
            click.echo(f"  {sentence}")
    return "failed" in done


def _render(step: Step, home: str, verbs: Mapping[str, str]) -> str:
    place = step.place.replace(f"{home}/", "~/") if home != "/" else step.place
    return f"{verbs[step.done]}: {step.what}, {place}" + (f" ({step.cause})" if step.cause else "")
