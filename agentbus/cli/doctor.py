"""``agentbus doctor``: whether all is set up, and what to do where it is not. Prints; finds nothing itself."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Final

import click

from agentbus import __version__
from agentbus.cli import bus
from agentbus.cli.output import colours, print_json
from agentbus.columns import pad, render_count, width
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbus.doctor.findings import Finding

_COLUMNS_MIN: Final = 60
_COLOURS: Final = {"fault": "red", "note": "yellow", "ok": "green"}


@click.command(short_help="Say what is wrong with the set-up, and the cure.")
@click.option("--all", "whole", is_flag=True, help="Also each thing that is as it should be.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with all of it.")
@bus.config_option()
@click.pass_context
def doctor(ctx: click.Context, config_path: str | None, *, whole: bool, as_json: bool) -> None:
    """Look at the set-up, and say what to do about each thing that is wrong.

    The command, the coding agents, the settings, the data directory, the journal, who is on the bus, and this
    repository. Changes nothing. Exit 1 if there is a fault; a note is no fault.
    """
    from agentbus.doctor import examine, findings  # noqa: PLC0415  # the help does without the harnesses
    from agentbus.doctor.visit import Visit  # noqa: PLC0415  # as above

    visit = Visit(config_path, os.environ, _directory())
    found = examine(visit)
    if as_json:
        data = None if visit.refused else visit.data
        print_json(findings.record(found, version=__version__, data_directory=data, directory=visit.directory))
    else:
        click.echo(f"Agentbus: {findings.render_verdict(found)}.")
        _print(found, visit.home, whole=whole)
        if visit.refused:
            click.echo("Not looked at before the settings are right: the data directory, the journal, the sessions.")
    if findings.count(found, "fault"):
        ctx.exit(1)


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # that it is gone is one of the findings
        return None


def _print(found: list[Finding], home: str, *, whole: bool) -> None:
    """Faults, notes, and how much is well; ``whole``: and what."""
    shown = [each for each in found if whole or each.level != "ok"]
    columns = max((width(each.about) for each in shown), default=0)
    for before, each in zip([None, *shown], shown, strict=False):
        if before is None or each.level != "ok" or before.level != "ok":
            click.echo()
        for line in _lines(each, columns, home):
            click.echo(line)
    well = [each for each in found if each.level == "ok"]
    about = ", ".join(dict.fromkeys(each.about for each in well))
    click.echo()
    click.echo(f"{render_count(len(well), 'thing')} as it should be: {about}." if well else "Nothing else was found.")


def _lines(finding: Finding, columns: int, home: str) -> Iterator[str]:
    """The finding beside its level and what it is about; below it why, and what to do."""
    level = finding.level.ljust(5)
    if colours():
        level = click.style(level, fg=_COLOURS[finding.level])
    indent = " " * (7 + columns + 2)
    lead = f"{level}  {pad(finding.about, columns)}  "
    what, *rest = _wrapped(_short(finding.what, home), indent)
    yield lead + what.removeprefix(indent)
    yield from rest
    if finding.why:
        yield from _wrapped(_short(finding.why, home), indent)
    if finding.do:
        yield from _wrapped(f"-> {_short(finding.do, home)}", indent)


def _wrapped(text: str, indent: str) -> list[str]:
    """Lines that fit the terminal; one line where there is none, for whoever reads it by program."""
    shown = render_visible(text)
    if sys.stdout is None or not sys.stdout.isatty():
        return [indent + shown]
    columns = max(shutil.get_terminal_size().columns, _COLUMNS_MIN)
    return textwrap.wrap(
        shown, columns, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _short(text: str, home: str) -> str:
    return text.replace(f"{home}/", "~/") if home != "/" else text
