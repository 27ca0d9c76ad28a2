"""The tables of transitions are exact: forbidden transitions raise, and all allowed ones occur."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import product
from typing import Any

import pytest

from loopline_master.core.events import JobCancelled
from loopline_master.core.kernel import transitions
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.wings.gangs.gang import PHASES, GangPhase
from loopline_shared.model import AttemptId, AttemptState, JobState, Order, Outcome, TaskId, TaskState
from tests.scheduling.driver import Grid, facts, result

Table = Mapping[Any, frozenset[Any]]
Edge = tuple[str, str, str]  # the machines share their states' names, and so equal strings
MACHINES: list[tuple[type[StrEnum], Table]] = [
    (JobState, transitions.JOB),
    (TaskState, transitions.TASK),
    (AttemptState, transitions.ATTEMPT),
    (GangPhase, PHASES),
]
FIRST: dict[type[StrEnum], tuple[StrEnum, ...]] = {
    JobState: (JobState.WAITING,),
    TaskState: (TaskState.QUEUED,),
    AttemptState: (AttemptState.DISPATCHED, AttemptState.PREFETCHED),
    GangPhase: (GangPhase.PREPARING,),
}


@pytest.mark.parametrize(("kind", "table"), MACHINES)
def test_every_pair_is_allowed_or_raises(kind: type[StrEnum], table: Table) -> None:
    for old, new in product(kind, repeat=2):
        if new in table[old]:
            assert transitions.check(table, old, new) is new
        else:
            with pytest.raises(AssertionError, match=f"{kind.__name__} may not go from {old} to {new}"):
                transitions.check(table, old, new)


@pytest.mark.parametrize(("kind", "table"), MACHINES)
def test_table_has_a_line_for_every_state(kind: type[StrEnum], table: Table) -> None:
    assert set(table) == set(kind)


def edge(old: StrEnum, new: StrEnum) -> Edge:
    return type(old).__name__, str(old), str(new)


# --- every transition of the tables, through Scheduler.step ----------------------------------------------------


class Witness(Grid):
    """Records the checked transitions, and verifies that rows change their state only by these."""

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
            olds = (old_states[key],) if key in old_states else FIRST[type(row.state)]
            reachable = {new for old in olds for new in self._reachable(old)}
            assert row.state in reachable, f"{key} went from {olds[0]} to {row.state} without a check"
        self.seen |= self.step_edges
        return effects

    def _reachable(self, old: StrEnum) -> set[StrEnum]:
        found = {old}
        while more := {n for n in type(old) if any(edge(o, n) in self.step_edges for o in found)} - found:
            found |= more
        return found


def attempts_end_in_each_way(grid: Witness) -> None:
    """From dispatched and running: the process ends, or the owner claims the computer."""
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
    """From dispatched and running to cancelling, and from there in each way."""
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
    """A lost lease makes every attempt lost; a lost attempt returns in each way."""
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


def attempts_wait_and_are_frozen(grid: Witness) -> None:
    """From prefetched and frozen in each way except lost."""
    for frozen in (False, True):
        for outcome in Outcome:
            _prefetch(grid)
            if frozen:
                grid.end(grid.running("a")[0])
                grid.report("a", frozen=True)
                grid.report("a", frozen=False)
                grid.report("a", frozen=True)
            attempt = grid.running("a")[-1]
            grid.report("a", result(attempt, outcome))
            _clear(grid)
    for job in (_prefetch(grid), grid.submit(1)):
        grid.report("a", frozen=True)
        grid.step(JobCancelled(job))
        grid.report("a")
    _clear(grid)


def attempts_freeze_as_they_begin(grid: Witness) -> None:
    """From dispatched and prefetched to frozen; frozen and waiting attempts are lost and return."""
    _prefetch(grid)
    grid.report("a", frozen=True)
    first = grid.running("a")[0]
    grid.report("a", result(first), frozen=True)
    _clear(grid)
    _prefetch(grid)
    grid.report("a", frozen=True)
    grid.wait(31.0)
    grid.join("a", reports=False)
    grid.report("a", frozen=True)
    _clear(grid)


def a_slot_is_taken_while_a_frame_is_in_flight(grid: Witness) -> None:
    """A dispatched or cancelled attempt proves to be waiting; a waiting one proves to have started."""
    agent = grid.agents["a"]
    grid.submit(1, 100.0)
    agent.facts = facts(0)  # so that it says that it waits
    grid.report("a")
    agent.facts = facts(1)
    grid.report("a")
    _clear(grid)
    for slots_then, slots_now in ((0, 1), (1, 0)):
        job = grid.submit(1, 0.5)
        agent.facts = facts(slots_then)
        grid.report("a")
        grid.step(JobCancelled(job), deliver=False)
        agent.facts = facts(slots_now)
        grid.report("a", deliver=False)
        agent.facts = facts(1)
        grid.deliver()
        grid.report("a")
        _clear(grid)


def retracted_attempts_end_in_each_way(grid: Witness) -> None:
    for outcome in Outcome:
        job = _prefetch(grid)
        waiting = grid.waiting("a")[0]
        grid.step(JobCancelled(job), deliver=False)
        grid.report("a", result(waiting, outcome))
        _clear(grid)
    job = _prefetch(grid)
    grid.step(JobCancelled(job), deliver=False)
    grid.wait(31.0)
    grid.join("a")
    _clear(grid)


def _prefetch(grid: Witness) -> int:
    """Submit a job with one running task and one that waits at the worker."""
    job = grid.submit(2, 1.0, max_attempts=1)
    assert len(grid.waiting("a")) == 1
    return job


def _clear(grid: Witness) -> None:
    for job in [job.id for job in grid.store.jobs.values() if job.is_live]:
        grid.step(JobCancelled(job))
    for _ in range(3):
        grid.report("a")
    assert not grid.running("a")


def results_are_delivered(grid: Witness) -> None:
    """To delivering from each state, and from there in each way."""
    for outcome in Outcome:  # from dispatched
        grid.submit(1, max_attempts=1)
        attempt = grid.running("a")[0]
        grid.delivers(attempt)
        grid.report("a", result(attempt, outcome))
        _clear(grid)
    for frozen in (False, True):  # from running and frozen
        job = grid.submit(1)
        grid.report("a", frozen=frozen)
        grid.delivers(grid.running("a")[0])
        grid.step(JobCancelled(job))
        grid.report("a", result(AttemptId(job, 1, 1)))
    _prefetch(grid)
    grid.delivers(grid.running("a")[1])
    grid.wait(31.0)  # lost ...
    grid.join("a")  # ... and back
    grid.agents["a"].delivering.clear()
    _clear(grid)


def a_member_delivers_its_result(grid: Witness) -> None:
    job = a_gang(grid, runs=False)
    grid.delivers(AttemptId(job, 1, 1))  # it began before the start was named
    grid.agents["b"].delivering.clear()
    for name in "bc":
        grid.report(name)
    job = grid.submit(1, nodes=2)
    for name in "bcbc":
        grid.report(name)
    attempt = grid.running("b")[0]
    grid.delivers(attempt)
    grid.report("b", result(attempt))
    assert grid.attempt(*attempt).state == "finished"


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
    """Under order *deliver*: with no task left to run, it completes when no job holds it any more."""
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


def a_gang(grid: Witness, *, runs: bool = True) -> int:
    """Return the number of a job whose gang of two is prepared on b and c, and is running if ``runs``."""
    grid.workers("b", "c", gangs=True)
    job = grid.submit(1, nodes=2)
    grid.report("b")
    if runs:
        for name in "cbc":
            grid.report(name)
    return job


def a_gang_ends(grid: Witness) -> None:
    job = a_gang(grid)
    grid.end(AttemptId(job, 1, 1))
    grid.end(AttemptId(job, 1, 2))
    assert grid.job(job).state == "succeeded"


def gangs_end_before_they_are_seen_to_run(grid: Witness) -> None:
    job = a_gang(grid, runs=False)
    grid.report("c")
    grid.end(AttemptId(job, 1, 1))
    grid.end(AttemptId(job, 1, 2), Outcome.FAILED)
    for name in "bcbc":
        grid.report(name)
    grid.end(AttemptId(job, 1, 3), Outcome.GIVEN_BACK)


def gangs_stand_down(grid: Witness) -> None:
    job = a_gang(grid, runs=False)
    grid.report("b", ready=False)
    grid.report("b")
    grid.report("b", result(AttemptId(job, 1, 1), Outcome.GIVEN_BACK))
    for name in "cb":
        grid.report(name)
    grid.step(JobCancelled(job))


def gangs_are_halted(grid: Witness) -> None:
    job = a_gang(grid, runs=False)
    grid.report("c")
    grid.report("b", frozen=True)
    assert grid.attempt(job).state == "frozen"
    grid.report("b", result(AttemptId(job, 1, 1)))
    grid.report("c")
    assert grid.attempt(job).state == "finished"
    grid.wait(31.0)
    grid.join("c", reports=False)
    grid.report("c", result(AttemptId(job, 1, 2)))
    assert grid.job(job).state == "succeeded"


def a_member_is_lost_before_it_receives_its_start(grid: Witness) -> None:
    job = a_gang(grid, runs=False)
    grid.report("c", deliver=False)
    grid.agents["c"].mail.clear()
    for _ in range(7):
        grid.wait(5.0)
        grid.report("b")
    assert grid.attempt(job, 1, 2).state == "lost"
    grid.join("c")
    assert grid.attempt(job, 1, 2).state == "prepared"


STORIES: list[Callable[[Witness], None]] = [
    attempts_end_in_each_way,
    attempts_are_cancelled,
    attempts_are_lost,
    a_lost_attempt_finds_its_place_taken,
    attempts_wait_and_are_frozen,
    attempts_freeze_as_they_begin,
    a_slot_is_taken_while_a_frame_is_in_flight,
    retracted_attempts_end_in_each_way,
    results_are_delivered,
    a_member_delivers_its_result,
    a_queued_task_is_cancelled,
    jobs_are_retried,
    a_job_is_computed_cancelled_and_retried,
    a_job_waits_is_cancelled_and_retried,
    a_gang_ends,
    gangs_end_before_they_are_seen_to_run,
    gangs_stand_down,
    gangs_are_halted,
    a_member_is_lost_before_it_receives_its_start,
]


AHEAD_S = dict.fromkeys(STORIES[4:9], 10.0)


def test_exactly_the_transitions_of_the_tables_occur(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[Edge] = set()
    for story in STORIES:
        with monkeypatch.context() as patch:
            grid = Witness(patch, lease_s=30.0, order=Order.DELIVER, prefetch_s=AHEAD_S.get(story, 0.0))
            grid.join("a", facts(1))
            story(grid)
            seen |= grid.seen
    assert seen == {edge(old, new) for _, table in MACHINES for old, ends in table.items() for new in ends}


def test_witness_detects_an_unchecked_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes sure that the test above can fail."""
    grid = Witness(monkeypatch)
    grid.join("a", facts(1))
    job = grid.submit(1)
    monkeypatch.setattr(transitions, "check", lambda machine, old, new: new)
    with pytest.raises(AssertionError, match="went from running to cancelled without a check"):
        grid.step(JobCancelled(job))
