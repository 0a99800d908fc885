"""``agentbus hook`` as click shows it; the work is agentbus/hook.py's, which starts without click."""

from __future__ import annotations

import sys
from typing import Any

import click

from agentbus.cli import bus, complain_of_usage
from agentbus.harness import forms
from agentbus.hook import answer


class _Hook(click.Command):
    """Never ends with 2 for words it does not know, as of another version: clients hold a turn for that."""

    def make_context(self, *given: Any, **more: Any) -> click.Context:  # noqa: ANN401  # click's own, passed on
        """The context of one command line."""
        try:
            return super().make_context(*given, **more)
        except click.UsageError as error:
            complain_of_usage(error)
            sys.exit(0)


@click.command(cls=_Hook)
@click.argument("event", type=click.Choice(forms.EVENTS))
@click.option("--for", "harness", type=click.Choice(forms.HARNESSES), required=True, help="Whose hook it is.")
@bus.config_option()
@click.pass_context
def hook(ctx: click.Context, event: str, harness: str, config_path: str | None) -> None:
    """Answer a hook of a coding agent's client.

    `agentbus init --global` sets these up. session-start hands the session protocol to the model. stop lets a turn go
    on, once for each new message. wake sleeps until a message is addressed to the session of this harness, and wakes
    it. None prints what a message says.
    """
    ctx.exit(answer(event, harness, config_path))
