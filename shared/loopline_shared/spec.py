"""Specification of a job, as submitted over REST and as kept by the master; one model for both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Discriminator, Field, JsonValue, Tag, model_validator
from pydantic_core import to_jsonable_python

from loopline_shared.job_files import Inputs, Outputs, all_outputs, input_files
from loopline_shared.manifest import MAX_FILES
from loopline_shared.model import (
    MAX_ID,
    MAX_OUTPUT_PATTERNS,
    MAX_OWN_INPUTS,
    NO_NUL,
    AfterState,
    Function,
    InputFolder,
    InputLink,
    Name,
    PythonVersion,
    SharedFolder,
    Units,
)
from loopline_shared.parallel import Nodes, check_parallel
from loopline_shared.paths import CHECKPOINT, PathTree, stays_within, tree_of
from loopline_shared.protocol.checkpoints import MAX_CHECKPOINT_BYTES
from loopline_shared.protocol.gpus import ANY_GPU, GPU, MAX_GPUS, Capability, GpuKind
from loopline_shared.protocol.software import Software, check_software
from loopline_shared.protocol.templates import unknown_name
from loopline_shared.scalar import Exact, JobSize, Scalar, Size, Spec

MAX_TASKS = 100_000_000
"""Hard limit on the tasks of one job; a master's own limit (a setting) is lower."""
MAX_AFTER = 1000
"""Maximum number of jobs that one job may depend on."""
MAX_RUN_CHARACTERS = 200_000
"""Longest command, parameters and environment of one task; a frame to a worker holds many of them."""
MAX_INPUTS = MAX_FILES
"""Maximum number of files that the tasks of one job share."""

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
"""Placeholder of a parameter in a command's arguments."""

MOST_FAILS = 100_000_000
_SHARE_OF_TASKS = r"^(100|[1-9]\d?(\.\d{1,6})?|0\.0{0,5}[1-9]\d{0,5})%$"
"""Above 0 and up to 100 per cent."""
MaxFails = Annotated[
    Annotated[int, Field(ge=1, le=MOST_FAILS)] | Annotated[str, Field(pattern=_SHARE_OF_TASKS)],
    Field(description="failed tasks at which the job is stopped: a number, or a share such as 10%"),
]

ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Argument = Annotated[str, Field(max_length=100_000, pattern=NO_NUL)]
Command = Annotated[list[Argument], Field(min_length=1, max_length=1000)]


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


def named_files(spec: JobSpec) -> set[str]:
    """Return the SHA-256 of every file that a job's spec names, except those named by lines of its row file."""
    names = {spec.parameters.file} if isinstance(spec.parameters, RowFile) else set()
    names |= {spec.function.file} if spec.function else set()
    names |= (
        {spec.requires.software.packages} if spec.requires.software and spec.requires.software.packages else set()
    )
    hashes = {name[len("sha256:") :] for name in names}
    for inputs in (spec.inputs, *(task.inputs for task in spec.tasks or ())):
        hashes |= {file.sha256 for file in input_files(inputs).values()}
    return hashes


def _fresh(kind: Callable[[], Any]) -> Any:
    """Return a field whose default is made for each: pydantic copies one that is shared, deeply."""
    return Field(default_factory=kind, json_schema_extra=lambda to: to.update(default=to_jsonable_python(kind())))


