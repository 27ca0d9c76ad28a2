"""CSV: the first row names the parameters, and each row after it is a task."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import IO, Protocol

from loopline.cli import values
from loopline_shared.row_lines import check_row
from loopline_shared.scalar import Scalar

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_OTHER_SEPARATORS = ";\t"


class Place(Protocol):
    """Position of a reader in its file."""

    line: int


def csv_rows(file: IO[bytes], place: Place) -> Iterator[dict[str, Scalar]]:
    """Yield the rows of a file separated by commas; or by semicolons or tabs, if its header is. Raises ValueError if
    it is no CSV.
    """
    with io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        place.line = 1
        header_line = text.readline()
        names = _header(header_line)
        reader = csv.reader(text, delimiter=_separator(header_line), strict=True)
        try:
            for cells in reader:
                place.line = 1 + reader.line_num
                if cells:
                    yield check_row(dict(zip(names, map(_scalar, _complete(cells, names)), strict=True)))
        except csv.Error as error:
            place.line = 1 + reader.line_num
            raise ValueError(f"this is not CSV: {error}") from None


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


def _scalar(cell: str) -> Scalar:
    """Return a number if it would be written as the cell is; 0.10 stays text, so that commands get the same text."""
    number = values.scalar(cell)
    return number if str(number) == cell else cell
