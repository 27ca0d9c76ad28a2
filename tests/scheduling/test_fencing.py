"""Fencing: when the units of silent workers, and of a life of the database that ended, are given to others."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from loopline_master.core.events import JobCancelled, WorkerDrained, WorkerForgotten, WorkerJoined
from loopline_master.core.explain.explain_job import explain_job, explain_task
from loopline_master.core.kernel.effects import Declined
from loopline_master.core.kernel.entities import LIVE
from loopline_master.core.wings.fencing.fencing_wing import Fencing
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import AttemptId, AttemptState, Function, TaskId, TaskState
from loopline_shared.spec import JobSpec
from tests.scheduling.driver import START, Grid, facts, spec
from tests.scheduling.units import limit, offering, running, submit, worker_of

FENCING = replace(facts(1), fences=True)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_silent_worker_keeps_its_units(is_cancelled: bool) -> None:
    grid = Grid(lease_s=30.0)
    limit(grid, "matlab", 1)
    grid.join("ant", facts(1))
    grid.join("bee", facts(1))
    job = submit(grid, 2, needs={"matlab": 1})
    (held,) = running(grid, job)
    silent = worker_of(grid, held)
    other = "bee" if silent == "ant" else "ant"
    later = submit(grid, 1, needs={"matlab": 1})
    grid.now += 100.0
    grid.report(other)
    if is_cancelled:
        grid.ask(JobCancelled(job))
    assert not grid.agents[other].running, "the silent worker may still use the unit"
    grid.restart()
    grid.join(other, facts(1))
    grid.now += 100.0
    grid.report(other)
    assert not grid.agents[other].running, "a restarted master knows it, too"
    grid.ask(WorkerForgotten(silent))
    (begun,) = grid.agents[other].running
    assert begun.job in ((later,) if is_cancelled else (job, later))


def test_fenced_worker_loses_its_units_after_its_lease_and_a_margin() -> None:
    grid = Grid(lease_s=40.0)
    limit(grid, "matlab", 1)
    for name in ("ant", "bee"):
        grid.join(name, replace(facts(1), fences=True))
    job = submit(grid, 2, needs={"matlab": 1})
    (held,) = running(grid, job)
    silent = worker_of(grid, held)
    other = "bee" if silent == "ant" else "ant"
    run = grid.agents[silent].running[held]
    assert run is not None
    assert run.term_s == 40.0
    grid.now += 41.0
    grid.report(other)
    assert not grid.agents[other].running, "the worker's clock may be a little late"
    grid.restart()
    grid.join(other)
    grid.now += 41.0
    grid.report(other)
    grid.now += 16.0
    grid.report(other)
    assert len(grid.agents[other].running) == 1
    grid.join(silent)
    assert held in grid.agents[silent].killed, "it is called back if it runs after all"


def test_lost_attempt_that_is_fenced_is_called_back_and_not_adopted() -> None:
    grid = Grid(lease_s=20.0)
    limit(grid, "matlab", 1)
    grid.join("ant", replace(facts(1), fences=True))
    job = submit(grid, needs={"matlab": 1})
    (held,) = running(grid, job)
    grid.leave("ant")
    grid.wait(20.0)
    assert grid.attempt(job).state is AttemptState.LOST
    grid.join("ant")
    assert held in grid.agents["ant"].killed
    assert running(grid, job) == [], "its unit is not free before its worker says that it is gone"
    grid.report("ant")
    assert running(grid, job) == [held._replace(number=2)]


def test_only_attempts_that_need_a_limit_are_fenced() -> None:
    grid = Grid()
    limit(grid, "matlab", 9)
    grid.join("ant", replace(offering(9, fpga=1), fences=True))
    for more in ({"needs": {"fpga": 1}}, {"max_running": 1}, {}):
        submit(grid, **more)
    assert {run and run.term_s for run in grid.agents["ant"].running.values()} == {None}


def test_term_of_an_attempt_outlives_a_change_of_the_lease() -> None:
    grid = Grid(lease_s=100.0)
    limit(grid, "matlab", 1)
    for name in ("ant", "bee"):
        grid.join(name, replace(facts(1), fences=True))
    job = submit(grid, 2, needs={"matlab": 1})
    (held,) = running(grid, job)
    other = "bee" if worker_of(grid, held) == "ant" else "ant"
    grid.settings = replace(grid.settings, lease_s=20.0)
    grid.restart()
    grid.join(other)
    for _ in range(10):
        grid.now += 10.0
        grid.report(other)
        assert not grid.agents[other].running, "the silent worker ends it 100 seconds after its last Report"
    for _ in range(4):
        grid.now += 10.0
        grid.report(other)
    assert len(grid.agents[other].running) == 1


def test_attempt_that_began_without_a_term_is_not_fenced() -> None:
    grid = Grid(lease_s=20.0)
    grid.join("ant", replace(offering(1, matlab=1), fences=True))
    submit(grid, needs={"matlab": 1})
    (held,) = running(grid)
    grid.join("ant", replace(facts(1), fences=True))
    limit(grid, "matlab", 1)
    grid.join("bee", replace(facts(1), fences=True))
    later = submit(grid, needs={"matlab": 1})
    for _ in range(10):
        grid.now += 10.0
        grid.report("bee")
    assert grid.attempt(held.job).state is AttemptState.LOST
    assert not running(grid, later), "nothing ends the attempt of the silent worker"


@pytest.mark.parametrize("makes_room", [False, True])
def test_transient_worker_is_not_forgotten_before_it_has_ended_its_attempts(makes_room: bool) -> None:
    grid = Grid(lease_s=40.0, max_workers=2)
    limit(grid, "matlab", 1)
    grid.join("ant", replace(facts(1), fences=True, transient=True))
    job = submit(grid, 2, needs={"matlab": 1})
    grid.join("bee", replace(facts(1), fences=True, transient=not makes_room))
    if makes_room:
        grid.leave("ant")
        grid.sessions += 1
        assert isinstance(grid.ask(WorkerJoined("cat", grid.sessions, "boot", facts(1))), Declined)
    grid.now += 41.0
    grid.report("bee")
    assert not grid.agents["bee"].running, "its task may run on for a moment"
    for _ in range(2):
        grid.now += 16.0
        grid.report("bee")
    assert len(running(grid, job)) == 2, "one of them at the worker that is gone"
    assert "ant" not in grid.scheduler.state.workers


class Restored(Grid):
    """A grid that is restored to an earlier state while worker *ant* runs a job of the lost time."""

    def __init__(self) -> None:
        super().__init__(lease_s=40.0)
        limit(self, "matlab", 1)
        self.join("bee", FENCING)
        kept = deepcopy(self.store)
        self.join("ant", FENCING)
        self.leave("bee")
        self.lost = submit(self, needs={"matlab": 1})
        assert self.running("ant")
        self.store, self.last_answer_at = kept, self.now
        self.store.grid.units_withheld_until = None
        self.restart()
        self.join("bee")

    def at(self, seconds: float) -> list[AttemptId]:
        """Return what the other worker runs this long after the restored master started."""
        self.now = self.last_answer_at + seconds
        self.report("bee")
        return self.running("bee")


def test_restored_master_gives_no_units_while_silent_workers_may_hold_some() -> None:
    grid = Restored()
    job, free = submit(grid, needs={"matlab": 1}), submit(grid)
    assert [one.job for one in grid.running("bee")] == [free], "a job without units does not wait"
    grid.end(grid.running("bee")[0])
    assert "restored" in str(explain_job(grid.scheduler, job))
    assert grid.at(30.0) == []
    grid.restart()
    grid.join("bee")
    assert grid.at(54.0) == [], "a restart forgets it as little as it begins again"
    assert [one.job for one in grid.at(56.0)] == [job]


@pytest.mark.parametrize("more", [{"needs": {"fpga": 1}}, {"max_running": 1}])
def test_restored_master_gives_no_units_of_any_kind(more: dict[str, object]) -> None:
    grid = Restored()
    grid.join("bee", offering(1, fpga=1))
    submit(grid, **more)
    assert grid.at(54.0) == []
    assert len(grid.at(56.0)) == 1


def test_restored_master_gives_units_to_a_job_that_comes_after_the_wait() -> None:
    grid = Restored()
    grid.at(56.0)
    assert submit(grid, needs={"matlab": 1}) == grid.running("bee")[0].job


def never_twice(grid: Grid, fences: bool = True) -> tuple[int, str, str]:
    """Return a job whose task must not run twice, the worker that runs it, and another worker."""
    for name in ("ant", "bee"):
        grid.join(name, replace(facts(1), fences=fences))
    job = submit(grid, max_replicas=1)
    there = worker_of(grid, running(grid, job)[0])
    return job, there, "bee" if there == "ant" else "ant"


def test_task_that_must_not_run_twice_waits_until_its_silent_worker_has_ended_it() -> None:
    grid = Grid(lease_s=40.0)
    job, there, other = never_twice(grid)
    for at, runs in ((41.0, 0), (54.0, 0), (56.0, 1)):
        grid.now = START + at
        grid.report(other)
        assert len(grid.running(other)) == runs
        if not runs:
            assert grid.attempt(job).state is AttemptState.LOST
            assert "must not run twice" in explain_job(grid.scheduler, job).sentence
            assert f"running on {there}" in explain_task(grid.scheduler, TaskId(job, 1)).sentence


def test_task_that_must_not_run_twice_waits_for_the_end_of_a_cancelled_attempt() -> None:
    grid = Grid(lease_s=40.0)
    job, there, other = never_twice(grid)
    grid.step(WorkerDrained(there, now=True), deliver=False)
    grid.report(other, deliver=False)
    assert grid.attempt(job).state is AttemptState.CANCELLING
    assert len(grid.store.attempts) == 1, "it may be running until its worker has ended it"
    grid.deliver()
    grid.report(there)
    grid.report(other)
    assert len(grid.running(other)) == 1


def test_returning_worker_ends_a_task_that_must_not_run_twice() -> None:
    grid = Grid(lease_s=20.0)
    job, there, other = never_twice(grid)
    grid.leave(there)
    grid.wait(20.0)
    grid.join(other)
    grid.join(there)
    assert len(grid.agents[there].killed) == 1
    assert running(grid, job) == []
    grid.report(there)
    assert running(grid, job) == [AttemptId(job, 1, 2)]


def test_task_of_a_worker_that_cannot_fence_starts_again_after_the_lease() -> None:
    grid = Grid(lease_s=40.0)
    _, _, other = never_twice(grid, fences=False)
    grid.now += 41.0
    grid.report(other)
    assert len(grid.running(other)) == 1


def test_task_of_the_lost_time_that_must_not_run_twice_is_awaited() -> None:
    grid = Restored()
    job = submit(grid, max_replicas=1)
    assert grid.at(54.0) == []
    assert "restored" in explain_job(grid.scheduler, job).sentence
    assert [one.job for one in grid.at(56.0)] == [job]


@pytest.mark.parametrize("is_function", [False, True])
def test_functions_are_fenced_like_commands(is_function: bool) -> None:
    grid = Grid(lease_s=40.0)
    grid.join("ant", replace(FENCING, functions="3.11"))
    call = Function(file="sha256:" + "0" * 64, python="3.11", session="s")
    requires = Requirements(python="3.11")
    a_call = JobSpec(function=call, requires=requires, max_replicas=1)
    grid.submit_spec(a_call if is_function else spec(max_replicas=1))
    (run,) = grid.agents["ant"].running.values()
    assert run.term_s == 40.0


def two_returners(grid: Grid) -> int:
    """A task whose attempts on *ant*, which cannot fence, and then on *bee*, which is faster, were both lost."""
    grid.join("ant", facts(1))
    job = submit(grid, 1, max_replicas=1, max_attempts=5)
    grid.now += 60
    grid.join("bee", replace(facts(1), fences=True, speed=10.0))
    grid.report("bee")
    grid.now += 41
    grid.step()
    return job


@pytest.mark.parametrize("policy", ["first-come", "fair", "round-robin"])
def test_returning_fenced_attempt_replaces_no_other(policy: str) -> None:
    """It is called back itself, so that both would be cancelled, and the task would run nowhere."""
    grid = Grid(policy=policy, lease_s=40.0, prefetch_s=0.0)
    job = two_returners(grid)
    grid.join("ant")
    grid.report("ant", clock=(80.0, 80.0))
    grid.join("bee", reports=False)
    grid.report("bee", clock=(41.0, 41.0))
    for _ in range(30):
        grid.now += 10
        for name in ("ant", "bee"):
            grid.report(name)
    assert [attempt.worker for attempt in grid.scheduler.state.attempts.values() if attempt.state in LIVE] == ["ant"]
    assert grid.task(job).state is TaskState.RUNNING


@pytest.mark.parametrize("more", [{"max_replicas": 1}, {"max_attempts": 1}])
def test_returning_attempt_does_not_replace_an_ended_attempt(more: dict[str, int]) -> None:
    """Its result is on the way, even if the other seems to have done more work."""
    grid = Grid(policy="first-come", lease_s=40.0, prefetch_s=0.0)
    grid.join("ant", replace(facts(1), speed=2.0))
    job = submit(grid, 1, **more)
    grid.now += 60
    grid.join("bee", facts(1))
    grid.report("bee")
    for _ in range(10):
        grid.now += 10
        grid.report("bee")
    ended = running(grid, job)[-1]
    grid.delivers(ended)
    grid.join("ant", reports=False)
    grid.report("ant", clock=(160.0, 160.0))
    assert grid.scheduler.state.attempts[ended].state is AttemptState.DELIVERING


def test_jobs_that_have_left_are_forgotten_behind_a_long_one() -> None:
    grid = Grid(policy="first-come")
    limit(grid, "matlab", 2)
    grid.join("ant", facts(2))
    long = submit(grid, needs={"matlab": 1})
    for _ in range(20):
        short = submit(grid, needs={"matlab": 1})
        grid.end(*running(grid, short))
    grid.step()
    assert running(grid, long)
    assert len(grid.scheduler.state.wings[Fencing]._jobs) <= 2 * len(grid.scheduler.state.jobs)
