"""The queue of jobs: its order, and the job that holds each."""

from __future__ import annotations

from loopline_master.core.events import JobCancelled, JobPaused, JobSubmitted
from loopline_master.core.explain.demand import demand_view
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.explain.queue_view import queue
from loopline_shared.model import Order
from tests.scheduling.driver import Grid, facts, spec


def turns(grid: Grid) -> list[tuple[int, int | None]]:
    return [(queued.id, queued.held_by) for queued in queue(grid.scheduler.state)]


def test_round_robin_continues_after_the_job_served_last() -> None:
    grid = Grid(policy="round-robin")
    for _ in range(4):
        grid.submit(5, 10.0)
    assert [job for job, _ in turns(grid)] == [1, 2, 3, 4]
    grid.join("a")
    assert [job for job, _ in turns(grid)] == [2, 3, 4, 1]
    grid.join("b")
    assert [job for job, _ in turns(grid)] == [3, 4, 1, 2]


def test_first_come_queues_by_arrival() -> None:
    grid = Grid(policy="first-come")
    grid.join("a")
    for _ in range(3):
        grid.submit(2, 10.0)
    assert [job for job, _ in turns(grid)] == [1, 2, 3]


def test_fair_queues_by_tag() -> None:
    grid = Grid(policy="fair")
    grid.submit(5, 500.0)
    grid.submit(5, 50.0)
    grid.submit(5, 5.0)
    assert [job for job, _ in turns(grid)] == [3, 2, 1]


def test_held_job_names_the_same_holder_as_explain() -> None:
    grid = Grid(policy="first-come")
    grid.submit(2, 9.0)
    grid.submit(2, 5.0)
    grid.submit(2, 5.0)
    last = grid.submit(1, 5.0)
    assert turns(grid) == [(1, None), (2, None), (3, None), (last, 2)]
    explanation = explain_job(grid.scheduler, last)
    assert explanation is not None
    assert [reason.job for reason in explanation.reasons if reason.code == "held"] == [2]
    assert [reason.job for reason in explanation.reasons if reason.code != "held"] == [None]


def test_ended_job_is_not_in_the_queue() -> None:
    grid = Grid()
    grid.join("a")
    grid.submit(1)
    grid.end(grid.running("a")[0])
    assert turns(grid) == []


def test_jobs_with_dependencies_come_last_and_name_them() -> None:
    grid = Grid()
    first, second = grid.submit(1), grid.submit(1)
    grid.submit(1, after=[first, second])
    chained = grid.submit(1, after=[first])
    inside = grid.submit(1)
    expected = {3: [first, second], chained: [first]}
    queued = queue(grid.scheduler.state)
    assert {one.id: one.waiting_for for one in queued if one.waiting_for} == expected
    assert [one.id for one in queued if not one.waiting_for] == [first, second, inside]
    assert [one.id for one in queued][-2:] == [3, chained]
    grid.join("a")
    while running := grid.running("a"):
        grid.end(running[0])
    assert turns(grid) == []


def demanded(grid: Grid) -> list[tuple[int, int, int]]:
    return [(one.tasks, one.waiting, one.workers) for one in demand_view(grid.scheduler.state).demands]


def test_demand_excludes_held_and_paused_tasks() -> None:
    grid = Grid(policy="first-come")
    first = grid.submit(3, 9.0)
    second = grid.submit(5, 5.0)  # neither holds nor is held: the first job is larger
    grid.submit(4, 9.0)  # both earlier jobs hold its last task
    gpu = grid.submit(2, 1e9, requires={"labels": ["gpu"], "slots": 2})
    assert demanded(grid) == [(11, 0, 0), (1, 0, 0)]
    view = demand_view(grid.scheduler.state)
    assert (view.slots, view.demands[1].labels, view.demands[0].jobs) == (13, ["gpu"], 3)
    grid.step(JobPaused(first))
    assert demanded(grid) == [(5 + 3, 0, 0), (1, 0, 0)]
    grid.step(JobCancelled(second), JobCancelled(gpu))
    assert demanded(grid) == [(4, 0, 0)]


def test_demand_counts_tasks_that_wait_at_busy_workers() -> None:
    grid = Grid(policy="first-come", prefetch_s=60.0)
    grid.join("a")
    grid.submit(4, 40.0)
    assert demanded(grid) == [(0, 3, 1)]


def test_demand_is_within_the_limit_of_its_user() -> None:
    grid = Grid(policy="first-come", shares=True, user_slots=3)
    for user in ("ann", "bob"):
        grid.step(JobSubmitted(user, spec(9, 90.0)))
    assert demanded(grid) == [(6, 0, 0)]
    grid.join("a", facts(2))
    assert demanded(grid) == [(4, 0, 1)]


def test_task_that_counts_as_more_than_user_slots_is_demanded_if_its_user_has_none() -> None:
    grid = Grid(policy="first-come", shares=True, user_slots=10, gpu_cores=16, order=Order.NONE, max_replicas=1)
    for _ in range(2):
        grid.submit(2, requires={"gpus": 1})
    assert demanded(grid) == [(1, 0, 0)], "each counts as 17 slots, so the next waits for its end"
    grid.submit(2)
    assert demanded(grid) == [(1, 0, 0), (2, 0, 0)], "whichever workers come, something can start"
    grid.join("a")
    assert demanded(grid) == [(1, 0, 1)], "no task with a GPU starts before the plain ones have ended"
    for _ in range(2):
        grid.end(*grid.running("a"))
    assert demanded(grid) == [(1, 0, 0)]
