"""Many jobs with different requirements: the faster lookup gives the same assignments."""

from __future__ import annotations

from random import Random

import pytest

from loopline_master.core.events import JobSubmitted
from loopline_master.core.policies import fair_index, policy, task_first
from loopline_master.core.policies.task_first import WorkerIndex
from loopline_shared.model import AttemptId
from tests.campaign import tried
from tests.scheduling.driver import Grid, facts, spec


def moves(name: str, seed: int) -> list[list[tuple[str, AttemptId]]]:
    """Return each step's assignments per worker, while jobs arrive and tasks end."""
    random, found = Random(seed), list[list[tuple[str, AttemptId]]]()
    grid = Grid(policy=name, prefetch_s=random.choice([0.0, 5.0]))
    for number in range(4):
        grid.join(f"w{number}", facts(slots=1 + number % 2, memory_bytes=(number + 1) * 10**8))
    for _ in range(50):
        if random.random() < 0.6:
            needs = {"memory_bytes": random.randrange(5 * 10**8), "slots": random.choice([1, 1, 2])}
            size = random.choice([None, 1.0, 5.0])
            job = spec(random.randint(1, 3), size, needs)
            grid.step(JobSubmitted(random.choice(["ann", "ben"]), job))
        else:
            running = sorted(attempt for agent in grid.agents.values() for attempt in agent.running)
            grid.now += random.choice([0.5, 3.0])
            if running:
                grid.end(random.choice(running), wall_s=1.0, cpu_s=1.0)
        given = grid.last.assigns.items()
        found.append([(worker, run.attempt) for worker, assign in given for run in assign.run])
    return found


@pytest.mark.parametrize(
    "name", ["round-robin", "first-come", "most-throughput", "shortest-queue", "cyclic", "turnaround", "fair"]
)
def test_assignments_do_not_depend_on_the_lookup(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(tried(1, 3)):
        found = []
        for few in (0, 5, 10**6):
            for module in (policy, fair_index, task_first):
                monkeypatch.setattr(module, "FEW", few)
            found.append(moves(name, seed))
        assert sum(map(len, found[0])) > 15
        assert found[0] == found[1] == found[2]


def asked_when_a_task_ends(monkeypatch: pytest.MonkeyPatch, policy: str, different: int, size: float | None) -> int:
    """Count the jobs whose best worker is computed in a step that frees one slot and fills it."""
    asked, best = list[int](), WorkerIndex.best
    monkeypatch.setattr(WorkerIndex, "best", lambda index, job: asked.append(job.id) or best(index, job))
    grid = Grid(policy=policy, prefetch_s=1.0)
    grid.workers("w1", "w2")
    for number in range(different):
        grid.submit(10, size, requires={"memory_bytes": 1000 * number})
    asked.clear()
    grid.end(grid.running("w1")[0], wall_s=60.0, cpu_s=60.0)
    assert len(grid.last.assigns["w1"].run) == 1
    return len(asked)


@pytest.mark.parametrize("size", [None, 600.0], ids=["unknown", "known"])
def test_only_the_next_job_is_asked_if_tasks_are_long(monkeypatch: pytest.MonkeyPatch, size: float | None) -> None:
    assert asked_when_a_task_ends(monkeypatch, "most-throughput", 40, size) == 1


def test_no_job_is_asked_for_an_idle_worker_that_none_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, best = list[int](), WorkerIndex.best
    monkeypatch.setattr(WorkerIndex, "best", lambda index, job: asked.append(job.id) or best(index, job))
    grid = Grid(policy="shortest-queue", prefetch_s=1.0)
    grid.join("small", facts(memory_bytes=10**6))
    for number in range(40):
        asked.clear()
        grid.submit(10, 600.0, requires={"memory_bytes": 10**9 + number})
    assert not asked
    grid.submit(1, 600.0, requires={"memory_bytes": 1000})
    assert grid.running("small")
    assert len(asked) == 1


def test_short_task_of_a_late_job_is_prefetched_past_long_ones() -> None:
    grid = Grid(policy="shortest-queue", prefetch_s=1.0)
    grid.workers("w1")
    for number in range(40):
        grid.submit(10, 600.0, requires={"memory_bytes": 1000 * number})
    short = grid.submit(2, 0.4, requires={"memory_bytes": 77})
    assert [attempt.job for attempt in grid.waiting("w1")][:1] == [short]
