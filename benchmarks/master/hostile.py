"""An honest sweep beside an attack: ``python -m benchmarks.master.hostile [--seconds S] [--attack-seconds S]``.

A real master (benchmarks/master/swarm.py) and light workers that rest between Reports, first alone, then beside a
hostile worker (Reports of 100,000 attempts that it never had, frames of 8 MiB of nonsense, again and again), a
hostile user (bodies of 1 MiB that are no job), and clients without a token that send half a request on 200
connections. The output is the sweep's rate in both, and the slowest answer to a small request. Everything shares one
computer, so the sweep also loses the CPU time of the attackers' own process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from benchmarks.light.workers import Tally, swarm
from benchmarks.master.swarm import COMMAND, SLOTS, master
from loopline.client import AsyncClient
from loopline_shared.job.parameters import Range
from loopline_shared.model import AttemptId, Facts, Load
from loopline_shared.protocol.link_session import WorkerSession
from loopline_shared.spec import JobSpec

WORKERS = 10
REST_S = 0.25
QUEUED = 500_000  # a job
MOST_TASKS_S = 2_500
CONNECTIONS = 200
STRANGERS = 100_000
REPORTS = 20
PAUSE_S = 0.05
_FACTS = Facts("linux", "x86_64", "3.11.7", "0.2.0", "hostile", cpus=1, memory_bytes=2**33, slots=1)
_NONSENSE = b'{"kind":"report","seq":1,"seen":0,"results":[],"holding":[' + b"1," * 2**22 + b"1]}"
_NO_JOB = b'{"command":[' + b"1," * 2**19 + b"1]}"
_HALF = b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nContent-Type: application/json\r\n\r\n{"


@dataclass(frozen=True)
class Row:
    attack: bool
    tasks_s: float
    slowest_answer_s: float
    answers: int


@dataclass(frozen=True)
class Tokens:
    """Headers of the clients; none shares a token with an attacker."""

    sweep: dict[str, str]
    hostile_worker: dict[str, str]
    hostile_user: dict[str, str]


async def tokens_of(url: str, folder: Path) -> Tokens:
    """Have the new master make the tokens."""
    admin = (folder / "master" / "tokens" / "admin").read_text().strip()
    async with AsyncClient(url, admin) as client:
        made = [(await client.create_token(f"the-{role}", role)).secret for role in ("worker", "user")]
    return Tokens(*({"Authorization": f"Bearer {secret}"} for secret in (admin, *made)))


async def hostile_worker(url: str, headers: dict[str, str]) -> None:
    """Say hello, send a long Report and nonsense, and come again when it is thrown out."""
    strangers = [AttemptId(1, task, 9) for task in range(STRANGERS)]
    async with aiohttp.ClientSession(headers=headers) as http:
        while True:
            with suppress(aiohttp.ClientError, ConnectionError):
                async with http.ws_connect(f"{url}/api/v1/link", max_msg_size=0) as link:
                    session = WorkerSession("hostile", "b", _FACTS)
                    await link.send_bytes(session.hello())
                    session.receive((await link.receive()).data)
                    for _ in range(REPORTS):
                        await link.send_bytes(session.report((), (), Load(slots=1), strangers)[1])
                        session.receive((await link.receive()).data)
                    await link.send_bytes(_NONSENSE)
                    await link.receive()
            await asyncio.sleep(PAUSE_S)


async def hostile_user(url: str, headers: dict[str, str]) -> None:
    """Submit what is no job."""
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json", **headers}) as http:
        while True:
            with suppress(aiohttp.ClientError, ConnectionError):
                async with http.post(f"{url}/api/v1/jobs", data=_NO_JOB) as answer:
                    await answer.read()
            await asyncio.sleep(PAUSE_S)


async def slow_client(url: str) -> None:
    """Send half a request, and wait to be thrown out."""
    place = urlsplit(url)
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            writer.write(_HALF)
            await reader.read()
            writer.close()
        await asyncio.sleep(PAUSE_S)


async def _attack(url: str, tokens: Tokens) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(hostile_worker(url, tokens.hostile_worker))
        group.create_task(hostile_user(url, tokens.hostile_user))
        for _ in range(CONNECTIONS):
            group.create_task(slow_client(url))


def attack(url: str, tokens: Tokens) -> None:
    """Attack until killed: a process of its own."""
    asyncio.run(_attack(url, tokens))


async def ask(url: str, headers: dict[str, str], took_s: list[float]) -> None:
    """Ask a small question again and again."""
    async with aiohttp.ClientSession(headers=headers) as http:
        while True:
            begin = time.perf_counter()
            async with http.get(f"{url}/api/v1/session") as answer:
                await answer.read()
            took_s.append(time.perf_counter() - begin)
            await asyncio.sleep(PAUSE_S)


async def measure(seconds: float, is_attacked: bool) -> Row:
    """Let the sweep run for ``seconds``."""
    with tempfile.TemporaryDirectory() as folder, master(Path(folder), tokens=True) as (_, url):
        tokens = await tokens_of(url, Path(folder))
        async with AsyncClient(url, tokens.sweep["Authorization"].removeprefix("Bearer ")) as client:
            jobs = math.ceil(seconds * MOST_TASKS_S / QUEUED)
            for _ in range(jobs):
                await client.submit(JobSpec(command=COMMAND, parameters={"i": Range(range=[1, QUEUED])}))
        attacker = multiprocessing.get_context("spawn").Process(target=attack, args=(url, tokens), daemon=True)
        if is_attacked:
            attacker.start()
        tally, took_s = Tally(jobs * QUEUED), list[float]()
        work = [
            asyncio.create_task(swarm(url, tokens.sweep, WORKERS, SLOTS, tally, rest_s=REST_S)),
            asyncio.create_task(ask(url, tokens.sweep, took_s)),
        ]
        begin = time.perf_counter()
        try:
            await asyncio.wait(work, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            took = time.perf_counter() - begin
            for each in work:
                each.cancel()
            await asyncio.wait(work)
            if is_attacked:
                attacker.kill()
                attacker.join()
    return Row(is_attacked, round(tally.acknowledged / took, 1), round(max(took_s), 3), len(took_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of the run alone")
    parser.add_argument("--attack-seconds", type=float, help="of the run beside the attack; without it, the same")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    runs = (False, chosen.seconds), (True, chosen.attack_seconds or chosen.seconds)
    rows = [asyncio.run(measure(seconds, is_attacked)) for is_attacked, seconds in runs]
    if chosen.json:
        json.dump([asdict(row) for row in rows], sys.stdout, indent=2)
        return
    for row in rows:
        what = "with the attack" if row.attack else "alone"
        print(
            f"{what:16} {row.tasks_s:>8,.1f} tasks/s   slowest of {row.answers} answers {row.slowest_answer_s:.3f} s"
        )


if __name__ == "__main__":
    main()
