"""An honest sweep beside attacks: ``python -m benchmarks.master.hostile [--seconds S] [--attack-seconds S]``.

A real, encrypted master and light workers that rest between Reports, first alone, then beside all attackers at once
(benchmarks/light/attackers.py): a worker that sends Reports of 100,000 attempts that it never had, and frames of 8
MiB of nonsense; a user who submits 1 MiB that is no job, and one whose webhooks never answer; clients without a token
that send half a request on 200 connections, half a TLS handshake on 520, compressed bodies on eight, and wrong join
tokens; and, where there is bubblewrap, a task that tries to reach the computer's own services.

The output is the sweep's rate in both, and the slowest answer to a small request, each on a connection of its own.
Beside the attack, valid join lines must be accepted from the guesser's address, another user's webhooks must arrive,
and the task must reach nothing. Everything shares one computer, so the sweep also loses the attackers' CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import secrets
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from benchmarks.harness.grid import ROOT
from benchmarks.light.attackers import GUESSER, Target, attack
from benchmarks.light.workers import Tally, swarm
from benchmarks.master.swarm import COMMAND, SLOTS, master
from loopline.client import AsyncClient
from loopline_shared.job.parameters import Range
from loopline_shared.job.requirements import Requirements
from loopline_shared.joining import hash_of
from loopline_shared.rest.trust import trusting
from loopline_shared.spec import JobSpec, Notify
from loopline_worker.launch import sandbox

WORKERS = 10
REST_S = 0.25
QUEUED = 500_000  # a job
MOST_TASKS_S = 2_500
PAUSE_S, RARELY_S = 0.05, 5.0
WEBHOOK_WITHIN_S = 30.0
NOWHERE, VICTIM = "nowhere", "victim"
NOSY = """
import socket, sys
while True:
    for place in (("127.0.0.1", int(sys.argv[1])), ("169.254.169.254", 80)):
        try: socket.create_connection(place, 1)
        except OSError: continue
        sys.exit(f"reached {place}")
