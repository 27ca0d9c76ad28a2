"""Invariants that a running master can check: those of one job or one worker at a time.

Each check takes a bounded time however large the grid is. Checks of whole indexes (invariants.check) are for tests.
"""

from __future__ import annotations

from itertools import takewhile

from loopline_master.core.checks.invariants import (
    check_attempt,
    check_counts,
    check_guarantee,
    check_quarantine,
    check_slots,
)
from loopline_master.core.state import State
from loopline_shared.model import TaskId

MOST_TASKS = 5_000
"""Tasks in memory of a job whose counts are checked; with more, only the guarantee is."""


def check_job(state: State, number: int) -> None:
    """Raises AssertionError if a job contradicts its tasks, or breaks the guarantee.

    Costs O(live jobs + its tasks in memory).
    """
    job, in_memory = state.jobs[number], state.index.ready_sets[number].kept
    if len(in_memory) <= MOST_TASKS:
        check_counts(state, job, [state.tasks[TaskId(number, task)] for task in in_memory])
    if job.is_live:
        assert state.index.live.get(job.arrival) is job, f"job {number} is live, but not in the order of arrival"
        check_guarantee(state, job, list(takewhile(lambda one: one is not job, state.index.live.values())))


def check_worker(state: State, name: str) -> None:
    """Raises AssertionError if a worker contradicts its attempts, or these their tasks. Costs O(its attempts)."""
    worker, index = state.workers[name], state.index.attempts
    attempts = list(index.of_worker.get(name, {}).values())
    for attempt in attempts:
        assert state.attempts.get(attempt.id) is attempt, f"attempt {attempt.id} is indexed, but not in memory"
        check_attempt(state, attempt)
    check_slots(worker, attempts)
    seated = sum(attempt.slots for attempt in attempts if attempt.is_seated)
    used = index.used.get(name, 0)
    assert used == seated, f"worker {name} counts {used} slots in use, its attempts take {seated}"
    check_quarantine(state, worker)
