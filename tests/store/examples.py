"""Entities and effects made by hand."""

from __future__ import annotations

from typing import Any

from loopline_master.core.events import Batch, JobSubmitted
from loopline_master.core.kernel.effects import Effects, Submitted
from loopline_master.core.kernel.entities import Attempt, Grid, Job, Task, Worker
from loopline_master.store import Store
from loopline_shared.job.parameters import Range
from loopline_shared.model import AttemptState, Facts, Load, Order, Output, TaskState
from loopline_shared.spec import JobSpec

FACTS = Facts(
    "linux",
    "x86_64",
    "3.11.7",
    "0.1",
    "a processor",
    cpus=4,
    memory_bytes=2**33,
    slots=4,
    labels=("fast",),
    speed=1.5,
)
LOAD = Load(4, 2.5, 2**30, 2**40)


def a_job(number: int = 1, tasks: int = 3, **changes: Any) -> Job:
    spec = JobSpec(name=f"job {number}", command=["echo", "{i}"], parameters={"i": Range(range=[1, tasks])})
    fields = {
        "owner": "ann",
        "spec": spec,
        "task_count": tasks,
        "size": 60.0,
        "order": Order.HOLD,
        "max_attempts": 3,
        "max_replicas": 2,
        "arrival": number,
        "submitted_at": 100.0 + number,
    }
    return Job(number, **{**fields, **changes})


def a_task(number: int = 1, job: int = 1, state: TaskState = TaskState.RUNNING, **changes: Any) -> Task:
    return Task(job, number, state, started=True, attempts=changes.pop("attempts", 1), **changes)


def an_attempt(task: int = 1, job: int = 1, number: int = 1, **changes: Any) -> Attempt:
    fields = {"worker": "ant", "slots": 1, "replica": False, "dispatched_at": 200.0}
    return Attempt(job, task, number, **{**fields, **changes})


def a_worker(name: str = "ant", **changes: Any) -> Worker:
    return Worker(name, "boot-1", FACTS, **{"joined_at": 90.0, "lease_until": 300.0, **changes})


def ended(output: bytes = b"hello\n", **changes: Any) -> dict[str, Any]:
    """Fields of an attempt with its task's accepted result."""
    fields = {
        "state": AttemptState.SUCCEEDED,
        "sent": 1,
        "started_at": 201.0,
        "ended_at": 204.0,
        "accepted": True,
        "exit_code": 0,
        "reason": "",
        "wall_s": 3.0,
        "cpu_s": 2.9,
        "peak_memory_bytes": 2**20,
        "stdout": Output(len(output), False, output),
        "stderr": Output(),
    }
    return {**fields, **changes}


def effects_of(*entities: Job | Task | Attempt | Worker, new: bool = True, **more: Any) -> Effects:
    """Return the effects of a step that changed these; ``new``: the jobs have just been submitted."""
    effects = Effects(Grid(next_job=9, sequence=9, pointer=3, now=250.0), **more)
    for entity in entities:
        match entity:
            case Job():
                effects.jobs[entity.id] = entity
                effects.replies += [Submitted(entity.id)] if new else []
            case Task():
                effects.tasks[entity.id] = entity
            case Attempt():
                effects.attempts[entity.id] = entity
            case Worker():
                effects.workers[entity.name] = entity
    return effects


async def keep(store: Store, *entities: Job | Task | Attempt | Worker, new: bool = True, **more: Any) -> None:
    """Commit them."""
    effects = effects_of(*entities, new=new, **more)
    events = [JobSubmitted(job.owner, job.spec) for job in effects.jobs.values()]
    await store.commit(Batch(effects.grid.now, list(events)), effects)
