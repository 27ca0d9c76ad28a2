"""CPU share left to the owner of a busy computer, beside tasks on every core.

Owner's programs that never rest, one to a core, against as many tasks that never rest: started by Loopline's own
launcher, by ``nice -n 19 setsid`` as in most grids, and without any of this. 100 % means that tasks go unnoticed.

    python benchmarks/worker/owner_share.py [--seconds 5] [--json]
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
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from loopline_worker.launch import delegation
from loopline_worker.launch.interface import Job
from loopline_worker.launch.posix import PosixLauncher
from loopline_worker.supervisor import processes

HOG = [sys.executable, "-I", "-S", "-c", "while True: pass"]
WARM_UP_S = 0.5
CORES = len(os.sched_getaffinity(0))
Crowd = AbstractAsyncContextManager[list[int]]
"""Processes that never rest, while it is open."""


@asynccontextmanager
async def plain(*prefix: str, own_session: bool = False) -> AsyncIterator[list[int]]:
    hogs = [subprocess.Popen([*prefix, *HOG], start_new_session=own_session) for _ in range(CORES)]  # noqa: ASYNC220
    try:
        yield [hog.pid for hog in hogs]
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@asynccontextmanager
async def ours(with_groups: bool) -> AsyncIterator[list[int]]:
    claim = delegation.claim
    if not with_groups:
        delegation.claim = lambda *_, **__: {}
    launcher = PosixLauncher(yields=True)
    try:
        with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("wb") as nowhere:  # noqa: ASYNC230
            async with AsyncExitStack() as stack:
                for number in range(CORES):
                    place = Path(folder, f"1.{number}.1")
                    place.mkdir()
                    tree = await launcher.start(Job(HOG, str(place), {}), nowhere.fileno(), nowhere.fileno())
                    waiting = asyncio.create_task(tree.wait())
                    stack.push_async_callback(asyncio.wait_for, waiting, 10)
                    stack.callback(tree.kill)
                assert launcher._process
                zygote = launcher._process.pid
                while len(hogs := _hogs_below(zygote)) < CORES:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                yield hogs
    finally:
        delegation.claim = claim
        launcher.close()
        if launcher._process:
            launcher._process.wait(10)


def _hogs_below(pid: int) -> list[int]:
    """Return the processes below that run the task's program, supervisors excluded."""
    is_hog = b"while True: pass"
    return [child for child in processes.descendants(pid) if is_hog in processes.read(f"/proc/{child}/cmdline")]


async def share(tasks: Callable[[], Crowd], seconds: float) -> float:
    """Return the owner's share of the CPU time of both crowds. The owner's has its own session, as on a desktop."""
    async with tasks() as theirs, plain(own_session=True) as owners:
        await asyncio.sleep(WARM_UP_S)
        before = _cpu_s(owners), _cpu_s(theirs)
        await asyncio.sleep(seconds)
        owner_s, task_s = _cpu_s(owners) - before[0], _cpu_s(theirs) - before[1]
    return owner_s / (owner_s + task_s)


def _cpu_s(pids: list[int]) -> float:
    return sum(process.cpu_s for pid in pids if (process := processes.status(pid)))


WAYS: dict[str, Callable[[], Crowd]] = {
    "Loopline": lambda: ours(with_groups=True),
    "Loopline, no control groups": lambda: ours(with_groups=False),
    "nice -n 19, own session": lambda: plain("nice", "-n", "19", own_session=True),
    "nothing": lambda: plain(own_session=True),
}


async def measure(seconds: float) -> dict[str, float]:
    return {name: await share(way, seconds) for name, way in WAYS.items()}


def conditions() -> dict[str, object]:
    places = delegation.claim(yields=True)
    for folder in set(places.values()):
        Path(folder).rmdir()
    autogroup = processes.read("/proc/sys/kernel/sched_autogroup_enabled").strip() == b"1"
    return {"cores": CORES, "kernel": os.uname().release, "autogroup": autogroup, "control_groups": sorted(places)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each way (default: 4)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    shares = asyncio.run(measure(options.seconds))
    if options.json:
        print(json.dumps({**conditions(), "seconds": options.seconds, "owners_share": shares}, indent=2))
        return
    for name, value in conditions().items():
        print(f"{name:16}{value}")
    print("\ntasks started by              owner's share")
    for name, value in shares.items():
        print(f"{name:30}{value:11.1%}")
    print(f"\nin {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
