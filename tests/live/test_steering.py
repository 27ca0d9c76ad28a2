"""Actions of users and operators on jobs and workers, and their effect on processes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from loopline_shared.errors import LooplineError
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import JobState, TaskId
from loopline_shared.spec import JobSpec
from tests.live.conftest import running
from tests.live.grid import Grid, wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grid(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grid]:
    """One grid for all tests here; each test has its own jobs."""
    async with running(tmp_path_factory.mktemp("grid")) as grid:
        await grid.start_worker("ant", slots=2)
        yield grid


async def test_cancelling_a_job_kills_its_processes(grid: Grid) -> None:
    job = await grid.submit("sleep 1000 & sleep 1000", tasks=5)
    await grid.attempts_when("it to run", job, lambda all_: sum(a.state == "running" for a in all_) == 2)
    await grid.client().cancel(job)
    await grid.no_processes()
    view = await grid.ended(job)
    assert (view.state, view.tasks.cancelled) == (JobState.CANCELLED, 5)
    ended = await grid.attempts_when("its attempts to end", job, lambda all_: all(a.ended_at for a in all_))
    assert {a.state.value for a in ended} == {"cancelled"}


async def test_failed_job_can_be_retried_by_its_user(grid: Grid) -> None:
    gate = grid.gate("retried")
    job = await grid.submit(f"echo no >&2; [ -e {gate.file} ] || exit 7; echo yes", max_attempts=2)
    view = await grid.ended(job)
    assert (view.state, view.tasks.failed) == (JobState.FAILED, 1)
    assert [a.exit_code for a in await grid.attempts(job)] == [7, 7]
    client = grid.client()
    assert b"".join([piece async for piece in client.output(TaskId(job, 1), "stderr")]) == b"no\n"
    gate.open()
    await client.retry(job)
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert [(a.id.number, a.accepted) for a in await grid.attempts(job)] == [(1, False), (2, False), (3, True)]


async def test_task_is_killed_at_its_time_limit(grid: Grid) -> None:
    job = await grid.submit("sleep 1000 & sleep 1000", timeout_s=0.3, max_attempts=1)
    assert (await grid.ended(job)).state is JobState.FAILED
    (attempt,) = await grid.attempts(job)
    assert "timed out" in attempt.reason
    await grid.no_processes()


async def test_paused_job_continues_when_resumed(grid: Grid) -> None:
    gate = grid.gate("resumed")
    job = await grid.submit(f"{gate.wait}; echo {{i}}", tasks=3)
    client = grid.client()
    await grid.attempts_when("it to run", job, lambda all_: sum(a.started_at is not None for a in all_) == 2)
    assert (await client.pause(job)).paused
    gate.open()

    async def two_done() -> bool:
        view = await client.job(job)
        return view.tasks.succeeded == 2 and view.tasks.running == 0

    await wait_for("the running tasks to end", two_done)
    assert "paused" in (await client.explain(job)).sentence
    await client.resume(job)
    assert (await grid.ended(job)).state is JobState.SUCCEEDED


async def test_drained_worker_finishes_its_tasks_and_gets_no_more(grid: Grid) -> None:
    gate = grid.gate("drained")
    job = await grid.submit(f"{gate.wait}; echo {{i}}", tasks=3, max_replicas=1)
    await grid.attempts_when("it to run", job, lambda all_: sum(a.started_at is not None for a in all_) == 2)
    client = grid.client()
    assert (await client.drain("ant")).draining
    gate.open()
    await grid.attempts_when("the first two to end", job, lambda all_: sum(a.accepted for a in all_) == 2)
    assert (await client.explain(job)).reasons[0].code == "no_worker"
    await client.undrain("ant")
    assert (await grid.ended(job)).state is JobState.SUCCEEDED


async def test_requirements_send_tasks_to_the_right_workers(grid: Grid) -> None:
    client = grid.client()
    await grid.start_worker("bee", "--label", "matlab")
    await grid.connected("ant", "bee")
    job = await grid.submit("echo {i}", tasks=4, requires=Requirements(labels=["matlab"]))
    await grid.ended(job)
    assert {a.worker for a in await grid.attempts(job)} == {"bee"}
    nowhere = await grid.submit("echo", requires=Requirements(labels=["quantum"]))
    assert "label quantum" in (await client.explain(nowhere)).sentence
    await client.cancel(nowhere)
    await grid.stop_worker("bee")


async def test_long_output_is_returned_completely(grid: Grid) -> None:
    job = await grid.submit("seq 1 20000")
    await grid.ended(job)
    output = b"".join([piece async for piece in grid.client().output(TaskId(job, 1))])
    assert output == b"".join(b"%d\n" % n for n in range(1, 20001))


async def test_missing_command_is_reported(grid: Grid) -> None:
    client = grid.client()
    job = (await client.submit(JobSpec(command=["no-such-program"], max_attempts=1))).id
    await grid.ended(job)
    (attempt,) = await grid.attempts(job)
    assert attempt.exit_code == 127
    assert "no-such-program" in attempt.reason


async def test_actions_on_unknown_jobs_and_workers_are_clear_errors(grid: Grid) -> None:
    client = grid.client()
    for ask in (client.job(99), client.cancel(99), client.explain(99), client.drain("nobody")):
        with pytest.raises(LooplineError) as caught:
            await ask
        assert caught.value.status == 404
