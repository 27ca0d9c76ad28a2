"""A master restored from a backup: attempts and results that workers hold from the lost time never count."""

from __future__ import annotations

import asyncio
import signal

import pytest

from loopline_master.maintenance import backup, restore
from loopline_master.settings import MasterSettings
from loopline_master.store.past import lives
from loopline_shared.model import JobState
from tests.live.grid import Grid, wait_for


async def test_attempts_of_a_lost_job_are_not_taken_for_another_jobs(
    grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More jobs were lost than the numbers that a restore skips: the next job has the number of a lost one."""
    monkeypatch.setattr(lives, "JOB_GAP", 0)
    brief, gate = grid.gate("brief"), grid.gate()
    await grid.start_worker("ant", slots=2)
    await grid.connected("ant")
    kept = grid.folder / "kept"
    await asyncio.to_thread(backup.back_up, MasterSettings(data_dir=grid.data_dir), kept)
    lost = await grid.submit(f"if [ {{i}} = 1 ]; then {brief.wait}; else {gate.wait}; fi; echo lost {{i}}", tasks=2)
    await grid.attempts_when("both to run", lost, lambda all_: sum(a.started_at is not None for a in all_) == 2)
    await grid.kill_master()
    brief.open()
    journal = grid.folder / "ant" / "ledger.jsonl"

    async def has_a_result() -> bool:
        return b'{"result":' in journal.read_bytes()

    await wait_for("a result of which nobody has heard", has_a_result)
    grid.workers["ant"].send_signal(signal.SIGSTOP)

    grid.data_dir.rename(grid.folder / "lost")
    await asyncio.to_thread(restore.restore, kept, grid.data_dir)
    await grid.start_master()
    job = await grid.submit("echo new {i}", tasks=2)
    assert job == lost
    grid.workers["ant"].send_signal(signal.SIGCONT)
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert {result.number: result.stdout async for result in grid.client().results(job)} == {
        1: "new 1\n",
        2: "new 2\n",
    }
    assert sum(attempt.accepted for attempt in await grid.attempts(job)) == 2
    await grid.no_processes()
    assert "was restored or replaced" in grid.log("ant")
