"""A real PostgreSQL that comes late, restarts, hangs and cuts connections under a master at work."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from loopline.client import AsyncClient
from loopline.local.reserved_port import reserved
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState
from loopline_shared.spec import JobSpec, Range
from tests.live.grid import Grid, Process, wait_for
from tests.store.postgres import Missing, Server, restartable_postgres

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
TASKS = 1500


@pytest.fixture
def server() -> Iterator[Server]:
    try:
        made = restartable_postgres()
        server = made.__enter__()
    except Missing as reason:
        pytest.skip(str(reason))
    yield server
    made.__exit__(None, None, None)


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
    """Begin the master before its server, which comes late, and is the second of two that are named."""
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
    await asyncio.sleep(1.0)
    for process in processes:
        os.kill(process, signal.SIGCONT)


async def restart(grid: Grid, server: Server) -> None:
    await asyncio.to_thread(server.end)
    await answers(grid, "/readyz", 503)
    await asyncio.to_thread(server.start)


async def test_a_server_that_comes_late_restarts_hangs_and_cuts_connections(grid: Grid, server: Server) -> None:
    await start(grid, server)
    assert grid.master is not None
    pid = grid.master.pid
    await grid.start_worker("w", slots=4)
    client = grid.client(patience_s=120)
    spec = JobSpec(command=["sleep", "0.05"], parameters={"i": Range(range=[1, TASKS])}, size=TASKS * 0.05)
    job = (await client.submit(spec)).id
    for turn in range(20):
        before = (await client.job(job)).tasks.succeeded
        match turn % 4:
            case 1:
                await restart(grid, server)
            case 3:
                await hang(server)
            case _:
                await cut_connections(server)

        async def goes_on(before: int = before) -> bool:
            found = await client.job(job)
            return found.tasks.succeeded > before or found.finished_at is not None

        await wait_for("the job to go on", goes_on, 120)
        print(turn, (await client.job(job)).tasks.succeeded)
    detail = await grid.ended(job, 300)
    assert detail.state is JobState.SUCCEEDED
    assert (grid.master.pid, grid.master.returncode) == (pid, None), "the master never ended"
    accepted = [attempt.id.task_id for attempt in await grid.attempts(job) if attempt.accepted]
    assert len(accepted) == len(set(accepted)) == TASKS, "none is lost, none is there twice"
    assert (await client.passing()).passings == 0


class Twins:
    """Two masters of one database and one data folder, each the other's standby."""

    def __init__(self, grid: Grid, server: Server) -> None:
        self._grid = grid
        self._flags = ["--database-url", f"{server.url}/postgres", "--data-dir", str(grid.data_dir), "--standby"]
        self._ports = [reserved(), reserved()]

    async def start(self, number: int) -> Process:
        arguments = ["--port", str(self._ports[number].number), *self._flags]
        return await self._grid._spawn(f"master{number}", "loopline_master", *arguments)

    def client(self, *numbers: int) -> AsyncClient:
        """Return a client that knows these; only one that knows several is patient."""
        token, known = self._grid.data_dir / "tokens" / "admin", ",".join(map(self.url, numbers))
        patience_s = 60.0 if len(numbers) > 1 else 0.0
        return AsyncClient(known, token.read_text() if token.exists() else None, patience_s=patience_s)

    async def serves(self, number: int) -> bool:
        async with self.client(number) as client:
            try:
                await client.whoami()
            except LooplineError:
                return False
        return True

    def url(self, number: int) -> str:
        return f"http://127.0.0.1:{self._ports[number].number}"


async def test_a_standby_takes_over_20_times_and_the_old_one_says_nothing(grid: Grid, server: Server) -> None:
    await asyncio.to_thread(server.start)
    twins = Twins(grid, server)
    masters = [await twins.start(0)]

    async def first_serves() -> bool:
        return await twins.serves(0)

    await wait_for("the first master", first_serves)
    masters.append(await twins.start(1))
    await grid.start_worker("w", url=f"{twins.url(0)},{twins.url(1)}", slots=2)
    long_output = ["sh", "-c", "sleep 0.3; head -c 20000 /dev/zero"]
    spec = JobSpec(command=long_output, parameters={"i": Range(range=[1, TASKS])}, size=TASKS * 0.3)
    both = twins.client(0, 1)
    job = (await both.submit(spec)).id
    took, old, done = list[float](), 0, 0
    for turn in range(20):
        new, begun = 1 - old, time.monotonic()
        masters[old].send_signal(signal.SIGKILL if turn % 2 else signal.SIGSTOP)

        async def new_serves(new: int = new) -> bool:
            return await twins.serves(new)

        await wait_for("the standby to take over", new_serves, 60)
        took.append(time.monotonic() - begun)
        if turn % 2:
            await masters[old].wait()
            masters[old] = await twins.start(old)
        else:
            masters[old].send_signal(signal.SIGCONT)

        async def old_waits(old: int = old) -> bool:
            return await asyncio.to_thread(status, f"{twins.url(old)}/readyz") == 503

        await wait_for("the old one to wait", old_waits, 60)

        async def goes_on(new: int = new, before: int = done) -> int | None:
            async with twins.client(new) as client:
                found = (await client.job(job)).tasks.succeeded
            return found if found > before else None

        done = await wait_for("the worker to follow, and the job to go on", goes_on, 60)
        first = await anext(aiter(both.results(job)))
        assert first.stdout == "\0" * 20000, "who knows both addresses reads outputs of before"
        old = new
    await both.http.close()
    async with twins.client(old) as client:
        accepted = [one.id.task_id async for one in client.attempts(job) if one.accepted]
        assert len(accepted) == len(set(accepted)) >= done
        assert (await client.passing()).passings == 0
    connection = await asyncpg.connect(f"{server.url}/postgres")
    assert await connection.fetchval("SELECT epoch FROM mastership") == 21
    await connection.close()
    print(f"20 times: after SIGSTOP within {max(took[::2]):.1f} s, after kill -9 within {max(took[1::2]):.1f} s")
    for master in masters:
        master.terminate()
        await master.wait()


async def test_what_a_person_must_mend_ends_the_master(grid: Grid, server: Server) -> None:
    await asyncio.to_thread(server.start)
    with pytest.raises(AssertionError, match="does not exist"):
        await grid.start_master("--database-url", f"{server.url}/nowhere")