class Requirements(Spec):
    """Requirements on a worker that runs the job's tasks."""

    os: Literal["linux", "macos", "windows"] | None = None
    memory_bytes: Annotated[int, Field(ge=0, le=2**60, description="of one task, which may use no more")] = 0
    labels: Annotated[list[Name], Field(max_length=50)] = _fresh(list)
    slots: Annotated[int, Field(ge=1, le=65536)] = 1
    network: bool = Field(default=False, description="tasks use the network; in a sandbox they have none otherwise")
    python: PythonVersion | None = Field(default=None, description="that functions run under there: 3.11")
    folder: SharedFolder = Field(default="", description="that workers share, and in which commands run there")
    software: Software | None = Field(default=None, description="packages or an image that tasks run with")
    needs: Annotated[
        dict[Name, Units],
        Field(max_length=10, description="units of limits (`loopline limit`) or of workers' resources that each task "
              "holds while it may be running"),
    ] = _fresh(dict)  # fmt: skip
    gpus: Annotated[int, Field(ge=0, le=MAX_GPUS, description="GPUs that each task has for itself")] = 0
    gpu_memory_bytes: Annotated[int, Field(ge=0, le=2**60, description="of each of its GPUs, at least")] = 0
    gpu_model: Annotated[
        str, Field(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$", description="words of the model's name: A4000")
    ] = ""
    gpu_capability: Annotated[Capability, Field(description="CUDA compute capability, at least: 8.0")] = ""

    @model_validator(mode="after")
    def _asks_for_gpus_by_their_fields(self) -> Self:
        if GPU in self.needs:
            raise ValueError(f"give gpus = {self.needs[GPU]} in place of needs.{GPU}")
        if not self.gpus and self.gpu_kind != ANY_GPU:
            raise ValueError("gpu_memory_bytes, gpu_model and gpu_capability say which GPUs: give gpus, too")
        return self

    @property
    def gpu_kind(self) -> GpuKind:
        """The GPUs that tasks accept."""
        return GpuKind(self.gpu_memory_bytes, self.gpu_model, self.gpu_capability)

    @property
    def units(self) -> tuple[tuple[str, int], ...]:
        """Units that each attempt holds, GPUs among them, in alphabetical order of their names."""
        if not (self.needs or self.gpus):
            return ()
        return tuple(sorted((self.needs | {GPU: self.gpus} if self.gpus else self.needs).items()))


class Notify(Spec):
    """Notification of a job's end, and of a promised start that was not kept.

    A signed POST to a URL, or a command that the master's settings name.
    """

    webhook: Annotated[str, Field(max_length=2000, pattern=r"^https?://[^\s\x00]+$")] | None = None
    command: Name | None = None
    on: Annotated[
        list[Literal["succeeded", "failed", "cancelled", "promise_broken"]], Field(min_length=1, max_length=4)
    ] = _fresh(lambda: ["succeeded", "failed", "cancelled", "promise_broken"])

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.webhook is None) == (self.command is None):
            raise ValueError("give either a webhook or a command")
        return self


class CheckpointSpec(Spec):
    """A job's checkpoints: its tasks save their state in the folder that LOOPLINE_CHECKPOINT names."""

    every_s: Annotated[
        float | None,
        Field(ge=1, le=1e6, allow_inf_nan=False, description="between two checkpoints; null: as their cost suggests"),
    ] = None
    exit_code: Annotated[
        int | None,
        Field(ge=1, le=255, description="with which a task ends only to be continued from what it saved"),
    ] = None
    max_bytes: Annotated[
        int | None, Field(ge=1, le=MAX_CHECKPOINT_BYTES, description="of one checkpoint; null: 1 GB")
    ] = None
    portable: Annotated[
        bool, Field(description="a checkpoint may be used on another system, processor type or Python version")
    ] = False


class TaskSpec(Spec):
    """A listed task; its job provides everything that it leaves out."""

    command: Command | None = None
    parameters: Row = _fresh(dict)
    size: Size | None = None
    inputs: Annotated[Inputs, Field(max_length=MAX_OWN_INPUTS, description="beside, or instead of, its job's")] = (
        _fresh(dict)
    )


