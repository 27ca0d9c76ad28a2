"""Real processes per second: from one submission until all results are known, on two slots.

A master and a worker with their own settings, SQLite with synchronous=FULL, everything through REST; each task is
/bin/echo with a line of stdout, which is kept and compared, or /bin/true; in the sandbox that a worker uses by
default, and without it, as the peers do. The limit is a loop that does nothing but start processes, two in flight;
the floor is the least that a durable master-worker system in Python does. The slower disk takes 5 ms longer for every
fsync. A master's PostgreSQL runs on the same computer. CPU is of all processes together, the tasks' own included; a
database's and Slurm's daemons are not among them. Tasks without a network, and tasks that are shown a folder below
/tmp, should be as quick as any other in the sandbox.

    python benchmarks/rates/processes.py [--full] [--tasks 2000] [--rounds 3] [--no-peers] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness import limits, peers
from benchmarks.harness.grid import Figures, Grid, Run, Way, grid, in_turns
from benchmarks.harness.postgres import postgres_grid
from benchmarks.harness.tables import answer, count, median, parser, progress, share, table
from loopline_shared.job.parameters import Range
from loopline_shared.spec import JobSpec

SLOTS = 2
LINE = "a line of stdout"
OURS = "Loopline"
WARM_UP = 50


async def all_results(one: Grid, tasks: int, *, silent: bool) -> Figures:
    """Return the time from one submission until every result has arrived, after checking all results."""
    command, expected = (["/bin/true"], "") if silent else (["/bin/echo", LINE], LINE + "\n")
    async with one.client() as client:
        await client.whoami()
        before, begin = one.cpu_by_role(), time.perf_counter()
        job = await client.submit(JobSpec(command=command, parameters={"i": Range(range=[1, tasks])}))
        right = 0
        async for result in client.results(job.id):
            right += result.stdout == expected and result.exit_code == 0
        seconds = time.perf_counter() - begin
        roles = {role: used - before[role] for role, used in one.cpu_by_role().items()}
    if right != tasks:
        raise SystemExit(f"only {right} of {tasks} results are right")
    return {"tasks": tasks, "seconds": seconds, "cpu_s": sum(roles.values()), "cpu_by_role_s": roles}


def ours(
    name: str,
    tasks: int,
    *flags: str,
    silent: bool,
    environment: Mapping[str, str] | None = None,
    made: Callable[..., AbstractAsyncContextManager[Grid]] = grid,
) -> Way:
    """Return a way of ours; ``flags`` are the worker's, and ``made`` makes its grid."""

    @asynccontextmanager
    async def start() -> AsyncIterator[Run]:
        async with made(SLOTS, worker_flags=flags, environment=environment) as one:
            await all_results(one, WARM_UP, silent=silent)
            yield lambda: all_results(one, tasks, silent=silent)

    return Way(name, "yes", start)


def ways(options: argparse.Namespace, folder: Path, *, silent: bool) -> list[Way]:
    tasks = options.tasks
    found = [
        ours(OURS, tasks, silent=silent),
        ours(f"{OURS}, no sandbox", tasks, "--sandbox", "off", silent=silent),
        *limits.spawn_loops(tasks, SLOTS, folder, silent=silent),
        limits.floor("processes", tasks, SLOTS, silent=silent),
    ]
    if not silent:
        (shown := folder / "shown").mkdir(exist_ok=True)
        found.append(ours(f"{OURS}, without a network", tasks, "--sandbox-network", "none", silent=False))
        found.append(ours(f"{OURS}, a folder in /tmp shown", tasks, "--sandbox-show", str(shown), silent=False))
    if silent or options.no_peers:
        return found
    found.append(ours(f"{OURS}, PostgreSQL", tasks, silent=False, made=postgres_grid))
    if slower := limits.slower_disk(folder):
        found.append(ours(f"{OURS}, slower disk", tasks, silent=False, environment=slower))
    return found + peers.ways("processes", tasks, SLOTS, seconds=5.0 if options.full else 1.0)


async def measure(options: argparse.Namespace) -> list[Figures]:
    rows: list[Figures] = []
    with tempfile.TemporaryDirectory() as folder:
        for silent in (False, True):
            these = ways(options, Path(folder), silent=silent)
            found = await in_turns(these, options.rounds, progress)
            rows += [_row(way, found[way.name], silent) for way in these if way.name in found]
    return rows


def _row(way: Way, figures: list[Figures], silent: bool) -> Figures:
    tasks = [each.get("tasks", 0) for each in figures]
    rates = [each["tasks"] / each["seconds"] for each in figures]
    cpu_s = min(each["cpu_s"] / each["tasks"] for each in figures)
    roles = [each["cpu_by_role_s"] for each in figures if "cpu_by_role_s" in each]
    return {
        "stdout": "none" if silent else "kept",
        "way": way.name,
        "durable": way.durable,
        "tasks": tasks[0],
        "tasks_per_s": median(rates),
        "tasks_per_s_best": max(rates),
        "cpu_s_per_task": cpu_s,
        "cpu_s_per_task_by_role": {role: min(each[role] for each in roles) / tasks[0] for role in roles[0]}
        if roles
        else {},
    }


def show(rows: list[Figures]) -> str:
    limit = {row["stdout"]: row["tasks_per_s"] for row in rows if row["way"] == limits.LOOP}
    lines = [
        [row["way"], row["stdout"], row["durable"], count(row["tasks"]), count(row["tasks_per_s"]),
         share(row["tasks_per_s"], limit.get(row["stdout"])), count(1e6 * row["cpu_s_per_task"])]
        for row in rows
    ]  # fmt: skip
    of_ours = (row for row in rows if row["way"] == OURS)
    roles = (
        f"CPU of {OURS}, stdout {row['stdout']}, us a task: "
        + ", ".join(f"{role} {count(1e6 * used)}" for role, used in row["cpu_s_per_task_by_role"].items())
        for row in of_ours
    )
    head = ["way", "stdout", "durable", "tasks", "tasks/s", "of the loop", "CPU us/task"]
    return "\n".join([table(head, lines), "", *roles, *peers.hint()])


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--tasks", type=int, help="2,000; in the full form 10,000")
    asking.add_argument("--rounds", type=int, default=3)
    asking.add_argument("--no-peers", action="store_true")
    options = asking.parse_args()
    options.tasks = options.tasks or (10_000 if options.full else 2_000)
    rows = asyncio.run(measure(options))
    answer(rows, show(rows), options.json)


if __name__ == "__main__":
    main()
