"""What-if replays on the database of a running master."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.live.grid import ROOT, Grid
from tests.warm import starting


@pytest.mark.campaign
async def test_what_if_reads_the_database_of_a_running_master(grid: Grid) -> None:
    await grid.start_worker("ant", slots=1)
    await grid.start_worker("bee", slots=1)
    await grid.connected("ant", "bee")
    first = await grid.submit("sleep 0.3; echo {i}", tasks=4, size=8)
    second = await grid.submit("echo {i}", tasks=3)
    await grid.ended(first)
    await grid.ended(second)
    same = await _replay(grid, "--json", "--order", "hold")
    assert [job["what_if"]["state"] for job in same["jobs"]] == ["succeeded", "succeeded"]
    recorded, lived_again = same["recorded"]["end_s"], same["what_if"]["end_s"]
    assert abs(lived_again - recorded) < 0.2 * recorded + 0.2
    job = grid.folder / "job.toml"
    job.write_text('command = ["true"]\nsize = 4\n')
    outlook = await _replay(grid, "--json", "--what-if-submit", str(job))
    assert outlook["end"]["median"] > 0
    assert (await grid.job(second)).finished_at


async def _replay(grid: Grid, *options: str) -> dict:  # type: ignore[type-arg]
    command = [*starting("loopline.cli"), "replay", str(grid.data_dir / "loopline.db"), *options]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return json.loads(out)