class JobSpec(Spec):
    """A job: a command that is run once for every task. Everything except the command is optional."""

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
    function: Function | None = None
    parameters: Parameters | None = None
    tasks: Annotated[list[TaskSpec], Field(min_length=1, max_length=1_000_000, fail_fast=True)] | None = None
    environment: Annotated[dict[str, Argument], Field(max_length=200)] = _fresh(dict)
    secrets: Annotated[
        dict[str, Annotated[str, Field(min_length=1, max_length=10_000, pattern=NO_NUL)]],
        Field(max_length=50, repr=False, description="more variables, which are stored sealed and never shown"),
    ] = _fresh(dict)
    folder: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$")] = Field(
        default="", description="where it was submitted from: jobs of one name and folder are runs of one program"
    )
    size: JobSize | None = Field(
        default=None, description="of the whole job, in reference CPU-seconds; null: to be predicted"
    )
    requires: Requirements = _fresh(Requirements)
    nodes: Nodes = 1
    max_attempts: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_replicas: Annotated[int, Field(ge=1, le=65536)] | Literal["unlimited"] | None = None
    retry_delay_s: Annotated[
        float | None,
        Field(
            ge=0,
            le=86400,
            allow_inf_nan=False,
            description="from a task's failure to its next attempt; doubles with each failure, up to an hour",
        ),
    ] = None
    max_running: Annotated[
        int | None, Field(ge=1, le=MAX_TASKS, description="attempts of the job that may run at once")
    ] = None
    max_fails: MaxFails | None = None
    timeout_s: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None
    kill_after_s: Annotated[
        float | None,
        Field(ge=0, le=600, allow_inf_nan=False, description="from SIGTERM to SIGKILL; null: 10 s"),
    ] = None
    checkpoint: CheckpointSpec | None = Field(
        default=None, description="its tasks save their state, and resume from it; null: they begin anew each time"
    )
    notify: Notify | None = None
    after: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_ID)]],
        Field(max_length=MAX_AFTER, description="jobs that must be over before this one enters the grid"),
    ] = _fresh(list)
    after_state: Annotated[
        AfterState, Field(description="the state that they must have reached: failed also means cancelled")
    ] = "succeeded"
    session: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9._-]{1,100}$",
            description="session of the user that it is a part of: jobs of a session take turns as one job, outside "
            "the order guarantee",
        ),
    ] = None
    quorum: Annotated[
        int | None, Field(ge=2, le=100, description="number of workers that must agree on a result")
    ] = None
    replica_budget_s: Annotated[
        float | None,
        Field(ge=0, le=1e12, allow_inf_nan=False, description="CPU seconds that replicas of the job may take"),
    ] = None

    inputs: Annotated[Inputs, Field(max_length=MAX_INPUTS, description="files, by where tasks find them")] = _fresh(
        dict
    )
    outputs: Annotated[
        Outputs, Field(max_length=MAX_OUTPUT_PATTERNS, description="files to bring back, such as *.csv")
    ] = _fresh(list)

    @model_validator(mode="after")
    def _has_places_for_its_inputs(self) -> Self:
        if self.inputs or self.tasks:
            common = _tree_of(self.inputs)
            for task in self.tasks or ():
                if task.inputs:
                    _tree_of(task.inputs, beside=common)
        return self

    @model_validator(mode="after")
    def _has_names_for_its_variables(self) -> Self:
        names = (*self.environment, *self.secrets)
        if any(not name or "=" in name or "\x00" in name or len(name) > 200 for name in names):
            raise ValueError("environment names must be 1 to 200 characters without '='")
        if both := sorted(self.environment.keys() & self.secrets.keys()):
            raise ValueError(f"{both[0]} is given twice: as a variable and as a secret")
        return self

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.tasks is not None and self.parameters is not None:
            raise ValueError("give either tasks or parameters, not both")
        if self.function is not None:
            _check_function(self)
        elif self.command is None and not (self.tasks and all(task.command for task in self.tasks)):
            raise ValueError("a command is missing: give one to the job, or one to every task")
        if self.requires.software:
            check_software(self.requires.software, calls_function=self.function is not None)
        if self.quorum and isinstance(self.max_replicas, int) and self.max_replicas < self.quorum:
            raise ValueError(f"a quorum of {self.quorum} needs max_replicas of at least {self.quorum}")
        if self.nodes > 1:
            has_function, holds_units = self.function is not None, bool(self.requires.units or self.max_running)
            check_parallel(calls_function=has_function, quorum=self.quorum, holds_units=holds_units)
        if self.checkpoint:
            _check_checkpoint(self)
        if self.task_count > MAX_TASKS:
            raise ValueError(f"{self.task_count:,} tasks are more than the limit of {MAX_TASKS:,}")
        if (longest := _longest_run(self)) > MAX_RUN_CHARACTERS:
            message = f"command, parameters and environment of one task come to {longest:,} characters"
            raise ValueError(f"{message}, the limit is {MAX_RUN_CHARACTERS:,}: pass long texts as a file")
        return self

    @model_validator(mode="after")
    def _names_known_parameters(self) -> Self:
        if isinstance(self.parameters, RowFile):  # its names are known once its lines are read
            return self
        texts = (all_outputs(self.outputs), "outputs"), (self.environment.values(), "environment variables")
        if any("{" in text for some, _ in texts for text in some):
            known = _parameter_names(self)
            for some, where in texts:
                if problem := unknown_name(some, known, where):
                    raise ValueError(problem)
        return self

    @property
    def task_count(self) -> int:
        if self.tasks is not None:
            return len(self.tasks)
        if self.parameters is None:
            return 1
        if isinstance(self.parameters, Table):
            return len(self.parameters.rows)
        if isinstance(self.parameters, RowFile):
            return self.parameters.count or 0  # not yet counted
        count = 1
        for values in self.parameters.values():
            count *= len(values)
        return count

    @property
    def known_size(self) -> float | None:
        """Size of the whole job: as given, else the sum of its tasks' sizes if all are given."""
        if self.size == "unknown":
            return None
        if self.size is not None or self.tasks is None:
            return self.size
        sizes = [task.size for task in self.tasks]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the document as a user would write it, without defaults."""
        document: dict[str, JsonValue] = self.model_dump(mode="json", exclude_defaults=True)
        return document


def _tree_of(inputs: Inputs, beside: PathTree | None = None) -> PathTree:
    """Return the tree of these inputs. Raises ValueError if it is none, or if a link leads out of it."""
    for path, one in inputs.items():
        if isinstance(one, InputLink) and not stays_within(path, one.link):
            raise ValueError(f"the link {path!r} leads out of the scratch folder: {one.link}")
    folders = {path for path, one in inputs.items() if isinstance(one, InputFolder)}
    return tree_of(inputs.keys() - folders, folders, beside or PathTree())


_INPUT_CHARACTERS = 130
"""Characters of a task's own input beside its path."""


