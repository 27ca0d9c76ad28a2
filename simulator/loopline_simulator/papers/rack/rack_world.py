"""The rack in virtual time.

Order of events at one moment: ends; after any end, one pass over the waiting jobs in the order of their planned
starts, where a job may only move forward; arrivals; starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from loopline_master.core.wings.gangs.planning.planner import Planner, Slot
from loopline_master.core.wings.gangs.planning.rack import Cells, Place, Rack
from loopline_master.core.wings.gangs.planning.scans.lattice import Lattice
from loopline_master.core.wings.gangs.planning.scans.scan_algorithms import Algorithm, ScanContext
from loopline_simulator.kernel import Appointment, Kernel
from loopline_simulator.papers.rack.workload import RackJob

RackSlot = Slot[Place]
"""Place and start of a rectangle."""


@dataclass(slots=True)
class JobHistory:
    """Plans that were shown to the user of a job, with their times; the last plan came true."""

    job: RackJob
    plans: list[tuple[int, RackSlot]] = field(default_factory=list)
    starting: Appointment | None = None

    @property
    def plan(self) -> RackSlot:
        return self.plans[-1][1]

    @property
    def end(self) -> int:
        return self.plan.start + self.job.runs

    @property
    def wait(self) -> int:
        return self.plan.start - self.job.arrival


class RackWorld:
    """A run of ``jobs`` planned by ``algorithm`` on ``rack``."""

    def __init__(self, rack: Rack, algorithm: Algorithm, jobs: Sequence[RackJob]) -> None:
        self.kernel = Kernel()
        self.histories = {job.number: JobHistory(job) for job in jobs}
        self.planner = Planner[RackJob, Place, Cells, Cells](rack)
        self._nodes = rack.nodes
        self._algorithm = algorithm
        self._waiting: dict[int, JobHistory] = {}
        self._arrived: list[JobHistory] = []
        self._ended: list[JobHistory] = []
        self._backlog = 0  # nodes x steps of waiting jobs, by their limits
        self._ran = self._limits = 0  # nodes x steps of ended jobs
        self._came = self._came_limits = 0  # jobs, and steps by their limits

    def run(self) -> None:
        for history in self.histories.values():
            self.kernel.at(history.job.arrival, partial(self._note_arrival, history))
        self.kernel.run()

    def _note_arrival(self, history: JobHistory) -> None:
        self._decide_soon()
        self._arrived.append(history)

    def _note_end(self, history: JobHistory) -> None:
        self._decide_soon()
        self._ended.append(history)

    def _decide_soon(self) -> None:
        """Decide after all events of this moment are known."""
        if not self._arrived and not self._ended:
            self.kernel.at(self.kernel.now, self._decide)

    def _decide(self) -> None:
        now = int(self.kernel.now)
        ended, arrived = self._ended, self._arrived
        self._ended, self._arrived = [], []
        for history in ended:
            self._end(history, now)
        if ended:
            self._move_forward(now)
        for history in arrived:
            self._come(history)
            plan = self.planner.plan(history.job, now, self._lattice(history, now))
            assert plan is not None  # once all has ended, every rectangle fits
            self._tell(history, plan, now)

    def _come(self, history: JobHistory) -> None:
        self._waiting[history.job.number] = history
        self._backlog += history.job.nodes * history.job.limit
        self._came += 1
        self._came_limits += history.job.limit

    def _end(self, history: JobHistory, now: int) -> None:
        self.planner.end(history.job, history.plan, now)
        self._ran += history.job.nodes * history.job.runs
        self._limits += history.job.nodes * history.job.limit

    def _move_forward(self, now: int) -> None:
        self.planner.begin_pass(now)
        for history in sorted(self._waiting.values(), key=lambda history: (history.plan.start, history.job.number)):
            plan = self.planner.move_forward(history.job, history.plan, now, self._lattice(history, now))
            if plan is not history.plan:
                self._tell(history, plan, now)

    def _tell(self, history: JobHistory, plan: RackSlot, now: int) -> None:
        """Tell the user and the rack when the job will start."""
        history.plans.append((now, plan))
        if history.starting is not None:
            history.starting.cancel()
        history.starting = self.kernel.at(plan.start, partial(self._start, history))

    def _start(self, history: JobHistory) -> None:
        del self._waiting[history.job.number]
        self.planner.start(history.job)
        self._backlog -= history.job.nodes * history.job.limit
        self.kernel.at(history.end, partial(self._note_end, history))

    def _lattice(self, history: JobHistory, now: int) -> Lattice:
        used = self._ran / self._limits if self._limits else 1.0
        waited = (now - history.job.arrival) * self._came / self._came_limits
        return self._algorithm.lattice(ScanContext(self._backlog / self._nodes, used, waited))
