"""The Standard Workload Format of the Parallel Workloads Archive: a job on each line, 18 numbers, comments after
``;``.

-1 stands for unknown. Files often deviate from the format: lines of more or fewer fields (all from the fifth on may
be missing), fractions where whole numbers belong, blank lines, comments anywhere. All this is accepted; a line that
cannot be a job at all is an error with its number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

from loopline_shared.errors import LooplineError
from loopline_shared.job.parameters import MAX_TASKS, Parameters, Range
from loopline_shared.spec import JobSpec
from loopline_simulator.fast.world import Arrival
from loopline_simulator.traces.files import finite

UNKNOWN = -1.0
_LEAST, _FIELDS = 5, 18
_LARGEST_SIZE = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfJob:
    """Fields used of a line; None for -1. Times are in seconds, ``submitted`` since the log's start."""

    number: int
    submitted: float
    wait: float | None
    run_time: float | None
    processors: int | None
    average_cpu: float | None = None  # seconds per processor
    requested_processors: int | None = None
    requested_time: float | None = None
    status: int | None = None  # 1 completed, 0 failed, 5 cancelled
    user: int | None = None


class TasksFrom(StrEnum):
    """Field that gives the number of a job's tasks."""

    ALLOCATED = "allocated"  # processors that it got, else those it asked for
    REQUESTED = "requested"  # processors that it asked for, else those it got
    ONE = "one"  # none: every job is one task


class SizeFrom(StrEnum):
    """Field with the working time of one processor of a job."""

    RUN_TIME = "run-time"
    CPU_TIME = "cpu-time"  # if known, else the run time
    REQUESTED_TIME = "requested-time"  # requested by the user, else the run time


@dataclass(frozen=True, slots=True)
class Selection:
    """Choice of a file's jobs, and the way they become tasks."""

    first: int | None = None  # number of usable jobs
    since: float = 0.0  # earliest submission, in the file's seconds; it becomes time 0
    until: float = math.inf  # latest submission (excluded)
    _: KW_ONLY
    stretch: float = 1.0  # factor on the times between arrivals: 0.5 doubles the load
    unit: float = 1.0  # factor on all times, of arrivals and of work: 0.1 makes tasks of hours short enough for PCs
    skip: int = 0  # usable jobs left out at the beginning
    tasks_from: TasksFrom = TasksFrom.ALLOCATED
    size_from: SizeFrom = SizeFrom.RUN_TIME


def read_jobs(lines: Iterable[str]) -> Iterator[SwfJob]:
    """Yield the jobs one after the other. Raises LooplineError with the number of an invalid line."""
    for number, line in enumerate(lines, 1):
        content = line.partition(";")[0].split()
        if content:
            yield _job(number, content)


def arrivals(jobs: Iterable[SwfJob], chosen: Selection) -> Iterator[Arrival]:
    """Yield the jobs that could run, in the order of the file, which is nearly that of submission.

    A job without a time or without processors (it was never started) is left out.
    """
    seen, last = 0, math.inf if chosen.first is None else chosen.skip + chosen.first
    for job in jobs:
        if seen >= last:
            return
        if chosen.since <= job.submitted < chosen.until and (spec := _spec(job, chosen)) is not None:
            seen += 1
            if seen > chosen.skip:
                yield Arrival((job.submitted - chosen.since) * chosen.stretch * chosen.unit, spec)


def _job(line: int, fields: list[str]) -> SwfJob:
    if len(fields) < _LEAST:
        raise _wrong(line, f"a job has {_FIELDS} fields, at least {_LEAST}; here are {len(fields)}")
    numbers = [_number(line, place, text) for place, text in enumerate(fields[:_FIELDS], 1)]
    known = [None if number < 0 else number for number in numbers] + [None] * (_FIELDS - len(numbers))
    if known[1] is None:
        raise _wrong(line, "field 2, the time of submission, must be known")
    return SwfJob(
        number=int(numbers[0]),
        submitted=known[1],
        wait=known[2],
        run_time=known[3],
        processors=_count(line, 5, known[4]),
        average_cpu=known[5],
        requested_processors=_count(line, 8, known[7]),
        requested_time=known[8],
        status=_whole(known[10]),
        user=_whole(known[11]),
    )


def _number(line: int, place: int, text: str) -> float:
    number = finite(text)
    if number is None:
        raise _wrong(line, f"field {place} is not a number: {text[:40]!r}")
    return number


def _count(line: int, place: int, number: float | None) -> int | None:
    """Return a number of processors; 0 counts as unknown."""
    if number is not None and number > MAX_TASKS:
        raise _wrong(line, f"field {place} is not a number of processors: {number:g}")
    return None if number is None or number < 1 else int(number)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _spec(job: SwfJob, chosen: Selection) -> JobSpec | None:
    tasks, seconds = _tasks(job, chosen.tasks_from), _seconds(job, chosen.size_from)
    if not tasks or not seconds:
        return None
    processors = tasks if chosen.tasks_from is not TasksFrom.ONE else job.processors or 1
    size = min(seconds * processors * chosen.unit, _LARGEST_SIZE)
    parameters: Parameters | None = {"i": Range(range=[1, tasks])} if tasks > 1 else None
    return JobSpec(name=f"swf {job.number}", command=["traced"], parameters=parameters, size=size)


def _tasks(job: SwfJob, source: TasksFrom) -> int | None:
    if source is TasksFrom.ONE:
        return 1
    known = (job.processors, job.requested_processors)
    return next((count for count in (known if source is TasksFrom.ALLOCATED else known[::-1]) if count), None)


def _seconds(job: SwfJob, source: SizeFrom) -> float | None:
    by_source = {SizeFrom.CPU_TIME: job.average_cpu, SizeFrom.REQUESTED_TIME: job.requested_time}
    return by_source.get(source) or job.run_time


def _wrong(line: int, what: str) -> LooplineError:
    return LooplineError("trace", f"line {line} is not a job in the Standard Workload Format: {what}")
