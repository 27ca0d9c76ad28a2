"""Parameters of a sweep: combinations of values, a table, or an uploaded file of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Discriminator, Field, Tag, model_validator

from loopline_shared.scalar import Exact, Scalar, Spec

MAX_TASKS = 100_000_000
"""Hard limit on the tasks of one job; a master's own limit (a setting) is lower."""
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


class Range(Spec):
    """Whole numbers from first to last, *both included*, with an optional step."""

    range: Annotated[list[Exact], Field(min_length=2, max_length=3)]

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if self.step == 0 or len(self) == 0:
            raise ValueError(f"the range {self.range} is empty: give [first, last] or [first, last, step]")
        if len(self) > MAX_TASKS:
            raise ValueError(f"the range {self.range} has more than {MAX_TASKS:,} values")
        return self

    @property
    def step(self) -> int:
        return self.range[2] if len(self.range) == 3 else 1

    def __len__(self) -> int:
        return max(0, (self.range[1] - self.range[0]) // self.step + 1) if self.step else 0

    def __getitem__(self, index: int) -> int:
        return self.range[0] + index * self.step

    @property
    def values(self) -> Sequence[int]:
        """The numbers of the range, in order."""
        return range(self.range[0], self.range[0] + len(self) * self.step, self.step or 1)


Row = Annotated[dict[ParameterName, Scalar], Field(max_length=50)]


class Table(Spec):
    """A table of parameters with a task for each row."""

    rows: Annotated[list[Row], Field(min_length=1, max_length=1_000_000, fail_fast=True)]


class RowFile(Spec):
    """An uploaded file with a task for each line, whose lines are rows as JSON objects (NDJSON)."""

    file: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", description="uploaded to /files before")]
    count: Annotated[int, Field(ge=1, le=MAX_TASKS, description="of its lines; the master counts them")] | None = None

    @property
    def sha256(self) -> str:
        return self.file.removeprefix("sha256:")


def _values_kind(value: object) -> str:
    return "range" if isinstance(value, dict | Range) else "list"


Values = Annotated[
    Annotated[Range, Tag("range")]
    | Annotated[list[Scalar], Field(min_length=1, max_length=1_000_000, fail_fast=True), Tag("list")],
    Discriminator(_values_kind),
]
Grid = Annotated[dict[ParameterName, Values], Field(min_length=1, max_length=50)]
"""Lists of values with a task for each combination; the last name varies fastest."""


def parameters_kind(value: object) -> str:
    """Return the kind of parameters: ``{"rows": [{...}]}`` is a table, ``{"file": "..."}`` a row file.

    Parameters that are called ``rows`` or ``file`` and have plain values form a grid.
    """
    given = value if isinstance(value, dict) else {}
    rows = given.get("rows")
    if isinstance(value, Table) or (isinstance(rows, list) and isinstance(next(iter(rows), None), dict)):
        return "table"
    return "file" if isinstance(value, RowFile) or isinstance(given.get("file"), str) else "grid"


Parameters = Annotated[
    Annotated[Table, Tag("table")] | Annotated[RowFile, Tag("file")] | Annotated[Grid, Tag("grid")],
    Discriminator(parameters_kind),
]


def parameter_count(parameters: Parameters) -> int:
    """Return the number of tasks; 0 for a row file whose lines are not yet counted."""
    if isinstance(parameters, Table):
        return len(parameters.rows)
    if isinstance(parameters, RowFile):
        return parameters.count or 0
    return math.prod(map(len, parameters.values()))


def longest_values(parameters: Parameters | None) -> dict[str, int]:
    if parameters is None or isinstance(parameters, RowFile):  # its lines are measured as they are counted
        return {}
    if not isinstance(parameters, Table):
        return {name: _longest_value(values) for name, values in parameters.items()}
    longest: dict[str, int] = {}
    for row in parameters.rows:
        for name, value in row.items():
            longest[name] = max(longest.get(name, 0), len(str(value)))
    return longest


def _longest_value(values: Values) -> int:
    ends = (values[0], values[len(values) - 1]) if isinstance(values, Range) else values
    return max(len(str(value)) for value in ends)
