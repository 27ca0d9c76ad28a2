"""The rack: against a literal version move for move, and against cases worked out by hand."""

from itertools import accumulate, chain, combinations, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.rack.algorithms import BOLD, CURRENT, NAIVE, Algorithm, Outlook, algorithm
from simulator.rack.lattice import Lattice
from simulator.rack.planner import Plan
from simulator.rack.rack import Rack
from simulator.rack.timetable import Timetable
from simulator.rack.workload import Drawn, Job, Sides
from simulator.rack.world import Life, RackWorld
from tests.simulator.rack_literal import LiteralRack

LATTICES = [Lattice(1), Lattice(7), Lattice(2, 2, 3), Lattice(1, 3, 2), Lattice(2, 2, 8)]


@st.composite
def racks_and_jobs(draw: st.DrawFn) -> tuple[Rack, list[Job]]:
    rack = Rack(draw(st.integers(1, 5)), draw(st.integers(1, 5)))
    jobs, arrival = [], 0
    for number in range(draw(st.integers(1, 14))):
        arrival += draw(st.integers(0, 3))
        width, height = draw(st.integers(1, rack.width)), draw(st.integers(1, rack.height))
        limit = draw(st.integers(1, 9))
        jobs.append(Job(number, arrival, width, height, limit, draw(st.integers(1, limit))))
    return rack, jobs


def lived(rack: Rack, jobs: list[Job], chosen: Algorithm) -> RackWorld:
    world = RackWorld(rack, chosen, jobs)
    world.run()
    return world


def told(world: RackWorld) -> list[tuple[int, ...]]:
    """Job, when it was told, start, x, y: as the literal rack has it, but by job."""
    return [
        (number, when, plan.start, *plan.place) for number, life in world.lives.items() for when, plan in life.told
    ]


@settings(max_examples=300, deadline=None)
@given(racks_and_jobs(), st.sampled_from(LATTICES))
def test_it_agrees_with_the_literal_rack_move_for_move(case: tuple[Rack, list[Job]], lattice: Lattice) -> None:
    rack, jobs = case
    literal = LiteralRack(rack.width, rack.height, (lattice.first, lattice.base, lattice.count))
    literal.run(jobs)
    world = lived(rack, jobs, Algorithm(lattice))
    assert told(world) == sorted(literal.told)
    assert world.planner.calls == literal.calls
    assert world.planner.needed <= literal.calls
