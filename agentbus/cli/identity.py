"""``agentbus identity`` as click shows it; the work is agentbus/identity.py's, which starts without click."""

from __future__ import annotations

import click

from agentbus.identity import run


@click.command()
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def identity(form: str) -> None:
    """Print the session protocol, for a hook.

    Always succeeds; what is wrong with the repository file goes to stderr. With --format json: the one JSON
    object that a SessionStart hook may return.
    """
    run(["--format", form])
