"""Schedules of the rack, recorded with a planner of its own, before it used the live scheduler's.

    python -m tests.simulator.rack_schedules            how many agree with the record
    python -m tests.simulator.rack_schedules --record   record those of the present code

Each is one line of ``rack_schedules.json``: the digest of every announced plan (job, time, start, x, y), and the
calls of Bottom-Left, counted as in the paper and as needed. Any change of a plan or of a call changes its line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

from loopline_master.core.wings.gangs.planning.rack import Rack
from loopline_simulator.papers.rack.rack_trial import RackCase, world_of
from loopline_simulator.papers.rack.workload import Drawn, Sides

RECORD = Path(__file__).with_name("rack_schedules.json")
CASES = 400
_NAMES = (
    "naive", "current", "bold", "by-load", "by-limits", "by-age", "blend", "thrifty-blend", "powers:1,3,4",
    "powers:3,1,1", "powers:5,2,3",
)  # fmt: skip


def cases() -> Iterator[RackCase]:
    """Yield the cases: racks of 1 to 12 nodes a side, 20 to 80 jobs, light and heavy loads, short and long limits."""
    random = Random(19)
    for seed in range(CASES):
        rack = Rack(random.randint(1, 12), random.randint(1, 12))
        side = random.randint(1, min(rack.width, rack.height))
        longest, used = random.choice((3, 20, 90)), random.choice((0.2, 0.5, 0.8, 1.0))
        jobs, load, sides = random.randint(20, 80), random.choice((0.5, 0.9, 1.1, 2.0)), random.choice(list(Sides))
        workload = Drawn(jobs, side, longest, used=used, load=load, sides=sides)
        yield RackCase(seed, random.choice(_NAMES), rack, workload)


def line_of(case: RackCase) -> str:
    """Return the line of a case, as the present code has it."""
    world = world_of(case)
    world.run()
    told = [
        (number, when, plan.start, *plan.place)
        for number, history in sorted(world.histories.items())
        for when, plan in history.plans
    ]
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
    return f"{case.algorithm} {len(told)} {digest} {world.planner.calls} {world.planner.needed}"


def recorded() -> list[str]:
    """Return the recorded lines, in the order of the cases."""
    lines: list[str] = json.loads(RECORD.read_text())
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    now = [line_of(case) for case in cases()]
    if parser.parse_args().record:
        RECORD.write_text(json.dumps(now, indent=0) + "\n")
    print(f"{sum(map(str.__eq__, now, recorded()))} of {len(now)} as recorded")


if __name__ == "__main__":
    main()
