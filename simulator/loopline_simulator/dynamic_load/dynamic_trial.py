"""A run of dynamic load sharing, and its measures: how long jobs take from submission to completion."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY, dataclass, field
from statistics import fmean

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Job
from loopline_shared.model import JobState, Order
from loopline_simulator.dynamic_load.dynamic_world import DynamicWorld
from loopline_simulator.dynamic_load.scenario import Information, Machines, ProgramRun, Programs, SizeKnowledge
from loopline_simulator.fast.trial import settings

_WARM_UP = 0.2
"""Share of the first jobs that the measures leave out, because their programs are still unknown."""


@dataclass(frozen=True, slots=True)
class DynamicCase:
    """Everything that a run depends on. The same case gives the same answer on every machine and in every process."""

    seed: int
    policy: str
    order: Order = Order.NONE
    _: KW_ONLY
    sizes: SizeKnowledge = SizeKnowledge.PREDICTED
    information: Information = Information.PIGGYBACK
    machines: Machines = field(default_factory=Machines)
    programs: Programs = field(default_factory=Programs)


@dataclass(frozen=True, slots=True)
class DynamicMeasures:
    turnaround: float  # mean, in seconds from submission to completion
    p95: float
    slowdown: float  # mean of turnaround over what the fastest machine would take alone
    passings: int  # pairs of jobs completed out of order: the earlier has a size and is not larger


@dataclass(frozen=True, slots=True)
class DynamicAnswer:
    case: DynamicCase
    measures: DynamicMeasures
    events: int


@dataclass(slots=True)
class _EndRecorder:
    """Observer that records when each job ended."""

    finished: dict[int, float] = field(default_factory=dict)
    departures: list[tuple[int, Job]] = field(default_factory=list)

    def __call__(self, effects: Effects) -> None:
        for job in effects.jobs.values():
            if job.departure is not None and job.id not in self.finished:
                assert job.state is JobState.SUCCEEDED
                assert job.finished_at is not None
                self.finished[job.id] = job.finished_at
                self.departures.append((job.departure, job))


def run(case: DynamicCase) -> DynamicAnswer:
    """Run the case. Raises RuntimeError if a job did not end."""
    hosts, recorder = case.machines.hosts(case.seed), _EndRecorder()
    runs = case.programs.arrivals(case.seed, case.machines.capacity)
    delays_s = {host.name: case.machines.delay_s(case.seed, host.name) for host in hosts}
    rules = dataclasses.replace(settings(case.policy, case.order), max_replicas=1, prefetch_s=1.0)
    world = DynamicWorld(
        rules, hosts, delays_s, runs=runs, sizes=case.sizes, information=case.information, observe=recorder
    )
    world.run()
    if (ended := len(recorder.finished)) < len(runs):
        raise RuntimeError(f"{case.policy}, seed {case.seed}: only {ended} of {len(runs)} jobs ended")
    return DynamicAnswer(case, _measures(case, runs, recorder), world.kernel.events)


def _measures(case: DynamicCase, runs: list[ProgramRun], recorder: _EndRecorder) -> DynamicMeasures:
    first = int(_WARM_UP * len(runs))
    took = [recorder.finished[number] - run.at for number, run in enumerate(runs, 1)][first:]
    alone = [run.work / max(case.machines.speeds) for run in runs][first:]
    return DynamicMeasures(
        turnaround=fmean(took),
        p95=sorted(took)[int(0.95 * len(took))],
        slowdown=fmean(t / a for t, a in zip(took, alone, strict=True)),
        passings=_passings(recorder.departures),
    )


def _passings(departures: list[tuple[int, Job]]) -> int:
    """Count pairs of jobs in the grid together: a later arrival, no smaller, with an earlier departure."""
    ordered = [job for _, job in sorted(departures, key=lambda departed: departed[0])]
    return sum(
        job.arrival < gone.arrival and gone.is_no_smaller(job)
        for place, job in enumerate(ordered)
        for gone in ordered[:place]
    )
