"""Bodies of the REST API for charts: a list for each column, which keeps many values small.

All columns of one body are equally long; times are seconds since 1970.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, RootModel, WithJsonSchema

from loopline_shared.model import AttemptId, AttemptState, TaskState
from loopline_shared.rest.bodies import Body
from loopline_shared.scalar import Scalar

_MOMENT, _MAYBE = {"type": "number"}, {"type": ["number", "null"]}
Span = Annotated[
    tuple[float, float | None],
    WithJsonSchema(
        {"type": "array", "prefixItems": [_MOMENT, _MAYBE], "items": _MAYBE, "minItems": 2, "maxItems": 2}
    ),
]
"""Begin and end of a time; null: it continues. ``items`` is for readers without support for ``prefixItems``."""


class JobName(Body):
    id: int
    name: str


class Bars(Body):
    """Attempts, a bar each: ``worker`` and ``job`` are places in the timeline's lists."""

    attempt: list[AttemptId]
    worker: list[int]
    job: list[int]
    state: list[AttemptState]
    replica: list[int]  # 1: another attempt of the task was alive when this one was dispatched
    accepted: list[int]  # 1: its result is the task's, or counted for its quorum
    dispatched: list[float]
    start: list[float | None]
    end: list[float | None]  # of its time in its slot; null: it continues, or is lost and may come back
    ended: list[float | None]  # when its result was here, results that are files included; null: not yet
    slot: list[int | None]  # the lowest of its worker's slots that it has, from 1; null: its worker does not say
    began: list[float | None]  # seconds from ``start`` to its process, for inputs; null: at once
    ran: list[
        float | None
    ]  # seconds that its program took; the rest until its end went into its files; null: unknown
    frozen: list[list[Span] | None]  # when it was frozen; null: never


class HeldTime(Body):
    """Time that the order guarantee held a job's last task (or its delivery)."""

    job: int
    since: float
    until: float | None  # null: it still is


class Timeline(Body):
    """Attempts between two moments; ``truncated`` is true if only the latest of them are included."""

    since: float
    until: float
    truncated: bool
    workers: list[str]
    jobs: list[JobName]
    bars: Bars
    held: list[HeldTime]


class TraceEvent(Body):
    name: str
    cat: str = ""
    ph: str  # X: from ts for dur; M: the name of a process or thread; i: a moment
    ts: float = 0.0  # microseconds since ``since``
    dur: float = 0.0  # microseconds
    pid: int
    tid: int
    args: dict[str, str | int | float | bool | None] = Field(default_factory=dict)


class Trace(Body):
    """The timeline as Chrome's trace-event JSON, which Perfetto and speedscope open.

    Workers are processes, their slots are threads.
    """

    traceEvents: list[TraceEvent]  # noqa: N815 Chrome's own name
    displayTimeUnit: str = "ms"  # noqa: N815


class Samples(Body):
    """Load of workers over time, a point every ``every_s``: means of that time; of several workers, sums."""

    every_s: float
    at: list[float]  # where each point begins
    workers: list[float]  # that reported
    spare_cpu: list[float]  # cores that the owner does not use
    slots: list[float]  # offered
    used: list[float]  # slots used by attempts; attempts that wait at a worker for a slot are not counted
    in_use: list[float]  # of the workers, by their owners
    frozen: list[float]  # slots in use by frozen attempts


class SweepColumns(Body):
    """The first tasks of a job, by number; ``truncated`` is true if there are more.

    A parameter or metric that a task does not have is null in its column.
    """

    truncated: bool
    number: list[int]
    state: list[TaskState]
    prefetched: list[int]  # 1: its attempt waits at its worker for a slot
    worker: list[str | None]  # of the accepted result, else of the latest attempt
    began: list[float | None]  # of that worker's attempt
    wall_s: list[float | None]  # how long that attempt ran; null: it has not ended
    exit_code: list[int | None]
    failures: list[int]
    reason: list[str]
    parameters: dict[str, list[Scalar | None]]
    metrics: dict[str, list[float | None]]  # values that tasks wrote to the file named by LOOPLINE_RESULT


class WorkerSamples(Body):
    """Load of each worker over time, for small charts beside one another: a value for each of ``points`` times."""

    since: float  # where the first point begins
    every_s: float  # from point to point
    points: int  # values of each worker
    workers: list[str]  # those with samples in this time, by name
    spare_cpu: list[list[float | None]]  # of each worker, cores that its owner does not use; null: nothing is known
    used: list[list[float | None]]  # of each worker, slots in use


class QueuedJob(Body):
    id: int
    held_by: int | None = None  # the job that must complete before its last task is started
    waiting_for: list[int] = Field(default_factory=list)  # jobs that have yet to succeed before it enters the grid


class Queue(RootModel[list[QueuedJob]]):
    """The jobs in the grid in the policy's order, then the jobs that wait outside the grid."""
