"""Specification of a job, as submitted over REST and as kept by the master; one model for both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from loopline_shared.job.checkpoint_spec import CheckpointSpec, check_checkpoint
from loopline_shared.job.parameters import MAX_TASKS, Parameters, Row, RowFile, Table, longest_values, parameter_count
from loopline_shared.job.requirements import Requirements
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
)
from loopline_shared.parallel import Nodes, check_parallel
from loopline_shared.paths import PathTree, stays_within, tree_of
from loopline_shared.protocol.software import check_software
from loopline_shared.protocol.templates import unknown_name
from loopline_shared.scalar import JobSize, Size, Spec, fresh

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

Argument = Annotated[str, Field(max_length=100_000, pattern=NO_NUL)]
Command = Annotated[list[Argument], Field(min_length=1, max_length=1000)]


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


class Notify(Spec):
    """Notification of a job's end, and of a promised start that was not kept.

    A signed POST to a URL, or a command that the master's settings name.
    """

    webhook: Annotated[str, Field(max_length=2000, pattern=r"^https?://[^\s\x00]+$")] | None = None
    command: Name | None = None
    on: Annotated[
        list[Literal["succeeded", "failed", "cancelled", "promise_broken"]], Field(min_length=1, max_length=4)
    ] = fresh(lambda: ["succeeded", "failed", "cancelled", "promise_broken"])

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.webhook is None) == (self.command is None):
            raise ValueError("give either a webhook or a command")
        return self


class TaskSpec(Spec):
    """A listed task; its job provides everything that it leaves out."""

    command: Command | None = None
    parameters: Row = fresh(dict)
    size: Size | None = None
    inputs: Annotated[Inputs, Field(max_length=MAX_OWN_INPUTS, description="beside, or instead of, its job's")] = (
        fresh(dict)
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
    environment: Annotated[dict[str, Argument], Field(max_length=200)] = fresh(dict)
    secrets: Annotated[
        dict[str, Annotated[str, Field(min_length=1, max_length=10_000, pattern=NO_NUL)]],
        Field(max_length=50, repr=False, description="more variables, which are stored sealed and never shown"),
    ] = fresh(dict)
    folder: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$")] = Field(
        default="", description="where it was submitted from: jobs of one name and folder are runs of one program"
    )
    size: JobSize | None = Field(
        default=None, description="of the whole job, in reference CPU-seconds; null: to be predicted"
    )
    requires: Requirements = fresh(Requirements)
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
        int | None,
        Field(ge=1, le=MAX_TASKS, description="attempts of the job that may run at once; a gang counts as one"),
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
    ] = fresh(list)
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

    inputs: Annotated[Inputs, Field(max_length=MAX_INPUTS, description="files, by where tasks find them")] = fresh(
        dict
    )
    outputs: Annotated[
        Outputs, Field(max_length=MAX_OUTPUT_PATTERNS, description="files to bring back, such as *.csv")
    ] = fresh(list)

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
            check_parallel(calls_function=self.function is not None, quorum=self.quorum)
        if self.checkpoint:
            inputs = chain(self.inputs, *(task.inputs for task in self.tasks or ()))
            paths = chain(inputs, all_outputs(self.outputs))
            check_checkpoint(self.checkpoint, paths, self.function, self.nodes)
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
        return parameter_count(self.parameters)

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
        return run_length(spec, longest_values(spec.parameters))
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
