"""What a user asks for: a job as submitted over REST and as kept by the master; one model for both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    PlainSerializer,
    Tag,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from shared.model import NO_NUL, Name
from shared.scalar import Exact, Scalar

MAX_TASKS = 100_000_000
"""Hard ceiling on the tasks of one job; a master's own limit (a setting) is lower."""

MAX_RUN_CHARACTERS = 200_000
"""What one task is started with, parameters put in; a frame to a worker holds many of them."""

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
"""What a parameter is put in place of, in a command's arguments."""

ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Argument = Annotated[str, Field(max_length=100_000, pattern=NO_NUL)]
Command = Annotated[list[Argument], Field(min_length=1, max_length=1000)]
Size = Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)]
"""Amount of computation in reference CPU-seconds."""


def _unless_unknown(value: object, read: ValidatorFunctionWrapHandler) -> object:
    return value if value == "unknown" else read(value)


if TYPE_CHECKING:
    JobSize = float | Literal["unknown"]
else:  # one kind of mistake, in one place: not one for each member of a union
    JobSize = Annotated[
        Size,
        WrapValidator(_unless_unknown, json_schema_input_type=Size | Literal["unknown"]),
        PlainSerializer(lambda size: size, return_type=Size | Literal["unknown"]),
    ]


class Spec(BaseModel):
    """Base of all that a user writes: an unknown key is an error, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Range(Spec):
    """Whole numbers from first to last, *both included*, and the step between them."""

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


Row = Annotated[dict[ParameterName, Scalar], Field(max_length=50)]


class Table(Spec):
    """One task per row."""

    rows: Annotated[list[Row], Field(min_length=1, max_length=1_000_000, fail_fast=True)]


def _values_kind(value: object) -> str:
    return "range" if isinstance(value, dict | Range) else "list"


Values = Annotated[
    Annotated[Range, Tag("range")]
    | Annotated[list[Scalar], Field(min_length=1, max_length=1_000_000, fail_fast=True), Tag("list")],
    Discriminator(_values_kind),
]
Grid = Annotated[dict[ParameterName, Values], Field(min_length=1, max_length=50)]
"""One task per element of the product of all values; the last name varies fastest."""


def _parameters_kind(value: object) -> str:
    """``{"rows": [{...}]}`` is a table, unless what stands in it are values of a parameter called rows."""
    rows = value.get("rows") if isinstance(value, dict) else None
    is_table = isinstance(value, Table) or (isinstance(rows, list) and isinstance(next(iter(rows), None), dict))
    return "table" if is_table else "grid"


Parameters = Annotated[Annotated[Table, Tag("table")] | Annotated[Grid, Tag("grid")], Discriminator(_parameters_kind)]


class Requirements(Spec):
    """What a worker must be to run a job's tasks."""

    os: Literal["linux", "macos", "windows"] | None = None
    memory_bytes: Annotated[int, Field(ge=0, le=2**60, description="of one task, which may use no more")] = 0
    labels: Annotated[list[Name], Field(max_length=50)] = []
    slots: Annotated[int, Field(ge=1, le=65536)] = 1
    network: bool = Field(default=False, description="tasks use the network; in a sandbox they have none otherwise")


class TaskSpec(Spec):
    """One listed task: whatever it leaves out is its job's."""

    command: Command | None = None
    parameters: Row = {}
    size: Size | None = None


class JobSpec(Spec):
    """A job: one command, run once for every task. All but the command is optional."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "name": "pi",
                "command": ["python3", "pi.py", "--seed", "{seed}"],
                "parameters": {"seed": {"range": [1, 100]}},
                "size": 3600,
            }
        }
    )

    name: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    command: Command | None = None
    parameters: Parameters | None = None
    tasks: Annotated[list[TaskSpec], Field(min_length=1, max_length=1_000_000, fail_fast=True)] | None = None
    environment: Annotated[dict[str, Argument], Field(max_length=200)] = {}
    folder: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$")] = Field(
        default="", description="where it was submitted from: jobs of one name and folder are runs of one program"
    )
    size: JobSize | None = Field(
        default=None, description="of the whole job, in reference CPU-seconds; null: to be predicted"
    )
    requires: Requirements = Requirements()
    max_attempts: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_replicas: Annotated[int, Field(ge=1, le=65536)] | Literal["unlimited"] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.tasks is not None and self.parameters is not None:
            raise ValueError("give either tasks or parameters, not both")
        if self.command is None and not (self.tasks and all(task.command for task in self.tasks)):
            raise ValueError("a command is missing: give one to the job, or one to every task")
        if any(not name or "=" in name or "\x00" in name or len(name) > 200 for name in self.environment):
            raise ValueError("environment names must be 1 to 200 characters without '='")
        if self.task_count > MAX_TASKS:
            raise ValueError(f"{self.task_count:,} tasks are more than the limit of {MAX_TASKS:,}")
        if (longest := _longest_run(self)) > MAX_RUN_CHARACTERS:
            message = f"command, parameters and environment of one task come to {longest:,} characters"
            raise ValueError(f"{message}, the limit is {MAX_RUN_CHARACTERS:,}: pass long texts as a file")
        return self

    @property
    def task_count(self) -> int:
        if self.tasks is not None:
            return len(self.tasks)
        if self.parameters is None:
            return 1
        if isinstance(self.parameters, Table):
            return len(self.parameters.rows)
        count = 1
        for values in self.parameters.values():
            count *= len(values)
        return count

    @property
    def known_size(self) -> float | None:
        """The whole job's size: as given, else the sum of its tasks' where every one is given."""
        if self.size == "unknown":
            return None
        if self.size is not None or self.tasks is None:
            return self.size
        sizes = [task.size for task in self.tasks]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def to_json(self) -> dict[str, JsonValue]:
        """As a user would write it: only what was given."""
        document: dict[str, JsonValue] = self.model_dump(mode="json", exclude_defaults=True)
        return document


def _longest_run(spec: JobSpec) -> int:
    """At most so many characters has what one task of the job is started with."""
    environment = sum(len(name) + len(value) for name, value in spec.environment.items())
    if spec.tasks is None:
        return environment + _run_length(spec.command or [], _longest_values(spec.parameters))
    return environment + max(
        _run_length(task.command or spec.command or [], {n: len(str(v)) for n, v in task.parameters.items()})
        for task in spec.tasks
    )


def _run_length(command: Iterable[str], lengths: Mapping[str, int]) -> int:
    filled = sum(len(argument) for argument in command) + sum(len(name) + n for name, n in lengths.items())
    if not lengths:
        return filled
    names = (name for argument in command for name in PLACEHOLDER.findall(argument))
    return filled + sum(lengths.get(name, 0) for name in names)


def _longest_values(parameters: Table | dict[str, Values] | None) -> dict[str, int]:
    if parameters is None:
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
