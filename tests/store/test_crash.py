"""Acknowledged jobs survive any end of their master, and the next master continues with them."""

import subprocess
import sys
from pathlib import Path

from sqlalchemy import func, select, text

from loopline_master.core.events import JobCancelled
from loopline_master.store import open_store, tables
from loopline_master.store.database import parse_url, writing
from loopline_master.store.replay import check
from tests.store.master_in_a_process import started

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.store.master_in_a_process"]


async def look(url: str) -> tuple[int, list[str]]:
    """Return the jobs in the database, and the result of its own check."""
    async with writing(parse_url(url)) as write:
        jobs = await write(lambda connection: connection.scalar(select(func.count()).select_from(tables.jobs)))
        verdict = await write(lambda connection: connection.scalars(text("PRAGMA integrity_check")).all())
    return jobs, list(verdict)


async def goes_on(url: str) -> None:
    async with open_store(url) as store:
        engine = await started(store)
        ticket = engine.post(JobCancelled(1))
        await engine.turn()
        assert ticket.done()
    assert await check(url) == []


async def test_acknowledged_jobs_survive_sigkill_during_writes(sqlite_url):
    with subprocess.Popen([*COMMAND, sqlite_url], stdout=subprocess.PIPE, text=True, cwd=ROOT) as master:
        acknowledged = [int(job) for _ in range(20) for job in master.stdout.readline().split()]
        master.kill()
        acknowledged += [int(job) for job in master.stdout.read().split()]
    found, verdict = await look(sqlite_url)
    assert len(acknowledged) >= 100
    assert max(acknowledged) <= found
    assert verdict == ["ok"]
    await goes_on(sqlite_url)


async def test_master_stops_when_its_file_cannot_grow(sqlite_url):
    limit = str(2**20)
    done = subprocess.run([*COMMAND, sqlite_url, limit], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 3, done.stderr
    assert "writing to the database failed: the disk" in done.stderr
    assert "Traceback" not in done.stderr
    found, verdict = await look(sqlite_url)
    assert len(done.stdout.split()) == found
    assert verdict == ["ok"]
    await goes_on(sqlite_url)
