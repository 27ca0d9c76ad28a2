"""kill -9 any process at any time: acknowledged results are not lost, and none is accepted twice."""

from __future__ import annotations

import asyncio
import signal

from loopline_shared.model import JobState
from loopline_shared.rest.bodies import AttemptView
from tests.live.grid import Grid, wait_for
from tests.live.proxy import Proxy


async def outputs(grid: Grid, job: int) -> dict[int, str]:
    return {result.number: result.stdout async for result in grid.client().results(job)}


def accepted(attempts: list[AttemptView]) -> list[tuple[int, int]]:
    return sorted((a.id.job, a.id.task) for a in attempts if a.accepted)


async def test_no_result_is_lost_when_the_master_is_killed(grid: Grid) -> None:
    for name in ("ant", "bee"):
        await grid.start_worker(name, slots=2)
    job = await grid.submit("sleep 0.05; echo task {i}", tasks=60)
    for finished in (5, 15, 30):
        await grid.attempts_when("some results", job, lambda all_, n=finished: sum(a.accepted for a in all_) >= n)
        await grid.kill_master()
        await grid.start_master()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert accepted(await grid.attempts(job)) == [(job, task) for task in range(1, 61)]
    assert await outputs(grid, job) == {task: f"task {task}\n" for task in range(1, 61)}


async def test_tasks_continue_while_the_master_is_down(grid: Grid) -> None:
    gate = grid.gate()
    await grid.start_worker("ant", slots=2)
    job = await grid.submit(f"{gate.wait}; echo {{i}}", tasks=2)
    await grid.attempts_when("both to run", job, lambda all_: len(all_) == 2 and all(a.started_at for a in all_))
    await grid.kill_master()
    gate.open()
    await grid.no_processes()  # they end, and the results are only in the journal
    await grid.start_master()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert [a.id.number for a in await grid.attempts(job)] == [1, 1]


async def test_unreported_results_survive_a_killed_agent(grid: Grid) -> None:
    """The master is down when the agent is killed; the next agent reports the results, and no task runs again."""
    gate = grid.gate()
    await grid.start_worker("ant", slots=2)
    job = await grid.submit(f"{gate.wait}; head -c $(({{i}} * 9000)) /dev/zero; echo {{i}}", tasks=2)
    await grid.attempts_when("both to run", job, lambda all_: len(all_) == 2 and all(a.started_at for a in all_))
    await grid.kill_master()
    gate.open()
    await grid.no_processes()
    ledger = grid.folder / "ant" / "ledger.jsonl"

    async def both_written() -> bool:
        return ledger.read_bytes().count(b'{"result":') == 2

    await wait_for("both results to be written", both_written)
    await grid.kill_worker("ant")
    await grid.start_master()
    await grid.start_worker("ant", slots=2)
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert [(a.id.number, a.accepted) for a in await grid.attempts(job)] == [(1, True), (1, True)]


async def test_tasks_of_a_killed_worker_run_again(forgetful_grid: Grid) -> None:
    grid = forgetful_grid
    gate = grid.gate()
    await grid.start_worker("ant", slots=2)
    job = await grid.submit(f"{gate.wait}; echo {{i}}", tasks=2, max_replicas=1)
    await grid.attempts_when("both to run", job, lambda all_: len(all_) == 2 and all(a.started_at for a in all_))
    await grid.kill_worker("ant")
    await grid.no_processes()  # its tasks die with the agent
    await grid.start_worker("bee", slots=2)
    await grid.attempts_when("new attempts", job, lambda all_: sum(a.worker == "bee" for a in all_) == 2)
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    states = {(a.worker, a.state.value) for a in await grid.attempts(job)}
    assert states == {("ant", "lost"), ("bee", "succeeded")}


async def test_no_short_task_starts_after_its_agent_is_killed(grid: Grid) -> None:
    """The next tasks are already at their supervisors: none of them starts once the agent is dead."""
    begun, gate = grid.folder / "begun", grid.gate()
    await grid.start_worker("ant", slots=2)
    job = await grid.submit(f"[ {{i}} -le 300 ] || {{ {gate.wait}; }}; echo {{i}} >> {begun}; echo {{i}}", tasks=400)
    for part in (30, 150):

        async def has_got_so_far(part: int = part) -> bool:
            return (await grid.job(job)).tasks.succeeded >= part

        await wait_for(f"{part} results", has_got_so_far)
        await grid.kill_worker("ant")
        at_its_death = begun.read_bytes().split()
        await grid.no_processes()
        after = begun.read_bytes().split()
        assert len(after) <= len(at_its_death) + 2, "only what had a slot may have begun"
        await grid.start_worker("ant", slots=2)
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert accepted(await grid.attempts(job)) == [(job, task) for task in range(1, 401)]
    assert await outputs(grid, job) == {task: f"{task}\n" for task in range(1, 401)}


