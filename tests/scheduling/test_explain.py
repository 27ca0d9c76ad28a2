"""Explanations of why a job or a task waits, as users read them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopline_master.core.events import JobCancelled, JobPaused, WorkerDrained
from loopline_master.core.explain.explain_job import explain_job, explain_task
from loopline_master.core.explain.explain_worker import explain_worker
from loopline_master.core.explain.phrases import spoken
from loopline_shared.model import Order, Outcome, TaskId
from tests.scheduling.driver import Grid, facts, result

NO_SIZE = "no size: later jobs may finish first; submit with --size to be counted"
"""Part of the explanation of every job without a size, as most are here; the helpers leave it out."""


def job_says(grid: Grid, job: int) -> str:
    explanation = explain_job(grid.scheduler, job)
    assert explanation is not None
    assert explanation.subject == str(job)
    assert explanation.sentence == "; ".join(reason.detail for reason in explanation.reasons)
    return explanation.sentence.removesuffix(f"; {NO_SIZE}")


def codes(grid: Grid, job: int) -> list[tuple[str, int]]:
    explanation = explain_job(grid.scheduler, job)
    assert explanation is not None
    return [(reason.code, reason.count) for reason in explanation.reasons if reason.code != "no_size"]


def task_says(grid: Grid, job: int, task: int) -> tuple[str, str]:
    explanation = explain_task(grid.scheduler, TaskId(job, task))
    assert explanation is not None
    assert explanation.subject == f"{job}.{task}"
    is_running = explanation.state == "running"
    assert is_running or [reason.count for reason in explanation.reasons] == [1], (
        "the explanation is about this task alone"
    )
    return explanation.state, explanation.sentence


def test_explains_a_job_that_no_worker_can_run() -> None:
    grid = Grid(stall_after_s=60.0)
    grid.join("a", facts(2))
    grid.join("w", facts(1, os="windows"))
    needs = {"os": "windows", "memory_bytes": 4 * 10**9, "labels": ["gpu"], "slots": 2}
    job = grid.submit(3, requires=needs)
    expected = (
        "no connected worker can run it (it needs the system windows, 4 GB of memory, label gpu, 2 slots); "
        "0 of 2 known workers could, so it holds no other job meanwhile"
    )
    assert job_says(grid, job) == expected
    assert codes(grid, job) == [("no_worker", 3)]
    grid.join("g", facts(2, os="windows", labels=["gpu"]), reports=False)
    grid.leave("g")
    assert not grid.job(job).stalled, "it may come back"
    assert job_says(grid, job).endswith("; 1 of 3 known workers could"), "it is away"
    grid.wait(60.0)
    assert job_says(grid, job).endswith("could, so it holds no other job meanwhile")
    assert task_says(grid, job, 1) == ("queued", job_says(grid, job))


def test_explains_that_the_only_worker_is_being_drained() -> None:
    grid = Grid()
    grid.join("a", facts(2))
    job = grid.submit(1)
    grid.step(WorkerDrained("a"))
    grid.wait(1.0)
    assert job_says(grid, job) == "its only task running on 1 worker", "nothing of it waits"
    other = grid.submit(1)
    could = "1 of 1 known worker could (being drained: a)"
    assert job_says(grid, other) == f"no connected worker can run it (it needs 1 slot); {could}"
    for name in "bcde":
        grid.join(name, facts(2), reports=False)
        grid.step(WorkerDrained(name))
    assert job_says(grid, other).endswith("5 of 5 known workers could (being drained: a, b, c and 2 more)")


def test_explains_a_grid_without_workers() -> None:
    grid = Grid()
    job = grid.submit()
    sentence = "no connected worker can run it (it needs 1 slot); 0 of 0 known workers could"
    assert job_says(grid, job) == sentence


def test_explains_a_paused_job() -> None:
    grid = Grid()
    grid.join("a")
    job = grid.submit(3)
    grid.step(JobPaused(job))
    paused = "paused by its owner: nothing more of it is started"
    assert job_says(grid, job) == f"{paused}; 1 task of 3 running on 1 worker"
    assert codes(grid, job) == [("paused", 2), ("running", 1)]
    assert task_says(grid, job, 1) == ("running", "running on a")
    assert task_says(grid, job, 2) == ("queued", paused)


def test_explains_a_held_job() -> None:
    grid = Grid(policy="first-come")
    grid.workers("a", "b", "c", "d")
    first = grid.submit(2, 5.0, max_replicas=1)
    grid.submit(1, 4.0, max_replicas=1)
    later = grid.submit(2, 5.0, max_replicas=1)
    held = (
        f"its last task is held: job {first} (size 5 s) entered the grid before it and is not larger, "
        f"as did 1 other job; all 2 tasks of job {first} are left"
    )
    assert codes(grid, later) == [("held", 1), ("running", 1)]
    assert job_says(grid, later) == f"{held}; 1 task of 2 running on 1 worker"
    assert task_says(grid, later, 2) == ("queued", held)
    grid.end(grid.attempts_of(TaskId(2, 1))[0])
    grid.end(grid.attempts_of(TaskId(first, 1))[0])
    assert task_says(grid, later, 2)[1].endswith(
        f"job {first} (size 5 s) entered the grid before it and is not larger; "
        f"1 of the 2 tasks of job {first} is left"
    )


def test_job_without_size_is_held_and_has_no_claim() -> None:
    grid = Grid()
    grid.submit(1, None)
    grid.submit(1, 5.0)
    later = grid.submit(1, None)
    assert (
        "job 2 (size 5 s) entered the grid before it and is not larger; the only task of job 2 is left"
        in job_says(grid, later)
    )
    assert codes(grid, later) == [("no_worker", 1), ("held", 1)]
    explanations = [explain_job(grid.scheduler, job) for job in (1, 2, later)]
    assert [NO_SIZE in str(explanation) for explanation in explanations] == [True, False, True]


def test_explains_a_job_that_waits_for_a_slot() -> None:
    grid = Grid(policy="first-come")
    grid.join("a", facts(2))
    grid.join("w", facts(2, os="windows"))
    first = grid.submit(2, requires={"os": "linux"})
    later = grid.submit(5, requires={"os": "linux"})
    assert job_says(grid, later) == "5 tasks wait for a free slot: 2 of 2 in use on 1 worker"
    assert codes(grid, later) == [("no_slot", 5)]
    assert task_says(grid, later, 1) == ("queued", "1 task waits for a free slot: 2 of 2 in use on 1 worker")
    assert job_says(grid, first) == "2 tasks of 2 running on 1 worker"


def test_prefetched_task_is_not_called_running() -> None:
    grid = Grid(order=Order.NONE, prefetch_s=10.0)
    grid.workers("a")
    first, later = grid.submit(1, 3.0), grid.submit(1, 2.0)
    assert job_says(grid, first) == "its only task running on 1 worker"
    assert job_says(grid, later) == "its only task waiting for a slot on 1 worker"
    assert codes(grid, later) == [("prefetched", 1)]


def test_explains_a_running_job() -> None:
    grid = Grid(policy="first-come")
    grid.workers("a", "b")
    job = grid.submit(5, max_attempts=1)
    grid.end(grid.running("a")[0])
    grid.end(grid.running("b")[0], Outcome.FAILED)
    assert job_says(grid, job) == (
        "2 tasks of 5 running on 2 workers; 1 task waits for a free slot: 2 of 2 in use on 2 workers; "
        "1 of 5 tasks succeeded, 1 failed"
    )
    assert codes(grid, job) == [("running", 2), ("no_slot", 1), ("done", 2)]


@pytest.mark.parametrize(("failures", "counted"), [(1, "1 failure"), (2, "2 failures")])
def test_explains_a_task_that_will_be_retried(failures: int, counted: str) -> None:
    grid = Grid()
    grid.join("a")
    job = grid.submit(1, max_attempts=5)
    for _ in range(failures - 1):
        grid.end(grid.running("a")[0], Outcome.FAILED)
    grid.report("a", result(grid.running("a")[0], Outcome.FAILED), slots=0)
    waits = "1 task waits for a free slot: 0 of 0 in use on 1 worker"
    assert task_says(grid, job, 1) == ("queued", f"to be tried again after {counted}; {waits}")


def test_explanation_names_replicas_together() -> None:
    grid = Grid()
    grid.workers("b", "a")
    job = grid.submit(1)
    assert task_says(grid, job, 1) == ("running", "running on a and b")


def test_ended_and_unknown_jobs_have_no_explanation() -> None:
    grid = Grid()
    grid.join("a")
    job = grid.submit(2, max_replicas=1)
    grid.end(grid.running("a")[0])
    assert explain_task(grid.scheduler, TaskId(job, 1)) is None
    assert explain_task(grid.scheduler, TaskId(job, 3)) is None
    assert explain_task(grid.scheduler, TaskId(99, 1)) is None
    assert explain_job(grid.scheduler, 99) is None
    grid.step(JobCancelled(job), deliver=False)
    assert job in grid.scheduler.state.jobs, "its attempt is being stopped"
    assert explain_job(grid.scheduler, job) is None
    assert explain_task(grid.scheduler, TaskId(job, 2)) is None


def worker_says(grid: Grid, name: str) -> tuple[str, str]:
    explanation = explain_worker(grid.scheduler, name)
    assert explanation is not None
    assert explanation.sentence == "; ".join(reason.detail for reason in explanation.reasons)
    return explanation.state, explanation.sentence


def test_explains_what_a_worker_does() -> None:
    grid = Grid(policy="first-come")
    grid.join("a", facts(3))
    assert worker_says(grid, "a") == ("connected", "3 slots free: no task waits to be started")
    job = grid.submit(2, max_replicas=1)
    grid.report("a", slots=3, frozen=True)
    busy = f"2 attempts on 2 of 3 slots: 2 of job {job}; 2 of them frozen: its owner is there"
    assert worker_says(grid, "a") == ("connected", f"{busy}; 1 slot free: no task waits to be started")
    grid.report("a", slots=2, frozen=False)
    kept = "1 slot of 3 kept back: its owner has the use of them"
    assert worker_says(grid, "a") == ("connected", f"2 attempts on 2 of 2 slots: 2 of job {job}; {kept}")
    grid.step(WorkerDrained("a"))
    assert worker_says(grid, "a")[1].startswith("it is draining: it finishes what it has, and is given no more; ")
    grid.step(WorkerDrained("a", "new disk"))
    assert worker_says(grid, "a")[1].startswith("it is draining (new disk): it finishes what it has, ")
    grid.leave("a")
    away = "it is not connected; 2 attempts there may still continue, until its lease ends"
    assert worker_says(grid, "a") == ("away", f"{away}; 2 attempts: 2 of job {job}")
    assert explain_worker(grid.scheduler, "nobody") is None


def test_explanation_says_when_a_worker_ends() -> None:
    grid = Grid()
    grid.join("a", replace(facts(1), until=grid.now + 90.0))
    explanation = explain_worker(grid.scheduler, "a")
    assert explanation is not None
    assert [(reason.code, reason.count) for reason in explanation.reasons] == [("ending", 90), ("idle", 1)]


def test_explanation_says_why_slots_are_free() -> None:
    grid = Grid(policy="first-come")
    grid.join("a", facts(1))
    grid.submit(1, requires={"os": "windows"})
    assert worker_says(grid, "a")[1] == "1 slot free: jobs wait (1), but it meets the requirements of none"
    grid = Grid(policy="first-come")
    grid.workers("a", "b")
    grid.submit(1, 5.0, max_replicas=1)
    held = grid.submit(1, 5.0)
    assert explain_job(grid.scheduler, held).reasons[0].job == 1  # type: ignore[union-attr]
    assert worker_says(grid, "b")[1] == "1 slot free: nothing waits but the held tasks of 1 job"


@pytest.mark.parametrize(("seconds", "said"), [(5.0, "5 s"), (119.0, "119 s"), (2400.0, "40 min"), (9000.0, "2.5 h")])
def test_times_are_shown_in_readable_units(seconds: float, said: str) -> None:
    assert spoken(seconds) == said


def test_explanation_names_what_waits_before_a_task() -> None:
    grid = Grid(order=Order.NONE, prefetch_s=10.0, max_replicas=1)
    grid.join("a")
    first = grid.submit(3, size=3.0)
    later = grid.submit(2, size=2.0)
    assert task_says(grid, *grid.waiting("a")[-1].task_id) == (
        "running",
        f"waiting for a slot on a (behind 3 tasks of job {first} and 1 task of job {later})",
    )
    long = grid.submit(1, size=1000.0)
    assert f"; 2 tasks of job {first} and 2 tasks of job {later} already wait there" in job_says(grid, long)
