"""What must be true of rows whenever a master might start from them, and when all is over. Else AssertionError."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from master.scheduling.model import LIVE
from master.scheduling.scheduler import Scheduler
from shared.model import AttemptState, TaskState
from simulator.full.machine import Machine
from simulator.full.store import MemoryStore


def check_restart_changes_nothing(scheduler: Scheduler, store: MemoryStore) -> None:
    """The rows hold all that the scheduler knows."""
    now, again = scheduler.state, Scheduler(store.snapshot()).state
    assert now.grid == again.grid
    for part in ("jobs", "tasks", "attempts", "workers", "programs", "fresh"):
        assert_same(part, getattr(now, part), getattr(again, part))
    assert now.index.ready == again.index.ready
    assert now.index.witness.keys() == again.index.witness.keys()


def check_rows(store: MemoryStore, acknowledged: Iterable[int]) -> None:
    """Every job that was acknowledged has ended, and each task that succeeded has one accepted result."""
    for job_id in acknowledged:
        job = store.jobs[job_id]
        assert not job.is_live, f"job {job_id} is still {job.state}: {job}"
        assert job.departure is not None
    accepted: dict[tuple[int, int], int] = {}
    for attempt in store.attempts.values():
        accepted[attempt.task_id] = accepted.get(attempt.task_id, 0) + attempt.accepted
    for task in store.tasks.values():
        assert not task.is_open, f"task {task.id} is still {task.state}"
        results = accepted.get(task.id, 0)
        assert results == (task.state is TaskState.SUCCEEDED), f"task {task.id} is {task.state}: {results} results"
    live = [a.id for a in store.attempts.values() if a.state in (*LIVE, AttemptState.CANCELLING)]
    assert not live, f"attempts still alive: {live}"
    assert not store.passings, f"passings: {store.passings}"


def check_machines(machines: Iterable[Machine]) -> None:
    """Nothing is left running, and nothing unsaid."""
    for machine in machines:
        assert not machine.processes, f"{machine.name} still runs {list(machine.processes)}"
        assert not machine.spool, f"{machine.name} still keeps {list(machine.spool)}"


def check_replay(store: MemoryStore) -> None:
    """The log alone leads to the same rows."""
    again = store.replayed()
    assert again.grid == store.grid
    for part in ("jobs", "tasks", "attempts", "workers", "programs", "exemptions"):
        assert_same(part, getattr(store, part), getattr(again, part))


def assert_same(what: str, now: Mapping[Any, object], again: Mapping[Any, object]) -> None:
    for key in {**now, **again}:
        assert now.get(key) == again.get(key), f"{what} {key}: now {now.get(key)}, again {again.get(key)}"
