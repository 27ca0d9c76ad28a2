"""Every kind of runaway task, in each sandbox and without one: it is stopped, and its neighbours are unaffected."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from loopline_shared.rest.bodies import AttemptView
from loopline_worker.supervisor import processes
from loopline_worker.supervisor.walls import landlock
from tests.live.conftest import running
from tests.live.grid import Grid
from tests.sandboxes import needs_bubblewrap

pytestmark = [pytest.mark.campaign, pytest.mark.skipif(not Path("/proc/self/ns").exists(), reason="needs Linux")]
MIB = 2**20
MOST_MEMORY, MOST_DISK = 350 * MIB, 260 * MIB
"""Upper bounds of observed use for a task with limits of 300 MiB of memory and 200 MiB on disk."""
LIMITS = {
    "LOOPLINE_TASK_MEMORY_BYTES": str(300 * MIB),
    "LOOPLINE_SCRATCH_LIMIT_BYTES": str(200 * MIB),
    "LOOPLINE_OUTPUT_FLOOD_BYTES": str(20 * MIB),
    "LOOPLINE_MAX_PROCESSES": "100",
    "LOOPLINE_DISK_RESERVE_BYTES": "0",
}
KINDS = [
    pytest.param("bubblewrap", marks=needs_bubblewrap),
    pytest.param("landlock", marks=pytest.mark.skipif(not landlock.version(), reason="no Landlock here")),
    "off",
]
CASES = {
    "forks": ("while True:\n    try: os.fork()\n    except OSError: pass", "max_processes"),
    "threads": (
        "while True:\n    try: threading.Thread(target=time.sleep, args=(99,)).start()\n"
        "    except RuntimeError: time.sleep(.01)",
        "max_processes",
    ),
    "memory": (
        "x = []\nwhile len(x) < 200: x.append(bytearray(b'x' * (20 << 20)))\ntime.sleep(60)",
        "300 MiB of memory",
    ),
    "memory that four share, within the limit": (
        "m = mmap.mmap(-1, 150 << 20)\nm.write(b'x' * (150 << 20))\n[os.fork() for _ in range(2)]\ntime.sleep(3)",
        "",
    ),
    "a file": ("f = open('big', 'wb')\nwhile True: f.write(b'x' * (8 << 20))", "200 MiB on disk"),
    "files": ("for i in range(100000): open('f%d' % i, 'w').close()\ntime.sleep(60)", "200 MiB on disk"),
    "folders": (
        "for _ in range(20000): os.mkdir('d'); os.chdir('d')\ntime.sleep(60)",
        "200 MiB on disk",
    ),
    "output": ("while True: sys.stdout.write('x' * 65536)", "20 MiB of output"),
    "a daemon": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.closerange(0, 256)\n"
        "        [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]\n        time.sleep(999)\n    os._exit(0)\n"
        "os.wait(); time.sleep(.2)",
        "left running",
    ),
    "zombies": ("for _ in range(50):\n    if os.fork() == 0: os._exit(0)\ntime.sleep(1)", ""),
    "deaf to all signals": (
        "[signal.signal(s, signal.SIG_IGN) for s in range(1, 32) if s not in (9, 19)]\nwhile True: pass",
        "timed out",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_runaway_is_stopped_near_its_limits(tmp_path: Path, kind: str) -> None:
    """One after another, beside one good task."""
    async with running(tmp_path, "--order", "none") as grid:
        grid.sandbox = kind
        network = {"LOOPLINE_SANDBOX_NETWORK": "all"} if kind == "bubblewrap" else {}
        await grid.start_worker("w", slots=2, settings=LIMITS | network)
        good = await grid.submit("for i in $(seq 6000); do sleep 0.1; done", max_replicas=1)
        await grid.attempts_when("the good task to begin", good, lambda all_: any(one.started_at for one in all_))
        for name, (code, reason) in CASES.items():
            await _run_away(grid, name, code, reason)
            [beside] = await grid.attempts(good)
            assert beside.ended_at is None, f"{name}: the task beside it has ended"
            assert grid.workers["w"].returncode is None, f"{name}: the agent has ended"
        await grid.client().cancel(good)
        await grid.ended(good)


async def _run_away(grid: Grid, name: str, code: str, reason: str) -> None:
    code = f"import mmap, os, signal, sys, threading, time\n{code}"
    job = await grid.submit(
        'exec python3 -I -c "$CODE"', environment={"CODE": code}, max_attempts=1, max_replicas=1,
        timeout_s=5 if reason == "timed out" else None,
    )  # fmt: skip
    peaks = [0, 0]

    def is_over(attempts: list[AttemptView]) -> bool:
        peaks[:] = map(max, peaks, (_memory_bytes(grid, job), _disk_bytes(grid, job)))
        return any(one.ended_at for one in attempts)

    began = time.monotonic()
    [attempt] = await grid.attempts_when(f"{name} to end", job, is_over)
    print(f"{name}: {time.monotonic() - began:.1f} s, {peaks[0] / MIB:.0f} MiB, {peaks[1] / MIB:.0f} MiB on disk")
    assert reason in (attempt.reason or ""), f"{name}: {attempt.reason}"
    assert peaks[0] <= MOST_MEMORY, f"{name}: {peaks[0] / MIB:.0f} MiB of memory"
    assert peaks[1] <= MOST_DISK, f"{name}: {peaks[1] / MIB:.0f} MiB on disk"
    assert not _of(grid, job), f"{name}: it is over, and a process of it runs"


def _of(grid: Grid, job: int) -> list[int]:
    """Return the processes of a job's only task."""
    mine = b"LOOPLINE_SCRATCH=" + str(grid.folder / "w" / "scratch" / f"{job}.1.1").encode()
    return [pid for pid in psutil.pids() if mine in processes.read(f"/proc/{pid}/environ").split(b"\0")]


def _memory_bytes(grid: Grid, job: int) -> int:
    return sum(map(sum, (processes.memory_shares(pid) for pid in _of(grid, job)[:20])))


def _disk_bytes(grid: Grid, job: int) -> int:
    [folder] = [*(grid.folder / "w" / "scratch").glob(f"{job}.*")] or [None]
    try:
        return sum(512 * one.stat().st_blocks for one in folder.iterdir()) if folder else 0
    except OSError:
        return 0
