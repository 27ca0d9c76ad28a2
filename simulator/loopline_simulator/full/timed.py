"""The full world in virtual time: hosts compute, jobs arrive, frames travel, disasters strike.

The same seed gives the same run, to the byte of its event log.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.wings.power.wakes import WakeOrder
from loopline_shared.model import AttemptId, Outcome
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import size_at
from loopline_simulator.fast.world import Arrival, Host
from loopline_simulator.full.agent import Agent
from loopline_simulator.full.faults import Disasters, Faults
from loopline_simulator.full.grid_world import CRASHES, GridWorld
from loopline_simulator.full.machine import Machine
from loopline_simulator.full.network import Conditions, Network
from loopline_simulator.full.sleep import Nights, Sleep
from loopline_simulator.full.users import Users
from loopline_simulator.kernel import Appointment, Kernel
from loopline_simulator.streams import stream

_MEAN_UNKNOWN_S = 20.0
"""Mean work of a task of unknown size, in reference CPU-seconds; exponential."""


class TimedWorld:
    """The full world in virtual time. ``run`` continues until all jobs have ended and every worker is idle, then
    checks it.
    """

    def __init__(
        self,
        seed: int,
        settings: SchedulerSettings,
        hosts: Sequence[Host],
        arrivals: Iterable[Arrival],
        *,
        conditions: Conditions = Conditions(),  # noqa: B008
        faults: Faults = Faults(),  # noqa: B008
        sleep: Sleep | None = None,
        check_every: int = 1,
    ) -> None:
        """Take hosts and arrivals; by default links are perfect, and nothing fails or sleeps."""
        self.kernel, self.counts = Kernel(), Counter[str]()
        self._seed, self._faults, self._is_over = seed, faults, False
        self._hosts = {host.name: host for host in hosts}
        self._contents: dict[str, float] = {}  # work in each checkpoint
        machines = [Machine(host.name, host.facts, lambda: self.kernel.now) for host in hosts]
        self.world = GridWorld(settings, machines, now=0.0, check_every=check_every)
        randoms = {name: stream(seed, "link", name) for name in self._hosts}
        self.network = Network(self.kernel, self.world, self, conditions, randoms)
        self._agents = {machine.name: self._agent(machine) for machine in machines}
        self._turn_due: Appointment | None = None
        self._alarm: Appointment | None = None
        self._crash = ""
        self._crashes = stream(seed, "crash")
        for agent in self._agents.values():
            agent.start()
        self.nights = Nights(seed, self.kernel, sleep, self._agents) if sleep else None
        self._users = Users(seed, self.kernel, self.world, self, arrivals)
        self.disasters = Disasters(
            seed,
            self.kernel,
            faults,
            agents=list(self._agents.values()),
            network=self.network,
            ends=self,
            is_over=self.is_over,
        )
        self.disasters.recur(faults.crash_every_s, self._crashes, self._prepare_crash)
        self.disasters.recur(faults.steer_every_s, stream(seed, "steer"), self._users.steer_one)

    def run(self, until: float = 20_000.0) -> None:
        """Run to the end. Raises AssertionError on a violation, or if work is still under way at ``until``."""
        self.kernel.run(until)
        assert self.is_over(), f"not all is done at {self.kernel.now:,.0f} s: {list(self.world.scheduler.state.jobs)}"
        self.world.check_the_end()

    def is_over(self) -> bool:
        """True if all work is done; from then on only frames under way arrive."""
        self._is_over = self._is_over or (self._users.are_content and not self.world.inbox and self.world.is_over())
        return self._is_over

    # --- the master -----------------------------------------------------------------------------------------

    def master_heard(self) -> None:
        """Schedule the master's turn after all frames of this moment have arrived."""
        if self.world.inbox and self.world.is_up and self._turn_due is None:
            self._turn_due = self.kernel.at(self.kernel.now, self._turn)

    def _turn(self) -> None:
        self._turn_due, crash, self._crash = None, self._crash, ""
        if not self.world.is_up:
            return
        self.world.now = self.kernel.now
        effects = self.world.turn(crash)
        self.counts["steps"] += 1
        if effects is None:
            self.counts["crashes"] += 1
            down_s = float(self._crashes.exponential(self._faults.down_s))
            self.kernel.at(self.kernel.now + down_s, self._restart)
        self._forward(effects.assigns if effects is not None else ())
        if effects is not None and self.nights:
            self.nights.on_packets(order.worker for order in effects.told(WakeOrder))
        self._set_alarm()

    def _prepare_crash(self) -> None:
        """Schedule a crash for the master's next turn."""
        self._crash = str(self._crashes.choice(CRASHES))

    def _restart(self) -> None:
        self.world.now = self.kernel.now
        self.world.start_master()
        self.counts["steps"] += 1
        self._users.ask_again()
        self._set_alarm()

    def _forward(self, first: Iterable[str]) -> None:
        for name in (*first, *self.world.machines):
            link = self.world.machines[name].link
            if link is not None:
                self.network.forward(link)

    def _set_alarm(self) -> None:
        """Schedule the next turn for an expiring lease or a starving job."""
        if self._alarm is not None:
            self._alarm.cancel()
        due = self.world.wake_at
        if self.world.is_up and due is not None and due < math.inf:
            self._alarm = self.kernel.at(max(due, self.kernel.now), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if not self.is_over():
            self._turn()

    # --- the machines ---------------------------------------------------------------------------------------

    def machine_heard(self, name: str) -> None:
        self._agents[name].on_frame()
        if self.nights:
            wakes, self.world.machines[name].wakes = self.world.machines[name].wakes, []
            self.nights.on_packets(wakes)

    def _agent(self, machine: Machine) -> Agent:
        random = stream(self._seed, "agent", machine.name)
        return Agent(self.kernel, self.world, self.network, machine, fates=self, random=random, is_over=self.is_over)

    def fate(self, machine: Machine, attempt: AttemptId, since: float) -> tuple[float, Outcome]:
        """Return the end and outcome of an attempt, drawn for each task and attempt independently of all else."""
        done = self._contents.get(machine.checkpoints.start_of(attempt), 0.0)
        end = self._hosts[machine.name].speed.end_of(since, self._work(attempt) - done)
        if self._faults.task_failure:
            random = stream(self._seed, "fate", *attempt)
            if random.random() < self._faults.task_failure:
                return since + (end - since) * float(random.random()), Outcome.FAILED
        return end, Outcome.SUCCEEDED

    def saved(self, machine: Machine, attempt: AttemptId, since: float, name: str) -> None:
        """Note the work that a checkpoint taken now contains."""
        done = self._contents.get(machine.checkpoints.start_of(attempt), 0.0)
        self._contents[name] = done + self._hosts[machine.name].speed.work_between(since, self.kernel.now)
        self.counts["saves"] += 1

    def _work(self, attempt: AttemptId) -> float:
        spec: JobSpec = self.world.store.jobs[attempt.job].spec
        size = size_at(spec, attempt.task)
        if size is None:
            return float(stream(self._seed, "work", attempt.job, attempt.task).exponential(_MEAN_UNKNOWN_S))
        return size
