"""The receipt says at once what will make a job wait, and doubts a size that cannot be true."""

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


def test_what_holds_it_is_named_with_what_would_help() -> None:
    grid = Grid()
    grid.join("a", facts(1))
    grid.submit(1)
    assert held(grid, grid.submit(1)) == "", "without a size, a job holds no other"
    sized = grid.submit(1, 20.0)
    assert held(grid, grid.submit(1)) == (
        f"held behind job {sized} (size 20 s), for a time not known yet; give --size below 20s to go first"
    )
    assert held(grid, grid.submit(1, 10.0)) == "", "it may overtake"


def test_of_a_sweep_the_last_task_is_held_and_the_time_is_told() -> None:
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


def test_the_size_that_would_go_first_has_three_digits() -> None:
    grid = Grid()
    grid.join("a", facts(1))
    grid.submit(1, 0.584676)
    assert held(grid, grid.submit(1, name="new")).endswith("; give --size below 0.585s to go first")


def test_without_an_order_nothing_is_held() -> None:
    grid = Grid(order=Order.NONE)
    grid.join("a", facts(1))
    grid.submit(1, 10.0)
    assert held(grid, grid.submit(1, 10.0)) == ""


def test_a_size_that_past_runs_contradict_is_doubted() -> None:
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
    assert doubt(grid, grid.submit(10, **fit)) == "", "none was given"
    assert doubt(grid, grid.submit(10, 60.0, name="new")) == ""


def test_a_job_that_nobody_could_run_holds_nobody_from_its_first_second() -> None:
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
