"""Every registered policy keeps the contract; and no policy, however hostile, can break the guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle, product
from random import Random

import pytest

from loopline_master.core.policies import REGISTRY, Policy
from loopline_master.core.policies.view import Placement, View
from tests.scheduling.contract import CONTRACT, SAFETY, Clause, Watched, grid_of
from tests.scheduling.driver import facts


@pytest.mark.parametrize("policy", sorted(REGISTRY))
@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
def test_policies_keep_the_contract(policy: str, clause: Clause) -> None:
    clause(policy)


# --- policies that mean harm -----------------------------------------------------------------------------------


def wishes_for_what_is_not_there(view: View) -> Iterator[Placement]:
    for job in view.jobs():
        for worker in view.workers():
            yield Placement(job.id + 1000, 1, worker.name)
            yield Placement(job.id, 0, worker.name)
            yield Placement(job.id, -1, worker.name)
            yield Placement(job.id, job.task_count + 1, worker.name)
            yield Placement(job.id, 1, "nobody")


def wishes_for_all_tasks_ended_ones_too(view: View) -> Iterator[Placement]:
    for job_id in range(1, 50):
        for task in (1, 2, 3, 4):
            for worker in view.workers():
                yield Placement(job_id, task, worker.name)


def wishes_for_held_tasks_again_and_again(view: View) -> Iterator[Placement]:
    held = [(job.id, task) for job in view.jobs() if view.is_held(job) for task in view.fresh(job)]
    workers = [worker.name for worker in view.workers()]
    for (job, task), worker in cycle(product(held, workers)):  # nothing at all where there is no worker
        yield Placement(job, task, worker)


def wishes_all_on_one_worker(view: View) -> Iterator[Placement]:
    names = sorted(worker.name for worker in view.workers())
    for job in view.jobs():
        for task in range(1, job.task_count + 1):
            for _ in range(5):
                yield Placement(job.id, task, names[0] if names else "nobody")


def wishes_without_end(view: View) -> Iterator[Placement]:
    for number in count():
        for job in view.jobs():
            for worker in view.workers():
                yield Placement(job.id, 1 + number % job.task_count, worker.name)
        yield Placement(0, 0, "")


def wishes_nothing(view: View) -> Iterator[Placement]:
    return iter(())


def wishes_for_the_latest_and_the_last_first(view: View) -> Iterator[Placement]:
    """The worst for the order: late jobs first, each from its end, with as many replicas as can be had."""
    for job in reversed(view.jobs()):
        for task in range(job.task_count, 0, -1):
            for worker in view.workers():
                yield Placement(job.id, task, worker.name)


def wishes_wildly(view: View) -> Iterator[Placement]:
    draw = Random(f"{view.now} {view.pointer}")
    jobs, workers = view.jobs(), view.workers()
    for _ in range(20 if jobs and workers else 0):
        job = draw.choice(jobs)
        yield Placement(job.id, draw.randint(0, job.task_count + 1), draw.choice(workers).name)


HOSTILE: list[Policy] = [
    wishes_for_what_is_not_there,
    wishes_for_all_tasks_ended_ones_too,
    wishes_for_held_tasks_again_and_again,
    wishes_all_on_one_worker,
    wishes_without_end,
    wishes_nothing,
    wishes_for_the_latest_and_the_last_first,
    wishes_wildly,
]


@pytest.fixture(params=HOSTILE, ids=lambda plan: plan.__name__)
def hostile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name under which a hostile policy is registered for one test."""
    plan = request.param
    monkeypatch.setitem(REGISTRY, plan.__name__, Policy(plan))  # type: ignore[arg-type]
    return plan.__name__


@pytest.mark.parametrize("clause", SAFETY, ids=lambda clause: clause.__name__)
def test_a_hostile_policy_may_slow_the_grid_but_breaks_nothing(hostile: str, clause: Clause) -> None:
    clause(hostile)


def test_a_hostile_policy_cannot_hold_a_step_up(hostile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many it has, wishes in vain are heard only in proportion to the grid's size."""
    drawn = 0
    policy = REGISTRY[hostile]

    def counted(view: View) -> Iterator[Placement]:
        nonlocal drawn
        for wish in policy.plan(view):
            drawn += 1
            yield wish

    monkeypatch.setitem(REGISTRY, hostile, Policy(counted))  # type: ignore[arg-type]
    grid = Watched(policy=hostile)
    for _ in range(10):
        grid.submit(2, 1.0)
    for name in "abcd":
        grid.join(name, facts(2), reports=False)
        drawn = 0
        granted = len(grid.report(name).attempts)
        assert drawn <= 5 * (10 + 4) * (1 + granted), f"{drawn} wishes in one step, of which {granted} were granted"


def test_the_grid_never_idles_while_something_may_run(hostile: str) -> None:
    grid = grid_of(hostile)
    grid.submit(3, 1.0)
    assert sum(len(agent.running) for agent in grid.agents.values()) >= 1
