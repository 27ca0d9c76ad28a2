"""Positions of values in a job file, so that mistakes can be pointed at; and a reader of YAML that records them."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from loopline.cli.values import as_written

Location = tuple[str | int, ...]
Position = tuple[int, int]
"""Line and column, from 1."""
Positions = dict[Location, Position]

MOST_VALUES = 2_000_000
DEEPEST = 100
_TAG = "tag:yaml.org,2002:"


class ParseError(ValueError):
    """Raised for a file that is not in its language."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.position = position


def read_yaml(text: str) -> tuple[Any, Positions]:
    """Return the values of a YAML 1.2 document without tags, and their positions."""
    reader = YAML(typ="safe", pure=True)
    try:
        node = reader.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "this is not YAML"
        raise ParseError(str(problem), (mark.line + 1, mark.column + 1) if mark else None) from None
    except YAMLError as error:
        raise ParseError(str(error).splitlines()[0]) from None
    except RecursionError:
        raise ParseError("it is nested too deeply") from None
    positions: Positions = {}
    return (None if node is None else _value(node, (), positions)), positions


def find_in_toml(text: str) -> Positions:
    """Return the positions of the keys of a TOML document.

    A line that only looks like a key, within a text of several lines, may be taken for one: then a pointer is off.
    """
    positions: Positions = {}
    tables: Location = ()
    counts = Counter[Location]()  # number of tables in each list
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TOML_TABLE.fullmatch(line):
            tables = _toml_path(header[3])
            if header[2] == "[[":
                counts[tables] += 1
                tables = (*tables, counts[tables] - 1)
            positions.setdefault(tables, (number, len(header[1]) + 1))
        elif key := _TOML_KEY.match(line):
            positions.setdefault(tables + _toml_path(key[2]), (number, len(key[1]) + 1))
    return positions


def nearest(positions: Positions, path: Location) -> Position | None:
    """Return the position of a value, or else of what contains it."""
    inside_out = (positions.get(path[:length]) for length in range(len(path), -1, -1))
    return next((position for position in inside_out if position), None)


def _value(node: Node, path: Location, positions: Positions) -> Any:
    positions.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
    if len(positions) > MOST_VALUES or len(path) > DEEPEST:
        raise ParseError("there is too much in it", positions[path])
    if isinstance(node, MappingNode):
        return dict(_items(node, path, positions))
    if isinstance(node, SequenceNode):
        return [_value(item, (*path, place), positions) for place, item in enumerate(node.value)]
    if _is_a_word(node, path):
        return str(node.value)
    value = _scalar(node, positions[path])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return as_written(value, str(node.value)) if is_number and is_parameter(path) else value


def is_parameter(path: Location) -> bool:
    """True for the path of a parameter's value, whose text is kept: 3.10, 1e5."""
    of_job = path[2:] if path[:1] == ("tasks",) else path
    return of_job[:1] == ("parameters",)


def _is_a_word(node: Node, path: Location) -> bool:
    return is_word(path) and not str(node.tag).endswith(":null")


def is_word(path: Location) -> bool:
    """True for a word of a command or of the environment, which stays as it is written: 0.10, 007, yes."""
    of_job = path[2:] if path[:1] == ("tasks",) else path
    return of_job[:1] in (("command",), ("environment",))


def _items(node: MappingNode, path: Location, positions: Positions) -> Iterator[tuple[str, Any]]:
    seen = set[str]()
    for key, value in node.value:
        name = str(key.value)
        place = (key.start_mark.line + 1, key.start_mark.column + 1)
        if name in seen:
            raise ParseError(f"{name} is given twice", place)
        seen.add(name)
        positions.setdefault((*path, name), place)
        yield name, _value(value, (*path, name), positions)


def _scalar(node: Node, position: Position) -> Any:
    kind, text = str(node.tag).removeprefix(_TAG), str(node.value)
    if kind == "int":
        return _whole(text)
    if kind == "float":
        return _real(text)
    if kind == "bool":
        return text.lower() == "true"
    if kind == "null":
        return None
    if kind in ("str", "timestamp"):
        return text
    raise ParseError(f"{node.tag} says nothing here: tags are not understood", position)


def _whole(text: str) -> int | str:
    """Return a whole number, or the text if it begins with zeros: such as 007, which is a name."""
    try:
        return int(text.replace("_", ""), 0)
    except ValueError:
        return text


def _real(text: str) -> float:
    plain = text.replace("_", "").lower()
    return float(plain.replace(".inf", "inf").replace(".nan", "nan"))


_TOML_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_TOML_NAME = rf"{_TOML_PART}(?:\s*\.\s*{_TOML_PART})*"
_TOML_TABLE = re.compile(rf"(\s*)(\[\[?)\s*({_TOML_NAME})\s*\]\]?\s*(?:#.*)?")
_TOML_KEY = re.compile(rf"(\s*)({_TOML_NAME})\s*=")


def _toml_path(name: str) -> Location:
    """Return the path of a dotted name, as TOML itself reads it."""
    value, path = tomllib.loads(f"{name} = 0"), list[str]()
    while isinstance(value, dict):
        (part,) = value
        path.append(part)
        value = value[part]
    return tuple(path)
