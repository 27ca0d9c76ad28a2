"""The receipt names at once the reasons why a job will wait, and doubts an implausible size."""

from __future__ import annotations

import re

from loopline_master.core.estimates import eta
from loopline_master.core.events import JobSubmitted
from loopline_master.core.explain import submission_notes
from loopline_master.core.kernel.effects import Submitted
from loopline_shared.model import Order
from tests.scheduling.driver import Grid, facts, spec


def held(grid: Grid, job: int) -> str:
    state = grid.scheduler.state
    return (
        submission_notes.held_behind(state, job, eta.outlook(state)) if submission_notes.is_held(state, job) else ""
    )


def doubt(grid: Grid, job: int) -> str:
    return submission_notes.implausible_size(grid.scheduler.state, job) or ""


def warnings(grid: Grid, **needs: object) -> tuple[str, ...]:
    reply = grid.ask(JobSubmitted("user", spec(1, requires=needs)))
    assert isinstance(reply, Submitted)
    return reply.warnings


def test_receipt_names_the_holder_and_a_size_that_avoids_it() -> None:
    grid = Grid()
    grid.join("a", facts(1))
    grid.submit(1)
    assert held(grid, grid.submit(1)) == "", "a job without a size holds no other"
    sized = grid.submit(1, 20.0)
    assert held(grid, grid.submit(1)) == (
        f"held behind job {sized} (size 20 s), for a time not known yet; give --size below 20s to go first"
    )
    assert held(grid, grid.submit(1, 10.0)) == "", "a smaller job may pass"


def test_receipt_of_a_sweep_says_how_long_its_last_task_is_held() -> None:
    grid = Grid()
    grid.join("a", facts(1))
    first = grid.submit(3, 7200.0)
    assert held(grid, grid.submit(3, 8000.0)).endswith("(size 2 h), for a time not known yet")
    grid.now += 2400.0
    grid.end(grid.running("a")[0], wall_s=2400.0, cpu_s=2400.0)
    told = held(grid, grid.submit(3, 7500.0))
    assert re.fullmatch(rf"its last task is held behind job {first} \(size 2 h\), about \S+ (h|min)", told), told
    told = held(grid, grid.submit(3, name="new"))
    assert told.startswith(f"its last task is held behind job {first} (size 2 h) and others, ")
    assert told.endswith("; give --size below 7200s to go first")


def test_suggested_size_has_three_digits() -> None:
    grid = Grid()
    grid.join("a", facts(1))
    grid.submit(1, 0.584676)
    assert held(grid, grid.submit(1, name="new")).endswith("; give --size below 0.585s to go first")


def test_receipt_names_no_holder_without_an_order() -> None:
    grid = Grid(order=Order.NONE)
    grid.join("a", facts(1))
    grid.submit(1, 10.0)
    assert held(grid, grid.submit(1, 10.0)) == ""


def test_size_contradicted_by_past_runs_is_doubted() -> None:
    grid = Grid()
    grid.join("a", facts(1))
    for _ in range(3):
        grid.submit(1, name="fit", folder="/home/ann")
        grid.end(grid.running("a")[0], wall_s=600.0, cpu_s=600.0)
    fit = {"name": "fit", "folder": "/home/ann"}
    assert doubt(grid, grid.submit(10, 60.0, **fit)).startswith(
        "the size given, 60 s, cannot be true: by 3 past runs, "
    )
    assert doubt(grid, grid.submit(10, 6000.0, **fit)) == ""
    assert doubt(grid, grid.submit(10, **fit)) == "", "no size was given"
    assert doubt(grid, grid.submit(10, 60.0, name="new")) == ""


def test_job_that_no_worker_can_run_is_stalled_at_submission() -> None:
    grid = Grid(stall_after_s=60.0)
    assert warnings(grid) == ("no worker has joined yet: start one with `loopline worker`",)
    grid.join("a", facts(1))
    grid.end(grid.running("a")[0])
    told = "no worker has label gpu (stalled: it waits for one that has, and holds no other job meanwhile)"
    assert warnings(grid, labels=["gpu"]) == (told,)
    later = grid.submit(1)
    assert [attempt.job for attempt in grid.running("a")] == [later]
    grid.join("g", facts(1, labels=["gpu"]))
    assert not any(job.stalled for job in grid.scheduler.state.jobs.values())
    grid.leave("g")
    assert warnings(grid, labels=["gpu"]) == (), "it may come back"
    assert not any(job.stalled for job in grid.scheduler.state.jobs.values())
