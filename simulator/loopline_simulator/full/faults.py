"""Disasters in virtual time. Each recurs after pauses drawn from its own stream."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopline_simulator.full.agent import DRAIN_S, Agent
from loopline_simulator.full.network import FrameListener, Network
from loopline_simulator.kernel import Call, Kernel
from loopline_simulator.streams import Generator, stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Frequency (mean pause, exponential; 0: never) and mean duration of each disaster."""

    crash_every_s: float = 0.0  # the master, at any point between event and frame
    down_s: float = 3.0
    reboot_every_s: float = 0.0  # of each machine
    off_s: float = 20.0
    stop_every_s: float = 0.0  # of each machine, by its owner
    away_s: float = 40.0
    break_every_s: float = 0.0  # of each machine's link
    partition_every_s: float = 0.0  # of each machine
    partition_s: float = 20.0
    steer_every_s: float = 0.0  # a user pauses, resumes, cancels or retries some job
    calm_at_s: float = math.inf  # from then on all faults above cease, and everything must recover
    task_failure: float = 0.0  # share of attempts that fail because of the task itself


ROUGH = Faults(
    crash_every_s=40.0,
    reboot_every_s=250.0,
    stop_every_s=400.0,
    break_every_s=120.0,
    partition_every_s=200.0,
    steer_every_s=80.0,
    calm_at_s=600.0,
    task_failure=0.05,
)
"""Faults far worse than those of any real grid."""


class Disasters:
    """Disasters that strike as the faults say, until ``is_over``."""

    def __init__(
        self,
        seed: int,
        kernel: Kernel,
        faults: Faults,
        *,
        agents: Sequence[Agent],
        network: Network,
        ends: FrameListener,
        is_over: Callable[[], bool],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._seed, self._kernel, self._faults = seed, kernel, faults
        self._network, self._ends, self._is_over = network, ends, is_over
        for agent in agents:
            self._threaten(agent)

    def recur(self, every_s: float, random: Generator, strike: Call) -> None:
        """Call ``strike`` again and again."""
        if every_s <= 0:
            return

        def ring() -> None:
            if not self._is_over():
                strike()
                self.recur(every_s, random, strike)

        at = self._kernel.now + float(random.exponential(every_s))
        if at < self._faults.calm_at_s:
            self._kernel.at(at, ring)

    def _threaten(self, agent: Agent) -> None:
        faults = self._faults
        threats = (
            ("reboot", faults.reboot_every_s, self._reboot),
            ("stop", faults.stop_every_s, self._stop),
            ("break", faults.break_every_s, self._break),
            ("partition", faults.partition_every_s, self._partition),
        )
        for name, every_s, strike in threats:
            random = stream(self._seed, name, agent.machine.name)
            self.recur(every_s, random, self._if_on(agent, strike, random))

    def _if_on(self, agent: Agent, strike: Callable[[Agent, Generator], None], random: Generator) -> Call:
        def call() -> None:
            if agent.is_on:
                strike(agent, random)

        return call

    def _reboot(self, agent: Agent, random: Generator) -> None:
        self.counts["reboots"] += 1
        self.counts["kills"] += len(agent.machine.processes)
        agent.power_off(noticed=_even(random))
        self._ends.master_heard()
        self._start_later(agent, float(random.exponential(self._faults.off_s)))

    def _stop(self, agent: Agent, random: Generator) -> None:
        self.counts["stops"] += 1
        agent.stop()
        self._start_later(agent, 2 * DRAIN_S + float(random.exponential(self._faults.away_s)))

    def _break(self, agent: Agent, random: Generator) -> None:
        self.counts["breaks"] += 1
        agent.break_link(noticed=_even(random))
        self._ends.master_heard()

    def _partition(self, agent: Agent, random: Generator) -> None:
        self.counts["partitions"] += 1
        self._network.partition(agent.machine.name, float(random.exponential(self._faults.partition_s)))

    def _start_later(self, agent: Agent, seconds: float) -> None:
        self._kernel.at(self._kernel.now + seconds, agent.start)


def _even(random: Generator) -> bool:
    return bool(random.random() < 0.5)
