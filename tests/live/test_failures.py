"""Failed tasks: what users see and can do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from loopline.cli.submission import failed_of
from loopline_shared.errors import LooplineError
from loopline_shared.job.parameters import Range
from loopline_shared.model import JobState, TaskState
from loopline_shared.spec import JobSpec
from tests.live.conftest import running
from tests.live.grid import Grid

SCRIPT = 'echo "working on {i}"; [ {i} -gt 3 ] || { echo "no data for {i}" >&2; exit 3; }'


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grid(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grid]:
    """One grid for all tests here; each test has its own jobs."""
    async with running(tmp_path_factory.mktemp("grid")) as grid:
        grid.sandbox = "auto"
        await grid.start_worker("ant", slots=2)
        yield grid


async def failing(grid: Grid, count: int = 6, **more: object) -> int:
    spec = {"command": ["sh", "-c", SCRIPT], "parameters": {"i": {"range": [1, count]}}, "max_attempts": 1}
    return (await grid.client().submit(JobSpec.model_validate(spec | more))).id


async def test_failures_are_explained_per_task_and_per_job(grid: Grid) -> None:
    job = await failing(grid)
    assert (await grid.ended(job)).tasks.failed == 3
    client = grid.client()
    failed = [task async for task in client.tasks(job, TaskState.FAILED, parameters=True)]
    assert [(task.parameters, task.exit_code, task.reason) for task in failed] == [
        ({"i": number}, 3, f"no data for {number}") for number in (1, 2, 3)
    ]
    assert all(task.wall_s is not None and task.began_at for task in failed)
    told = await client.explain(job)
    assert f"3 failed with exit code 3, such as task {job}.1: no data for 1" in told.sentence
    assert [reason.count for reason in told.reasons if reason.code == "failures"] == [3]


async def test_single_failed_task_can_be_run_again(grid: Grid) -> None:
    job = await failing(grid)
    await grid.ended(job)
    client = grid.client()
    with pytest.raises(LooplineError, match=f"task {job}.5 has not failed"):
        await client.retry(job, [2, 5])
    assert (await client.retry(job, [2])).tasks.failed == 2
    view = await grid.ended(job)
    assert (view.state, view.tasks.failed, view.tasks.succeeded) == (JobState.FAILED, 3, 3)
    attempts = [attempt.id.number for attempt in await grid.attempts(job) if attempt.id.task == 2]
    assert (attempts, len(await grid.attempts(job))) == ([1, 2], 7)


async def test_failed_tasks_can_be_submitted_as_a_new_job(grid: Grid) -> None:
    job = await failing(grid, size=60.0)
    await grid.ended(job)
    found = await failed_of.read(grid.client(), job)
    assert found.job
    assert ([row["i"] for row in found.rows], found.job.document["size"]) == ([1, 2, 3], 30.0)
    succeeded = (await grid.client().submit(JobSpec(command=["true"], parameters={"n": Range(range=[1, 2])}))).id
    await grid.ended(succeeded)
    with pytest.raises(LooplineError, match="no task of job"):
        await failed_of.read(grid.client(), succeeded)


async def test_failing_task_runs_once_with_one_attempt_and_replicas(grid: Grid) -> None:
    await grid.start_worker("bee", slots=2)
    job = await grid.submit("sleep 0.1; exit 1", tasks=20, max_attempts=1, max_replicas=2)
    assert (await grid.ended(job)).tasks.failed == 20
    begun = [attempt.id.task for attempt in await grid.attempts(job) if attempt.wall_s]
    assert sorted(begun) == list(range(1, 21))


async def test_job_is_stopped_at_max_fails_with_an_explanation(grid: Grid) -> None:
    spec = {"command": ["sh", "-c", "exit 2"], "parameters": {"i": {"range": [1, 1000]}}, "max_attempts": 1}
    job = (await grid.client().submit(JobSpec.model_validate(spec | {"max_fails": "1%"}))).id
    view = await grid.ended(job)
    assert view.state is JobState.CANCELLED
    assert 10 <= view.tasks.failed < 1000
    assert "stopped because" in (await grid.client().explain(job)).sentence
