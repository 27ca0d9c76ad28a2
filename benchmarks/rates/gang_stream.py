"""A stream of gangs with short tasks between them: how full is the grid, and are its promises kept?

Eight workers of one slot, and twice the work that they can do. Gangs of 2 to 6 nodes with limits come as a Poisson
process; most take more than half of the workers (five nodes are the most frequent size), so that there is seldom room
for two. Between them come sweeps of 60 short tasks with limits, at equal intervals. All sleep, for half of their
limits up to all but half a second, so that few cores can host them. *Busy* is the share of the workers' time with a
sleeping task, from a fifth of the span of arrivals to its end, without preparing, starting and reporting. At the end
of the span, jobs that have not begun are cancelled and the others end: a run takes the span and two minutes.

The yardstick is plain first come, first served, without backfill: the same jobs on another such grid at the same
time, each submitted once all before it have begun and enough workers are free; and the same computed, without any
cost. ``--virtual`` runs the scheduler in virtual time in place of both, with workers that cost nothing, for several
seeds.

    python benchmarks/rates/gang_stream.py [--seconds 900] [--load 2] [--order deliver] [--seed 41] [--json]
    python benchmarks/rates/gang_stream.py --virtual --seconds 900 [--seeds 6]
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.grid import Figures, grid
from benchmarks.harness.tables import answer, parser, progress, table
from loopline.client import AsyncClient
from loopline_master.core.events import SchedulerSettings
from loopline_shared.model import AttemptId, Facts, JobState, Order, Outcome
from loopline_shared.rest.bodies import PlanReport
from loopline_shared.spec import JobSpec
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.world import Arrival, Host
from loopline_simulator.full.machine import Machine
from loopline_simulator.full.network import Conditions
from loopline_simulator.full.timed import TimedWorld

WORKERS = 8
SIZES = {2: 1, 3: 1, 4: 15, 5: 25, 6: 10}  # of gangs, by how often they come
GANG_LIMITS_S, TASK_LIMITS_S = (15, 60), (4, 12)
TASKS_SHARE, SWEEP = 0.08, 60  # of the work that comes; tasks
USED = (0.5, 1.0)  # of the limit
WARM_UP = 0.2  # of the span of arrivals


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A job: when it comes, in seconds from the start, on how many workers it runs, for how long, and its limit."""

    at: float
    nodes: int
    lasts_s: float
    limit_s: int


@dataclass(frozen=True, slots=True)
class Slept:
    """A job that has run, in seconds from the start: each of its members slept from then to then."""

    came: float
    members: list[tuple[float, float]]


def stream(chance: random.Random, seconds: float, load: float) -> list[Rectangle]:
    """Return gangs and single tasks that arrive within ``seconds``, by arrival."""
    sizes, weights, used = list(SIZES), list(SIZES.values()), fmean(USED)
    nodes = sum(size * weight for size, weight in SIZES.items()) / sum(weights)
    rate = load * (1 - TASKS_SHARE) * WORKERS / (nodes * _mean(GANG_LIMITS_S) * used)
    every = SWEEP * _mean(TASK_LIMITS_S) * used / (load * TASKS_SHARE * WORKERS)
    found, at = [], chance.expovariate(rate)
    while at < seconds:
        found.append(_drawn(chance, at, chance.choices(sizes, weights)[0]))
        at += chance.expovariate(rate)
    for number in range(int(seconds / every + 0.5)):
        found += [_drawn(chance, (number + 0.5) * every, 1) for _ in range(SWEEP)]
    return sorted(found, key=lambda one: one.at)


def _drawn(chance: random.Random, at: float, nodes: int) -> Rectangle:
    least, most = map(math.log, TASK_LIMITS_S if nodes == 1 else GANG_LIMITS_S)
    limit = round(math.exp(chance.uniform(least, most)))
    return Rectangle(at, nodes, round(min(limit - 0.5, limit * chance.uniform(*USED)), 2), limit)


def _mean(limits: tuple[int, int]) -> float:
    """Return the mean of a log-uniform distribution."""
    return (limits[1] - limits[0]) / math.log(limits[1] / limits[0])


def first_come(jobs: list[Rectangle]) -> list[Slept]:
    """Return when each job would run if jobs started strictly in order of arrival, and nothing else cost time."""
    free, started, found = [0.0] * WORKERS, 0.0, []
    for one in jobs:
        free.sort()
        started = max(one.at, started, free[one.nodes - 1])
        free[: one.nodes] = [started + one.lasts_s] * one.nodes
        found.append(Slept(one.at, [(started, started + one.lasts_s)] * one.nodes))
    return found


