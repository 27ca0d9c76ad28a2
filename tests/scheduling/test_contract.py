"""Every registered policy meets the contract, and not even a hostile policy can break the guarantee."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, cycle, product
from math import inf, nan
from random import Random

import pytest

from loopline_master.core.kernel.entities import Job, Worker
from loopline_master.core.policies import REGISTRY, Later, Placement, Policy, TaskFirst, WorkerFirst
from loopline_master.core.policies.policy import View
from loopline_master.core.policies.task_first import Candidate, ReadyTask
from tests.campaign import LONG
from tests.scheduling.contract import CONTRACT, SAFETY, Clause, Watched, grid_of
from tests.scheduling.driver import facts


@pytest.mark.parametrize("policy", sorted(REGISTRY) if LONG else ["fair", "first-come", "round-robin", "turnaround"])
@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
def test_policy_meets_the_contract(policy: str, clause: Clause) -> None:
    clause(policy)


# --- hostile policies -----------------------------------------------------------------------------------


def jobs(view: View) -> list[Job]:
    """Return all live jobs, by arrival."""
    return list(view.index.live.values())


def workers(view: View) -> list[Worker]:
    """Return all available workers, by name."""
    return [view.workers[name] for name in sorted(view.index.requirements.available)]


def wishes_for_what_is_not_there(view: View) -> Iterator[Placement]:
    for job in jobs(view):
        for worker in workers(view):
            yield Placement(job.id + 1000, 1, worker.name)
            yield Placement(job.id, 0, worker.name)
            yield Placement(job.id, -1, worker.name)
            yield Placement(job.id, job.task_count + 1, worker.name)
            yield Placement(job.id, 1, "nobody")


def wishes_for_all_tasks_ended_ones_too(view: View) -> Iterator[Placement]:
    for job_id in range(1, 50):
        for task in (1, 2, 3, 4):
            for worker in workers(view):
                yield Placement(job_id, task, worker.name)


def wishes_for_held_tasks_again_and_again(view: View) -> Iterator[Placement]:
    held = [(job.id, task) for job in jobs(view) if view.index.is_held(job) for task in view.fresh(job)]
    names = [worker.name for worker in workers(view)]
    for (job, task), worker in cycle(product(held, names)):  # nothing at all where there is no worker
        yield Placement(job, task, worker)


def wishes_all_on_one_worker(view: View) -> Iterator[Placement]:
    names = sorted(worker.name for worker in workers(view))
    for job in jobs(view):
        for task in range(1, job.task_count + 1):
            for _ in range(5):
                yield Placement(job.id, task, names[0] if names else "nobody")


def wishes_without_end(view: View) -> Iterator[Placement]:
    for number in count():
        for job in jobs(view):
            for worker in workers(view):
                yield Placement(job.id, 1 + number % job.task_count, worker.name)
        yield Placement(0, 0, "")


def wishes_nothing(view: View) -> Iterator[Placement]:
    return iter(())


def wishes_for_the_latest_and_the_last_first(view: View) -> Iterator[Placement]:
    """The worst case for the order: late jobs first, last tasks first, with as many replicas as possible."""
    for job in reversed(jobs(view)):
        for task in range(job.task_count, 0, -1):
            for worker in workers(view):
                yield Placement(job.id, task, worker.name)


def wishes_wildly(view: View) -> Iterator[Placement]:
    draw = Random(f"{view.grid.now} {view.grid.pointer}")
    live, there = jobs(view), workers(view)
    for _ in range(20 if live and there else 0):
        job = draw.choice(live)
        yield Placement(job.id, draw.randint(0, job.task_count + 1), draw.choice(there).name)


class Careless(WorkerFirst):
    """Proposes arbitrary tasks for each worker, and asks to be called again in the past, now and always."""

    replicates = True

    def next_task(self, view: View, worker: Worker) -> Placement | Later | None:
        chance = Random(f"{view.grid.now} {view.grid.pointer} {view.grid.sequence} {worker.name}")
        job = chance.choice(jobs(view))
        answers = [
            Later(view.grid.now + chance.choice([-1.0, 0.0])),
            Placement(job.id, chance.randint(-1, job.task_count + 1), worker.name),
            Placement(job.id, job.task_count, chance.choice(workers(view)).name, spent=self._any_turns(view, worker)),
            None,
        ]
        return chance.choice(answers)

    def _any_turns(self, view: View, worker: Worker) -> tuple[Placement, ...]:
        return tuple(Placement(job.id, task, worker.name) for job in jobs(view) for task in (1, job.task_count))


class Senseless(TaskFirst):
    """Returns NaN as costs, and candidates that it rejects afterwards."""

    def cost(self, view: View, task: ReadyTask, candidate: Candidate) -> float | Later:
        costs = [nan, inf, -inf, 0.0, -1e308, Later(view.grid.now - 1.0)]
        return Random(f"{view.grid.sequence} {task.number} {candidate.name}").choice(costs)


def policy_of(plan: Callable[[View], Iterator[Placement]]) -> type[Policy]:
    """Return a policy of neither kind, with arbitrary proposals."""

    class Hostile(Policy):
        def plan(self, view: View) -> Iterator[Placement]:
            return plan(view)

        def prefetch(self, view: View) -> Iterator[Placement]:
            return plan(view)

    Hostile.__name__ = plan.__name__
    return Hostile


HOSTILE: list[type[Policy]] = [
    policy_of(wishes_for_what_is_not_there),
    policy_of(wishes_for_all_tasks_ended_ones_too),
    policy_of(wishes_for_held_tasks_again_and_again),
    policy_of(wishes_all_on_one_worker),
    policy_of(wishes_without_end),
    policy_of(wishes_nothing),
    policy_of(wishes_for_the_latest_and_the_last_first),
    policy_of(wishes_wildly),
    Careless,
    Senseless,
]


@pytest.fixture(params=HOSTILE, ids=lambda policy: policy.__name__)
def hostile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name under which a hostile policy is registered for one test."""
    monkeypatch.setitem(REGISTRY, request.param.__name__, request.param)
    return str(request.param.__name__)


@pytest.mark.parametrize("clause", SAFETY, ids=lambda clause: clause.__name__)
def test_hostile_policy_breaks_no_safety_clause(hostile: str, clause: Clause) -> None:
    clause(hostile)


def test_hostile_policy_cannot_delay_a_step(hostile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of refused proposals in a step is bounded in proportion to the grid's size."""
    drawn = 0
    policy = REGISTRY[hostile]

    class Counted(policy):  # type: ignore[misc, valid-type]
        def plan(self, view: View) -> Iterator[Placement | Later]:
            nonlocal drawn
            for wish in super().plan(view):
                drawn += 1
                yield wish

    monkeypatch.setitem(REGISTRY, hostile, Counted)
    grid = Watched(policy=hostile)
    for _ in range(10):
        grid.submit(2, 1.0)
    for name in "abcd":
        grid.join(name, facts(2), reports=False)
        drawn = 0
        granted = len(grid.report(name).attempts)
        assert drawn <= 5 * (10 + 4) * (1 + granted), f"{drawn} wishes in one step, of which {granted} were granted"


def test_grid_is_never_idle_while_a_task_may_run(hostile: str) -> None:
    grid = grid_of(hostile)
    grid.submit(3, 1.0)
    assert sum(len(agent.running) for agent in grid.agents.values()) >= 1
