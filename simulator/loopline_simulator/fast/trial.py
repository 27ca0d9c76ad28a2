"""A run of the fast world, and everything that it depends on. Cases travel to other processes, so they are small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, Protocol

from loopline_master.core.events import SchedulerSettings
from loopline_shared.model import Order
from loopline_simulator.fast.changing_world import ChangingWorld
from loopline_simulator.fast.churn import Churn
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.metrics import Measures, Recorder
from loopline_simulator.fast.saving_world import Saving, SavingWorld
from loopline_simulator.fast.straggling import Straggling, StragglingWorld
from loopline_simulator.fast.workload import Workload, misdeclared, uncovered
from loopline_simulator.fast.world import Arrival, FastWorld, Host

_NEVER_S = 1e12


class JobSource(Protocol):
    """Jobs of a run: drawn (Workload) or of a log (LogWindow)."""

    @property
    def jobs(self) -> int:
        """Return the number of jobs of a run."""

    def of(self, seed: int) -> list[Arrival]:
        """Return the jobs of the run ``seed``, in order."""


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that a run depends on. The same case gives the same answer on every machine and in every process."""

    seed: int
    policy: str
    order: Order
    workload: Workload
    park: Park
    _: KW_ONLY
    max_replicas: int | None = None  # attempts of a task at once; None: any number, as in the no-passing paper
    log: JobSource | None = None  # jobs in place of the workload's
    churn: Churn | None = None  # None: hosts are always there
    single_task_order: Literal["deliver", "hold"] = "hold"  # of jobs of one task under hold; hold: as in the paper
    wrong_by: float = 1.0  # users declare sizes wrong by up to this factor, up or down; inf: in the opposite order
    without_size: float = 0.0  # share of jobs whose users give none
    in_sessions: float = 0.0  # share of jobs that are sessions
    saving: Saving | None = None  # checkpoints; None: none, and lost work by attempts alone
    straggling: Straggling | None = None  # None: a task takes as long as its size and its machine say

    @property
    def source(self) -> JobSource:
        return self.log or self.workload


@dataclass(frozen=True, slots=True)
class Answer:
    case: Case
    measures: Measures
    events: int  # calls that the kernel made


def settings(
    policy: str,
    order: Order,
    max_replicas: int | None = None,
    single_task_order: Literal["deliver", "hold"] = "hold",
) -> SchedulerSettings:
    """Return the settings of a grid free of faults, as in the no-passing paper.

    Leases last for ever. A task may have ``max_replicas`` attempts at once; None: one on each computer. No task fails
    there, so ``max_attempts`` must not bound the replicas.
    """
    return SchedulerSettings(
        policy=policy,
        order=order,
        single_task_order=single_task_order,
        lease_s=_NEVER_S,
        report_every_s=_NEVER_S / 10,
        stall_after_s=_NEVER_S,
        max_attempts=10**9,
        max_replicas=max_replicas,
        max_jobs=10**9,
    )


def run(case: Case) -> Answer:
    recorder, world = record(case)
    measures = recorder.measures(case.park.capacity, case.park.fastest)
    return Answer(
        case, world.corrected(measures) if isinstance(world, SavingWorld) else measures, world.kernel.events
    )


def record(case: Case, *, attempts: bool = False, first: int | None = None) -> tuple[Recorder, FastWorld]:
    """Run the case, or its ``first`` jobs; return recorder and world. Raises RuntimeError if a job did not finish."""
    hosts = case.park.hosts(case.seed)
    arrivals = misdeclared(case.source.of(case.seed), case.wrong_by, case.seed)
    if case.without_size or case.in_sessions:
        arrivals = uncovered(arrivals, case.without_size, case.in_sessions, case.seed)
    arrivals = arrivals[:first]
    recorder = Recorder(hosts, attempts=attempts)
    world = _world(case, hosts, arrivals, recorder)
    world.run()
    finished = sum(job.finished is not None for job in recorder.jobs())
    if finished < len(arrivals):
        raise RuntimeError(f"{case.policy}, seed {case.seed}: only {finished} of {len(arrivals)} jobs finished")
    return recorder, world


def _world(case: Case, hosts: Sequence[Host], arrivals: Sequence[Arrival], recorder: Recorder) -> FastWorld:
    chosen = settings(case.policy, case.order, case.max_replicas, case.single_task_order)
    if case.straggling is not None:
        return StragglingWorld(chosen, hosts, arrivals, recorder, straggling=case.straggling, seed=case.seed)
    if case.churn is None and case.saving is None:
        return FastWorld(chosen, hosts, arrivals, observe=recorder)
    stays = {host.name: case.churn.stays(case.seed, host.name) for host in hosts} if case.churn else None
    lease_s = case.churn.lease_s if case.churn else None
    if case.saving is None:
        return ChangingWorld(chosen, hosts, arrivals, recorder, stays=stays, last_lease_s=lease_s)
    saving = case.saving
    return SavingWorld(chosen, hosts, arrivals, recorder, saving=saving, stays=stays, last_lease_s=lease_s)
