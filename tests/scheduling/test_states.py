"""The tables of transitions are exact: what they forbid raises, and all that they allow happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import product
from typing import Any

import pytest

from loopline_master.core import transitions
from loopline_master.core.effects import Effects
from loopline_master.core.events import JobCancelled
from loopline_shared.model import AttemptId, AttemptState, JobState, Order, Outcome, TaskId, TaskState
from tests.scheduling.driver import Grid, facts, result

Table = Mapping[Any, frozenset[Any]]
Edge = tuple[str, str, str]  # the machines share their states' names, and so equal strings
MACHINES: list[tuple[type[StrEnum], Table]] = [
    (JobState, transitions.JOB),
    (TaskState, transitions.TASK),
    (AttemptState, transitions.ATTEMPT),
]
FIRST = {JobState: JobState.WAITING, TaskState: TaskState.QUEUED, AttemptState: AttemptState.DISPATCHED}


@pytest.mark.parametrize(("kind", "table"), MACHINES)
def test_every_pair_is_allowed_or_raises(kind: type[StrEnum], table: Table) -> None:
    for old, new in product(kind, repeat=2):
        if new in table[old]:
            assert transitions.check(table, old, new) is new
        else:
            with pytest.raises(AssertionError, match=f"{kind.__name__} may not go from {old} to {new}"):
                transitions.check(table, old, new)


@pytest.mark.parametrize(("kind", "table"), MACHINES)
def test_a_table_has_a_line_for_every_state(kind: type[StrEnum], table: Table) -> None:
    assert set(table) == set(kind)


def edge(old: StrEnum, new: StrEnum) -> Edge:
    return type(old).__name__, str(old), str(new)


# --- every transition of the tables, through Scheduler.step ----------------------------------------------------


class Witness(Grid):
    """Sees the transitions that are checked, and that no row changes its state but by these."""

    def __init__(self, patch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.seen: set[Edge] = set()
        self.step_edges: set[Edge] = set()
        original = transitions.check

        def check(machine: Table, old: Any, new: Any) -> Any:
            self.step_edges.add(edge(old, new))
            return original(machine, old, new)

        patch.setattr(transitions, "check", check)
        super().__init__(**settings)

    def step(self, *events: Any, deliver: bool = True) -> Effects:
        self.step_edges = set()
        before = {**self.store.jobs, **self.store.tasks, **self.store.attempts} if hasattr(self, "store") else {}
        old_states = {key: row.state for key, row in before.items()}
        effects = super().step(*events, deliver=deliver)
        after: dict[Any, Any] = {**effects.jobs, **effects.tasks, **effects.attempts}
        for key, row in after.items():
            old = old_states.get(key, FIRST[type(row.state)])
            assert row.state in self._reachable(old), f"{key} went from {old} to {row.state} without a check"
        self.seen |= self.step_edges
        return effects

    def _reachable(self, old: StrEnum) -> set[StrEnum]:
        found = {old}
        while more := {n for n in type(old) if any(edge(o, n) in self.step_edges for o in found)} - found:
            found |= more
        return found


def attempts_end_in_each_way(grid: Witness) -> None:
    """Out of dispatched, out of running: the process ends, or its owner claims the computer."""
    for reported_before in (False, True):
        for outcome in Outcome:
            grid.submit(1, max_attempts=1)
            attempt = grid.running("a")[0]
            if reported_before:
                grid.report("a")
            grid.end(attempt, outcome)
            for again in grid.running("a"):
                grid.end(again)


def attempts_are_cancelled(grid: Witness) -> None:
    """Out of dispatched and running into cancelling; out of that in each way."""
    for outcome in [*Outcome, None]:
        job = grid.submit(1)
        attempt = grid.running("a")[0]
        if outcome is not Outcome.FAILED:
            grid.report("a")
        grid.step(JobCancelled(job), deliver=outcome is None)
        if outcome is None:
            grid.wait(31.0)
            grid.join("a")
        else:
            grid.end(attempt, outcome)  # its report crosses the cancel


def attempts_are_lost(grid: Witness) -> None:
    """Silence makes every attempt lost; a lost one comes back in each way."""
    for outcome in [*Outcome, None]:
        job = grid.submit(1, max_attempts=1)
        attempt = grid.running("a")[0]
        if outcome is Outcome.FAILED:
            grid.report("a")
        grid.wait(31.0)
        assert grid.task(job).state == "queued"
        grid.join("a", reports=False)
        grid.report("a", *([] if outcome is None else [result(attempt, outcome)]))
        for again in grid.running("a"):
            grid.end(again)


def a_lost_attempt_finds_its_place_taken(grid: Witness) -> None:
    job = grid.submit(1, max_replicas=1)
    grid.wait(31.0)
    grid.join("b")
    assert grid.running("b")
    grid.join("a")
    assert grid.attempt(job).state == "cancelling"
    grid.end(AttemptId(job, 1, 2))
    grid.report("a")
    grid.step(JobCancelled(grid.submit(1, requires={"os": "windows"})))


def a_queued_task_is_cancelled(grid: Witness) -> None:
    job = grid.submit(1)
    grid.wait(31.0)
    assert grid.task(job).state == "queued"
    grid.step(JobCancelled(job))
    assert grid.task(job).state == "cancelled"
    grid.step(grid.retry_event(job))
    assert grid.task(job).state == "queued"


def jobs_are_retried(grid: Witness) -> None:
    job = grid.submit(1, max_attempts=1)
    grid.end(grid.running("a")[0], Outcome.FAILED)
    grid.step(grid.retry_event(job))
    grid.end(grid.running("a")[0])


def a_job_is_computed_cancelled_and_retried(grid: Witness) -> None:
    """Under order *deliver*: with nothing left to run, it completes when nobody holds it any more."""
    grid.join("b", facts(1))
    first, second = grid.submit(1, 10.0, max_replicas=1), grid.submit(1, 10.0)
    grid.end(grid.attempts_of(TaskId(second, 1))[0])
    grid.step(JobCancelled(second))
    grid.step(grid.retry_event(second))
    assert grid.job(second).state == "queued"
    grid.end(grid.attempts_of(TaskId(first, 1))[0])
    assert grid.job(second).state == "succeeded"


def a_job_waits_is_cancelled_and_retried(grid: Witness) -> None:
    first = grid.submit(1)
    second = grid.submit(1, after=[first])
    assert grid.job(second).state == "waiting"
    grid.step(JobCancelled(second))
    grid.step(grid.retry_event(second))
    assert grid.job(second).state == "waiting"
    grid.end(grid.running("a")[0])
    grid.end(grid.running("a")[0])
    assert grid.job(second).state == "succeeded"


STORIES: list[Callable[[Witness], None]] = [
    attempts_end_in_each_way,
    attempts_are_cancelled,
    attempts_are_lost,
    a_lost_attempt_finds_its_place_taken,
    a_queued_task_is_cancelled,
    jobs_are_retried,
    a_job_is_computed_cancelled_and_retried,
    a_job_waits_is_cancelled_and_retried,
]


def test_every_transition_of_the_tables_happens_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[Edge] = set()
    for story in STORIES:
        with monkeypatch.context() as patch:
            grid = Witness(patch, lease_s=30.0, order=Order.DELIVER)
            grid.join("a", facts(1))
            story(grid)
            seen |= grid.seen
    assert seen == {edge(old, new) for _, table in MACHINES for old, ends in table.items() for new in ends}


def test_the_witness_sees_a_transition_that_was_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above cannot be content with too little."""
    grid = Witness(monkeypatch)
    grid.join("a", facts(1))
    job = grid.submit(1)
    monkeypatch.setattr(transitions, "check", lambda machine, old, new: new)
    with pytest.raises(AssertionError, match="went from running to cancelled without a check"):
        grid.step(JobCancelled(job))
