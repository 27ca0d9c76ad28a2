"""Jobs and machines of a run: everything that it depends on except its seed and its policy."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

from loopline_shared.spec import JobSpec
from loopline_simulator.fast.hosts import Pattern
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.world import Host
from loopline_simulator.streams import Generator, stream

OWNERS = Pattern(to_loaded=1 / 300, to_steady=1 / 100, steady=(0.9, 1.0), loaded=(0.1, 0.4))
"""Use of the computers by their owners: 100 s on average, a quarter of the time, leaving a quarter of the CPU unused.
"""


class SizeKnowledge(StrEnum):
    """Knowledge that the master has of a job's size."""

    PREDICTED = "predicted"  # none: the master predicts it from earlier runs of the program
    GIVEN = "given"  # the true size


class Information(StrEnum):
    """When the master learns a machine's load."""

    PIGGYBACK = "piggyback"  # with results, as in the paper
    PERIODIC = "periodic"  # also every 10 s
    ORACLE = "oracle"  # before every decision


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines in equal shares of each benchmark speed, behind links of different delays. Owners use part of the
    speed.
    """

    count: int = 20
    speeds: tuple[float, ...] = (1.0, 2.0, 4.0)  # reference CPU-seconds per second
    least_delay_s: float = 0.005
    most_delay_s: float = 0.2  # one way, log-uniform

    def hosts(self, seed: int) -> list[Host]:
        hosts = Park(self.count, self.speeds, (OWNERS,), fit=1.0).hosts(seed)
        for number, host in enumerate(hosts):
            host.facts = dataclasses.replace(host.facts, speed=self.speeds[number % len(self.speeds)])
        return hosts

    def delay_s(self, seed: int, host: str) -> float:
        low, high = math.log(self.least_delay_s), math.log(self.most_delay_s)
        return math.exp(low + (high - low) * float(stream(seed, "delay", host).random()))

    @property
    def capacity(self) -> float:
        """Reference CPU-seconds per second that all machines deliver together on average."""
        return OWNERS.mean_share * sum(self.speeds[n % len(self.speeds)] for n in range(self.count))


@dataclass(frozen=True, slots=True)
class Programs:
    """Jobs of one task each. A job is a run of a user's program; runs of one program are alike, programs differ."""

    jobs: int = 1000
    _: KW_ONLY
    users: int = 5
    of_each: int = 4
    mean_work: float = 60.0  # reference CPU-seconds of a job
    between: float = 1.0  # standard deviation of the logarithm of programs' typical work
    within: float = 0.3  # ... and of runs of one program
    load: float = 0.7  # arriving work, as a share of the capacity of all machines

    def arrivals(self, seed: int, capacity: float) -> list[ProgramRun]:
        interval, now, runs = self.mean_work / (self.load * capacity), 0.0, []
        typical = self._typical(seed)
        for number in range(self.jobs):
            random = stream(seed, "run", number)
            now += float(random.exponential(interval))
            user, program = int(random.integers(self.users)), int(random.integers(self.of_each))
            work = typical[user][program] * _factor(random, self.within)
            runs.append(ProgramRun(now, f"user-{user}", f"program-{program}", work))
        return runs

    def _typical(self, seed: int) -> list[list[float]]:
        """Return the typical work of each user's programs; its mean over all programs is ``mean_work``."""
        drawn = [
            [_factor(stream(seed, "program", user, number), self.between) for number in range(self.of_each)]
            for user in range(self.users)
        ]
        mean = sum(map(sum, drawn)) / (self.users * self.of_each)
        return [[self.mean_work * factor / mean for factor in of_user] for of_user in drawn]


def _factor(random: Generator, sigma: float) -> float:
    """Draw a lognormal factor of mean 1."""
    return float(random.lognormal(-(sigma**2) / 2, sigma))


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """A job: the time of its submission, its user and program, and its true work."""

    at: float
    user: str
    program: str
    work: float

    def spec(self, sizes: SizeKnowledge) -> JobSpec:
        size = self.work if sizes is SizeKnowledge.GIVEN else None
        return JobSpec(name=self.program, folder=f"/home/{self.user}", command=[self.program], size=size)
