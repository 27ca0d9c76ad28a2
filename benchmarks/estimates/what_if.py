"""What-if runs compared with a live grid: a replay of the recording, and forecasts of one more job.

Four workers of one slot and of speeds 4, 2, 2 and 1 (tasks sleep, so speeds are exact) get jobs of short tasks that
queue. The log is replayed under each policy with the same policy: how far off are the mean of the jobs' total times
and the worst job's total time? Further jobs are submitted, each just after the database was copied, and forecast on
the copy after their end, so that the forecast's own computing slows no task: how often is the end within the
forecast's interval?

    python benchmarks/estimates/what_if.py [--full] [--policy NAME ...] [--tries N] [--keep FOLDER] [--json]
    python benchmarks/estimates/what_if.py --again FOLDER        repeat the forecasts on the copies there
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.grid import ROOT, Grid, grid
from benchmarks.harness.tables import answer, parser, progress, table
from loopline.client import AsyncClient
from loopline_master.core.policies import REGISTRY
from loopline_shared.spec import JobSpec, TaskSpec
from loopline_simulator.streams import stream

WORKERS = ("a-4", "b-2", "c-2", "d-1")
JOBS, TASKS = 5, 16
_PAUSE_S = 1.5
_LOOK_EVERY_S = 0.05
_NAP = 't=$(($0 / ${LOOPLINE_WORKER##*-})); sleep $(printf "%d.%03d" $((t / 1000)) $((t % 1000)))'


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one policy."""

    policy: str
    jobs: int
    mean_off: float
    worst_off: float
    tries: int
    inside: int


def a_job(seed: int, number: int) -> JobSpec:
    """Return a job whose tasks take 0.4 to 1.6 s on the slowest worker."""
    random = stream(seed, "job", number)
    milliseconds = [int(random.integers(400, 1600)) for _ in range(TASKS)]
    tasks = [TaskSpec(command=["sh", "-c", _NAP, str(one)], size=one / 1000) for one in milliseconds]
    return JobSpec(tasks=tasks, name=f"job-{number}")


async def record(policy: str, tries: int, folder: Path) -> None:
    """Run jobs on a live grid under the policy; leave its database and every try in the folder."""
    async with grid(1, "--policy", policy, workers=WORKERS) as one, one.client() as client:
        for number in range(JOBS):
            await client.submit(a_job(1, number))
            await asyncio.sleep(_PAUSE_S)
        for number in range(tries):
            await _try(one, client, number, folder / f"{policy}-{number}")
        await _all_ended(client)
        _copy(one, folder / f"{policy}.db")


async def _try(one: Grid, client: AsyncClient, number: int, file: Path) -> None:
    """Copy the database, submit a job at once, wait for its end, and keep all of it."""
    job = a_job(2, number)
    _copy(one, file.with_suffix(".db"))
    submitted = await client.submit(job)
    while (view := await client.job(submitted.id)).finished_at is None:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_EVERY_S)
    took_s = view.finished_at - view.submitted_at
    file.with_suffix(".json").write_text(job.model_dump_json(exclude_defaults=True))
    file.with_suffix(".took").write_text(f"{took_s} {view.submitted_at}\n")


def _copy(one: Grid, file: Path) -> None:
    database = one.folder / "master" / "loopline.db"
    with closing(sqlite3.connect(database)) as live, closing(sqlite3.connect(file)) as copy:
        live.backup(copy)


async def judge(policy: str, folder: Path) -> Row:
    """Compare the recording with a replay and the forecasts."""
    found = await _replay(folder / f"{policy}.db")
    pairs = [
        (job["recorded"]["total_s"], job["what_if"]["total_s"]) for job in found["jobs"] if job["what_if"]["total_s"]
    ]
    means = [fmean(side) for side in zip(*pairs, strict=True)]
    inside = [await _is_inside(file) for file in sorted(folder.glob(f"{policy}-*.took"))]
    return Row(
        policy,
        len(pairs),
        mean_off=abs(means[1] / means[0] - 1),
        worst_off=max(abs(again / before - 1) for before, again in pairs),
        tries=len(inside),
        inside=sum(inside),
    )


async def _is_inside(took: Path) -> bool:
    """Forecast the job on the copy; True if its end was in between."""
    took_s, at = map(float, took.read_text().split())
    job = str(took.with_suffix(".json"))
    said = await _replay(took.with_suffix(".db"), "--what-if-submit", job, "--at", str(at))
    progress(f"  {took.stem}: took {took_s:.2f} s, forecast {said['end']}")
    return bool(said["end"]["least"] <= took_s <= said["end"]["most"])


async def _all_ended(client: AsyncClient) -> None:
    while any([job.finished_at is None async for job in client.jobs()]):  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_EVERY_S)


async def _replay(database: Path, *options: str) -> dict[str, Any]:
    more = options or ("--order", "hold")
    command = ["-m", "loopline.cli", "replay", str(database), "--json", *more]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await process.communicate()
    if process.returncode:
        raise SystemExit(error.decode())
    return dict(json.loads(out))


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--policy", nargs="*", help="fair; in the full form, all")
    asking.add_argument("--tries", type=int, help="forecasts under each policy: 2; in the full form 10")
    asking.add_argument("--keep", type=Path, metavar="FOLDER", help="where recordings are kept, for --again")
    asking.add_argument("--again", type=Path, metavar="FOLDER", help="judge the recordings there, without a grid")
    options = asking.parse_args()
    policies = options.policy or (sorted(REGISTRY) if options.full or options.again else ["fair"])
    tries = options.tries if options.tries is not None else 10 if options.full else 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.again or options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        found = []
        for policy in policies:
            progress(f"{policy} ...")
            if not options.again:
                asyncio.run(record(policy, tries, folder))
            if (folder / f"{policy}.db").exists():
                found.append(asyncio.run(judge(policy, folder)))
    head = ["policy", "jobs", "mean off", "worst job off", "inside the interval"]
    cells = [
        [row.policy, row.jobs, f"{row.mean_off:.1%}", f"{row.worst_off:.1%}", f"{row.inside} of {row.tries}"]
        for row in found
    ]
    answer([asdict(row) for row in found], table(head, cells), options.json)


if __name__ == "__main__":
    main()
