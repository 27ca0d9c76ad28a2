"""Which task runs where, beside the best of all orders on small cases (Takahashi et al., section 2)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest

from loopline_master.core.wings.transfers.filling import fill
from loopline_master.core.wings.transfers.network import Network, NetworkNode
from loopline_simulator.papers.data_transfer.annealing import anneal
from loopline_simulator.papers.data_transfer.assignment import Assessment, Assignment, AssignmentRequest, local_first
from loopline_simulator.papers.data_transfer.genetic_search import evolve
from tests.transfers import oracles

Search = Callable[[Assessment, int, int], Assignment]
SEARCHES: tuple[Search, Search] = (anneal, evolve)


def drawn(seed: int, hosts: int = 5, tasks: int = 5, files: int = 3) -> AssignmentRequest:
    draw = random.Random(seed)
    names = tuple(f"h{number}" for number in range(hosts))
    holders = {f"f{number}": tuple(draw.sample(names, draw.randint(1, 2))) for number in range(files)}
    needed = tuple((draw.choice(sorted(holders)),) for _ in range(tasks))
    return AssignmentRequest(oracles.random_network(draw, hosts, 3), holders, needed, names, disk_rate=20.0)


@pytest.mark.parametrize("search", SEARCHES)
def test_on_small_cases_most_answers_are_the_best_of_all_orders(search: Search) -> None:
    best = 0
    for seed in range(12):
        assessment = Assessment(drawn(seed), fill)
        found = search(assessment, seed, 60)
        first = assessment.of(local_first(assessment))
        optimum = max(assessment.of(order).value for order in permutations(range(5)))
        assert first.value <= found.value <= optimum
        best += found.value == pytest.approx(optimum)
    assert best >= 9


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_makes_as_many_plans_as_it_may_and_finds_the_same_each_time(search: Search) -> None:
    one, other = (Assessment(drawn(3, hosts=12, tasks=15, files=5), fill) for _ in range(2))
    found = search(one, 1, 40)
    assert search(other, 1, 40) == found
    assert 20 < one.made <= 42
    assert sorted(found.order) == list(range(15)), "every task has a place"


def test_tasks_go_first_to_where_their_files_are_then_to_the_same_switch() -> None:
    nodes = [NetworkNode("root", None, is_switch=True), NetworkNode("far", "root", 1.0, 1.0, is_switch=True)]
    nodes += [NetworkNode(f"h{n}", ("root", "far")[n > 1], 10.0, 10.0) for n in range(4)]
    request = AssignmentRequest(
        Network(nodes),
        {"f": ("h3",), "g": ("h0",)},
        (("f",), ("g",), ("f",), ("g",)),
        ("h0", "h1", "h2", "h3"),
        disk_rate=100.0,
    )
    assessment = Assessment(request, fill)
    assert local_first(assessment) == (1, 3, 2, 0)
    found = assessment.of((1, 3, 2, 0))
    assert found.value == 100 + 100 + 10 + 10
    assert found.moved_first == (1, 2), "both fetch over a link that is full"


def test_with_fewer_tasks_than_hosts_some_hosts_get_none() -> None:
    assessment = Assessment(replace(drawn(1), tasks=(("f0",), ("f1",))), fill)
    found = anneal(assessment, 1, 20)
    assert sorted(found.order) == [0, 1, 2, 3, 4]
    assert sum(bool(assessment.request.files(task)) for task in found.order[:5]) == 2
