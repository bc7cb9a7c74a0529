"""Options of a command shown in groups by --help; for distributions with click."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_OTHERS = "Options"


class GroupedOption(click.Option):
    """Option that belongs to a group of its command's help."""

    def __init__(self, *args: Any, group: str = _OTHERS, **options: Any) -> None:
        super().__init__(*args, **options)
        self.group = group


class GroupedCommand(click.Command):
    """Command whose help shows each group of options below the group's title, and all other options last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                groups.setdefault(getattr(param, "group", _OTHERS), []).append(record)
        others = groups.pop(_OTHERS, [])
        for title, records in (*groups.items(), (_OTHERS, others)):
            with formatter.section(title):
                formatter.write_dl(records)


class OptionDecorator(Protocol):
    """`click.option`, for the options of one group."""

    def __call__(self, *names: str, **attributes: Any) -> Callable[[F], F]: ...


def option_group(title: str) -> OptionDecorator:
    """Return a decorator like `click.option` for the options of one group."""

    def option(*names: str, **attributes: Any) -> Callable[[F], F]:
        return click.option(*names, cls=GroupedOption, group=title, **attributes)

    return option
