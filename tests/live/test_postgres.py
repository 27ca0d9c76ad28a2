"""A real PostgreSQL that starts late, restarts, hangs and drops connections while a master works."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from loopline_shared.job.parameters import Range
from loopline_shared.model import JobState
from loopline_shared.spec import JobSpec
from tests.live.grid import Grid, wait_for
from tests.store.postgres import Server

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]
TASKS = 1500


@pytest.fixture
async def grid(tmp_path: Path) -> AsyncIterator[Grid]:
    grid = Grid(tmp_path)
    yield grid
    await grid.stop()


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


async def answers(grid: Grid, path: str, wanted: int) -> None:
    async def does() -> bool:
        return await asyncio.to_thread(status, f"{grid.url}{path}") == wanted

    await wait_for(f"{path} to answer {wanted}", does, 120)


async def start(grid: Grid, server: Server) -> None:
    """Start the master before its server, which is the second of two addresses."""
    hosts = server.url.replace("127.0.0.1:", "127.0.0.1:1,127.0.0.1:")
    url = f"{hosts}/postgres?sslmode=prefer"
    starting = asyncio.create_task(grid.start_master("--database-url", url, "--lease-s", "30"))
    await answers(grid, "/readyz", 503)
    await answers(grid, "/healthz", 200)
    await asyncio.to_thread(server.start)
    await starting
    await answers(grid, "/readyz", 200)


async def cut_connections(server: Server) -> None:
    connection = await asyncpg.connect(f"{server.url}/postgres")
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    await connection.execute(f"{others} AND backend_type = 'client backend'")
    await connection.close()


async def hang(server: Server) -> None:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    processes = [server.process.pid, *map(int, children)]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    await asyncio.sleep(1.0)  # the fault lasts
    for process in processes:
        os.kill(process, signal.SIGCONT)


async def restart(grid: Grid, server: Server) -> None:
    await asyncio.to_thread(server.end)
    await answers(grid, "/readyz", 503)
    await asyncio.to_thread(server.start)


async def test_master_survives_a_server_that_is_late_restarts_hangs_or_disconnects(
    grid: Grid, server: Server
) -> None:
    await start(grid, server)
    assert grid.master is not None
    pid = grid.master.pid
    await grid.start_worker("w", slots=4)
    client = grid.client(patience_s=120)
    spec = JobSpec(command=["sleep", "0.05"], parameters={"i": Range(range=[1, TASKS])}, size=TASKS * 0.05)
    jobs = list[int]()
    for turn in range(20):
        if not jobs or (await client.job(jobs[-1])).finished_at is not None:
            jobs.append((await client.submit(spec)).id)  # each fault occurs while the master works
        before = (await client.job(jobs[-1])).tasks.succeeded
        match turn % 4:
            case 1:
                await restart(grid, server)
            case 3:
                await hang(server)
            case _:
                await cut_connections(server)

        async def continues(before: int = before) -> bool:
            found = await client.job(jobs[-1])
            return found.tasks.succeeded > before or found.finished_at is not None

        await wait_for("the job to go on", continues, 120)
        print(turn, jobs[-1], (await client.job(jobs[-1])).tasks.succeeded)
    for job in jobs:
        assert (await grid.ended(job, 300)).state is JobState.SUCCEEDED
        accepted = [attempt.id.task_id for attempt in await grid.attempts(job) if attempt.accepted]
        assert len(accepted) == len(set(accepted)) == TASKS, "no job is lost or duplicated"
    assert (grid.master.pid, grid.master.returncode) == (pid, None), "the master process never exited"
    assert (await client.passing()).passings == 0
    log = grid.log("master")
    assert "Traceback" not in log, "a failure that passes is one line"
    assert len(log.splitlines()) < 200, log


async def test_error_that_an_operator_must_fix_ends_the_master(grid: Grid, server: Server) -> None:
    await asyncio.to_thread(server.start)
    with pytest.raises(AssertionError, match="does not exist"):
        await grid.start_master("--database-url", f"{server.url}/nowhere")
