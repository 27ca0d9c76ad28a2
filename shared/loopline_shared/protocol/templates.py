"""Texts with placeholders: ``{name}`` stands for the parameter of a task that has this name.

``${name}`` is the shell's, and stays. In a command ``{{name}}`` is how to write ``{name}`` for a parameter's name;
all other braces stay, so that awk and JSON pass through. Elsewhere (inputs, outputs, environment) each name in braces
must be a parameter's, and ``{{name}}`` always stands for ``{name}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from math import isinf

_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
_TOKEN = re.compile(rf"(?<!\$)(?:\{{(\{{{_NAME}\}})\}}|\{{({_NAME})\}})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 16  # characters, so that no digit is lost
Value = str | bool | int | float


class Template:
    """A command, split at its placeholders."""

    __slots__ = ("_command", "_open")

    def __init__(self, command: Iterable[str]) -> None:
        self._command = tuple(command)
        split = map(_split, self._command)  # text, name, text, ..., text
        self._open = [(place, parts) for place, parts in enumerate(split) if len(parts) > 1]

    def fill(self, parameters: Mapping[str, Value]) -> tuple[str, ...]:
        """Return the command with the values of these parameters."""
        if not self._open:
            return self._command
        filled = [*self._command]
        for place, parts in self._open:
            filled[place] = _filled(parts, parameters)
        return tuple(filled)


def fill_text(text: str, parameters: Mapping[str, Value], quoted: Callable[[str], str] = str) -> str:
    """Return a text other than a command with the values of these parameters, each ``quoted`` by a function."""
    parts = _split(text)
    for place in range(1, len(parts), 2):
        name = parts[place]
        is_ours = name in parameters
        parts[place] = quoted(text_of(parameters[name])) if is_ours else name if _is_escaped(name) else f"{{{name}}}"
    return "".join(parts)


def names_in(texts: Iterable[str]) -> list[str]:
    """Return the names in braces, each once."""
    found = (name for text in texts if "{" in text for name in _split(text)[1::2] if not _is_escaped(name))
    return list(dict.fromkeys(found))


def unknown_name(texts: Iterable[str], known: Collection[str], where: str) -> str:
    """Return what is wrong with names in braces in ``where``, a noun in the plural; empty: all are parameters."""
    name = next((name for name in names_in(texts) if name not in known), "")
    if not name:
        return ""
    escape = f"(the text itself is written {{{{{name}}}}})"
    return f"the {where} say {{{name}}}, but no parameter has this name: {meant(name, known)} {escape}"


def meant(name: str, known: Collection[str]) -> str:
    """Return which parameter was probably meant, or which ones there are."""
    import difflib

    if close := difflib.get_close_matches(name, known, n=1):
        return f"did you mean {{{close[0]}}}?"
    return f"there is {', '.join(sorted(known)[:10])}" if known else "the job has none"


def text_of(value: Value) -> str:
    """Return a parameter's value as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def number_of(value: Value) -> Value:
    """Return the number for a text that is one, but written in another way than the number would be: 3.10, 1e5.

    Such a text is a value that was typed as a number. Any other value is returned as it is, 12 as a text among them.
    """
    if not isinstance(value, str) or not _NUMBER.fullmatch(value) or len(value) > _LONGEST_NUMBER:
        return value
    number = int(value) if value.lstrip("-").isdigit() else float(value)
    return value if str(number) == value or isinf(number) else number


def _split(text: str) -> list[str]:
    """Return text, name, text, ..., text. The name in double braces has a pair of braces left."""
    if "{" not in text:
        return [text]
    parts = _TOKEN.split(text)
    return [parts[0]] + [
        part for place in range(1, len(parts), 3) for part in (parts[place] or parts[place + 1], parts[place + 2])
    ]


def _is_escaped(name: str) -> bool:
    return name.startswith("{")


def _filled(parts: list[str], parameters: Mapping[str, Value]) -> str:
    if len(parts) == 3 and parts[1] in parameters:
        return f"{parts[0]}{text_of(parameters[parts[1]])}{parts[2]}"  # as most often
    filled = parts.copy()
    for place in range(1, len(parts), 2):
        name = parts[place]
        if name in parameters:
            filled[place] = text_of(parameters[name])
        elif not (_is_escaped(name) and name[1:-1] in parameters):
            filled[place] = f"{{{name}}}"
    return "".join(filled)
