"""The rack: against a literal version move for move, and against cases worked out by hand."""

from functools import reduce
from itertools import combinations
from operator import or_

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.wings.gangs.planning.planner import ScanMemory
from loopline_master.core.wings.gangs.planning.profile import Profile
from loopline_master.core.wings.gangs.planning.rack import Rack
from loopline_master.core.wings.gangs.planning.scans.lattice import Lattice
from loopline_master.core.wings.gangs.planning.scans.scan_algorithms import (
    BOLD,
    CURRENT,
    NAIVE,
    OURS,
    PAPERS,
    Algorithm,
    ScanContext,
    algorithm,
)
from loopline_simulator.papers.rack.measures import fairness, measure, utilisation, window
from loopline_simulator.papers.rack.rack_world import JobHistory, RackWorld
from loopline_simulator.papers.rack.workload import Drawn, RackJob
from tests.campaign import LONG, tried
from tests.simulator.rack_literal import LiteralRack
from tests.simulator.rack_schedules import cases, line_of, recorded

LATTICES = [Lattice(1), Lattice(7), Lattice(2, 2, 3), Lattice(1, 3, 2), Lattice(2, 2, 8)]


@st.composite
def racks_and_jobs(draw: st.DrawFn) -> tuple[Rack, list[RackJob]]:
    rack = Rack(draw(st.integers(1, 5)), draw(st.integers(1, 5)))
    jobs, arrival = [], 0
    for number in range(draw(st.integers(1, 14))):
        arrival += draw(st.integers(0, 3))
        width, height = draw(st.integers(1, rack.width)), draw(st.integers(1, rack.height))
        limit = draw(st.integers(1, 9))
        jobs.append(RackJob(number, arrival, width, height, limit=limit, runs=draw(st.integers(1, limit))))
    return rack, jobs


def lived(rack: Rack, jobs: list[RackJob], chosen: Algorithm) -> RackWorld:
    world = RackWorld(rack, chosen, jobs)
    world.run()
    return world


def told(world: RackWorld) -> list[tuple[int, ...]]:
    """Return (job, time of announcement, start, x, y), as in the literal rack, but by job."""
    return [
        (number, when, plan.start, *plan.place)
        for number, history in world.histories.items()
        for when, plan in history.plans
    ]


@settings(max_examples=tried(60, 3000), deadline=None)
@given(racks_and_jobs(), st.sampled_from(LATTICES))
def test_it_agrees_with_the_literal_rack_move_for_move(case: tuple[Rack, list[RackJob]], lattice: Lattice) -> None:
    rack, jobs = case
    literal = LiteralRack(rack.width, rack.height, (lattice.first, lattice.base, lattice.count))
    literal.run(jobs)
    world = lived(rack, jobs, Algorithm(lattice))
    assert told(world) == sorted(literal.told)
    assert world.planner.calls == literal.calls
    assert world.planner.needed <= literal.calls


@settings(max_examples=tried(25, 1000), deadline=None)
@given(racks_and_jobs(), st.sampled_from(sorted(PAPERS | OURS)))
def test_scan_memory_changes_no_plan(case: tuple[Rack, list[RackJob]], name: str) -> None:
    rack, jobs = case
    world = lived(rack, jobs, algorithm(name))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScanMemory, "still_known", lambda memory, job: 0)
        forgetful = lived(rack, jobs, algorithm(name))
    assert told(forgetful) == told(world)
    assert forgetful.planner.calls == world.planner.calls
    assert forgetful.planner.needed >= world.planner.needed


def test_scan_memory_counts_from_its_pass_and_is_doubted_at_freed_cells() -> None:
    """A job of limit 3 that fits at none of the times 10 to 17; cells are freed from 15 to 16 after its scan."""
    memory, job = ScanMemory(), RackJob(7, 0, width=1, height=1, limit=3, runs=3)
    memory.begin_pass(10)
    memory.remember(job, 10, 0b11111111)
    memory.begin_pass(12)
    assert memory.still_known(job) == 0b111111
    memory.free(15, 16)
    doubtful_from_13_to_15 = 0b001110
    assert memory.still_known(job) == 0b111111 & ~doubtful_from_13_to_15
    memory.begin_pass(13)
    assert memory.still_known(job) == 0b11000
    memory.drop(7)
    assert memory.still_known(job) == 0


@settings(max_examples=tried(25, 1000), deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.data())
def test_bottom_left_is_the_least_y_and_in_it_the_least_x(width: int, height: int, data: st.DataObject) -> None:
    rack = Rack(width, height)
    cells = [(x, y) for y in range(height) for x in range(width)]
    free = data.draw(st.sets(st.sampled_from(cells)))
    taken = sum(rack.rectangle(cell, 1, 1) for cell in cells if cell not in free)
    w, h = data.draw(st.integers(1, width)), data.draw(st.integers(1, height))
    fitting = [(x, y) for x, y in cells if {(x + i, y + j) for i in range(w) for j in range(h)} <= free]
    assert rack.bottom_left(taken, w, h) == next(iter(fitting), None)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(0, 11), st.booleans()), max_size=25))
