"""PostgreSQL fails over to a server that was behind: lost jobs are never confused with later ones."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState
from tests.live.grid import Grid
from tests.store.postgres import Server

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(300)]
GAP = 100_000


@pytest.fixture
def primary(server: Server) -> Server:
    server.start()
    return server


@pytest.fixture
async def grid(tmp_path: Path) -> AsyncIterator[Grid]:
    grid = Grid(tmp_path)
    yield grid
    await grid.stop()


async def promote(server: Server) -> None:
    connection = await asyncpg.connect(f"{server.url}/postgres")
    assert await connection.fetchval("SELECT pg_promote()")
    await connection.close()


async def runs(grid: Grid, job: int) -> None:
    await grid.attempts_when("it to run", job, lambda found: any(each.started_at for each in found))


class Failover:
    """A master on two servers, with a running job that waits for a gate."""

    def __init__(self, grid: Grid, server: Server) -> None:
        self.grid, self.server, self.gate = grid, server, grid.gate()

    async def start(self) -> None:
        await self.grid.start_master("--database-url", f"{self.server.url}/postgres")
        await self.grid.start_worker("w", slots=2)
        self.job = await self.grid.submit(f"{self.gate.wait}; echo known")
        await runs(self.grid, self.job)

    async def name(self, follower: Server) -> None:
        """Restart the master with the addresses of both servers; it uses the primary."""
        await self.grid.kill_master()
        url = f"{self.server.url},{follower.url.rpartition('@')[2]}/postgres"
        await self.grid.start_master("--database-url", url)
        assert self.grid.master
        self._pid = self.grid.master.pid

    async def over(self, lives: int) -> None:
        """Check that the master continued with ``lives`` new lives, and that the job ends."""
        self.gate.open()
        assert (await self.grid.ended(self.job)).state is JobState.SUCCEEDED
        assert self.grid.master
        assert self.grid.master.pid == self._pid
        assert self.grid.log("master").count("it begins another life") == lives
        assert (await self.grid.client().passing()).passings == 0


async def test_attempts_of_a_lost_job_are_not_taken_for_another_jobs(grid: Grid, primary: Server) -> None:
    failover = Failover(grid, primary)
    await failover.start()
    with primary.follower() as follower:
        await failover.name(follower)
        lost = await grid.submit(f"{failover.gate.wait}; echo lost", tasks=2)
        await runs(grid, lost)
        primary.end(signal.SIGKILL)
        await asyncio.to_thread(follower.start)
        await promote(follower)
        new = await grid.submit("echo new")
        assert new > GAP
        with pytest.raises(LooplineError) as caught:
            await grid.job(lost)
        assert caught.value.status == 404
        await failover.over(lives=1)
        assert (await grid.ended(new)).state is JobState.SUCCEEDED


async def test_attempts_continue_after_a_failover_without_loss(grid: Grid, primary: Server) -> None:
    failover = Failover(grid, primary)
    await failover.start()
    with primary.follower() as follower:
        await asyncio.to_thread(follower.start)
        await failover.name(follower)
        kept = await grid.submit(f"{failover.gate.wait}; echo kept", tasks=2)
        await runs(grid, kept)
        await asyncio.to_thread(primary.end)  # a clean shutdown replicates everything
        await promote(follower)
        await failover.over(lives=0)
        assert (await grid.ended(kept)).state is JobState.SUCCEEDED
        assert [len(await grid.attempts(job)) for job in (failover.job, kept)] == [1, 2], "no attempt ran again"
