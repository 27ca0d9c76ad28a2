"""A worker with default settings: tasks and functions work, and can write only to their folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from loopline_shared.model import TaskId
from tests.live.conftest import running
from tests.live.grid import Grid
from tests.live.test_functions import executor, result

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grid(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grid]:
    """One grid for all tests here; each test has its own jobs."""
    async with running(tmp_path_factory.mktemp("grid")) as grid:
        await grid.start_worker("ant", settings={"LOOPLINE_SANDBOX": "auto"})
        yield grid


async def test_task_cannot_read_the_token_of_its_worker(grid: Grid) -> None:
    agent = grid.workers["ant"].pid
    tokens = grid.data_dir / "tokens" / "worker"
    assert tokens.read_text().startswith("ll_")
    files = f"{tokens} {grid.folder}/ant/owner-page /proc/{agent}/environ"
    look = f"cat {files}; ls {grid.folder}; echo $HOME >seen; cat seen"
    job = await grid.submit(f"( {look} ) 2>&1")
    assert (await grid.ended(job)).state == "succeeded"
    said = b"".join([piece async for piece in grid.client().output(TaskId(job, 1))]).decode()
    assert f"{grid.folder}/ant/scratch/" in said, "the task could use its own folder"
    assert "ll_" not in said
    assert "LOOPLINE_SANDBOX" not in said
    [worker] = [one async for one in grid.client().workers()]
    assert worker.facts.sandbox in ("bubblewrap", "landlock"), "the master knows the sandbox in use"


async def test_function_runs_and_cannot_see_the_owners_files(grid: Grid) -> None:
    secret = grid.folder / "diary"
    secret.write_text("dear diary")

    def look(file: str) -> tuple[bool, int]:
        import multiprocessing.dummy
        import os

        return os.access(file, os.R_OK), sum(multiprocessing.dummy.Pool(2).map(abs, [-1, -2]))

    async with executor(grid) as grid_executor:
        assert await result(grid_executor.submit(look, str(secret))) == (False, 3)
