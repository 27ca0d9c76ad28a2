"""Jobs in a folder that a worker shares run there, and on no other worker."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopline_shared.job.requirements import Requirements
from loopline_shared.model import JobState, TaskState
from loopline_shared.spec import JobSpec
from tests.live.grid import Grid


async def run(grid: Grid, folder: Path) -> int:
    spec = JobSpec(
        command=["sh", "-c", 'pwd; cat here.txt > copy.txt; [ "$PWD" != "$LOOPLINE_SCRATCH" ]'],
        requires=Requirements(folder=str(folder)), max_attempts=1,
    )  # fmt: skip
    return (await grid.client().submit(spec)).id


@pytest.fixture
def in_tmp() -> Iterator[Path]:
    """A folder below /tmp: a task in bubblewrap has a private /tmp."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("sandbox", ["off", "auto"])
@pytest.mark.parametrize("is_in_tmp", [False, True])
async def test_job_runs_and_writes_in_the_shared_folder(
    grid: Grid, tmp_path: Path, in_tmp: Path, sandbox: str, is_in_tmp: bool
) -> None:
    shared = in_tmp if is_in_tmp else tmp_path / "shared"
    folder = shared / "two words"
    folder.mkdir(parents=True)
    (folder / "here.txt").write_text("hello")
    grid.sandbox = sandbox
    await grid.start_worker("bee")
    await grid.start_worker("ant", "--shared-folder", str(shared))
    await grid.connected("ant")
    job = await run(grid, folder)
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert (folder / "copy.txt").read_text() == "hello"
    (attempt,) = await grid.attempts(job)
    assert attempt.worker == "ant"


async def test_inaccessible_folder_is_named_as_the_reason(grid: Grid, tmp_path: Path) -> None:
    await grid.start_worker("ant", "--shared-folder", str(tmp_path))
    await grid.connected("ant")
    job = await run(grid, tmp_path / "gone")
    await grid.ended(job)
    (task,) = [task async for task in grid.client().tasks(job, TaskState.FAILED)]
    assert f"tasks on ant cannot enter {tmp_path / 'gone'}: it is not there, or closed" in task.reason
