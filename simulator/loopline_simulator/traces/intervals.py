"""Availability of machines: a CSV of intervals, one on each line.

Columns are named in the first line, in any order: ``host,start,end`` and, where it is known, ``speed`` (reference
CPU-seconds per second in that interval). Without such a line they come in this order. Times are seconds, or ISO 8601
(without an offset: UTC); the earliest start of ISO times is time 0. Lines that begin with ``#`` are comments.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime

from pydantic import TypeAdapter, ValidationError

from loopline_shared.errors import LooplineError
from loopline_shared.model import Name
from loopline_simulator.fast.availability import Interval, Piecewise, merged

_ORDER = ("host", "start", "end", "speed")
_NAME: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(slots=True)
class TracedMachine:
    """Stays of one host, sorted and disjoint, and its speed if the file says it."""

    stays: list[Interval] = field(default_factory=list)
    speed: Piecewise | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    host: str
    start: float
    _: KW_ONLY
    end: float
    speed: float | None
    is_dated: bool


def read_machines(lines: Iterable[str]) -> dict[str, TracedMachine]:
    """Return the machines by name, in the order of first mention. Raises LooplineError with the line of a mistake."""
    rows = _rows(lines)
    kinds = {row.is_dated for row in rows}
    if len(kinds) > 1:
        odd = next(row for row in rows if row.is_dated is not rows[0].is_dated)
        raise _wrong(odd.line, "times are seconds or ISO 8601, the same in all lines")
    zero = min((row.start for row in rows), default=0.0) if True in kinds else 0.0
    by_host: dict[str, list[_Row]] = {}
    for row in rows:
        by_host.setdefault(row.host, []).append(row)
    return {host: _machine(of_host, zero) for host, of_host in by_host.items()}


def _machine(rows: list[_Row], zero: float) -> TracedMachine:
    rows = sorted(rows, key=lambda row: row.start)
    stays = merged(Interval(row.start - zero, row.end - zero) for row in rows)
    known = [(row.start - zero, row.speed) for row in rows if row.speed is not None]
    speed = Piecewise([at for at, _ in known], [speed for _, speed in known]) if known else None
    return TracedMachine(stays, speed)


def _rows(lines: Iterable[str]) -> list[_Row]:
    columns: dict[str, int] | None = None
    rows: list[_Row] = []
    for number, cells in _cells(lines):
        if columns is not None:
            rows.append(_row(number, cells, columns))
            continue
        columns = _header(number, cells)
        if columns is None:
            columns = {name: place for place, name in enumerate(_ORDER)}
            rows.append(_row(number, cells, columns))
    if not rows:
        raise LooplineError("trace", "the file has no intervals", f"its columns are {', '.join(_ORDER)}")
    return rows


def _cells(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and cells of each line; blank lines and comments are left out."""
    for number, line in enumerate(lines, 1):
        try:
            cells = [cell.strip() for cell in next(csv.reader([line]), [])]
        except csv.Error as error:
            raise _wrong(number, str(error)) from None
        if any(cells) and not line.lstrip().startswith("#"):
            yield number, cells


def _header(line: int, cells: list[str]) -> dict[str, int] | None:
    names = [cell.lower() for cell in cells]
    if "host" not in names:
        return None
    missing = [name for name in _ORDER[:3] if name not in names]
    if missing:
        raise _wrong(line, f"the columns are named, but none is {' or '.join(missing)}")
    return {name: names.index(name) for name in _ORDER if name in names}


def _row(line: int, cells: list[str], columns: Mapping[str, int]) -> _Row:
    found = {name: cells[place] for name, place in columns.items() if place < len(cells)}
    for name in _ORDER[:3]:
        if not found.get(name):
            raise _wrong(line, f"the {name} is missing")
    (start, is_dated), (end, end_is_dated) = _time(line, found["start"]), _time(line, found["end"])
    if is_dated is not end_is_dated and end != math.inf:
        raise _wrong(line, "start and end are not in the same kind of time")
    if end < start:
        raise _wrong(line, f"it ends ({found['end']}) before it starts ({found['start']})")
    speed = _speed(line, found["speed"]) if found.get("speed") else None
    return _Row(line, _name(line, found["host"]), start, end=end, speed=speed, is_dated=is_dated)


def _name(line: int, text: str) -> str:
    try:
        return _NAME.validate_python(text)
    except ValidationError:
        raise _wrong(line, f"{text[:40]!r} is not a name for a host: letters, digits and ._- only") from None


def _time(line: int, text: str) -> tuple[float, bool]:
    """Seconds, and whether it was a date."""
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if math.isnan(number) or number == -math.inf:
            raise _wrong(line, f"{text!r} is not a time")
        return number, False
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _wrong(line, f"{text[:40]!r} is neither seconds nor a time such as 2026-05-01T12:30:00") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), True


def _speed(line: int, text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 <= speed < math.inf:
        raise _wrong(line, f"{text[:40]!r} is not a speed")
    return speed


def _wrong(line: int, what: str) -> LooplineError:
    return LooplineError("trace", f"line {line} is not an interval: {what}")