def test_profile_knows_occupied_slots_over_time(bookings: list[tuple[int, int, int, bool]]) -> None:
    profile, literal = Profile[int, int](Rack()), [0] * 40
    for start, length, cell, given_back in bookings:
        span, bit = range(start, start + length), 1 << cell
        if any(literal[time] & bit for time in span):
            continue
        profile.occupy(start, start + length, bit)
        if given_back:
            profile.free(start, start + length, bit)
        else:
            for time in span:
                literal[time] |= bit
    for start in range(25):
        assert reduce(or_, profile.over(start, start + 3)) == literal[start] | literal[start + 1] | literal[start + 2]
    for time in range(20):
        later = [t for t in range(time + 1, 40) if literal[t - 1] & ~literal[t]]
        if later:
            assert profile.next_release(time) == later[0]
    profile.forget(10)
    assert not any(profile.over(10, 40)) or profile.last > 10
    assert all(profile.over(time, time + 1)[0] == literal[time] for time in range(10, 40))


def test_the_papers_times() -> None:
    def times(lattice: Lattice, horizon: int) -> list[int]:
        return [time for time in range(horizon) if lattice.before(horizon) >> time & 1]

    assert times(NAIVE, 5) == [0, 1, 2, 3, 4]
    assert times(CURRENT, 66) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64]
    assert times(BOLD, 97) == [0, 32, 64, 96]
    assert times(Lattice(3), 10) == [0, 3, 6, 9]


@given(st.builds(Lattice, st.integers(1, 5), st.integers(1, 4), st.integers(1, 5)), st.integers(0, 300))
def test_times_are_counted_as_they_come(lattice: Lattice, offset: int) -> None:
    assert lattice.index(offset) == lattice.before(offset).bit_count()
    assert lattice.before(lattice.not_before(offset) + 1) >> offset == 1 << (lattice.not_before(offset) - offset)


ALL = Rack(4, 4)
WHOLE = [RackJob(0, 0, 4, 4, limit=10, runs=4), RackJob(1, 1, 4, 4, limit=5, runs=5)]


@pytest.mark.parametrize(
    ("name", "promised", "calls"),
    [("naive", 10, 1 + 10 + 1), ("current", 11, 1 + 6 + 1), ("bold", 33, 1 + 2 + 1), ("powers:3,1,1", 10, 1 + 4 + 1)],
)
def test_a_promise_is_kept_early_when_the_rack_is_left_early(name: str, promised: int, calls: int) -> None:
    world = lived(ALL, WHOLE, algorithm(name))
    assert told(world) == [(0, 0, 0, 0, 0), (1, 1, promised, 0, 0), (1, 4, 4, 0, 0)]
    assert world.planner.calls == calls
    found = measure(list(world.histories.values()), ALL, calls, world.planner.needed)
    assert (found.moved, found.moves, found.step, found.sooner) == (0.5, 0.5, promised - 4, (promised - 4) / 2)
    assert (found.largest_wait, found.mean_wait, found.soonest) == (3, 1.5, promised - 4)


def test_small_jobs_fill_the_gap_that_a_large_one_leaves() -> None:
    jobs = [
        RackJob(0, 0, 3, 4, limit=10, runs=10),
        RackJob(1, 1, 4, 4, limit=2, runs=2),
        RackJob(2, 2, 1, 2, limit=8, runs=8),
        RackJob(3, 2, 1, 2, limit=9, runs=9),
    ]
    assert told(lived(ALL, jobs, algorithm("naive"))) == [
        (0, 0, 0, 0, 0),
        (1, 1, 10, 0, 0),
        (2, 2, 2, 3, 0),  # ends at 10, just in time
        (3, 2, 12, 0, 0),  # would not
    ]


def test_a_job_never_moves_back_and_a_gap_goes_to_the_earliest_plan() -> None:
    """When 0 ends early both 1 and 2 would like its place: 1 is planned to start sooner, and gets it."""
    jobs = [
        RackJob(0, 0, 4, 4, limit=10, runs=3),
        RackJob(1, 1, 4, 3, limit=6, runs=6),
        RackJob(2, 1, 4, 2, limit=6, runs=6),
    ]
    assert told(lived(ALL, jobs, algorithm("naive"))) == [
        (0, 0, 0, 0, 0),
        (1, 1, 10, 0, 0),
        (1, 3, 3, 0, 0),
        (2, 1, 16, 0, 0),
        (2, 3, 9, 0, 0),
    ]


