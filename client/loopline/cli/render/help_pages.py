"""Help pages: the little Markdown that docstrings of commands have, without a Markdown library.

The import of that library takes longer than all that a help page needs otherwise.
"""

from __future__ import annotations

import re
from typing import Any

import docstring_parser
from cyclopts import App
from cyclopts.help import DefaultFormatter, HelpPanel, InlineText
from rich.console import Console, ConsoleOptions
from rich.text import Text

_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_CODE = re.compile(r"`([^`]+)`")
_CODE_STYLE = "markdown.code"
_CODE_INDENT = "    "


class HelpFormatter(DefaultFormatter):
    """The library's formatter, for an App whose ``help_format`` is ``plaintext``."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print the options of a group, or the commands."""
        for entry in panel.entries:
            _format(entry.description)
        super().__call__(console, options, panel)

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """Print the text above the options."""
        _format(description)
        super().render_description(console, options, description)


def formatted(text: str) -> Text:
    """Return a text whose paragraphs can be filled, with code in its style. Indented paragraphs keep their lines."""
    page = Text()
    for paragraph in _BLANK_LINES.split(text.strip("\n")):
        if page:
            page.append("\n\n")
        if paragraph.startswith(_CODE_INDENT):
            lines = (line.removeprefix(_CODE_INDENT) for line in paragraph.splitlines())
            page.append("\n".join(f" {line}" for line in lines), _CODE_STYLE)
            continue
        for place, part in enumerate(_CODE.split(" ".join(paragraph.split()))):
            page.append(part, _CODE_STYLE if place % 2 else None)
    return page


def print_page(app: App, command: list[str]) -> None:
    """Print the help page of a command, or of the whole program.

    Options are described below ``Parameters`` in docstrings. Without the replacement, the library would also parse
    the source of each class of options, in search of docstrings below its fields.
    """
    docstring_parser.parse_from_object = _parsed_docstring
    app.help_print(command)


def _parsed_docstring(
    obj: Any, style: docstring_parser.DocstringStyle = docstring_parser.DocstringStyle.AUTO
) -> docstring_parser.Docstring:
    return docstring_parser.parse(obj.__doc__ or "", style)


def _format(description: Any) -> None:
    if isinstance(description, InlineText) and isinstance(description.primary_renderable, Text):
        description.primary_renderable = formatted(description.primary_renderable.plain)