async def test_restarted_worker_reports_its_lost_attempts(grid: Grid) -> None:
    gate = grid.gate()
    await grid.start_worker("ant", slots=2)
    job = await grid.submit(f"{gate.wait}; echo {{i}}", tasks=2)
    await grid.attempts_when("both to run", job, lambda all_: len(all_) == 2 and all(a.started_at for a in all_))
    await grid.kill_worker("ant")
    gate.open()
    await grid.start_worker("ant", slots=2)
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert accepted(await grid.attempts(job)) == [(job, 1), (job, 2)]


async def test_disconnected_worker_returns_with_its_result_and_wins(forgetful_grid: Grid) -> None:
    grid = forgetful_grid
    proxy = Proxy(grid.port)
    await grid.start_worker("ant", url=await proxy.start())
    gate = grid.gate()
    job = await grid.submit(f"{gate.wait}; echo {{i}}")
    await grid.attempts_when("it to run", job, lambda all_: any(a.started_at for a in all_))
    proxy.fall_silent()
    await grid.attempts_when("its lease to end", job, lambda all_: all_[0].state == "lost")
    gate.open()
    await grid.no_processes()
    proxy.mend()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    only = await grid.attempts(job)
    assert [(a.id.number, a.state.value, a.accepted) for a in only] == [(1, "succeeded", True)]
    await proxy.stop()


async def test_disconnected_worker_returns_too_late(forgetful_grid: Grid) -> None:
    grid = forgetful_grid
    proxy = Proxy(grid.port)
    await grid.start_worker("ant", url=await proxy.start())
    gate = grid.gate()
    job = await grid.submit(f"[ $LOOPLINE_WORKER = bee ] || {gate.wait}; echo {{i}}")
    await grid.attempts_when("it to run", job, lambda all_: any(a.started_at for a in all_))
    proxy.fall_silent()
    await grid.start_worker("bee")
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    gate.open()
    await grid.no_processes()
    proxy.mend()
    late = await grid.attempts_when("the late result", job, lambda all_: all(a.state != "lost" for a in all_))
    assert {(a.worker, a.accepted) for a in late} == {("ant", False), ("bee", True)}
    await proxy.stop()


async def test_suspended_worker_returns(forgetful_grid: Grid) -> None:
    """Its process is suspended, as on a laptop with its lid closed, and the task runs elsewhere too."""
    grid = forgetful_grid
    await grid.start_worker("ant")
    gate = grid.gate()
    job = await grid.submit(f"{gate.wait}; echo {{i}}")
    await grid.attempts_when("it to run", job, lambda all_: any(a.started_at for a in all_))
    grid.workers["ant"].send_signal(signal.SIGSTOP)
    await grid.attempts_when("its lease to end", job, lambda all_: all_[0].state == "lost")
    await grid.start_worker("bee")
    await grid.attempts_when("another attempt", job, lambda all_: any(a.worker == "bee" for a in all_))
    grid.workers["ant"].send_signal(signal.SIGCONT)
    await grid.attempts_when("it to be adopted", job, lambda all_: all(a.state == "running" for a in all_))
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert sum(a.accepted for a in await grid.attempts(job)) == 1


async def test_jobs_complete_after_all_processes_are_killed_at_once(grid: Grid) -> None:
    for name in ("ant", "bee"):
        await grid.start_worker(name, slots=2)
    jobs = [await grid.submit("sleep 0.03; echo {i}", tasks=20, size=10) for _ in range(3)]
    await grid.attempts_when("some results", jobs[0], lambda all_: sum(a.accepted for a in all_) >= 5)
    await asyncio.gather(grid.kill_master(), grid.kill_worker("ant"), grid.kill_worker("bee"))
    await grid.start_master()
    for name in ("ant", "bee"):
        await grid.start_worker(name, slots=2)
    views = [await grid.ended(job) for job in jobs]
    assert [view.state.value for view in views] == ["succeeded"] * 3
    assert sorted(views, key=lambda view: view.finished_at or 0) == views, "a job passed another of its size"
