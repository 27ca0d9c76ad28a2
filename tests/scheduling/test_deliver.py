"""Order *deliver*: a job runs without a hold, and completes after the jobs that it may not pass."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.events import JobCancelled, JobPaused, JobResumed
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.policies import REGISTRY
from loopline_shared.model import AttemptId, JobState, Order, Outcome
from tests.campaign import PATIENT, tried
from tests.scheduling.driver import Grid, facts

policies = pytest.mark.parametrize("policy", sorted(REGISTRY))


def two_jobs(policy: str = "first-come", later_size: float | None = 10.0) -> Grid:
    """Job 1 (one task of 10 s) runs on a; job 2 (two tasks) on b and c."""
    grid = Grid(policy=policy, order=Order.DELIVER, max_replicas=1)
    grid.join("a")
    grid.submit(1, 10.0)
    grid.submit(2, later_size)
    grid.workers("b", "c")
    return grid


def compute_the_later(grid: Grid) -> None:
    for task in (1, 2):
        grid.end(AttemptId(2, task, 1))


@policies
def test_last_task_runs_while_a_predecessor_is_unfinished(policy: str) -> None:
    grid = two_jobs(policy)
    assert grid.job(2).running == 2


def test_computed_job_completes_right_after_its_predecessor() -> None:
    grid = two_jobs()
    compute_the_later(grid)
    assert grid.job(2).state is JobState.RUNNING
    assert (grid.job(2).succeeded, grid.job(2).held_at, grid.job(2).released_at) == (2, grid.now, None)
    grid.now += 5
    effects = grid.end(AttemptId(1, 1, 1))
    assert effects.completed == [1, 2]
    assert (grid.job(1).departure or 0) < (grid.job(2).departure or 0)
    assert grid.job(2).finished_at == grid.job(2).released_at == grid.now


def test_smaller_job_is_delivered_at_once() -> None:
    grid = two_jobs(later_size=9.0)
    compute_the_later(grid)
    assert grid.job(2).state is JobState.SUCCEEDED


def test_failed_job_is_delivered_in_order() -> None:
    grid = two_jobs()
    for number in (1, 2, 3):
        grid.end(AttemptId(2, 1, number), Outcome.FAILED)
    grid.end(AttemptId(2, 2, 1))
    assert grid.job(2).state is JobState.RUNNING
    grid.end(AttemptId(1, 1, 1))
    assert grid.job(2).state is JobState.FAILED


def test_explain_names_the_job_that_holds_a_delivery() -> None:
    grid = two_jobs()
    compute_the_later(grid)
    explanation = explain_job(grid.scheduler, 2)
    assert explanation is not None
    assert explanation.reasons[0].code == "held"
    what = "it is computed and its output can be fetched, its delivery is held"
    entered = f"{what}: job 1 (size 10 s) entered the grid before it and is not larger"
    assert explanation.sentence == f"{entered}; the only task of job 1 is left; 2 of 2 tasks succeeded"


def test_computed_job_survives_a_restart_before_its_delivery() -> None:
    grid = two_jobs()
    compute_the_later(grid)
    grid.restart()
    assert grid.job(2).state is JobState.RUNNING
    grid.join("a")
    grid.end(AttemptId(1, 1, 1))
    assert grid.job(2).state is JobState.SUCCEEDED


def test_computed_job_is_delivered_when_its_predecessor_stops_holding() -> None:
    for event in (JobCancelled(1), JobPaused(1)):
        grid = two_jobs()
        compute_the_later(grid)
        assert grid.step(event).completed == [2]
    grid = Grid(order=Order.DELIVER, stall_after_s=60.0)
    grid.submit(1, 10.0, requires={"os": "windows"})
    grid.submit(1, 10.0)
    grid.join("a")
    grid.end(AttemptId(2, 1, 1))
    assert grid.job(2).state is JobState.RUNNING
    assert grid.wait(60.0).completed == [2]
    assert [(e.job, e.reason) for e in grid.store.exemptions.values()] == [(1, "stalled")]


def test_computed_job_does_not_stall_when_its_workers_leave() -> None:
    """It needs no worker any more; if it stalled, it would hold no job and could be passed."""
    grid = Grid(policy="first-come", order=Order.DELIVER, stall_after_s=60.0)
    grid.join("l")
    grid.submit(1, 10.0)
    grid.join("w", facts(os="windows"))
    grid.submit(1, 10.0, requires={"os": "windows"})
    grid.end(AttemptId(2, 1, 1))
    grid.leave("w")
    grid.wait(61.0)
    assert not grid.job(2).stalled


def test_computed_job_can_be_cancelled_but_not_paused() -> None:
    grid = two_jobs()
    compute_the_later(grid)
    grid.step(JobPaused(2))
    grid.end(AttemptId(1, 1, 1))
    assert grid.job(2).state is JobState.SUCCEEDED, "no task is left to pause"
    grid = two_jobs()
    compute_the_later(grid)
    grid.step(JobCancelled(2), JobResumed(2))
    assert grid.job(2).state is JobState.CANCELLED


# --- a job of one task under order hold ---------------------------------------------------------------------------


def test_single_task_job_runs_at_once_and_completes_in_order() -> None:
    grid = Grid(policy="first-come", single_task_order="deliver", max_replicas=1)
    grid.workers("a", "b")
    first, later = grid.submit(1, 10.0), grid.submit(1, 10.0)
    assert (grid.job(first).order, grid.job(later).order) == (Order.DELIVER, Order.DELIVER)
    assert [attempt.job for name in "ab" for attempt in grid.running(name)] == [first, later]
    grid.end(AttemptId(later, 1, 1))
    assert grid.job(later).state is JobState.RUNNING
    assert grid.end(AttemptId(first, 1, 1)).completed == [first, later]


@pytest.mark.parametrize(
    ("order", "tasks", "nodes", "stamped"),
    [
        (Order.HOLD, 1, 1, Order.DELIVER),
        (Order.HOLD, 2, 1, Order.HOLD),
        (Order.HOLD, 1, 2, Order.HOLD),  # a gang keeps many slots busy
        (Order.DELIVER, 1, 1, Order.DELIVER),
        (Order.NONE, 1, 1, Order.NONE),
    ],
)
def test_order_is_stamped_by_the_number_of_tasks(order: Order, tasks: int, nodes: int, stamped: Order) -> None:
    grid = Grid(order=order, single_task_order="deliver")
    assert grid.job(grid.submit(tasks, 10.0, nodes=nodes)).order is stamped


def test_equal_single_task_jobs_of_a_known_program_run_side_by_side() -> None:
    """From the second run on their sizes are predicted and equal: held, they would run one at a time."""
    grid = Grid(policy="first-come", single_task_order="deliver", max_replicas=1)
    grid.workers("a")
    grid.submit(1)
    grid.end(*grid.running("a"), wall_s=10.0)
    grid.workers("b", "c", "d")
    jobs = [grid.submit(1) for _ in range(4)]
    assert {grid.job(job).size for job in jobs} == {grid.job(jobs[0]).size} != {None}
    assert sum(len(grid.running(name)) for name in "abcd") == 4


@policies
@settings(PATIENT, max_examples=tried(6, 400))
@given(sizes=st.lists(st.sampled_from([1.0, 2.0, None]), min_size=2, max_size=8), picks=st.data())
def test_deliveries_never_pass_one_another(policy: str, sizes: list[float | None], picks: st.DataObject) -> None:
    grid = Grid(policy=policy, order=Order.DELIVER)
    for size in sizes:
        grid.submit(2, size)
    grid.workers("a", "b", "c")
    while running := [attempt for name in grid.agents for attempt in grid.running(name)]:
        grid.end(picks.draw(st.sampled_from(running)))
        for name, agent in grid.agents.items():
            if agent.killed:
                grid.report(name)
    assert all(job.state is JobState.SUCCEEDED for job in grid.store.jobs.values())
    assert not grid.store.passings
