"""A parser of command lines whose help and mistakes look like those of all other commands.

The daemons keep argparse, for their flags are made from their settings; cyclopts draws the help of the others.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry
    from rich.console import Console


class Parser(argparse.ArgumentParser):
    """A parser that draws its help in boxes."""

    def format_usage(self) -> str:
        positional = (action.metavar or action.dest.upper() for action in self._get_positional_actions())
        return f"Usage: {' '.join([self.prog, '[OPTIONS]', *map(str, positional)])}\n"

    def format_help(self) -> str:
        from rich.console import Console  # help alone needs it

        drawn = io.StringIO()
        console = Console(file=drawn, highlight=False, markup=False)
        console.print(self.format_usage())
        if self.description:
            console.print(f"{_one_line(self.description)}\n")
        for group in self._action_groups:
            self._draw(group, console)
        if self.epilog:
            console.print("", _one_line(self.epilog), sep="\n")
        return drawn.getvalue()

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\nhint: `{self.prog} --help` lists its options\n")

    def _draw(self, group: argparse._ArgumentGroup, console: Console) -> None:
        from cyclopts.help import DefaultFormatter, HelpPanel

        entries = [self._entry(one) for action in group._group_actions for one in _shown(action)]
        if entries:
            title = (group.title or "").removeprefix("positional ").capitalize()
            DefaultFormatter()(console, console.options, HelpPanel("parameter", title, entries=entries))

    def _entry(self, action: argparse.Action) -> HelpEntry:
        from cyclopts.help import HelpEntry

        name = str(action.metavar or action.dest.upper())
        value = name if action.option_strings and action.nargs != 0 else None
        text = self._get_formatter()._expand_help(action)
        return HelpEntry(
            positive_names=tuple(action.option_strings) or (name,),
            metavar=value,
            description=text[:1].upper() + text[1:] + ("" if text.endswith(".") else "."),
        )


def _shown(action: argparse.Action) -> Iterator[argparse.Action]:
    """Yield what the help lists of an action: itself, or each of its subcommands."""
    if action.help is not argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
        yield from getattr(action, "_choices_actions", None) or [action]


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
