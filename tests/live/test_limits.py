"""Limits on a real grid: the processes alive at once, while agents and the master are killed or hang."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loopline_shared.job.requirements import Requirements
from loopline_shared.model import JobState, TaskId
from tests.live.grid import Grid, wait_for, watch

MARK = {"LOOPLINE_TEST": "holds a unit"}


@asynccontextmanager
async def watched(grid: Grid) -> AsyncIterator[list[int]]:
    """Yield a list that gets the number of marked tasks alive at once, again and again."""
    counts = list[int]()
    watching = asyncio.create_task(watch(grid, MARK, lambda tasks: counts.append(len(tasks))))
    try:
        yield counts
    finally:
        watching.cancel()


async def test_limit_holds_while_agents_and_the_master_are_killed(grid: Grid) -> None:
    await grid.client().set_limit("matlab", 2)
    for name in ("ant", "bee", "cat"):
        await grid.start_worker(name, slots=2)
    needs = Requirements(needs={"matlab": 1})
    async with watched(grid) as counts:
        job = await grid.submit("sleep 0.3; echo {i}", tasks=24, requires=needs, environment=MARK)

        async def has_got_so_far() -> bool:
            return (await grid.job(job)).tasks.succeeded >= part

        for part, name in ((2, "ant"), (5, "bee"), (8, "cat")):
            await wait_for(f"{part} results", has_got_so_far)
            await grid.kill_worker(name)
            await grid.start_worker(name, slots=2)
        await grid.kill_master()
        await grid.start_master()
        assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert max(counts) == 2


async def test_hung_agent_keeps_its_unit_until_its_attempt_is_gone(forgetful_grid: Grid) -> None:
    grid = forgetful_grid
    await grid.client().set_limit("matlab", 1)
    await grid.start_worker("ant")
    gate = grid.gate()
    job = await grid.submit(gate.wait, tasks=2, requires=Requirements(needs={"matlab": 1}), environment=MARK)
    await grid.attempts_when("one to run", job, lambda all_: any(a.started_at for a in all_))
    async with watched(grid) as counts:
        grid.workers["ant"].send_signal(signal.SIGSTOP)
        await grid.start_worker("bee")
        await grid.connected("bee")
        await grid.attempts_when("its lease to end", job, lambda all_: all_[0].state == "lost")
        why = await grid.client().explain(TaskId(job, 2))
        assert "1 of 1 matlab in use" in why.sentence
        grid.workers["ant"].send_signal(signal.SIGCONT)
        await grid.attempts_when("its end", job, lambda all_: all_[0].state not in ("lost", "running", "cancelling"))
        gate.open()
        assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert max(counts) == 1
    assert not (await grid.attempts(job))[0].accepted, "it was ended, by its supervisor or by the master"


@pytest.mark.parametrize(
    ("sandbox", "asked"),
    [("auto", {"requires": Requirements(needs={"matlab": 1})}), ("off", {"max_replicas": 1})],
)
async def test_task_of_a_hung_agent_runs_elsewhere_once_it_is_fenced(
    forgetful_grid: Grid, sandbox: str, asked: dict[str, Any]
) -> None:
    grid = forgetful_grid
    grid.sandbox = sandbox
    await grid.client().set_limit("matlab", 1)
    await grid.start_worker("ant")
    script = "while :; do echo a line of output that nobody reads; done"  # its supervisor cannot deliver all of it
    job = await grid.submit(script, **asked, environment=MARK)
    await grid.attempts_when("it to run", job, lambda all_: any(a.started_at for a in all_))
    async with watched(grid) as counts:
        grid.workers["ant"].send_signal(signal.SIGSTOP)
        await grid.start_worker("bee")
        await grid.attempts_when(
            "it to run on the other worker", job, lambda all_: any(a.worker == "bee" and a.started_at for a in all_)
        )
        grid.workers["ant"].send_signal(signal.SIGCONT)
        await grid.connected("ant", "bee")
    assert max(counts) == 1
    await grid.client().cancel(job)


@pytest.mark.full
async def test_member_of_a_hung_agent_is_fenced_and_its_gang_runs_elsewhere(forgetful_grid: Grid) -> None:
    grid = forgetful_grid
    await grid.client().set_limit("matlab", 2)
    for name in ("ant", "bee"):
        await grid.start_worker(name)
    needs = Requirements(needs={"matlab": 1})
    job = await grid.submit("while :; do sleep 1; done", nodes=2, requires=needs, environment=MARK)
    await grid.attempts_when("both members to run", job, lambda all_: sum(bool(a.started_at) for a in all_) == 2)
    async with watched(grid) as counts:
        grid.workers["ant"].send_signal(signal.SIGSTOP)
        await grid.start_worker("cat")
        await grid.attempts_when(
            "its gang to run elsewhere",
            job,
            lambda all_: {a.worker for a in all_ if a.started_at and a.state == "running"} == {"bee", "cat"},
        )
        grid.workers["ant"].send_signal(signal.SIGCONT)
        await grid.connected("ant", "bee", "cat")
    assert max(counts) == 2
    await grid.client().cancel(job)


async def test_worker_has_as_many_tasks_as_it_has_units_of_a_resource(grid: Grid) -> None:
    await grid.start_worker("ant", "--resource", "fpga=2", slots=4)
    await grid.start_worker("bee", slots=4)
    gate = grid.gate()
    job = await grid.submit(gate.wait, tasks=3, requires=Requirements(needs={"fpga": 1}))
    running = await grid.attempts_when("two to run", job, lambda all_: sum(bool(a.started_at) for a in all_) == 2)
    assert {attempt.worker for attempt in running} == {"ant"}
    assert (await grid.client().worker("ant")).resources_used == {"fpga": 2}
    assert "2 of 2 fpga in use on 1 worker" in (await grid.client().explain(job)).sentence
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
