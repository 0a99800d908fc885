"""``agentbus hook`` as click shows it; the work is agentbus/hook.py's, which starts without click."""

from __future__ import annotations

import click

from agentbus.cli import bus
from agentbus.harness import forms
from agentbus.hook import answer


@click.command()
@click.argument("event", type=click.Choice(forms.EVENTS))
@click.option("--for", "harness", type=click.Choice(forms.HARNESSES), required=True, help="Whose hook it is.")
@bus.config_option()
@click.pass_context
def hook(ctx: click.Context, event: str, harness: str, config_path: str | None) -> None:
    """Answer a harness's hook; `agentbus init --global` sets these up.

    session-start hands the session protocol to the model. stop lets a turn go on, once for each new message. wake
    sleeps until a message is addressed to the session of this harness, and wakes it. None prints what a message says.
    """
    ctx.exit(answer(event, harness, config_path))
