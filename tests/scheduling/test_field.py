"""Policies of the literature, for comparison only: they meet the contract and follow their papers."""

from __future__ import annotations

import pytest

from loopline_master.core.policies import COMPARED, REGISTRY, register
from loopline_master.core.policies.first_come import FirstCome
from loopline_master.settings import MasterSettings
from loopline_shared.model import Order, Outcome
from tests.scheduling import contract
from tests.scheduling.contract import CONTRACT, Clause
from tests.scheduling.driver import Grid

FIELD = sorted(COMPARED)
LONG = [
    contract.rules_and_order_are_kept_where_tasks_wait_at_workers,
    contract.decisions_are_a_function_of_rows,
    contract.decisions_are_deterministic,
]
"""Whole lives of a grid under each policy that no master offers; they run with the long tests."""


def grid_of(policy: str, **more: object) -> Grid:
    return Grid(policy=policy, lease_s=1e6, **{"order": Order.NONE, "max_replicas": 2, **more})


def ran(grid: Grid, *workers: str) -> list[tuple[int, int]]:
    """Return the job and task that each worker runs."""
    return [(attempt.job, attempt.task) for name in workers for attempt in grid.running(name)]


@pytest.mark.parametrize("policy", FIELD)
@pytest.mark.parametrize(
    "clause", [clause for clause in CONTRACT if clause not in LONG], ids=lambda clause: clause.__name__
)
def test_field_policy_meets_the_contract(policy: str, clause: Clause) -> None:
    clause(policy)


@pytest.mark.campaign
@pytest.mark.parametrize("policy", FIELD)
@pytest.mark.parametrize("clause", LONG, ids=lambda clause: clause.__name__)
def test_field_policy_meets_the_long_clauses(policy: str, clause: Clause) -> None:
    clause(policy)


def test_master_refuses_field_policies() -> None:
    assert not REGISTRY.keys() & COMPARED.keys()
    for policy in FIELD:
        with pytest.raises(ValueError, match="there is no such policy"):
            MasterSettings(policy=policy)
        with pytest.raises(ValueError, match=f"two policies are called {policy}"):
            register(policy)(FirstCome)


@pytest.mark.parametrize(
    ("policy", "third_and_fourth"),
    [
        ("wqr", [(2, 1), (2, 2)]),  # the next job's tasks before any replica
        ("long-idle", [(2, 1), (2, 2)]),
        ("fcfs-share", [(1, 1), (1, 2)]),  # the first job's replicas before the next job
    ],
)
def test_next_workers_run_new_tasks_or_replicas_by_policy(policy, third_and_fourth) -> None:
    grid = grid_of(policy)
    grid.submit(2, 9.0)
    grid.submit(2, 9.0)
    grid.workers("a", "b", "c", "d")
    assert ran(grid, "a", "b", "c", "d") == [(1, 1), (1, 2), *third_and_fourth]


def test_round_robin_starts_new_tasks_before_replicas() -> None:
    grid = grid_of("rr-nrf")
    grid.submit(2, 9.0)
    grid.submit(3, 9.0)
    grid.workers("a", "b", "c", "d", "e", "f")
    assert ran(grid, "a", "b", "c", "d", "e") == [(1, 1), (2, 1), (1, 2), (2, 2), (2, 3)]
    assert ran(grid, "f") == [(1, 1)], "then replicas, in the same round"


@pytest.mark.parametrize("policy", FIELD)
def test_task_has_at_most_as_many_attempts_as_the_threshold(policy: str) -> None:
    grid = grid_of(policy)
    grid.submit(2, 9.0)
    grid.workers("a", "b", "c", "d", "e", "f")
    assert sorted(ran(grid, "a", "b", "c", "d")) == [(1, 1), (1, 1), (1, 2), (1, 2)]
    assert not ran(grid, "e", "f")


@pytest.mark.parametrize("policy", FIELD)
def test_lost_task_restarts_before_any_task_is_replicated(policy: str) -> None:
    grid = grid_of(policy)
    grid.submit(2, 9.0)
    grid.workers("a", "b")
    grid.end(grid.running("b")[0], Outcome.GIVEN_BACK)
    assert ran(grid, "b") == [(1, 2)]


def test_task_that_waited_longest_is_replicated_first() -> None:
    grid = grid_of("long-idle")
    grid.submit(1, 9.0)
    grid.workers("a")
    grid.submit(1, 9.0)
    grid.wait(50.0)
    grid.workers("b")
    assert ran(grid, "b") == [(2, 1)]
    grid.workers("c")
    assert ran(grid, "c") == [(2, 1)], "it waited 50 s; the first job's tasks started at once"
