"""A click command whose --help shows its options in groups. Knows no command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBER_MAX: Final = (1 << 53) - 1
"""A journal holds no higher ones."""

F = TypeVar("F", bound="Callable[..., Any]")


class Number(click.ParamType[int]):
    """A whole number from 1 on. Unlike click's own it does not spell out its range in --help."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401  # as click has it
        """The number that a text is."""
        text = str(value)
        number = int(text[:20]) if text.isascii() and text.isdigit() else 0
        if not 1 <= number <= NUMBER_MAX:
            self.fail(f'"{value}" is no number from 1 to {NUMBER_MAX}.', param, ctx)
        return number


class GroupedOption(click.Option):
    """An option that stands under a heading."""

    def __init__(self, *args: Any, group: str, **attrs: Any) -> None:  # noqa: ANN401  # click's own, passed on
        super().__init__(*args, **attrs)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose options stand under headings, in the order in which each is met first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; what is wrong with them is wrong with this command."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those without a heading last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for param in sorted(options, key=lambda param: not isinstance(param, GroupedOption)):
            record = param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(param, "group", "Other"), []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def option(group: str, *names: str, **attrs: Any) -> Callable[[F], F]:  # noqa: ANN401  # click's own, passed on
    """An option under a heading."""
    return click.option(*names, cls=GroupedOption, group=group, **attrs)
