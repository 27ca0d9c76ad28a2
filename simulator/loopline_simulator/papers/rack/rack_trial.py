"""A run of the rack, and everything that it depends on. Cases travel to other processes, so they are small."""

from __future__ import annotations

import time
from dataclasses import dataclass

from loopline_master.core.wings.gangs.planning.rack import Rack
from loopline_master.core.wings.gangs.planning.scans.scan_algorithms import algorithm
from loopline_simulator.papers.rack.measures import RackMeasures, measure
from loopline_simulator.papers.rack.rack_world import JobHistory, RackWorld
from loopline_simulator.papers.rack.workload import Drawn, Logged


@dataclass(frozen=True, slots=True)
class RackCase:
    """Everything that a run depends on. The same case gives the same histories on every machine and in every
    process.
    """

    seed: int
    algorithm: str
    rack: Rack
    workload: Drawn | Logged

    @property
    def used(self) -> float | None:
        """Mean share of their limits that jobs run for; None if a log decides it."""
        return self.workload.used if isinstance(self.workload, Drawn) else None


@dataclass(frozen=True, slots=True)
class RackAnswer:
    case: RackCase
    jobs: int
    measures: RackMeasures
    events: int  # calls that the kernel made
    took_s: float  # of computing; differs from run to run


def run(case: RackCase) -> RackAnswer:
    world = world_of(case)
    began = time.process_time()
    world.run()
    took_s = time.process_time() - began
    histories = list(world.histories.values())
    calls = world.planner.needed if algorithm(case.algorithm).thrifty else world.planner.calls
    measures = measure(histories, case.rack, calls, world.planner.needed)
    return RackAnswer(case, len(histories), measures, world.kernel.events, took_s)


def histories_of(case: RackCase) -> list[JobHistory]:
    """Return the plans of every job, and its start and end."""
    world = world_of(case)
    world.run()
    return list(world.histories.values())


def world_of(case: RackCase) -> RackWorld:
    """Return the world of a case at its beginning."""
    return RackWorld(case.rack, algorithm(case.algorithm), case.workload.of(case.seed, case.rack))