def busy(jobs: list[Slept], between: tuple[float, float]) -> float:
    """Return the share of the workers' time that the jobs fill."""
    since, until = between
    runs = [run for one in jobs for run in one.members]
    filled = sum(max(0.0, min(end, until) - max(start, since)) for start, end in runs)
    return filled / (WORKERS * (until - since))


def spec_of(one: Rectangle) -> JobSpec:
    return JobSpec(
        name=f"{one.nodes} x {one.limit_s} s",
        command=["sleep", str(one.lasts_s)],
        nodes=one.nodes,
        timeout_s=one.limit_s,
        size=one.nodes * one.lasts_s,
        max_replicas=1,
    )


async def _submit(client: AsyncClient, one: Rectangle) -> int:
    return (await client.submit(spec_of(one))).id


async def _over(client: AsyncClient, job: int) -> None:
    _ = [result async for result in client.results(job)]


async def as_they_come(client: AsyncClient, jobs: list[Rectangle], began: float, seconds: float) -> list[int]:
    """Submit each job at its arrival; the grid plans. Return their numbers once they have ended."""
    numbers = []
    for one in jobs:
        await asyncio.sleep(max(0.0, began + one.at - time.time()))
        numbers.append(await _submit(client, one))
    await asyncio.sleep(max(0.0, began + seconds - time.time()))
    for job in numbers:
        if (await client.job(job)).state == JobState.QUEUED:
            await client.cancel(job)
    for job in numbers:
        await _over(client, job)
    return numbers


async def one_after_the_other(client: AsyncClient, jobs: list[Rectangle], began: float, seconds: float) -> list[int]:
    """Submit each job as it comes, but not before enough workers are free: no later one may start before it."""
    free, changed, numbers, running = WORKERS, asyncio.Event(), [], set()

    async def ends(job: int, nodes: int) -> None:
        nonlocal free
        await _over(client, job)
        free += nodes
        changed.set()

    for one in jobs:
        await asyncio.sleep(max(0.0, began + one.at - time.time()))
        while free < one.nodes:
            changed.clear()
            await changed.wait()
        if time.time() > began + seconds:
            break
        free -= one.nodes
        numbers.append(await _submit(client, one))
        running.add(asyncio.create_task(ends(numbers[-1], one.nodes)))
    await asyncio.gather(*running)
    return numbers


Way = Callable[[AsyncClient, list[Rectangle], float, float], Awaitable[list[int]]]


async def run(order: str, jobs: list[Rectangle], way: Way, seconds: float) -> tuple[list[Slept], PlanReport, int]:
    """Run the jobs on a grid of their own. Return how they ran, how promises were kept, and the passings."""
    async with grid(1, "--order", order, workers=[f"w{n}" for n in range(WORKERS)]) as one, one.client() as client:
        began = time.time() + 1.0
        numbers = await way(client, jobs, began, seconds)
        slept = [await _slept(client, job, one, began) for job, one in zip(numbers, jobs, strict=False)]
        return slept, (await client.forecasts()).plans, (await client.passing()).passings


async def _slept(client: AsyncClient, job: int, one: Rectangle, began: float) -> Slept:
    """Return when a job's members slept; members that ended early are left out."""
    ended = [each.ended_at async for each in client.attempts(job) if each.accepted]
    return Slept(one.at, [(end - began - one.lasts_s, end - began) for end in ended if end is not None])


class VirtualGrid(TimedWorld):
    """The scheduler and such workers in virtual time: frames take 20 ms, and each job lasts as long as it should."""

    def __init__(self, order: str, jobs: list[Rectangle]) -> None:
        self.jobs = jobs  # numbered from 1 as they come
        arrivals = [Arrival(one.at, spec_of(one)) for one in jobs]
        super().__init__(
            1, SchedulerSettings("round-robin", Order(order), max_jobs=10**6), [_host(n) for n in range(WORKERS)],
            arrivals, conditions=Conditions(delay_s=0.02), check_every=10**9,
        )  # fmt: skip

    def slept(self, until: float) -> list[Slept]:
        """Run until this time. Return the runs of the jobs that began."""
        self.kernel.run(until)
        runs: dict[int, list[tuple[float, float]]] = {}
        for one in self.world.store.attempts.values():
            if one.started_at is not None:
                lasts_s = self.jobs[one.job - 1].lasts_s
                runs.setdefault(one.job, []).append((one.started_at, one.started_at + lasts_s))
        return [Slept(self.jobs[job - 1].at, members) for job, members in runs.items()]

    def _fate(self, machine: Machine, attempt: AttemptId, since: float) -> tuple[float, Outcome]:
        return since + self.jobs[attempt.job - 1].lasts_s, Outcome.SUCCEEDED