"""


@dataclass
class Row:
    attack: bool
    tasks_s: float = 0.0
    slowest_answer_s: float = 0.0
    answers: int = 0
    joins: int = 0  # valid join lines accepted
    webhooks: int = 0
    slowest_webhook_s: float = 0.0
    refusals: list[str] = field(default_factory=list)  # of honest requests, and finds of the nosy task


class Honest:
    """The honest clients of a master. ``row`` has their figures."""

    def __init__(self, url: str, client: AsyncClient, token: str, trusted: ssl.SSLContext, row: Row) -> None:
        self._url, self._client, self._row = url, client, row
        self._headers, self._trusted = {"Authorization": f"Bearer {token}"}, trusted

    def _session(self, address: str = "127.0.0.1") -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self._trusted, local_addr=(address, 0), force_close=True)
        return aiohttp.ClientSession(connector=connector)

    async def sweep(self, tally: Tally) -> None:
        await swarm(self._url, self._headers, WORKERS, SLOTS, tally, rest_s=REST_S, trusted=self._trusted)

    async def ask(self) -> None:
        """Ask for something small again and again, each time on a new connection."""
        async with self._session() as http:
            while True:
                begin = time.perf_counter()
                try:
                    async with http.get(f"{self._url}/api/v1/session", headers=self._headers) as answer:
                        await answer.read()
                        self._note(answer.status == 200, f"an answer is {answer.status}")
                except aiohttp.ClientError as error:
                    self._note(False, f"no answer: {error}")
                took_s = time.perf_counter() - begin
                self._row.answers, self._row.slowest_answer_s = (
                    self._row.answers + 1,
                    max(took_s, self._row.slowest_answer_s),
                )
                await asyncio.sleep(PAUSE_S)

    async def join(self) -> None:
        """Join computers from the address of the attacker who guesses join tokens."""
        async with self._session(GUESSER) as http:
            while True:
                line = await self._client.create_join_token(1, 600.0)
                name = secrets.token_hex(4)
                token = hash_of(f"ll_{name}_secret")
                wish = {"secret": line.secret, "worker": f"pc-{name}", "token": name, "hash": token}
                async with http.post(f"{self._url}/api/v1/join", json=wish) as answer:
                    self._note(answer.status == 201, f"a valid join line is refused: {await answer.text()}")
                    self._row.joins += answer.status == 201
                await asyncio.sleep(RARELY_S)

    async def hear(self) -> None:
        """End jobs whose webhooks are received here."""
        came = asyncio.Event()
        async with _receiver(came) as url:
            while True:
                came.clear()
                nowhere = Requirements(labels=[NOWHERE])
                job = await self._client.submit(
                    JobSpec(command=COMMAND, requires=nowhere, notify=Notify(webhook=url))
                )
                await self._client.cancel(job.id)
                begin = time.perf_counter()
                try:
                    await asyncio.wait_for(came.wait(), WEBHOOK_WITHIN_S)
                    self._row.webhooks += 1
                except TimeoutError:
                    self._note(False, f"no webhook came within {WEBHOOK_WITHIN_S:g} s")
                took_s = time.perf_counter() - begin
                self._row.slowest_webhook_s = max(took_s, self._row.slowest_webhook_s)
                await asyncio.sleep(RARELY_S)

    def _note(self, is_good: bool, refusal: str) -> None:
        if not is_good and refusal not in self._row.refusals:
            self._row.refusals.append(refusal)


@asynccontextmanager
async def _receiver(came: asyncio.Event) -> AsyncIterator[str]:
    async def hear(request: web.Request) -> web.Response:
        came.set()
        return web.Response()

    app = web.Application()
    app.router.add_post("/", hear)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@contextmanager
def _victim(folder: Path, url: str) -> Iterator[None]:
    """Run a real worker, for the nosy task."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "XDG"))}
    environment |= {"HOME": str(folder), "PYTHONPATH": str(ROOT), "LOOPLINE_LABELS": VICTIM}
    options = ["--master", url, "--token-file", str(folder / "master" / "tokens" / "worker"), "--dedicated"]
    options += ["--name", VICTIM, "--slots", "1", "--data-dir", str(folder / VICTIM)]
    with (folder / "victim.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "loopline_worker", *options], env=environment, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


async def measure(seconds: float, is_attacked: bool) -> Row:
    """Let the sweep run for ``seconds``."""
    row = Row(is_attacked)
    flags = ("--tls", "on", "--webhook-hosts", "127.0.0.0/8")
    with tempfile.TemporaryDirectory() as name, master(folder := Path(name), *flags, tokens=True) as (_, url):
        secret, ca = ((folder / "master" / "tokens" / file).read_text() for file in ("admin", "ca.pem"))
        async with AsyncClient(url, secret.strip(), ca=ca) as client:
            made = [(await client.create_token(f"the-{role}", role)).secret for role in ("worker", "user")]
            target = Target(url, ca, *({"Authorization": f"Bearer {each}"} for each in made))
            if is_attacked and not sandbox.obstacle():
                with _victim(folder, url):
                    await _measure(seconds, row, target, client, secret.strip(), await _nosy_job(client, url))
            else:
                await _measure(seconds, row, target, client, secret.strip(), 0)
    return row


async def _nosy_job(client: AsyncClient, url: str) -> int:
    requires = Requirements(labels=[VICTIM])
    command = ["python3", "-c", NOSY, str(urlsplit(url).port)]
    return (await client.submit(JobSpec(command=command, requires=requires, max_attempts=1))).id


async def _measure(seconds: float, row: Row, target: Target, client: AsyncClient, secret: str, nosy_job: int) -> None:
    jobs = math.ceil(seconds * MOST_TASKS_S / QUEUED)
    for _ in range(jobs):
        await client.submit(JobSpec(command=COMMAND, parameters={"i": Range(range=[1, QUEUED])}))
    honest, tally = Honest(target.url, client, secret, trusting(target.ca), row), Tally(jobs * QUEUED)
    attacker = multiprocessing.get_context("spawn").Process(target=attack, args=(target,), daemon=True)
    work = [asyncio.create_task(each) for each in (honest.sweep(tally), honest.ask(), honest.join(), honest.hear())]
    if row.attack:
        attacker.start()
    begin = time.perf_counter()
    try:
        await asyncio.wait(work, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        row.tasks_s = round(tally.acknowledged / (time.perf_counter() - begin), 1)
        for each in work:
            each.cancel()
        ends = await asyncio.gather(*work, return_exceptions=True)
        if row.attack:
            attacker.kill()
            attacker.join()
    row.refusals += [f"{type(end).__name__}: {end}" for end in ends if not isinstance(end, asyncio.CancelledError)]
    if nosy_job and (await client.job(nosy_job)).finished_at is not None:
        row.refusals.append("the nosy task has reached something")


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
            f"   {row.joins} joined   slowest of {row.webhooks} webhooks {row.slowest_webhook_s:.1f} s"
        )
        for refusal in row.refusals:
            print(f"                 {refusal}")


if __name__ == "__main__":
    main()