@pytest.mark.parametrize("name", [*PAPERS, *OURS, "powers:1,3,4"])
@pytest.mark.parametrize("used", [1.0, 0.5])
def test_no_two_jobs_overlap_and_none_leaves_the_rack(name: str, used: float) -> None:
    rack = Rack(8, 6)
    jobs = Drawn(count=150, largest_side=6, used=used, load=1.2).of(1, rack)
    histories = list(lived(rack, jobs, algorithm(name)).histories.values())
    assert len(histories) == 150
    for history in histories:
        x, y = history.plan.place
        assert 0 <= x <= rack.width - history.job.width
        assert 0 <= y <= rack.height - history.job.height
        starts = [plan.start for _, plan in history.plans]
        assert starts == sorted(set(starts), reverse=True)
        assert starts[-1] >= history.plans[-1][0] >= history.plans[0][0] == history.job.arrival
    for one, other in combinations(histories, 2):
        in_time = one.plan.start < other.end and other.plan.start < one.end
        across = overlap(one.plan.place[0], one.job.width, other.plan.place[0], other.job.width)
        along = overlap(one.plan.place[1], one.job.height, other.plan.place[1], other.job.height)
        assert not (in_time and across and along)


def overlap(one: int, length: int, other: int, others: int) -> bool:
    return one < other + others and other < one + length


@pytest.mark.parametrize("name", ["naive", "current", "bold", "blend"])
def test_the_thrifty_plan_alike(name: str) -> None:
    jobs = Drawn(count=150, used=0.5, load=1.1).of(2, Rack())
    plain, thrifty = (lived(Rack(), jobs, algorithm(each)) for each in (name, f"thrifty-{name}"))
    assert told(plain) == told(thrifty)
    assert plain.planner.needed < plain.planner.calls


def test_a_blend_looks_at_limits_and_age_and_another_at_the_backlog() -> None:
    blend, by_load = algorithm("blend"), algorithm("by-load")
    assert blend.lattice(ScanContext(99.0, 0.76, 99.0)) is CURRENT
    assert blend.lattice(ScanContext(99.0, 0.75, 2.0)) is BOLD
    assert blend.lattice(ScanContext(0.0, 0.75, 2.1)) is NAIVE
    assert by_load.lattice(ScanContext(20.0, 0.1, 99.0)) is CURRENT
    assert by_load.lattice(ScanContext(20.1, 1.0, 0.0)) is BOLD


def test_where_limits_are_good_the_blend_plans_as_current() -> None:
    jobs = Drawn(count=150, used=1.0, load=1.1).of(2, Rack())
    assert told(lived(Rack(), jobs, algorithm("blend"))) == told(lived(Rack(), jobs, algorithm("current")))


def test_blend_receives_the_scan_context(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ScanContext] = []
    monkeypatch.setattr(Algorithm, "lattice", lambda self, outlook: seen.append(outlook) or NAIVE)
    lived(ALL, WHOLE, algorithm("naive"))
    assert seen == [ScanContext(10.0, 1.0, 0.0), ScanContext(5.0, 1.0, 0.0), ScanContext(5.0, 0.4, 3 / 7.5)]


def test_utilisation_and_fairness_by_hand() -> None:
    jobs = [
        RackJob(0, 0, 1, 2, limit=10, runs=10),
        RackJob(1, 5, 2, 2, limit=4, runs=4),
        RackJob(2, 10, 1, 1, limit=3, runs=3),
    ]
    histories: list[JobHistory] = list(lived(Rack(2, 2), jobs, algorithm("naive")).histories.values())
    assert [history.wait for history in histories] == [0, 5, 4]
    assert utilisation(histories, Rack(2, 2), 10, 12) == 1.0
    found = measure(histories, Rack(2, 2), 7, 3)
    assert window(histories) == (2.0, 10)
    assert found.utilisation == 0.5  # by the first alone
    assert (found.correlation, found.residual) == (
        pytest.approx(0.371154, abs=1e-6),
        pytest.approx(2.005944, abs=1e-6),
    )
    fit = fairness(histories)
    assert (fit.slope, fit.intercept) == (pytest.approx(9 / 14), pytest.approx(1.5))
    assert (found.calls, found.needed, found.moved) == (7, 3, 0.0)


def test_jobs_that_all_come_at_once_are_measured_until_the_last_ends() -> None:
    histories = list(
        lived(
            Rack(2, 2),
            [RackJob(0, 3, 2, 1, limit=4, runs=4), RackJob(1, 3, 2, 2, limit=4, runs=4)],
            algorithm("naive"),
        ).histories.values()
    )
    assert measure(histories, Rack(2, 2), 0, 0).utilisation == 0.75


def test_schedules_equal_the_recorded_ones() -> None:
    """Move for move and call for call; by ``python -m tests.simulator.rack_schedules``."""
    lines = list(zip(cases(), recorded(), strict=True))[:: 1 if LONG else 5]
    assert [line_of(case) for case, _ in lines] == [line for _, line in lines]
