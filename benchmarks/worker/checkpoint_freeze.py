"""Time that a task is stopped for a checkpoint: 1,000 files, or 1 GB, some of them rewritten before each.

A task renames new files into its checkpoint folder again and again, up to 20 MB a second. This process stops it,
takes the folder, lets it continue, and reads and stores the files afterwards, by the worker's own code. ``stopped``
is from the stop to the continuation, waiting for processors included: compare it with ``CPU``, the processor time of
the taking alone. Files are in --folder, which should be on the disk that workers have. One file of 1 GB is taken a
fifth as often, since storing it takes half a minute.

    python benchmarks/worker/checkpoint_freeze.py [--full] [--rounds 30] [--folder /var/tmp] [--json]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.tables import answer, milliseconds, parser, progress, quantile, table
from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.checkpoints import CheckpointOrder
from loopline_shared.protocol.worker_link import Run
from loopline_worker.checkpoints import snapshots
from loopline_worker.checkpoints.folder_snapshot import SnapshotTerms, TakenFolder, fill
from tests.worker.bench import Bench, until
from tests.worker.saving import local_checkpoints

CASES = {"1,000 files of 4 kB": (1000, 4 * 1024), "1,000 files of 1 MB": (1000, 10**6), "1 file of 1 GB": (1, 10**9)}
REWRITES = """
import os, sys, time
count, size = int(sys.argv[1]), int(sys.argv[2])
folder, content = os.environ["LOOPLINE_CHECKPOINT"], os.urandom(min(size, 10**7))
def write(number):
    place = f"{folder}/{number}"
    with open(place + ".new", "wb") as file:
        for _ in range(0, size, len(content)):
            file.write(content)
    os.rename(place + ".new", place)
for number in range(count):
    write(number)
open(os.environ["LOOPLINE_SCRATCH"] + "/ready", "w").close()
turn = 0
while True:
    write(turn % count)
    turn += 1
    time.sleep(size / 2e7)
"""


async def measure(folder: Path, files: int, size_bytes: int, rounds: int) -> dict[str, Any]:
    """Return how long the task was stopped, and the processor time of the taking, in seconds."""
    stopped_s, cpu_s = list[float](), list[float]()

    def timed(taken: TakenFolder, terms: SnapshotTerms) -> None:
        began_s = time.thread_time()
        fill(taken, terms)
        cpu_s.append(time.thread_time() - began_s)

    make = snapshots.Snapshots._make

    async def noted(self: snapshots.Snapshots, *arguments: Any) -> Any:
        before_s = self.held_s
        try:
            return await make(self, *arguments)
        finally:
            stopped_s.append(self.held_s - before_s)

    command = (sys.executable, "-I", "-S", "-c", REWRITES, str(files), str(size_bytes))
    order = CheckpointOrder(every_s=0.02, max_bytes=2 * 10**9)
    run = Run(AttemptId(1, 1, 1), command, {}, {}, checkpoint=order)
    async with Bench(folder) as bench, local_checkpoints(bench):
        with patch.object(snapshots, "fill", timed), patch.object(snapshots.Snapshots, "_make", noted):
            bench.runner.start(run)
            await until((bench.scratch / str(run.attempt) / "ready").exists, 600)
            first = len(stopped_s)
            await until(lambda: len(stopped_s) >= first + rounds, 600)
            bench.runner.cancel(run.attempt, Outcome.CANCELLED, "enough")
            await bench.end_of(run)
    return {"snapshots": len(stopped_s), **_parts("stopped", stopped_s), **_parts("cpu", cpu_s)}


def _parts(name: str, seconds: list[float]) -> dict[str, float]:
    return {f"{name}_{part}_s": round(quantile(seconds, at), 5) for part, at in (("p50", 0.5), ("p99", 0.99))}


async def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--rounds", type=int, default=30)
    asking.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    asked = asking.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for name, (files, size_bytes) in CASES.items():
        progress(name)
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            rounds = asked.rounds * (10 if asked.full else 1)
            found[name] = await measure(
                Path(folder), files, size_bytes, max(1, rounds // 5) if files == 1 else rounds
            )
    figures = ("stopped_p50_s", "stopped_p99_s", "cpu_p50_s", "cpu_p99_s")
    rows = (
        (name, one["snapshots"], *(milliseconds(one[figure]) for figure in figures)) for name, one in found.items()
    )
    head = ("checkpoint", "snapshots", "stopped p50", "stopped p99", "CPU p50", "CPU p99")
    answer(found, table(head, rows), asked.json)


if __name__ == "__main__":
    asyncio.run(main())
