"""Views of a grid in a terminal: running jobs and used CPU time."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.live.grid import Grid, wait_for
from tests.warm import starting


def environment(grid: Grid) -> dict[str, str]:
    token = (grid.data_dir / "tokens" / "admin").read_text().strip()
    here = {"HOME": str(grid.folder), "PATH": os.environ["PATH"]}
    return here | {"LOOPLINE_MASTER": grid.url, "LOOPLINE_TOKEN": token, "TERM": "xterm", "LANG": "C.UTF-8"}


async def loopline(grid: Grid, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *starting("loopline"), *arguments, env=environment(grid), cwd=grid.folder,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


async def test_history_sums_useful_and_lost_cpu_time(grid: Grid) -> None:
    await grid.start_worker("ant", slots=2)
    burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    good = await grid.submit(f"{burn}", name="good")
    bad = await grid.submit(f"{burn}; exit 1", name="bad", max_attempts=2)
    for job in (good, bad):
        await grid.ended(job)
    lines = {
        line["name"]: line for line in json.loads(await loopline(grid, "history", "--by", "job", "--json"))["lines"]
    }
    assert (lines["good"]["tasks"], lines["good"]["attempts"], lines["bad"]["tasks"], lines["bad"]["attempts"]) == (
        1, 1, 0, 2,
    )  # fmt: skip
    assert lines["good"]["useful_cpu_s"] > 0 == lines["good"]["lost_cpu_s"]
    assert lines["bad"]["lost_cpu_s"] > 0 == lines["bad"]["useful_cpu_s"]
    (worker,) = json.loads(await loopline(grid, "history", "--by", "worker", "--since", "1h", "--json"))["lines"]
    assert (worker["subject"], worker["attempts"], worker["jobs"]) == ("ant", 3, 2)
    assert "admin" in await loopline(grid, "history")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
async def test_top_shows_running_jobs_and_quits_at_a_key(grid: Grid, tmp_path: Path) -> None:
    await grid.start_worker("ant")
    gate = grid.gate()
    job = await grid.submit(gate.wait, name="patient", tasks=3)
    await grid.attempts_when("it to run", job, lambda all_: any(a.started_at for a in all_))
    assert "patient" in await loopline(grid, "top")  # once if not on a terminal
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loopline", "top", env=environment(grid), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    seen = b""

    async def shows_the_job() -> bool:
        nonlocal seen
        try:
            seen += os.read(ours, 65536)
        except BlockingIOError:
            return False
        return b"patient" in seen and b"ant" in seen

    await wait_for("the job to be shown", shows_the_job)
    os.write(ours, b"q")
    assert await asyncio.wait_for(process.wait(), 60) == 0
    os.close(ours)
    gate.open()
    await grid.ended(job)
