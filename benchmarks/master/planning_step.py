"""CPU time of a step of the scheduler while many gangs wait: for an end, an arrival, and a worker that is lost.

    python benchmarks/master/planning_step.py [--workers 1000] [--slots 8] [--gangs 200] [--steps 100] [--json]

The grid is full: half of its slots run tasks with limits, the others tasks of known size without. Gangs of 2 to 32
nodes with limits of 2 minutes to 4 hours wait. A step takes in one Report that brings the end of a task (its slot is
filled again), or the submission of one more gang. Times are those of ``Scheduler.step`` in CPU seconds of this
process, the revision of plans included; nothing is stored. *bare*: the same step in the same grid before any gang.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from loopline_master.core.events import JobSubmitted, MasterStarted, SchedulerSettings, WorkerJoined, WorkerReported
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_shared.job.parameters import Range
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import AttemptId, Facts, Held, Load, Order, Outcome, Result
from loopline_shared.protocol.worker_link import Report, Run
from loopline_shared.spec import JobSpec

AIMS_MS = {"an end": 10.0, "an arrival": 50.0}


class Crowd:
    """A scheduler and workers that answer at once; time passes by a second a step."""

    def __init__(self, workers: int, slots: int) -> None:
        self.scheduler, self.now, self.slots = Scheduler(), 1e9, slots
        self.held: dict[str, dict[AttemptId, Run]] = {f"w{number:04}": {} for number in range(workers)}
        self.sent = dict.fromkeys(self.held, 0)
        self.step(MasterStarted(SchedulerSettings("round-robin", order=Order.NONE, lease_s=1e6)))
        facts = Facts("linux", "x86_64", "3.11.0", "0", "m", cpus=slots, memory_bytes=10**10, slots=slots, gangs=True)
        for name in self.held:
            self.step(WorkerJoined(name, 1, "boot", facts))
            self.step(self.report(name))

    def submit(self, **more: Any) -> float:
        return self.step(JobSubmitted("user", JobSpec(command=["work"], **more)))

    def step(self, *events: Any) -> float:
        """Return the CPU seconds of a step with these events."""
        self.now += 1.0
        began = time.process_time()
        effects = self.scheduler.step(events, self.now)
        took = time.process_time() - began
        for name, assign in effects.assigns.items():
            self.held[name].update((run.attempt, run) for run in assign.run)
            for attempt in assign.cancel:
                self.held[name].pop(attempt, None)
        return took

    def report(self, name: str, *results: Result) -> WorkerReported:
        self.sent[name] += 1
        for each in results:
            self.held[name].pop(each.attempt, None)
        held = tuple(map(Held, self.held[name]))
        number = self.scheduler.state.workers[name].assigned
        return WorkerReported(
            name, 1, Report(self.sent[name], number, held, results, Load(self.slots, float(self.slots)))
        )

    def end_one(self, chance: random.Random) -> float:
        name = chance.choice([name for name, held in self.held.items() if held])
        attempt = chance.choice(list(self.held[name]))
        ended = Result(attempt, Outcome.SUCCEEDED, 0, wall_s=60.0, cpu_s=60.0)
        return self.step(self.report(name, ended))


def gang(chance: random.Random) -> dict[str, Any]:
    limit_s = float(chance.choice((120, 600, 1800, 3600, 14400)))
    slots = Requirements(slots=chance.choice((1, 1, 2, 4)))
    return {"nodes": chance.choice((2, 4, 8, 16, 32)), "timeout_s": limit_s, "size": limit_s, "requires": slots}


def filled(workers: int, slots: int) -> Crowd:
    """Return a grid with tasks in all slots and thousands that wait."""
    crowd, count = Crowd(workers, slots), workers * slots
    for limit_s in (600.0, None, 3600.0, None):
        many = {"i": Range(range=[1, count])}
        crowd.submit(parameters=many, timeout_s=limit_s, size=count * (limit_s or 900.0) / 2)
    crowd.step(*map(crowd.report, crowd.held))  # so that all is known to have begun
    return crowd


def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    chance, crowd = random.Random(1), filled(chosen.workers, chosen.slots)
    bare = [crowd.end_one(chance) for _ in range(chosen.steps)]
    first = crowd.submit(**gang(chance))
    arrivals = [crowd.submit(**gang(chance)) for _ in range(chosen.gangs - 1)]
    ends = [crowd.end_one(chance) for _ in range(chosen.steps)]
    waiting = len(crowd.scheduler.state.own(GangMemory).plans)
    more = [crowd.submit(**gang(chance)) for _ in range(20)]
    found = {"bare end": bare, "first arrival": [first], "filling": arrivals, "an end": ends, "an arrival": more}
    return {"gangs": waiting} | {
        name: {
            "median_ms": 1e3 * median(took),
            "p95_ms": 1e3 * sorted(took)[int(0.95 * len(took))],
            "most_ms": 1e3 * max(took),
        }
        for name, took in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--gangs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = measured(chosen)
    if chosen.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{chosen.workers:,} workers of {chosen.slots} slots, {found.pop('gangs')} gangs wait; CPU ms of a step")
    for name, figures in found.items():
        aim = f"   aim {AIMS_MS[name]:.0f}" if name in AIMS_MS else ""
        print(
            f"{name:14s} median {figures['median_ms']:8.2f}   p95 {figures['p95_ms']:8.2f}"
            f"   most {figures['most_ms']:8.2f}{aim}"
        )


if __name__ == "__main__":
    main()
