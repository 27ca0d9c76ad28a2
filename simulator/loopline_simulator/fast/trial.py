"""A run of the fast world, and everything that it depends on. Cases travel to other processes, so they are small."""

from __future__ import annotations

from dataclasses import dataclass

from loopline_master.core.events import SchedulerSettings
from loopline_shared.model import Order
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.metrics import Measures, Recorder
from loopline_simulator.fast.workload import Workload
from loopline_simulator.fast.world import FastWorld

_NEVER_S = 1e12


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that a run depends on. The same case gives the same answer on every machine and in every process."""

    seed: int
    policy: str
    order: Order
    workload: Workload
    park: Park
    max_replicas: int | None = None  # attempts of a task at once; None: any number, as in the no-passing paper


@dataclass(frozen=True, slots=True)
class Answer:
    case: Case
    measures: Measures
    events: int  # calls that the kernel made


def settings(policy: str, order: Order, max_replicas: int | None = None) -> SchedulerSettings:
    """Return the settings of a grid free of faults, as in the no-passing paper.

    Leases last for ever. A task may have ``max_replicas`` attempts at once; None: one on each computer.
    """
    return SchedulerSettings(
        policy=policy,
        order=order,
        lease_s=_NEVER_S,
        report_every_s=_NEVER_S / 10,
        stall_after_s=_NEVER_S,
        max_replicas=max_replicas,
        max_jobs=10**9,
    )


def run(case: Case) -> Answer:
    recorder, events = record(case)
    return Answer(case, recorder.measures(case.park.capacity, case.park.fastest), events)


def record(case: Case, *, attempts: bool = False) -> tuple[Recorder, int]:
    """Run the case; return its recorder and number of events. Raises RuntimeError if a job did not finish."""
    hosts = case.park.hosts(case.seed)
    recorder = Recorder(hosts, attempts=attempts)
    chosen = settings(case.policy, case.order, case.max_replicas)
    world = FastWorld(chosen, hosts, case.workload.of(case.seed), observe=recorder)
    world.run()
    finished = sum(job.finished is not None for job in recorder.jobs())
    if finished < case.workload.jobs:
        raise RuntimeError(f"{case.policy}, seed {case.seed}: only {finished} of {case.workload.jobs} jobs finished")
    return recorder, world.kernel.events
