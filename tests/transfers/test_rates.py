"""Rates: the linear programme beside an exact simplex, filling up beside the definition of max-min fairness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from loopline_master.core.wings.transfers.filling import fill
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_master.core.wings.transfers.programme import Constraint, LinearProgramme, Solve, programme
from loopline_master.transfers import solver
from tests.transfers import oracles

SMALL = list(oracles.random_programmes(60))


def keeps_to(programme: LinearProgramme, rates: Sequence[float]) -> None:
    assert all(rate >= floor for rate, floor in zip(rates, programme.floors, strict=True))
    for row in programme.constraints:
        assert sum(count * rates[number] for number, count in row.terms) <= row.limit * (1 + 1e-9)


def test_the_solvers_objective_is_that_of_an_exact_simplex() -> None:
    for each in SMALL:
        rates = solver.solve(each)
        keeps_to(each, rates)
        assert each.objective(rates) == pytest.approx(float(oracles.exact_optimum(each)), rel=1e-6)


def shared_out(programme: LinearProgramme) -> Sequence[float]:
    return solver.share(programme, solver.solve(programme))


@pytest.mark.parametrize("solve", [solver.solve, shared_out])
def test_no_rate_is_below_its_floor_by_rounding(solve: Solve) -> None:
    """HiGHS may answer -0.0000001, and a pipeline with a rate below zero would never end."""
    for each in oracles.random_programmes(100, hosts=20, files=8):
        keeps_to(each, solve(each))


def test_filled_up_rates_are_as_good_as_optimal_and_work_conserving() -> None:
    """Who has nothing could have nothing, as the exact simplex says: with any floor the objective would be less."""
    waiting = 0
    for each in SMALL:
        rates, optimum = shared_out(each), oracles.exact_optimum(each)
        keeps_to(each, rates)
        assert each.objective(rates) == pytest.approx(float(optimum), rel=1e-6)
        for number, rate in enumerate(rates):
            if rate < 0.01:
                waiting += 1
                some = replace(each, floors=tuple(0.05 if place == number else 0.0 for place in range(len(rates))))
                assert each.follows or any(each.floors) or oracles.exact_optimum(some) < optimum
    assert waiting


def test_two_that_share_a_way_share_it_evenly() -> None:
    """The sum is 12.5 whoever has it. The third has a way of its own, and all of it."""
    rows = (Constraint(12.5e6, ((0, 1), (1, 1))), Constraint(5e6, ((2, 1),)))
    each = LinearProgramme((1.0, 1.0, 1.0), (0.0, 0.0, 0.0), rows)
    assert shared_out(each) == pytest.approx([6.25e6, 6.25e6, 5e6], rel=1e-5)
    assert sorted(solver.solve(LinearProgramme((1.0, 1.0), (0.0, 0.0), rows[:1]))) == pytest.approx([0.0, 12.5e6])


def test_the_exact_simplex_itself() -> None:
    """Two pipelines share a link of 10, the first (3 receivers) has a bottleneck of 6: 3 x 6 + 1 x 4."""
    one = LinearProgramme((3.0, 1.0), (0.0, 0.0), (Constraint(10.0, ((0, 1), (1, 1))), Constraint(6.0, ((0, 1),))))
    assert oracles.exact_optimum(one) == 22
    assert oracles.exact_optimum(LinearProgramme((3.0, 1.0), (0.0, 7.0), one.constraints)) == 16


def test_filled_rates_are_max_min_fair() -> None:
    """Each pipeline has a bottleneck: a full constraint where no other pipeline is higher above its floor."""
    for each in SMALL:
        rates = fill(each)
        keeps_to(each, rates)
        levels = [rate - floor for rate, floor in zip(rates, each.floors, strict=True)]
        full = [
            row
            for row in each.constraints
            if sum(count * rates[number] for number, count in row.terms) >= row.limit * (1 - 1e-9)
        ]
        for number, level in enumerate(levels):
            mine = [row for row in full if number in dict(row.terms)]
            assert any(all(levels[other] <= level + 1e-9 for other, _ in row.terms) for row in mine)


@pytest.mark.parametrize("solve", [fill, solver.solve])
def test_overdue_demand_gets_its_floor(solve: Solve) -> None:
    """By the sum alone the pipeline with one receiver would get nothing beside the one with nine."""
    shared = [NetworkNode("root", None, is_switch=True), NetworkNode("source", "root", 10.0, 10.0)]
    network = Network([*shared, *(NetworkNode(f"h{n}", "root", 100.0, 100.0) for n in range(10))])
    lines = [[1, *range(2, 11)], [1, 11]]
    uses = [network.use(line) for line in lines]
    starved = solver.solve(programme(network, uses, [9, 1], [0.0, 0.0]))
    assert starved == pytest.approx([10.0, 0.0])
    assert solve(programme(network, uses, [9, 1], [0.0, 2.0]))[1] >= 2.0
    assert programme(network, uses, [9, 1], [8.0, 8.0]).floors == (5.0, 5.0), "more than there is, shared"


def test_both_directions_of_a_link_are_one_where_the_paper_sums_them() -> None:
    """a sends to b while b sends to a: full duplex carries both at the link's rate."""
    nodes = [NetworkNode("root", None, is_switch=True), *(NetworkNode(name, "root", 8.0, 8.0) for name in "ab")]
    for summed, rate in ((False, 8.0), (True, 4.0)):
        network = Network(nodes, summed=summed)
        found = solver.solve(programme(network, [network.use([1, 2]), network.use([2, 1])], [1, 1], [0.0, 0.0]))
        assert sum(found) == pytest.approx(2 * rate)
