"""Overhead of a worker's launching over a bare loop of ``posix_spawn``, without master, network and disk.

The bare loop is a small Python that starts ``/bin/true`` and waits for it, as many at a time as there are slots. Ours
runs the same by the worker's runner: a supervisor, a scratch folder, an environment, kept output, limits and control
groups for each. The two take turns; seconds are of CPU, of all processes involved, for the clock is noise on a busy
machine.

    python benchmarks/worker/spawn.py [--tasks 2000] [--slots 2] [--rounds 3] [--command /bin/true] [--json]
    python benchmarks/worker/spawn.py --sandbox bubblewrap --sandbox landlock    # with the network, as by default
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts.limits import Quota
from loopline_worker.attempts.runner import Runner
from loopline_worker.core.events import AttemptEnded, Event, Followed, Returned
from loopline_worker.launch.posix import PosixLauncher
from loopline_worker.launch.sandbox import open_sandbox
from loopline_worker.settings import SandboxChoice
from loopline_worker.state.journal import Spool
from loopline_worker.task_group import TaskGroup

BARE = """
import os, resource, sys, time
count, at_once, *command = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
began, started, running, environment = time.monotonic(), 0, 0, dict(os.environ)
while started < count or running:
    while running < at_once and started < count:
        os.posix_spawnp(command[0], command, environment)
        started, running = started + 1, running + 1
    os.waitpid(-1, 0)
    running -= 1
used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(time.monotonic() - began, *(each.ru_utime + each.ru_stime for each in used))
"""
QUOTA = Quota(memory_bytes=2**34, slots=2, processes=1024, scratch_bytes=2**33, output_bytes=2**30)


class Pool:
    """Keeps a number of attempts running until each Run has its Result."""

    def __init__(self, folder: Path, task_group: TaskGroup, launcher: PosixLauncher) -> None:
        spool = Spool(folder / "spool", 2**30)
        scratch = folder / "scratch"
        scratch.mkdir()
        self.runner = Runner(
            task_group, launcher, spool, scratch, self._take_in, worker="bench", output_limit_bytes=2**24, quota=QUOTA
        )
        self.tasks_cpu_s = 0.0
        self._task_group = task_group
        self._free = 0  # slots
        self._is_due = False
        self._runs: list[Run] = []
        self._lined_up: dict[AttemptId, Run] = {}
        self._left = 0
        self._none_left = asyncio.Event()

    async def drain(self, runs: list[Run], at_once: int) -> None:
        self._runs, self._left = runs, len(runs)
        self._none_left.clear()
        self._free = at_once
        self._fill()
        await self._none_left.wait()

    def _fill(self) -> None:
        """Start tasks as the agent does: in free slots, and then a few prefetched ones."""
        for _ in range(min(self._free, len(self._runs))):
            self._free -= 1
            self.runner.start(self._runs.pop())
        for _ in range(min(self.runner.room(), len(self._runs))):
            run = self._runs.pop()
            self._lined_up[run.attempt] = run
            self.runner.prefetch(run)

    def _take_in(self, event: Event) -> None:
        match event:
            case AttemptEnded(result):
                self._ended(result)
            case Followed(before, after):
                self._followed(before, after)
            case Returned(attempts):
                self._returned(attempts)

    def _followed(self, before: AttemptId, after: AttemptId) -> None:
        del self._lined_up[after]
        self._free -= 1

    def _returned(self, attempts: Sequence[AttemptId]) -> None:
        """The computer stood still for a while: they are not behind what is short any more."""
        self._runs += [self._lined_up.pop(attempt) for attempt in attempts]
        self._see_to_it()

    def _ended(self, result: Result) -> None:
        assert result.outcome is Outcome.SUCCEEDED, result
        self.tasks_cpu_s += result.cpu_s
        self._free += 1
        self._see_to_it()
        self._left -= 1
        if not self._left:
            self._none_left.set()

    def _see_to_it(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._task_group.soon(self._take)

    def _take(self) -> None:
        self._is_due = False
        self._fill()


def bare(tasks: int, slots: int, command: list[str]) -> dict[str, float]:
    program = [sys.executable, "-I", "-S", "-c", BARE, str(tasks), str(slots), *command]
    printed = subprocess.run(program, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1]
    took_s, own_s, children_s = map(float, printed.split())
    return {"per_s": tasks / took_s, "loop_us": 1e6 * own_s / tasks, "tasks_us": 1e6 * children_s / tasks}


async def ours(tasks: int, slots: int, command: list[str], yields: bool, sandbox: SandboxChoice) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        launcher = PosixLauncher(yields, open_sandbox(sandbox, etc=Path(folder, "etc")))
        async with TaskGroup() as task_group:
            pool = Pool(Path(folder), task_group, launcher)
            await pool.drain([_run(command, number) for number in range(1, 2 * slots + 1)], slots)  # all is started
            runs = [_run(command, number) for number in range(2 * slots + 1, 2 * slots + 1 + tasks)]
            before = _now(pool, launcher)
            await pool.drain(runs, slots)
            spent = [after - earlier for after, earlier in zip(_now(pool, launcher), before, strict=True)]
            await pool.runner.close("measured")
            launcher.close()
    took_s, agent_s, children_s, tasks_s, launcher_s = spent
    return {
        "per_s": tasks / took_s,
        "agent_us": 1e6 * agent_s / tasks,
        "guards_us": 1e6 * (children_s - tasks_s) / tasks,
        "launcher_us": 1e6 * launcher_s / tasks,
        "tasks_us": 1e6 * tasks_s / tasks,
    }


def _run(command: list[str], number: int) -> Run:
    return Run(AttemptId(1, number, 1), tuple(command), parameters={}, environment={})


def _now(pool: Pool, launcher: PosixLauncher) -> tuple[float, float, float, float, float]:
    """Clock, agent, guards with their tasks, tasks, launcher."""
    return time.monotonic(), time.process_time(), pool.runner.measure(), pool.tasks_cpu_s, launcher.cpu_s()


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return the fastest round of each: disturbances only ever add time."""
    command = shlex.split(options.command)
    kinds = {"worker": SandboxChoice.OFF} | {kind.value: SandboxChoice(kind) for kind in options.sandbox}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ("bare loop", *kinds)}
    for _ in range(options.rounds):
        found["bare loop"].append(bare(options.tasks, options.slots, command))
        for name, kind in kinds.items():
            found[name].append(asyncio.run(ours(options.tasks, options.slots, command, not options.dedicated, kind)))
    best = {name: min(rounds, key=_cpu_us) for name, rounds in found.items()}
    return {name: {**figures, "cpu_us": _cpu_us(figures)} for name, figures in best.items()}


def _cpu_us(figures: dict[str, float]) -> float:
    return sum(value for name, value in figures.items() if name.endswith("_us"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--command", default="/bin/true")
    parser.add_argument("--dedicated", action="store_true", help="tasks need not yield to an owner")
    parser.add_argument("--sandbox", type=SandboxChoice, action="append", default=[], help="measure this kind, too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options)
    ratio = found["bare loop"]["cpu_us"] / found["worker"]["cpu_us"]
    if options.json:
        print(json.dumps({**found, "ratio": ratio}, indent=2))
        return
    for name, figures in found.items():
        print(f"{name:12}" + "   ".join(f"{what} {value:.0f}" for what, value in figures.items()))
    print(f"of the bare loop's rate, by CPU time: {ratio:.2f}")


if __name__ == "__main__":
    main()
