"""The unsuccessful tasks of an earlier job as a job of their own: ``loopline submit --only-failed-of JOB``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loopline.cli.errors import usage
from loopline.cli.submission.job_file import JobFile
from loopline.cli.submission.options import JobDocument, SweepOptions
from loopline.client import AsyncClient
from loopline_shared.model import TaskState
from loopline_shared.rest.bodies import TaskView
from loopline_shared.scalar import Scalar
from loopline_shared.spec import JobSpec

_UNSUCCESSFUL = (TaskState.FAILED, TaskState.CANCELLED)


@dataclass(frozen=True, slots=True)
class FailedTasks:
    """A job to begin with: the document that options override, and the rows of its sweep, if it has one."""

    job: JobFile | None = None
    rows: Sequence[dict[str, Scalar]] = field(default=())


def check(options: SweepOptions) -> None:
    """Raises LooplineError (usage) if the command line names tasks of its own."""
    if options != SweepOptions():
        raise usage("--only-failed-of takes the tasks of that job", "leave the options of a sweep out")


async def read(client: AsyncClient, number: int) -> FailedTasks:
    """Return the unsuccessful tasks of a job: those that failed, and those cancelled with the job.

    Raises LooplineError (usage) if it has none, or if it calls a function.
    """
    spec = (await client.job(number)).spec
    if spec.function is not None:
        raise usage(f"job {number} calls a function", "submit the calls again from Python")
    tasks = [task for state in _UNSUCCESSFUL async for task in client.tasks(number, state, parameters=True)]
    if not tasks:
        raise usage(f"no task of job {number} has failed", f"loopline job {number} shows how it stands")
    tasks.sort(key=lambda task: task.number)
    document = _shared(spec, len(tasks))
    if spec.tasks is not None:
        document["tasks"] = [spec.tasks[task.number - 1].model_dump(exclude_defaults=True) for task in tasks]
    rows = [_row(task) for task in tasks] if spec.parameters is not None else []
    return FailedTasks(JobFile(f"job {number}", "", document, {}), rows)


def _shared(spec: JobSpec, count: int) -> JobDocument:
    """Return what so many tasks of a job share; the jobs that it came after have succeeded."""
    document = spec.model_dump(exclude_defaults=True, exclude={"parameters", "tasks", "after", "after_state"})
    if isinstance(spec.size, float | int):
        document["size"] = spec.size * count / spec.task_count
    return document


def _row(task: TaskView) -> dict[str, Scalar]:
    if task.parameters is None:
        raise usage("this master does not list parameters", "install the same loopline release there")
    return task.parameters
