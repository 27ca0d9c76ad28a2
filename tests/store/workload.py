"""Lives of a master from a seed: the world machine generates jobs, results, failures and restarts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

from loopline_master.core.events import BATCH, MasterStarted, SchedulerSettings
from loopline_master.core.policies import REGISTRY
from loopline_master.core.scheduler import Scheduler
from loopline_master.store import Store
from loopline_shared.job.parameters import Range
from loopline_shared.model import Facts, Order, Outcome
from loopline_shared.spec import JobSpec
from tests.campaign import CHECK_EVERY
from tests.properties.world import Machine, World

NAMES = ("ant", "bee", "cat")


@cache
def log_of(seed: int, turns: int = 60) -> tuple[bytes, ...]:
    """Return the log of such a life, which several tests store; it is generated once per process."""
    return tuple(lived_through(seed, turns).store.log)


def lived_through(seed: int, turns: int = 60) -> World:
    """Return a world after many turns; its store holds the log and the expected rows."""
    random = Random(seed)
    settings = SchedulerSettings(
        policy=random.choice(sorted(REGISTRY)),
        order=random.choice([Order.HOLD, Order.HOLD, Order.NONE]),
        lease_s=5.0,
        stall_after_s=3.0,
        max_attempts=2,
        max_replicas=random.choice([1, 2, None]),
    )
    facts = Facts("linux", "x86_64", "3.11", "0", "model", cpus=2, memory_bytes=10**9, slots=2)
    world = World(settings, [Machine(name, facts) for name in NAMES], check_every=CHECK_EVERY)
    for _ in range(turns):
        _turn(world, random)
    return world


def _turn(world: World, random: Random) -> None:
    name, jobs = random.choice(NAMES), list(world.store.jobs.values())
    match random.randrange(10):
        case 0 | 1 if len([job for job in jobs if job.is_live]) < 5:
            world.submit(_spec(random, [job.id for job in jobs]))
        case 2 | 3 if jobs:
            job = random.choice(jobs)
            world.steer(random.choice(["cancel", "pause", "pause", "resume"]) if job.is_live else "retry", job.id)
        case 4:
            world.cut(name, noticed=random.random() < 0.5)
            world.machines[name].boot()
        case 5:
            world.pass_time(random.choice([0.5, 2.0, 10.0]))
        case 6:
            world.cut(name, noticed=False)
        case _:
            _work(world, random)
    world.master_steps(random.choice(["", "", "", "", "before step", "before commit", "before release"]))


def _work(world: World, random: Random) -> None:
    for name, machine in world.machines.items():
        if machine.link is None:
            world.connect(name)
        for attempt in list(machine.processes):
            if random.random() < 0.4:
                machine.end(attempt, random.choice([Outcome.SUCCEEDED, *Outcome]), lies=random.random() < 0.2)
        for _ in range(3):
            machine.report()
            world.deliver_up(name)
            world.master_steps()
            world.deliver_down(name)


def _spec(random: Random, jobs: list[int]) -> JobSpec:
    count = random.randint(1, 6)
    return JobSpec(
        command=["work"],
        parameters={"i": Range(range=[1, count])} if count > 1 else None,
        size=random.choice([None, 1.0, 2.0, 2.0, 3.0]),
        quorum=random.choice([None, None, None, 2]),
        replica_budget_s=random.choice([None, None, 0.0, 2.0]),
        after=random.sample(jobs, min(len(jobs), random.choice([0, 0, 0, 1, 2]))),
    )


async def relive(store: Store, log: Sequence[bytes]) -> None:
    """Commit a log to a real store; a start of the master in the log loads the scheduler from the store."""
    scheduler = Scheduler()
    for line in log:
        batch = BATCH.validate_json(line)
        if any(isinstance(event, MasterStarted) for event in batch.events):
            scheduler = Scheduler(await store.snapshot())
        await store.commit(batch, scheduler.step(batch.events, batch.now))
