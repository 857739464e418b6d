"""Commands whose help shows flags as flags: some versions of typer put `<bool>` beside each, as if it took a value."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, also those that typer adds."""
        return _without_values(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """Several commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options that come before a command."""
        return _without_values(super().get_params(ctx))


def _without_values(options: list[Any]) -> list[Any]:
    for option in options:
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = ""
    return options
