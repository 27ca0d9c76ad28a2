"""Workers that do not return are forgotten with all their data; their tasks run again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopline_master.core.events import JobCancelled, MasterStarted, WorkerForgotten, WorkerLeft
from loopline_master.core.kernel.effects import Declined, Done
from loopline_shared.model import AttemptId, JobState, Outcome, Output, TaskId, TaskState
from tests.scheduling.driver import Grid, facts


def leave(grid: Grid, name: str) -> None:
    grid.step(WorkerLeft(name, grid.agents[name].session))


def join(grid: Grid, name: str) -> None:
    grid.join(name, replace(facts(), transient=True))


def codes(grid: Grid, name: str) -> list[str]:
    replies = grid.step(WorkerForgotten(name)).replies
    return [reply.code if isinstance(reply, Declined) else "" for reply in replies]


def known(grid: Grid) -> set[str]:
    assert grid.store.workers.keys() == grid.scheduler.state.workers.keys()
    return set(grid.store.workers)


def test_connected_and_unknown_workers_are_not_forgotten() -> None:
    grid = Grid()
    grid.join("a")
    assert (codes(grid, "a"), codes(grid, "b")) == (["connected"], ["no_such_worker"])
    leave(grid, "a")
    effects = grid.step(WorkerForgotten("a"), WorkerForgotten("a"))
    assert [type(reply) for reply in effects.replies] == [Done, Declined]
    assert (effects.gone, known(grid)) == (("a",), set())


def test_tasks_of_a_forgotten_worker_run_elsewhere() -> None:
    grid = Grid()
    job = grid.submit(1, max_replicas=1)
    grid.join("a")
    attempt = AttemptId(job, 1, 1)
    assert grid.running("a") == [attempt]
    leave(grid, "a")
    grid.step(WorkerForgotten("a"))
    grid.join("b")
    (again,) = grid.running("b")
    assert again == AttemptId(job, 1, 2)
    grid.join("a")  # as a new worker that still runs the attempt
    grid.end(again)
    assert grid.job(job).state is JobState.SUCCEEDED
    assert grid.store.replayed().workers == grid.store.workers


def test_gang_is_planned_after_an_absent_worker_is_forgotten() -> None:
    grid = Grid()
    grid.workers("a", "b", gangs=True)
    first = grid.submit(nodes=3)
    leave(grid, "a")  # it still counts: it may return within its lease
    grid.step(JobCancelled(first))
    grid.step(WorkerForgotten("a"))
    second = grid.submit(nodes=2)
    grid.join("c", facts(gangs=True))
    grid.report("b")
    grid.report("c")
    assert grid.task(second, 1).state is TaskState.RUNNING


def test_health_of_a_forgotten_worker_is_not_updated() -> None:
    grid = Grid()
    job = grid.submit(1, max_replicas=1)
    grid.join("a")
    grid.end(AttemptId(job, 1, 1), Outcome.FAILED)
    assert grid.store.tasks[TaskId(job, 1)].failed_on == ("a",)
    leave(grid, "a")
    grid.join("b")
    grid.step(WorkerForgotten("a"))
    grid.end(grid.running("b")[0])
    assert grid.job(job).state is JobState.SUCCEEDED


@pytest.mark.parametrize("agrees", [True, False])
def test_vote_of_a_forgotten_worker_still_counts(agrees: bool) -> None:
    grid = Grid()
    grid.join("a")
    job = grid.submit(1, quorum=2)
    grid.end(grid.running("a")[0], stdout=Output(3, data=b"one"))
    leave(grid, "a")
    grid.step(WorkerForgotten("a"))
    second = b"one" if agrees else b"two"
    for name, said in (("b", second), ("c", second)):
        if not grid.job(job).is_over:
            grid.join(name)
            grid.end(grid.running(name)[0], stdout=Output(3, data=said))
    assert (grid.job(job).state, known(grid)) == (JobState.SUCCEEDED, {"b"} if agrees else {"b", "c"})


def test_transient_worker_is_forgotten_when_its_lease_ends() -> None:
    grid = Grid()
    join(grid, "a")
    grid.join("b")
    for name in ("a", "b"):
        leave(grid, name)
    assert known(grid) == {"a", "b"}, "its link may have broken"
    grid.wait(30.0)
    assert known(grid) == {"b"}


def test_transient_worker_that_returns_in_time_is_not_forgotten() -> None:
    grid = Grid(max_workers=1)
    join(grid, "a")
    leave(grid, "a")
    grid.now += 30.0
    join(grid, "a")
    assert known(grid) == {"a"}


@pytest.mark.parametrize("leaves", [True, False])
def test_transient_workers_free_their_places_for_later_ones(leaves: bool) -> None:
    """Whether each one leaves properly or its lease runs out."""
    grid = Grid(max_workers=3)
    for number in range(12):
        join(grid, f"w{number}")
        grid.submit(1)
        if leaves:
            leave(grid, f"w{number}")
        else:
            grid.wait(40.0)
        assert len(known(grid)) <= 3
    join(grid, "last")
    for _ in range(12):
        grid.end(grid.running("last")[0])
    assert all(job.state is JobState.SUCCEEDED for job in grid.store.jobs.values())


def test_other_workers_are_not_forgotten_when_their_lease_ends() -> None:
    grid = Grid(max_workers=1)
    grid.join("a")
    leave(grid, "a")
    grid.join("b", reports=False)
    assert known(grid) == {"a"}


def test_transient_worker_has_one_lease_to_return_after_a_restart() -> None:
    grid = Grid()
    join(grid, "a")
    leave(grid, "a")
    grid.now += 20.0
    grid.step(MasterStarted(grid.settings))
    grid.wait(20.0)
    assert known(grid) == {"a"}
    grid.wait(10.0)
    assert known(grid) == set()
