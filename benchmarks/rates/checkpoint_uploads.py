"""How late are Reports while 100 workers send checkpoints at once through a narrow network?

A master and as many workers' links as asked for, in a network namespace whose cable carries 100 Mbit/s, which needs
root. Each worker sends new pieces of 1 MiB without end, as the agent does it, and a Report each second. With the
master's ``checkpoint_bytes_s``, and with none.

    python -m benchmarks.rates.checkpoint_uploads [--workers 100] [--seconds 60] [--mbit 100] [--bytes-s 1e7]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp

from benchmarks.harness import tables
from loopline_master.app import serving
from loopline_master.http.auth import Auth
from loopline_master.settings import MasterSettings
from loopline_shared.model import Facts, Load
from loopline_shared.protocol.link_session import WorkerSession
from loopline_shared.protocol.worker_link import Assign, Welcome
from loopline_worker.files.uploads import Uploads
from loopline_worker.link.http_client import HttpClient
from loopline_worker.settings import WorkerSettings

PIECE_BYTES = 2**20
FACTS = Facts("linux", "x86_64", "3.11", "0.1", "a processor", cpus=1, memory_bytes=2**30, slots=1)
NO_LIMIT = 1e12


@dataclass(slots=True)
class Measured:
    """Delays of Reports in seconds, and bytes of pieces that arrived."""

    delays_s: list[float] = field(default_factory=list)
    sent_bytes: int = 0


def serve(folder: str, bytes_s: float, told: Connection) -> None:
    """Run a master until the other end hangs up."""

    async def run() -> None:
        settings = MasterSettings.load(data_dir=Path(folder), port=0, checkpoint_bytes_s=bytes_s)
        async with serving(settings) as master:
            token = (await master.parts[Auth].create("bench", "worker")).secret
            told.send((master.url, token))
            await asyncio.to_thread(told.recv)

    asyncio.run(run())


async def report(url: str, token: str, name: str, until: float, measured: Measured) -> None:
    """Send a Report each second, and note when it was answered."""
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{url}/api/v1/link", headers=headers) as socket:
        session = WorkerSession(name, "boot", FACTS)
        await socket.send_bytes(session.hello())
        welcome = session.receive(await socket.receive_bytes())
        assert isinstance(welcome, Welcome), welcome
        while time.monotonic() < until:
            seq, frame = session.report([], (), Load(1))
            began = time.monotonic()
            await socket.send_bytes(frame)
            while not (isinstance(answer := session.receive(await socket.receive_bytes()), Assign)):
                pass
            assert answer.seen == seq
            measured.delays_s.append(time.monotonic() - began)
            await asyncio.sleep(max(0.0, began + 1.0 - time.monotonic()))


async def upload(url: str, token: str, folder: Path, until: float, measured: Measured) -> None:
    """Send new pieces, two at a time as the agent does."""
    async with HttpClient(WorkerSettings.load(master=url, token=token, data_dir=folder)) as http:
        uploads = Uploads(http)

        async def send() -> None:
            while time.monotonic() < until:
                content = os.urandom(PIECE_BYTES)
                file = folder / sha256(content).hexdigest()
                file.write_bytes(content)
                await uploads.upload(file.name, file, 1.0)
                measured.sent_bytes += PIECE_BYTES
                file.unlink()

        await asyncio.gather(send(), send())


async def measure(url: str, token: str, folder: Path, workers: int, seconds: float) -> Measured:
    measured, until = Measured(), time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            (own := folder / str(number)).mkdir()
            group.create_task(report(url, token, f"w{number}", until, measured))
            group.create_task(_in_time(upload(url, token, own, until, measured), until))
    return measured


async def _in_time(work: Coroutine[object, object, None], until: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(until - time.monotonic()):
            await work


def run(workers: int, seconds: float, bytes_s: float) -> dict[str, float]:
    """Measure one setting."""
    ours, theirs = (context := get_context("spawn")).Pipe()
    with tempfile.TemporaryDirectory() as folder:
        master = context.Process(target=serve, args=(f"{folder}/master", bytes_s, theirs))
        master.start()
        url, token = ours.recv()
        Path(folder, "workers").mkdir()
        measured = asyncio.run(measure(url, token, Path(folder, "workers"), workers, seconds))
        ours.send("over")
        master.join()
    return {
        "bytes_s": bytes_s,
        "reports": len(measured.delays_s),
        "p50_s": tables.quantile(measured.delays_s, 0.5),
        "p99_s": tables.quantile(measured.delays_s, 0.99),
        "max_s": max(measured.delays_s),
        "arrived_mb_s": measured.sent_bytes / seconds / 1e6,
    }


def main() -> None:
    """Print the figures, a line for each setting."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--workers", type=int, default=100)
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--mbit", type=int, default=100)
    options.add_argument("--bytes-s", type=float, default=1e7)
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if not chosen.inside:
        script = f"ip link set lo up && tc qdisc add dev lo root tbf rate {chosen.mbit}mbit burst 128kb latency 300ms"
        inside = [sys.executable, "-m", "benchmarks.rates.checkpoint_uploads", "--inside", *sys.argv[1:]]
        subprocess.run(["unshare", "-n", "sh", "-c", f'{script} && exec "$0" "$@"', *inside], check=True)
        return
    for bytes_s in (chosen.bytes_s, NO_LIMIT):
        print(json.dumps(run(chosen.workers, chosen.seconds, bytes_s)), flush=True)


if __name__ == "__main__":
    main()
