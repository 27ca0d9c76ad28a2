"""Rows of a sweep, from values on the command line, lines, CSV and JSON lines, and how these are combined.

Everything is read row by row: a file may be longer than memory.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product, zip_longest
from pathlib import Path
from typing import IO, Any

from loopline.cli import values
from loopline.cli.errors import usage
from loopline.cli.submission.options import STDIN, SweepOptions
from loopline_shared.errors import LooplineError
from loopline_shared.job.parameters import Range
from loopline_shared.row_lines import check_row, read_row
from loopline_shared.scalar import Scalar

Row = dict[str, Scalar]

_BOM = b"\xef\xbb\xbf"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_OTHER_SEPARATORS = ";\t"


@dataclass(frozen=True, slots=True)
class Axis:
    """Parameters that change together, and their values; several axes make a sweep."""

    label: str  # its name in error messages
    rows: Iterable[Row]
    length: int | None = None  # None until the file is read


def grid(options: SweepOptions) -> dict[str, Any] | None:
    """Return all combinations of values as a rule; None if there are rows to be read."""
    if _files(options):
        return None
    if options.zip:
        return None if _named(options) else {}
    return dict(_named(options))


def rows(options: SweepOptions) -> Iterator[Row]:
    """Yield the rows. Raises LooplineError (usage) or ValueError at the first wrong one."""
    named = [_axis(name, given) for name, given in _named(options)]
    axes = [*_file_axis(options), *named]
    made = _zipped(axes) if options.zip else _combined(axes)
    return map(check_row, made) if named else made  # rows of a file are checked where their line is known


def _named(options: SweepOptions) -> list[tuple[str, Any]]:
    """Return the parameters of the command line as JSON."""
    named: list[tuple[str, Any]] = [("index", values.array(options.array))] if options.array else []
    named += [values.parameter(text) for text in options.param]
    if len(dict(named)) < len(named):
        raise usage("a parameter is given twice: put all its values into one, such as lr=0.1,0.01")
    return named


def _files(options: SweepOptions) -> list[tuple[str, Path]]:
    files = {"--each-line": options.each_line, "--csv": options.csv, "--jsonl": options.jsonl}
    return [(name, path) for name, path in files.items() if path is not None]


def _file_axis(options: SweepOptions) -> Iterator[Axis]:
    files = _files(options)
    if len(files) > 1:
        names = " and ".join(name for name, _ in files)
        raise usage(f"{names} are given: a sweep has one file of rows", "put all columns into one file")
    for option, path in files:
        read = {"--each-line": _lines, "--csv": _csv_rows, "--jsonl": _objects}[option]
        yield Axis(f"{option} {path}", _read(path, read))


def _axis(name: str, given: Any) -> Axis:
    listed: Sequence[Any] | Range = Range(**given) if isinstance(given, dict) else given
    return Axis(name, _Values(name, listed), len(listed))


@dataclass(frozen=True, slots=True)
class _Values:
    """Rows of one parameter, which can be iterated again and again."""

    name: str
    values: Sequence[Any] | Range

    def __iter__(self) -> Iterator[Row]:
        return ({self.name: self.values[place]} for place in range(len(self.values)))


def _combined(axes: Sequence[Axis]) -> Iterator[Row]:
    """Yield all combinations; the first axis, which may be a file, is read once."""
    first, *others = axes
    for row in first.rows:
        for chosen in product(*(axis.rows for axis in others)):
            yield _together(first, [row, *chosen])


def _zipped(axes: Sequence[Axis]) -> Iterator[Row]:
    """Yield the first row of each axis, then the second, and so on; all must be equally long."""
    known = {axis.label: axis.length for axis in axes if axis.length is not None}
    if len(set(known.values())) > 1:
        raise _unequal(", ".join(f"{label} has {length:,}" for label, length in known.items()))
    for number, chosen in enumerate(zip_longest(*(axis.rows for axis in axes))):
        if ended := [axis.label for axis, row in zip(axes, chosen, strict=True) if row is None]:
            goes_on = next(axis.label for axis, row in zip(axes, chosen, strict=True) if row is not None)
            raise _unequal(f"{ended[0]} has {number:,}, {goes_on} has more")
        yield _together(axes[0], list(chosen))


def _together(first: Axis, parts: Sequence[Row]) -> Row:
    if len(parts) == 1:
        return parts[0]
    row: Row = {}
    for part in parts:
        if twice := row.keys() & part.keys():
            name = min(twice)
            raise usage(f"{name} is given twice: by {first.label} and on its own", "rename one of the two")
        row |= part
    return row


def _unequal(lengths: str) -> LooplineError:
    hint = "give each the same number of values, or leave --zip out to have all combinations"
    return usage(f"--zip takes values side by side, so there must be as many of each: {lengths}", hint)


def _read(path: Path, read: Any) -> Iterator[Row]:
    """Yield a file's rows; errors name the file and the line."""
    place = _Place("stdin" if path == STDIN else str(path))
    try:
        with _opened(path) as file:
            yield from read(file, place)
    except OSError as error:
        raise usage(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        hint = "save it as UTF-8"
        raise usage(f"{place}: this is not text in UTF-8", hint) from None
    except ValueError as error:
        raise usage(f"{place}: {error}") from None


@dataclass(slots=True)
class _Place:
    """Position of a reader in its file, which the reader keeps up to date."""

    name: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield file


def _numbered(file: IO[bytes], place: _Place) -> Iterator[bytes]:
    """Yield the lines, stripped of their ends; blank ones are skipped."""
    for place.line, line in enumerate(file, 1):
        text = (line.removeprefix(_BOM) if place.line == 1 else line).rstrip(b"\r\n")
        if text.strip():
            yield text


def _lines(file: IO[bytes], place: _Place) -> Iterator[Row]:
    for line in _numbered(file, place):
        yield check_row({"line": line.decode()})


def _objects(file: IO[bytes], place: _Place) -> Iterator[Row]:
    for line in _numbered(file, place):
        row = read_row(line)
        if any(isinstance(value, int | float) for value in row.values()):  # their text is to be kept
            row = check_row(json.loads(line, parse_float=_written(float), parse_int=_written(int)))
        yield row


def _written(kind: type[int] | type[float]) -> Callable[[str], values.Value]:
    return lambda text: values.as_written(kind(text), text)


def _csv_rows(file: IO[bytes], place: _Place) -> Iterator[dict[str, Scalar]]:
    """Yield the rows of a file separated by commas; or by semicolons or tabs, if its header is. Raises ValueError if
    it is no CSV.
    """
    text = _decoded(file, place)
    header_line = next(text, "")
    names = _header(header_line)
    try:
        for cells in csv.reader(text, delimiter=_separator(header_line), strict=True):
            if cells:
                yield check_row(dict(zip(names, map(values.scalar, _complete(cells, names)), strict=True)))
    except csv.Error as error:
        raise ValueError(f"this is not CSV: {error}") from None


def _decoded(file: IO[bytes], place: _Place) -> Iterator[str]:
    """Yield the lines as text, with their ends. They are decoded one by one, so that an error names its line."""
    for place.line, line in enumerate(file, 1):
        yield (line.removeprefix(_BOM) if place.line == 1 else line).decode()


def _header(line: str) -> list[str]:
    names = [name.strip() for name in next(csv.reader([line], delimiter=_separator(line)), [])]
    if not names:
        raise ValueError("the first line is empty: it must name the parameters")
    for column, name in enumerate(names, 1):
        if not _NAME.fullmatch(name):
            better = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
            hint = f", such as {better}" if _NAME.fullmatch(better) else ""
            message = f"column {column} is called {name!r}: a parameter's name is letters, digits and underscores"
            raise ValueError(f"{message}{hint}")
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise ValueError(f"two columns are called {twice[0]}")
    return names


def _separator(header: str) -> str:
    return next((one for one in _OTHER_SEPARATORS if one in header and "," not in header), ",")


def _complete(cells: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    if len(cells) != len(names):
        raise ValueError(f"this row has {len(cells)} cells, the header has {len(names)}: {', '.join(names)}")
    return cells