def _host(number: int) -> Host:
    facts = Facts("linux", "x86_64", "3.11", "0", "m", cpus=1, memory_bytes=10**9, slots=1, gangs=True)
    return Host(f"w{number}", facts, Steady(1.0))


def virtually(options: argparse.Namespace) -> list[Figures]:
    """Return the busy shares in virtual time, and the kept and broken promises, for each seed."""
    found = []
    for seed in range(options.seed, options.seed + options.seeds):
        jobs = stream(random.Random(seed), options.seconds, options.load)
        world, between = VirtualGrid(options.order, jobs), (WARM_UP * options.seconds, options.seconds)
        planned, plans = busy(world.slept(options.seconds), between), world.world.store.plans.values()
        found.append(
            {
                "seed": seed,
                "planned": planned,
                "first come": busy(first_come(jobs), between),
                "promises": sum(plan.promised is not None for plan in plans),
                "broken": sum(plan.broken for plan in plans),
                "passings": len(world.world.store.passings),
            }
        )
        progress(f"seed {seed}: {planned:.1%}")
    return found


def _shown(rows: list[Figures]) -> str:
    means = {way: fmean(row[way] for row in rows) for way in ("planned", "first come")}
    lines = [[str(row[name]) if isinstance(row[name], int) else f"{row[name]:.1%}" for name in row] for row in rows]
    lines.append(["mean", *(f"{share:.1%}" for share in means.values()), "", "", ""])
    return str(table(list(rows[0]), lines))


async def measure(options: argparse.Namespace) -> Figures:
    jobs = stream(random.Random(options.seed), options.seconds, options.load)
    progress(f"{len(jobs)} jobs come within {options.seconds:g} s; two grids run them ...")
    (planned, plans, passings), (live, _, _) = await asyncio.gather(
        run(options.order, jobs, as_they_come, options.seconds),
        run("none", jobs, one_after_the_other, options.seconds),
    )
    ways = {"planned": planned, "first come": live, "first come, computed": first_come(jobs)}
    return {
        "order": options.order,
        "gangs": sum(one.nodes > 1 for one in jobs),
        "tasks": sum(one.nodes == 1 for one in jobs),
        "load": sum(one.nodes * one.lasts_s for one in jobs) / WORKERS / options.seconds,
        "ways": [_row(way, found, options.seconds) for way, found in ways.items()],
        "passings": passings,
        "plans": plans.model_dump(),
    }


def _row(way: str, jobs: list[Slept], seconds: float) -> Figures:
    gangs, tasks = (
        [one.members[0][0] - one.came for one in jobs if one.members and (len(one.members) > 1) == is_gang]
        for is_gang in (True, False)
    )
    share = busy(jobs, (WARM_UP * seconds, seconds))
    return {"way": way, "busy": share, "gangs_wait_s": _mean_of(gangs), "tasks_wait_s": _mean_of(tasks)}


def _mean_of(waits_s: list[float]) -> float:
    return fmean(waits_s) if waits_s else 0.0  # in a short run none may have begun


def show(found: dict[str, Any]) -> str:
    lines = [
        [row["way"], f"{row['busy']:.1%}", f"{row['gangs_wait_s']:.1f}", f"{row['tasks_wait_s']:.1f}"]
        for row in found["ways"]
    ]
    plans, early = found["plans"], found["plans"]["early_p50_s"]
    head = f"{found['gangs']} gangs, {found['tasks']} tasks, load {found['load']:.2f}, order {found['order']}"
    said = [
        f"promised starts: {plans['kept']} of {plans['promises']} kept"
        + (f", half of them {early:.1f} s sooner or more" if early is not None else ""),
        *(f"  job {one['job']}: {one['reason']}" for one in plans["broken"]),
        f"estimated starts: {plans['estimates']}; order violations: {found['passings']}",
    ]
    return "\n".join([head, table(["way", "busy", "gangs wait s", "tasks wait s"], lines), *said])


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--seconds", type=float, help="the span of arrivals; 30, in the full form 900")
    asking.add_argument("--load", type=float, default=2.0, help="work that comes, of what the workers can do")
    asking.add_argument("--order", default="deliver", choices=["hold", "deliver", "none"])
    asking.add_argument("--seed", type=int, default=41)
    asking.add_argument("--virtual", action="store_true", help="in virtual time")
    asking.add_argument("--seeds", type=int, default=6, help="so many, in virtual time")
    options = asking.parse_args()
    options.seconds = options.seconds or (900.0 if options.full else 30.0)
    if options.virtual:
        rows = virtually(options)
        answer(rows, _shown(rows), options.json)
        return
    found = asyncio.run(measure(options))
    answer(found, show(found), options.json)


if __name__ == "__main__":
    main()
