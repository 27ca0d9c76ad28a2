"""Computers that sleep in virtual time, until packets or their owners wake them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loopline_shared.protocol.power import Armed, GoodBye, SleepCause, SleepKind, WakeFacts
from loopline_simulator.full.agent import GOOD_BYE_S, Agent
from loopline_simulator.kernel import Kernel
from loopline_simulator.streams import Generator, stream

_CHECK_EVERY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """Habits of computers and owners. Mean times are exponential."""

    idle_s: float = 60.0  # a computer sleeps after this time without a task
    owner_every_s: float = 0.0  # mean, until an owner suspends it although tasks run; 0: never
    return_s: float = 2000.0  # mean, until its owner wakes it
    wake_s: float = 30.0  # from a magic packet until its agent connects
    failing: float = 0.0  # share of sleeps that no packet ends
    off: float = 0.0  # share of sleeps that begin with a shutdown
    subnets: int = 2
    ends_at_s: float = math.inf  # in the morning all owners come, and no computer sleeps any more


NIGHT = Sleep(idle_s=20.0, owner_every_s=150.0, return_s=900.0, failing=0.15, off=0.2, ends_at_s=4000.0)
"""A night far rougher than that of any real lab."""


class Nights:
    """Puts computers to sleep, and wakes them by packets or by their owners."""

    def __init__(self, seed: int, kernel: Kernel, sleep: Sleep, agents: Mapping[str, Agent]) -> None:
        self.counts: Counter[str] = Counter()
        self.begun: dict[str, float] = {}  # when the last wake by packets began, by computer
        self._kernel, self._sleep, self._agents = kernel, sleep, agents
        self._randoms = {name: stream(seed, "sleep", name) for name in agents}
        self._idle_since = dict.fromkeys(agents, 0.0)
        self._naps: dict[str, int] = {}  # number of the last sleep of each computer
        self._starting: set[str] = set()
        self._deaf: set[str] = set()  # asleep, and no packet wakes them
        for name in agents:
            self._check_later(name)
            if sleep.owner_every_s:
                self._suspend_later(name)

    def on_packets(self, names: Iterable[str]) -> None:
        """Take in magic packets for these computers."""
        for name in names:
            if self._agents[name].is_asleep and name not in self._starting | self._deaf:
                self._starting.add(name)
                self.begun[name] = self._kernel.now
                self.counts["woken"] += 1
                self._kernel.at(self._kernel.now + self._sleep.wake_s, lambda name=name: self._wake(name))  # type: ignore[misc]

    def _check_later(self, name: str) -> None:
        if (at := self._kernel.now + _CHECK_EVERY_S) < self._sleep.ends_at_s:
            self._kernel.at(at, lambda: self._check(name))

    def _check(self, name: str) -> None:
        agent = self._agents[name]
        if not (agent.is_on and agent.machine.core.is_idle):
            self._idle_since[name] = self._kernel.now
        elif self._kernel.now - self._idle_since[name] >= self._sleep.idle_s:
            cause = SleepCause.GRID if name in self.begun else SleepCause.IDLE
            self._put_to_sleep(name, cause)
            return
        self._check_later(name)

    def _suspend_later(self, name: str) -> None:
        at = self._kernel.now + _exponential(self._randoms[name], self._sleep.owner_every_s)
        if at < self._sleep.ends_at_s:
            self._kernel.at(at, lambda: self._suspend(name))

    def _suspend(self, name: str) -> None:
        if self._agents[name].is_on and self._agents[name].machine.processes:
            self.counts["suspended_at_work"] += 1
            self._put_to_sleep(name, SleepCause.OWNER)
        self._suspend_later(name)

    def _put_to_sleep(self, name: str, cause: SleepCause) -> None:
        random, agent = self._randoms[name], self._agents[name]
        kind = SleepKind.OFF if random.random() < self._sleep.off else SleepKind.SUSPEND
        if random.random() < self._sleep.failing:
            self._deaf.add(name)
        self.counts["sleeps"] += 1
        link = agent.machine.facts.link
        agent.sleep(GoodBye(kind, cause, _facts(link.subnet if link else "")))
        self._naps[name] = nap = self.counts["sleeps"]
        at = min(self._kernel.now + _exponential(random, self._sleep.return_s), self._sleep.ends_at_s)
        self._kernel.at(max(at, self._kernel.now + 2 * GOOD_BYE_S), lambda: self._return(name, nap))

    def _return(self, name: str, nap: int) -> None:
        """The owner wakes the computer, unless that sleep has ended."""
        if self._naps[name] == nap:
            self.counts["returns"] += self._agents[name].is_asleep
            self._wake(name)

    def _wake(self, name: str) -> None:
        agent = self._agents[name]
        self._starting.discard(name)
        self._deaf.discard(name)
        if agent.is_asleep:
            agent.wake()
            self._idle_since[name] = self._kernel.now
            self._check_later(name)


def _facts(subnet: str) -> WakeFacts:
    return WakeFacts(
        "eth0", "52:54:00:12:34:56", subnet, from_suspend=Armed.YES, from_off=Armed.YES, can_suspend=True
    )


def _exponential(random: Generator, mean_s: float) -> float:
    return float(random.exponential(mean_s))
