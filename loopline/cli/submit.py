"""``loopline submit``: from a command line to a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import ValidationError
from rich.console import Group
from rich.text import Text

from loopline.cli import human, values
from loopline.cli.common import PLAIN, Common, read_by
from loopline.cli.errors import usage
from loopline.cli.follow import follow
from shared.api import Submission
from shared.spec import JobSpec

Seconds = Annotated[float | None, read_by(values.duration, "DURATION")]
Size = Annotated[float | Literal["unknown"] | None, read_by(values.size, "DURATION")]
_LONGEST_FOLDER = 1000
Bytes = Annotated[int | None, read_by(values.memory, "AMOUNT")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options that make up a job.

    Parameters
    ----------
    name
        What to call it; as the command unless given.
    param
        A parameter and its values: seed=1..100, seed=1..100:5 or lr=0.1,0.01. Several make a grid of all
        combinations, one task each. `{seed}` in the command is replaced by the task's value.
    array
        One task for each number: 1-1000 or 1-1000:2, as the parameter `index`.
    size
        Computation of the whole job on a core of speed 1.0: 90s, 10m, 2h. Left out, it is predicted from earlier
        runs; `unknown` keeps it from being so: a job of unknown size counts as larger than any other.
    folder
        The working folder that jobs of one name are known by; as it is unless given.
    timeout
        The longest that one attempt may take: 90s, 10m, 2h.
    max_attempts
        How often a task that fails is run.
    max_replicas
        How many attempts of one task may run at once: a number, or unlimited. 1 switches replication off.
    os
        Run on this system only.
    memory
        Memory that a task needs: 2GB, 512MiB.
    label
        A label that a worker must have; may be given several times.
    slots
        Slots that a task takes.
    env
        An environment variable of the tasks, NAME=VALUE; may be given several times.
    """

    name: str = ""
    param: Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUES")] = ()
    array: Annotated[str | None, Parameter(metavar="FIRST-LAST")] = None
    size: Size = None
    folder: str | None = None
    timeout: Seconds = None
    max_attempts: int | None = None
    max_replicas: int | Literal["unlimited"] | None = None
    os: Literal["linux", "macos", "windows"] | None = None
    memory: Bytes = None
    label: Annotated[tuple[str, ...], Parameter(metavar="LABEL")] = ()
    slots: int | None = None
    env: Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUE")] = ()


async def submit(
    *command: str,
    options: JobOptions = JobOptions(),
    wait: bool = False,
    common: Common = PLAIN,
) -> int:
    """Submit a job: a command, an array or a parameter sweep.

    Everything after `--` is the command, run once for every task:

        loopline submit --wait -- python3 pi.py
        loopline submit --size 2h --param seed=1..100 -- ./train {seed}
        loopline submit --array 1-1000 -- ./step {index}

    Parameters
    ----------
    command
        What to run, and its arguments.
    wait
        Follow the job until it is over; the exit code then tells whether it succeeded.
    """
    job = specification(list(command), options)
    async with common.client() as client:
        submitted = await client.submit(job)
    if wait:
        return await follow(submitted.id, common, submitted.warnings)
    common.show(submitted, lambda: _receipt(submitted))
    return 0


def specification(command: list[str], options: JobOptions) -> JobSpec:
    """The job that a command line means; LooplineError (usage) where it means none."""
    if not command:
        raise usage("there is no command to run", "it goes after `--`: loopline submit -- hostname")
    try:
        return JobSpec.model_validate(_document(command, options))
    except ValidationError as error:
        raise usage(_mistakes(error)) from None
    except ValueError as error:
        raise usage(str(error)) from None


def _document(command: list[str], options: JobOptions) -> dict[str, Any]:
    requires = {
        "os": options.os,
        "memory_bytes": options.memory,
        "labels": list(options.label),
        "slots": options.slots,
    }
    document = {
        "name": options.name or command[0].replace("\\", "/").rsplit("/", 1)[-1][:200],
        "command": command,
        "parameters": _parameters(options),
        "environment": dict(values.pair(text) for text in options.env),
        "size": options.size,
        "folder": _here() if options.folder is None else options.folder,
        "requires": _given(requires),
        "max_attempts": options.max_attempts,
        "max_replicas": options.max_replicas,
        "timeout_s": options.timeout,
    }
    return _given(document)


def _here() -> str:
    """The working folder; empty where it could not be told a master."""
    folder = Path.cwd().as_posix()
    return folder if len(folder) <= _LONGEST_FOLDER and folder.isprintable() else ""


def _parameters(options: JobOptions) -> dict[str, Any]:
    named: list[tuple[str, Any]] = [("index", values.array(options.array))] if options.array else []
    named += [values.parameter(text) for text in options.param]
    parameters = dict(named)
    if len(parameters) < len(named):
        raise ValueError("a parameter is given twice: put all its values into one, such as lr=0.1,0.01")
    return parameters


def _given(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value not in (None, [], {})}


def _mistakes(error: ValidationError) -> str:
    return "\n  ".join(_mistake(".".join(map(str, found["loc"])), found["msg"]) for found in error.errors())


def _mistake(place: str, message: str) -> str:
    message = message.removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


def _receipt(submitted: Submission) -> Group:
    line = Text.assemble(
        "job ", (str(submitted.id), "bold"), f" submitted: {human.plural(submitted.task_count, 'task')}"
    )
    return Group(line, *(Text(f"warning: {warning}", "yellow") for warning in submitted.warnings))
