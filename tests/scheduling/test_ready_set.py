"""A job's ready set reports when a change of a task changes the job's place in the queue."""

from __future__ import annotations

from random import Random

import pytest

from loopline_master.core.kernel.entities import Job, Task
from loopline_master.core.kernel.index.attempts import Attempts, ReadySet
from loopline_shared.model import Order, TaskState
from tests.scheduling.driver import spec


def nonempty_parts(ready_set: ReadySet) -> tuple[bool, ...]:
    """The parts that the places of its job depend on."""
    return tuple(
        map(
            bool,
            (ready_set.to_retry, ready_set.replicable, ready_set.stalled, ready_set.under_replicated, ready_set.kept),
        )
    )


@pytest.mark.parametrize("max_replicas", [1, 2, None])
def test_every_set_that_becomes_empty_or_nonempty_is_reported(max_replicas: int | None) -> None:
    random, ready_set, attempts = Random(max_replicas), ReadySet(), Attempts()
    job = Job(1, "user", spec(4), 4, 4.0, Order.HOLD, 3, max_replicas, arrival=1, submitted_at=0.0)
    tasks = [Task(1, number, started=True) for number in range(1, 5)]
    quiet = 0
    for _ in range(2_000):
        task, before = random.choice(tasks), nonempty_parts(ready_set)
        task.state = random.choice([TaskState.QUEUED, TaskState.SUCCEEDED, *[TaskState.RUNNING] * 4])
        attempts.alive[task.id] = random.choice([1, 1, 2])
        attempts.frozen[task.id] = random.choice([0, 0, 1])
        is_elsewhere = ready_set.place(task, job, attempts)
        assert is_elsewhere or nonempty_parts(ready_set) == before, (
            f"the change of task {task.number} was not reported"
        )
        quiet += not is_elsewhere
    assert quiet > 200, "not every task changes its job's place"
