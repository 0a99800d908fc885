"""``agentbus init --global``: every harness of this user. Says what it did, and what is left to do."""

from __future__ import annotations

import os

import click

from agentbus.visible import render_visible

NAMES = ("claude", "codex", "gemini", "opencode", "cursor", "vscode")
_VERBS = {"added": "added", "present": "is there", "removed": "removed", "absent": "was not there", "failed": "FAILED"}
_DRY_VERBS = _VERBS | {"added": "would add", "removed": "would remove"}


def set_up(names: tuple[str, ...], *, dry: bool, uninstall: bool) -> int:
    """Set up the named harnesses, or those that are found; the exit status."""
    from agentbus.harness import HARNESSES, install, setup  # noqa: PLC0415  # not for a repository

    here = setup.here(os.environ)
    every = [HARNESSES[name](here) for name in names or NAMES]
    found = [harness for harness in every if names or harness.is_found(os.environ)]
    if not found:
        titles = ", ".join(harness.title for harness in every)
        click.echo(f"Agentbus: found none of {titles}. Name one with --harness to set it up all the same.")
        return 0
    failed = False
    for harness in found:
        click.echo(f"{harness.title}:")
        work = install.uninstall if uninstall else install.install
        changed = False
        for step in work(harness, os.environ, dry=dry):
            changed |= step.done in {"added", "removed"}
            failed |= step.done == "failed"
            cause = f" ({step.cause})" if step.cause else ""
            verb = (_DRY_VERBS if dry else _VERBS)[step.done]
            click.echo(render_visible(f"  {verb}: {step.what}, {_short(step.place, here.home)}{cause}"))
        told = (harness.todo if changed and not uninstall else ()) + (() if uninstall else harness.notes)
        for sentence in told:
            click.echo(f"  {sentence}")
    return 1 if failed else 0


def _short(place: str, home: str) -> str:
    return place.replace(f"{home}/", "~/") if home != "/" else place
