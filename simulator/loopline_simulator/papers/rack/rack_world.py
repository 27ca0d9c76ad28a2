"""The rack in virtual time. In one moment: ends; if there were any, one pass over the waiting jobs in the order of
their planned starts, in which a job may only move forward; arrivals; starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from loopline_simulator.kernel import Appointment, Kernel
from loopline_simulator.papers.rack.algorithms import Algorithm, Outlook
from loopline_simulator.papers.rack.lattice import Lattice
from loopline_simulator.papers.rack.planner import Plan, Planner
from loopline_simulator.papers.rack.rack import Rack
from loopline_simulator.papers.rack.workload import Job


@dataclass(slots=True)
class Life:
    """Of one job: what its user was told, and when; the last that was told is what came true."""

    job: Job
    told: list[tuple[int, Plan]] = field(default_factory=list)
    starting: Appointment | None = None

    @property
    def plan(self) -> Plan:
        return self.told[-1][1]

    @property
    def end(self) -> int:
        return self.plan.start + self.job.runs

    @property
    def wait(self) -> int:
        return self.plan.start - self.job.arrival


class RackWorld:
    """One run: ``jobs`` by ``algorithm`` on ``rack``."""

    def __init__(self, rack: Rack, algorithm: Algorithm, jobs: Sequence[Job]) -> None:
        self.kernel = Kernel()
        self.lives = {job.number: Life(job) for job in jobs}
        self.planner = Planner(rack)
        self._nodes = rack.nodes
        self._algorithm = algorithm
        self._waiting: dict[int, Life] = {}
        self._arrived: list[Life] = []
        self._ended: list[Life] = []
        self._backlog = 0  # nodes x steps by their limits, of those that wait
        self._ran = self._limits = 0  # nodes x steps, of those that ended
        self._came = self._came_limits = 0  # jobs, and steps by their limits

    def run(self) -> None:
        for life in self.lives.values():
            self.kernel.at(life.job.arrival, partial(self._note_arrival, life))
        self.kernel.run()

    def _note_arrival(self, life: Life) -> None:
        self._decide_soon()
        self._arrived.append(life)

    def _note_end(self, life: Life) -> None:
        self._decide_soon()
        self._ended.append(life)

    def _decide_soon(self) -> None:
        """All that comes at one moment is known before anything is decided."""
        if not self._arrived and not self._ended:
            self.kernel.at(self.kernel.now, self._decide)

    def _decide(self) -> None:
        now = int(self.kernel.now)
        ended, arrived = self._ended, self._arrived
        self._ended, self._arrived = [], []
        for life in ended:
            self._end(life, now)
        if ended:
            self._move_forward(now)
        for life in arrived:
            self._come(life)
            self._tell(life, self.planner.plan(life.job, now, self._lattice(life, now)), now)

    def _come(self, life: Life) -> None:
        self._waiting[life.job.number] = life
        self._backlog += life.job.nodes * life.job.limit
        self._came += 1
        self._came_limits += life.job.limit

    def _end(self, life: Life, now: int) -> None:
        self.planner.end(life.job, life.plan, now)
        self._ran += life.job.nodes * life.job.runs
        self._limits += life.job.nodes * life.job.limit

    def _move_forward(self, now: int) -> None:
        self.planner.begin_pass(now)
        for life in sorted(self._waiting.values(), key=lambda life: (life.plan.start, life.job.number)):
            plan = self.planner.move_forward(life.job, life.plan, now, self._lattice(life, now))
            if plan is not life.plan:
                self._tell(life, plan, now)

    def _tell(self, life: Life, plan: Plan, now: int) -> None:
        """The user, and the rack: the job will start then."""
        life.told.append((now, plan))
        if life.starting is not None:
            life.starting.cancel()
        life.starting = self.kernel.at(plan.start, partial(self._start, life))

    def _start(self, life: Life) -> None:
        del self._waiting[life.job.number]
        self.planner.start(life.job)
        self._backlog -= life.job.nodes * life.job.limit
        self.kernel.at(life.end, partial(self._note_end, life))

    def _lattice(self, life: Life, now: int) -> Lattice:
        used = self._ran / self._limits if self._limits else 1.0
        waited = (now - life.job.arrival) * self._came / self._came_limits
        return self._algorithm.lattice(Outlook(self._backlog / self._nodes, used, waited))
