"""A whole job in a file: YAML, TOML or JSON. Mistakes are reported with their line."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loopline.cli import values
from loopline.cli.errors import usage
from loopline.cli.submission import mistakes
from loopline.cli.submission.options import STDIN
from loopline.cli.submission.positions import (
    Location,
    ParseError,
    Position,
    Positions,
    find_in_toml,
    is_parameter,
    is_word,
    nearest,
    read_yaml,
)
from loopline_shared.errors import LooplineError

MOST_BYTES = 64 * 2**20
_MOST_TOLD = 5
_IN_WORDS: dict[Location, Callable[[str], Any]] = {
    ("size",): values.duration,
    ("timeout_s",): values.duration,
    ("kill_after_s",): values.duration,
    ("retry_delay_s",): values.duration,
    ("requires", "memory_bytes"): values.memory,
    ("command",): shlex.split,
}
"""Fields that a person may write as text, such as `size: 2h`."""


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job file: its content (``document``), and the position of every value."""

    name: str
    text: str
    document: dict[str, Any]
    positions: Positions

    @property
    def folder(self) -> Path:
        """Folder at which the paths in the file start."""
        return Path() if self.name == "stdin" else Path(self.name).parent

    def mistake(self, path: Location, message: str, hint: str = "") -> LooplineError:
        """Return an error about one value, with its line."""
        return usage(self._at(path, message), hint)

    def mistakes(self, error: ValidationError) -> LooplineError:
        """Return an error about everything that is wrong with the job, each with its line."""
        told = list(dict.fromkeys(map(self._told, error.errors(include_url=False))))[:_MOST_TOLD]
        return usage("\n".join(told))

    def _at(self, path: Location, message: str) -> str:
        return _pointer(self.name, self.text, nearest(self.positions, path), mistakes.said(path, message))

    def _told(self, found: Any) -> str:
        path = mistakes.place(self.document, found["loc"])
        return _pointer(
            self.name, self.text, nearest(self.positions, path), mistakes.said(path, mistakes.message(found))
        )


def read(path: Path) -> JobFile:
    """Return a job file. Raises LooplineError (usage) if it cannot be read in the language of its name."""
    name = "stdin" if path == STDIN else str(path)
    text = _text(path)
    try:
        document, positions = _LANGUAGES[_language(path)](text)
    except ParseError as error:
        raise usage(_pointer(name, text, error.position, str(error))) from None
    if not isinstance(document, dict):
        raise usage(f"{name}: this is not a job", "a job file begins with keys such as `command:`")
    file = JobFile(name, text, document, positions)
    _put_in_numbers(file)
    return file


def _language(path: Path) -> str:
    suffix = ".yaml" if path == STDIN else path.suffix.lower()
    if suffix not in _LANGUAGES:
        raise usage(f"{path}: unknown file type", "use .yaml, .yml, .toml or .json")
    return suffix


def _text(path: Path) -> str:
    try:
        data = sys.stdin.buffer.read(MOST_BYTES + 1) if path == STDIN else path.read_bytes()
        if len(data) > MOST_BYTES:
            hint = "put parameters into a file of rows: --csv or --jsonl"
            raise usage(f"{path} has more than {MOST_BYTES:,} bytes", hint)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise usage(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise usage(f"{path}: this is not text in UTF-8", "save it as UTF-8") from None


class _Real(float):
    """A number with its text."""

    def __init__(self, text: str) -> None:
        self.text = text


def _settled(value: Any, path: Location) -> Any:
    """Return a value of a document with plain numbers, and with texts where these are to be kept."""
    if isinstance(value, dict):
        return {name: _settled(one, (*path, name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_settled(one, (*path, place)) for place, one in enumerate(value)]
    if not isinstance(value, _Real):
        return value
    return values.as_written(float(value), value.text) if is_parameter(path) or is_word(path) else float(value)


def _from_json(text: str) -> tuple[Any, Positions]:
    """Read JSON. Its positions are read by the YAML reader, since JSON is YAML too."""
    try:
        document = _settled(json.loads(text, parse_float=_Real), ())
    except json.JSONDecodeError as error:
        raise ParseError(f"this is not JSON: {error.msg}", (error.lineno, error.colno)) from None
    try:
        return document, read_yaml(text)[1]
    except ParseError:
        return document, {}


def _from_toml(text: str) -> tuple[Any, Positions]:
    try:
        return _settled(tomllib.loads(text, parse_float=_Real), ()), find_in_toml(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).partition(" (at ")
        numbers = [int(number) for number in re.findall(r"\d+", place)]
        position = (numbers[0], numbers[1]) if len(numbers) == 2 else None
        raise ParseError(f"this is not TOML: {message}", position) from None


_LANGUAGES: dict[str, Callable[[str], tuple[Any, Positions]]] = {
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".toml": _from_toml,
    ".json": _from_json,
}


def _put_in_numbers(file: JobFile) -> None:
    """Replace values that are written for people: `size: 2h`, `command: ./train --seed {seed}`, `seed: 1..100`."""
    for path, read_words in _IN_WORDS.items():
        *above, name = path
        within = _at(file.document, tuple(above))
        if isinstance(within, dict) and isinstance(within.get(name), str):
            within[name] = _from_words(file, path, read_words, within[name])
    _put_in_texts(file.document)
    parameters = file.document.get("parameters")
    if isinstance(parameters, dict) and not isinstance(parameters.get("file"), str):
        for name, given in parameters.items():
            if isinstance(given, str):
                path = ("parameters", name)
                parameters[name] = _from_words(file, path, lambda text: values.parameter(f"_={text}")[1], given)


def _put_in_texts(document: dict[str, Any]) -> None:
    """Replace numbers in commands and in the environment by the texts that a shell would pass on."""
    tasks = document.get("tasks")
    for within in (document, *(tasks if isinstance(tasks, list) else ())):
        if isinstance(within, dict) and isinstance(within.get("command"), list):
            within["command"] = [_as_text(word) for word in within["command"]]
    if isinstance(environment := document.get("environment"), dict):
        document["environment"] = {name: _as_text(value) for name, value in environment.items()}


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _from_words(file: JobFile, path: Location, read_words: Callable[[str], Any], text: str) -> Any:
    try:
        return read_words(text)
    except ValueError as error:
        raise file.mistake(path, str(error)) from None


def _at(document: Any, path: Location) -> Any:
    for step in path:
        document = document.get(step) if isinstance(document, dict) else None
    return document


def _pointer(name: str, text: str, position: Position | None, message: str) -> str:
    """Return ``job.yaml:3:7: message``, and the line with a mark below."""
    if position is None:
        return f"{name}: {message}"
    line, column = position
    lines = text.splitlines()
    shown = lines[line - 1][:200] if line <= len(lines) else ""
    return "\n".join([f"{name}:{line}:{column}: {message}", *_marked(line, column, shown)])


def _marked(line: int, column: int, shown: str) -> Iterator[str]:
    if not shown.strip() or column > len(shown) + 1:
        return
    number = f"{line:>5} | "
    yield number + shown
    yield " " * (len(number) - 2) + "| " + "".join("\t" if c == "\t" else " " for c in shown[: column - 1]) + "^"
