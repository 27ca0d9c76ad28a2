"""Sweeps over rows in a file on the master, from upload to results."""

from __future__ import annotations

from typing import Any

from loopline.transfer import row_upload as loopline_rows
from loopline_shared.job.parameters import RowFile
from loopline_shared.model import JobState, TaskId
from loopline_shared.spec import JobSpec
from tests.live.grid import Grid


async def submit_rows(grid: Grid, script: str, rows: list[dict[str, Any]], **more: Any) -> tuple[int, str]:
    """Submit a job over uploaded rows; return the job and its row file."""
    job = (await grid.client().submit_rows(JobSpec(command=["sh", "-c", script], **more), rows)).id
    parameters = (await grid.job(job)).spec.parameters
    assert isinstance(parameters, RowFile)
    return job, parameters.sha256


async def test_row_file_runs_one_task_per_row_across_a_restart(grid: Grid, monkeypatch: Any) -> None:
    monkeypatch.setattr(loopline_rows, "MOST_INLINE", 1)
    await grid.start_worker("ant", slots=2)
    rows = [{"name": f"row {n} 'é'", "n": n / 4} for n in range(30)]
    gate = grid.gate()
    job, _ = await submit_rows(grid, f'[ {{n}} = 0.0 ] || {gate.wait}; echo "{{name}}: {{n}}"', rows)
    await grid.attempts_when("the first row to be done", job, lambda all_: any(a.accepted for a in all_))
    await grid.kill_master()
    await grid.start_master()
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    results = {result.number: result async for result in grid.client().results(job)}
    assert {n: result.parameters for n, result in results.items()} == dict(enumerate(rows, 1))
    assert {result.stdout for result in results.values()} == {f"{row['name']}: {row['n']}\n" for row in rows}


async def test_task_with_lost_rows_fails_with_a_reason(grid: Grid, monkeypatch: Any) -> None:
    monkeypatch.setattr(loopline_rows, "MOST_INLINE", 1)
    job, sha256 = await submit_rows(grid, "echo {n}", [{"n": 1}, {"n": 2}], max_attempts=1)
    (grid.data_dir / "files" / sha256[:2] / sha256[2:]).unlink()
    await grid.start_worker("ant")
    assert (await grid.ended(job)).tasks.failed == 2
    task = await grid.client().task(TaskId(job, 1))
    assert "no longer has the job's row file" in task.reason
    assert task.command == ["sh", "-c", "echo {n}"]
