"""A grid made by the release before goes on under this one, with its tasks under way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import loopline
from loopline_master.store import replay
from tests.live import release_before
from tests.live.grid import THIS_RELEASE, Grid, Release, wait_for

pytestmark = pytest.mark.skipif(bool(release_before.is_missing()), reason=release_before.is_missing())

MAPS = """
import time
import loopline

def square(x):
    import pathlib, time
    while not pathlib.Path({gate!r}).exists():
        time.sleep(0.02)
    return x * x, b"x" * 10_000

with loopline.Executor({url!r}, {token!r}, name="squares") as executor:
    values = executor.map(square, range(4), chunksize=1)
    while not executor.jobs:
        time.sleep(0.01)
    print(executor.jobs[0], flush=True)
    print([value[0] for value in values])
"""


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return release_before.install(tmp_path_factory.mktemp("release-before"))


@pytest.fixture
async def old_grid(before: Release, tmp_path: Path) -> AsyncIterator[Grid]:
    """A master and a worker of the release before; the test ends with the audit and the replay of this one."""
    grid = Grid(tmp_path, before)
    try:
        await grid.start_master("--lease-s", "2", "--report-every-s", "0.5")
        await grid.start_worker("ant", slots=8)
        yield grid
        await grid.check()
        _, start = await replay.check_and_start(str(grid.data_dir / "loopline.db"))
        assert start.after, "the replay begins at the upgrade, for the release before may have decided otherwise"
    finally:
        await grid.stop()
    await grid.no_processes()


def token(grid: Grid) -> str:
    return (grid.data_dir / "tokens" / "admin").read_text().strip()


async def rest(grid: Grid, path: str, body: object = None) -> Any:
    """Ask the REST API as a program of the release before does: by names written down then."""
    headers = {"Authorization": f"Bearer {token(grid)}"}
    async with aiohttp.ClientSession(grid.url, headers=headers, raise_for_status=True) as session:
        asked = session.get(path) if body is None else session.post(path, json=body)
        async with asked as answer:
            return await answer.json()


async def submit(grid: Grid, script: str, tasks: int) -> int:
    body = {"command": ["sh", "-c", script], "parameters": {"i": {"range": [1, tasks]}}, "max_replicas": 1}
    job: int = (await rest(grid, "/api/v1/jobs", body))["id"]
    return job


async def attempts(grid: Grid, job: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await rest(grid, f"/api/v1/jobs/{job}/attempts"))["items"]
    return found


async def started(grid: Grid, job: int, count: int) -> None:
    async def enough() -> bool:
        return sum(a["started_at"] is not None for a in await attempts(grid, job)) >= count

    await wait_for(f"{count} attempts of job {job} to start", enough)


async def running(grid: Grid, job: int) -> bool:
    return bool((await rest(grid, f"/api/v1/jobs/{job}/tasks?state=running"))["items"])


async def end(grid: Grid, job: int) -> str:
    async def state() -> str | None:
        view = await rest(grid, f"/api/v1/jobs/{job}")
        return view["state"] if view["finished_at"] is not None else None

    return await wait_for(f"job {job} to end", state)


async def stdout(grid: Grid, job: int) -> dict[int, str]:
    return {result.number: result.stdout async for result in grid.client().results(job)}


async def old_command(grid: Grid, before: Release, *words: str) -> Any:
    """Run the command ``loopline`` of the release before; what it prints as JSON."""
    told = {"LOOPLINE_MASTER": grid.url, "LOOPLINE_TOKEN": token(grid), "HOME": str(grid.folder)}
    arguments = ["-m", "loopline", *words, "--json"]
    process = await asyncio.create_subprocess_exec(
        before.python, *arguments, env=told, cwd=grid.folder, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, words
    return json.loads(output)


async def old_program(before: Release, text: str, folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        before.python, "-c", text, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )


async def results_on_disk(grid: Grid, job: int, count: int) -> None:
    journal = grid.folder / "ant" / "ledger.jsonl"

    async def written() -> bool:
        lines = journal.read_text().splitlines()
        return sum(line.startswith('{"result":') and f'"{job}.' in line for line in lines) >= count

    await wait_for(f"{count} results of job {job} to be in the worker's journal", written)


async def test_all_is_killed_and_goes_on_under_this_release(old_grid: Grid, before: Release) -> None:
    """Acknowledged results stay, unsent ones arrive, what ran is retried, and what waited runs."""
    grid, brief, gate = old_grid, old_grid.gate("brief"), old_grid.gate()
    done = await submit(grid, "echo early {i}", 3)
    assert await end(grid, done) == "succeeded"
    unsent = await submit(grid, f"{brief.wait}; echo unsent {{i}}", 2)
    await started(grid, unsent, 2)
    names = {"gate": str(gate.file), "url": grid.url, "token": token(grid)}
    caller = await old_program(before, MAPS.format(**names), grid.folder)
    assert caller.stdout
    calls = int(await asyncio.wait_for(caller.stdout.readline(), 60))
    await started(grid, calls, 1)
    queued = await submit(grid, f"{gate.wait}; echo queued {{i}}", 12)
    await started(grid, queued, 1)

    await grid.kill_master()
    brief.open()
    await results_on_disk(grid, unsent, 2)
    await grid.kill_worker("ant")
    await grid.no_processes()
    grid.release = THIS_RELEASE
    await grid.start_master()
    await grid.start_worker("ant", slots=8)
    gate.open()

    assert [await end(grid, job) for job in (unsent, calls, queued)] == ["succeeded"] * 3
    said, _ = await asyncio.wait_for(caller.communicate(), 60)
    assert said.decode() == "[0, 1, 4, 9]\n", "a caller of the release before waits all the while"
    for job, word, tasks in ((done, "early", 3), (unsent, "unsent", 2), (queued, "queued", 12)):
        assert await stdout(grid, job) == {i: f"{word} {i}\n" for i in range(1, tasks + 1)}
    assert sorted((a["id"], a["state"], a["accepted"]) for a in await attempts(grid, unsent)) == [
        (f"{unsent}.{task}.1", "succeeded", True) for task in (1, 2)
    ], "their results were on the worker's disk: neither runs again"
    again = [a["accepted"] for a in await attempts(grid, queued) if a["id"].endswith(".2")]
    assert again, "what ran as all was killed runs a second time"
    assert all(again)
    listed = await old_command(grid, before, "jobs")
    assert {job["id"]: job["state"] for job in listed} == dict.fromkeys((done, unsent, calls, queued), "succeeded")
    assert (await old_command(grid, before, "passing"))["passings"] == 0


async def test_a_worker_of_the_release_before_serves_this_master(old_grid: Grid, before: Release) -> None:
    """The master is upgraded first: what runs at the old worker is adopted, and it takes new work of every kind."""
    grid, gate = old_grid, old_grid.gate()
    job = await submit(grid, f"{gate.wait}; echo {{i}}", 10)
    await started(grid, job, 4)
    await grid.kill_master()
    grid.release = THIS_RELEASE
    await grid.start_master()
    await wait_for("tasks to be adopted, by a filter of the release before", lambda: running(grid, job))
    gate.open()
    assert await end(grid, job) == "succeeded"
    assert await stdout(grid, job) == {i: f"{i}\n" for i in range(1, 11)}
    assert {a["id"] for a in await attempts(grid, job)} == {f"{job}.{task}.1" for task in range(1, 11)}

    with await asyncio.to_thread(loopline.Executor, grid.url, token(grid)) as executor:
        squares = await asyncio.to_thread(lambda: list(executor.map(lambda x: x * x, range(5))))
        assert squares == [0, 1, 4, 9, 16]


@pytest.mark.long
@pytest.mark.parametrize("who", ["worker before", "master before", "worker after", "master after"])
async def test_each_end_may_be_one_release_ahead(tmp_path: Path, before: Release, who: str) -> None:
    """The link is spoken in the version that both know; *after* is this release with the number raised."""
    newer, when = who.split()
    other = before if when == "before" else release_before.install_after(tmp_path / "after")
    grid = Grid(tmp_path, other if newer == "master" else THIS_RELEASE)
    try:
        await grid.start_master("--lease-s", "2", "--report-every-s", "0.5")
        grid.release = other if newer == "worker" else THIS_RELEASE
        await grid.start_worker("ant", slots=2)
        job = await submit(grid, "echo {i}", 20)
        assert await end(grid, job) == "succeeded"
        assert len(await attempts(grid, job)) == 20, "each ran once"
    finally:
        await grid.stop()