def _parameter_names(spec: JobSpec) -> set[str]:
    if spec.tasks is not None:
        return set().union(*(task.parameters for task in spec.tasks))
    if isinstance(spec.parameters, Table):
        return set().union(*spec.parameters.rows)
    return set(spec.parameters) if isinstance(spec.parameters, dict) else set()


def _check_checkpoint(spec: JobSpec) -> None:
    """Raises ValueError if the job's tasks cannot take checkpoints."""
    if spec.nodes > 1 or spec.function is not None:
        raise ValueError("checkpoints are taken of commands on one worker: leave out checkpoint")
    inputs = chain(spec.inputs, *(task.inputs for task in spec.tasks or ()))
    for path in chain(inputs, all_outputs(spec.outputs)):
        if path.partition("/")[0] == CHECKPOINT:
            raise ValueError(f"{path!r}: {CHECKPOINT} is the folder that checkpoints are taken of")


def _check_function(spec: JobSpec) -> None:
    assert spec.function
    if spec.command is not None or (spec.tasks and any(task.command for task in spec.tasks)):
        raise ValueError("give either a command or a function, not both")
    if spec.requires.python != spec.function.python:
        raise ValueError(f"a function of Python {spec.function.python} has to say so in requires.python too")
    chunk, calls = spec.function.chunk, spec.function.calls
    if (chunk is None) != (calls is None):
        raise ValueError("give both chunk and calls of a function, or neither")
    if chunk and calls and spec.task_count not in (0, -(-calls // chunk)):  # 0: not yet counted
        raise ValueError(f"{calls:,} calls, {chunk:,} a task, do not come to {spec.task_count:,} tasks")


def run_length(spec: JobSpec, lengths: Mapping[str, int]) -> int:
    """Return the number of characters that a task is started with, for parameter values of these lengths."""
    return _environment_length(spec) + _run_length(spec.command or [], lengths)


def _longest_run(spec: JobSpec) -> int:
    """Return an upper bound on the characters that any task of the job is started with."""
    if spec.tasks is None:
        return run_length(spec, _longest_values(spec.parameters))
    return _environment_length(spec) + max(
        _run_length(task.command or spec.command or [], {n: len(str(v)) for n, v in task.parameters.items()})
        + sum(len(path) + _INPUT_CHARACTERS for path in task.inputs)
        for task in spec.tasks
    )


def _environment_length(spec: JobSpec) -> int:
    return sum(len(name) + len(value) for name, value in (*spec.environment.items(), *spec.secrets.items()))


def _run_length(command: Sequence[str], lengths: Mapping[str, int]) -> int:
    filled = sum(map(len, command)) + sum(map(len, lengths)) + sum(lengths.values())
    if not lengths or not command:
        return filled
    names = (name for argument in command for name in PLACEHOLDER.findall(argument))
    return filled + sum(lengths.get(name, 0) for name in names)


def _longest_values(parameters: Table | RowFile | dict[str, Values] | None) -> dict[str, int]:
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
