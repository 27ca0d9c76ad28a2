"""One run, and all that it depends on. Cases travel to other processes, so they are small."""

from __future__ import annotations

import time
from dataclasses import dataclass

from loopline_simulator.papers.rack.algorithms import algorithm
from loopline_simulator.papers.rack.measures import Measures, measure
from loopline_simulator.papers.rack.rack import Rack
from loopline_simulator.papers.rack.workload import Drawn, Logged
from loopline_simulator.papers.rack.world import Life, RackWorld


@dataclass(frozen=True, slots=True)
class Case:
    """The same case gives the same lives, on every machine and in every process."""

    seed: int
    algorithm: str
    rack: Rack
    workload: Drawn | Logged

    @property
    def used(self) -> float | None:
        """Which share of their limits jobs run for; None where a log says it."""
        return self.workload.used if isinstance(self.workload, Drawn) else None


@dataclass(frozen=True, slots=True)
class Answer:
    case: Case
    jobs: int
    measures: Measures
    events: int  # calls that the kernel made
    took_s: float  # of computing; differs from run to run


def run(case: Case) -> Answer:
    world = world_of(case)
    began = time.process_time()
    world.run()
    took_s = time.process_time() - began
    lives = list(world.lives.values())
    calls = world.planner.needed if algorithm(case.algorithm).thrifty else world.planner.calls
    measures = measure(lives, case.rack, calls, world.planner.needed)
    return Answer(case, len(lives), measures, world.kernel.events, took_s)


def lives_of(case: Case) -> list[Life]:
    """What every job was told, and when it ran."""
    world = world_of(case)
    world.run()
    return list(world.lives.values())


def world_of(case: Case) -> RackWorld:
    """The world of a case, before anything happened."""
    return RackWorld(case.rack, algorithm(case.algorithm), case.workload.of(case.seed, case.rack))
