"""How many real processes in a second: from one submission until all results are known, on two slots.

A master and a worker with their own settings, SQLite with synchronous=FULL, everything through REST; each task is
/bin/echo with a line of stdout that is kept and compared, or /bin/true. The limit is a loop that does nothing but start
processes, two in flight, and the floor is the least that a durable master-worker system in Python does.

    python benchmarks/processes.py [--full] [--tasks 2000] [--rounds 3] [--no-peers] [--json]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import limits, peers
from benchmarks.harness import Figures, Grid, Run, Way, grid, in_turns
from benchmarks.tables import answer, count, middle, parser, progress, table
from shared.spec import JobSpec, Range

SLOTS = 2
LINE = "a line of stdout"
OURS = "Loopline"
LIMIT = "spawn loop, Python"
WARM_UP = 50


async def all_results(one: Grid, tasks: int, silent: bool) -> Figures:
    """From one submission until every result has been received; all of them right."""
    command, expected = (["/bin/true"], "") if silent else (["/bin/echo", LINE], LINE + "\n")
    async with one.client() as client:
        before, begin = one.cpu_by_role(), time.perf_counter()
        job = await client.submit(JobSpec(command=command, parameters={"i": Range(range=[1, tasks])}))
        right = 0
        async for result in client.results(job.id):
            right += result.stdout == expected and result.exit_code == 0
        seconds = time.perf_counter() - begin
        after = one.cpu_by_role()
    if right != tasks:
        raise RuntimeError(f"only {right} of {tasks} results are right")
    roles = {role: after[role] - used for role, used in before.items()}
    return {"seconds": seconds, "cpu_s": sum(roles.values()), "cpu_by_role_s": roles}


def ours(tasks: int, silent: bool, **environment: str) -> Way:
    @asynccontextmanager
    async def start() -> AsyncIterator[Run]:
        async with grid(SLOTS, **environment) as one:
            await all_results(one, WARM_UP, silent)
            yield lambda: all_results(one, tasks, silent)

    return Way(OURS, "yes", start)


def ways(tasks: int, silent: bool, folder: Path, options: object) -> list[Way]:
    found = [ours(tasks, silent), *limits.processes(tasks, SLOTS, silent, folder)]
    if options.no_peers:  # type: ignore[attr-defined]
        return found
    return found


async def measure(options: object) -> dict[str, list[Figures]]:
    with tempfile.TemporaryDirectory() as folder:
        return await in_turns(ways(options.tasks, options.silent, Path(folder), options), options.rounds, progress)


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--tasks", type=int)
    asking.add_argument("--rounds", type=int, default=3)
    asking.add_argument("--silent", action="store_true")
    asking.add_argument("--no-peers", action="store_true")
    options = asking.parse_args()
    options.tasks = options.tasks or (10_000 if options.full else 2_000)
    found = asyncio.run(measure(options))
    rows = []
    for name, figures in found.items():
        s = middle(f["seconds"] for f in figures)
        rows.append([name, count(options.tasks / s), f"{1e6 * min(f['cpu_s'] for f in figures) / options.tasks:.0f}"])
    print(table(["way", "tasks/s", "CPU us/task"], rows))
    for f in found.get(OURS, []):
        print({k: round(1e6 * v / options.tasks) for k, v in f["cpu_by_role_s"].items()})


if __name__ == "__main__":
    main()
