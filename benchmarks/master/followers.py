"""Cost of many followers of results: ``python -m benchmarks.master.followers [--followers 1000] [--json]``.

A real master and a swarm of light workers that bring some 40 results a second. The measure is the master's processor
time a second, without followers and with many: each following a job of its own, and all following one job, so that
each result goes to every follower. The followers are a process of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from benchmarks.light.workers import Tally, swarm
from benchmarks.master.swarm import COMMAND, SLOTS, cpu_s, master
from loopline.client import AsyncClient
from loopline_shared.job.parameters import Range
from loopline_shared.spec import JobSpec

WORKERS = 200
REST_S = 10.0  # of a light worker, before each Report
OF_ALL = 1_000_000
SETTLE_S = 12.0
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Row:
    followers: int
    jobs: int
    share: float  # of a core, that the master used
    lines_s: float  # that all followers together read


async def _follow(url: str, jobs: list[int], heard: Any) -> None:
    async def read(http: aiohttp.ClientSession, job: int) -> None:
        async with http.get(f"{url}/api/v1/jobs/{job}/results?follow=true") as answer:
            async for line in answer.content:
                heard.value += line.startswith(b"{")

    connector, forever = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=forever) as http:
        await asyncio.gather(*(read(http, job) for job in jobs))


def follow(url: str, jobs: list[int], heard: Any) -> None:
    """Follow each of these jobs until killed: a process of its own, with more files than usual."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(5)
    asyncio.run(_follow(url, jobs, heard))


async def measure(followers: int, jobs: int, seconds: float) -> Row:
    """Follow these jobs from their beginning, while the swarm works."""
    with tempfile.TemporaryDirectory() as folder, _master(Path(folder), max(followers, jobs)) as (process, url):
        async with AsyncClient(url, None) as client:
            sweep = Range(range=[1, OF_ALL // jobs])
            numbers = [
                (await client.submit(JobSpec(command=COMMAND, parameters={"i": sweep}))).id for _ in range(jobs)
            ]
        heard, followed = _SPAWN.Value("i"), [numbers[n % jobs] for n in range(followers)]
        crowd = _SPAWN.Process(target=follow, args=(url, followed, heard), daemon=True)
        crowd.start()
        await asyncio.sleep(SETTLE_S)
        work = asyncio.create_task(swarm(url, {}, WORKERS, SLOTS, Tally(OF_ALL), rest_s=REST_S))
        await asyncio.sleep(SETTLE_S)
        before, used_s = heard.value, cpu_s(process)
        await asyncio.sleep(seconds)
        told_s, share = (heard.value - before) / seconds, (cpu_s(process) - used_s) / seconds
        crowd.kill()
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
    return Row(followers, jobs, round(share, 3), round(told_s, 1))


@contextmanager
def _master(folder: Path, count: int) -> Iterator[tuple[psutil.Process, str]]:
    """Start a master that allows one user ``count`` streams and jobs, and a few more."""
    most = count + 100
    settings = f"[master.limits]\nmax_listeners = {most}\nuser_listeners = {most}\nuser_jobs = {most}\n"
    (folder / "loopline.toml").write_text(settings)
    with master(folder) as started:
        yield started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--followers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    cases = [(followers, jobs) for jobs in (chosen.followers, 1) for followers in (0, chosen.followers)]
    rows = [asyncio.run(measure(followers, jobs, chosen.seconds)) for followers, jobs in cases]
    if chosen.json:
        json.dump([asdict(row) for row in rows], sys.stdout, indent=2)
        return
    for row in rows:
        who = f"{row.followers:>6,} followers, {row.jobs:>5,} jobs"
        print(f"{who}: {row.share:.3f} of a core, {row.lines_s:>8,.1f} lines/s")


if __name__ == "__main__":
    main()
