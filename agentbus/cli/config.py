"""``agentbus config``: the settings in force and where each comes from; or what is wrong in a settings file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
import msgspec

from agentbus import config as settings
from agentbus.cli import bus
from agentbus.cli.output import print_json, print_rows
from agentbus.columns import render_count
from agentbus.visible import render_visible

if TYPE_CHECKING:
    from agentbus.config import Fault, Loaded


@click.command()
@click.option("--check", "checked", metavar="FILE", help="Say what is wrong in FILE, or that it is ok.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@bus.config_option()
@click.pass_context
def config(ctx: click.Context, checked: str | None, config_path: str | None, *, as_json: bool) -> None:
    """Show the settings in force, and where each comes from.

    With --check nothing else is looked at: FILE is read as a settings file, and every fault is named with its place,
    its value and what is allowed. Exit 1 if there is one.
    """
    if checked is None:
        loaded = settings.trace(config_path, os.environ)
        if as_json:
            print_json(_record(loaded))
        else:
            _print(loaded)
        return
    if config_path is not None:
        raise click.UsageError("--check and --config exclude each other: name one file")
    keys, faults = settings.check(checked, os.environ)
    if as_json:
        rows = [msgspec.structs.asdict(fault) | {"message": fault.render()} for fault in faults]
        print_json({"file": checked, "ok": not faults, "faults": rows})
    else:
        _print_checked(checked, keys, faults)
    if faults:
        ctx.exit(1)


def _record(loaded: Loaded) -> dict[str, Any]:
    return {
        "file": loaded.file if loaded.is_there else None,
        "named_by": loaded.named_by,
        "settings": {
            key: {"value": _plain(loaded, key), "from": origin, "allowed": settings.render_allowed(key)}
            for key, origin in loaded.origins.items()
        },
    }


def _plain(loaded: Loaded, key: str) -> Any:  # noqa: ANN401  # JSON
    value = getattr(loaded.settings, key)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _print(loaded: Loaded) -> None:
    named = f", named by {loaded.named_by}" if loaded.named_by else ""
    there = "" if loaded.is_there else " (not there)"
    click.echo(render_visible(f"Agentbus: settings file {loaded.file}{named}{there}"))
    rows = [("setting", "value", "from", "allowed")]
    for key, origin in loaded.origins.items():
        value = _plain(loaded, key)
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        rows.append((key, shown, origin, settings.render_range(key)))
    print_rows(rows)


def _print_checked(file: str, keys: list[str], faults: list[Fault]) -> None:
    for fault in faults:
        click.echo(f"fault: {fault.render()}")
    if faults:
        click.echo(render_visible(f"failed: {render_count(len(faults), 'fault')} in {file}"))
    else:
        click.echo(render_visible(f"ok: {file} ({render_count(len(keys), 'setting')})"))
