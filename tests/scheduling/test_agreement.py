"""Quorums, free comparison of replicas' results, and the accounts and budgets of replicas."""

from __future__ import annotations

from typing import Any

import pytest

from loopline_master.core.events import JobCancelled
from loopline_master.core.explain.explain_job import explain_job, explain_task
from loopline_master.core.explain.explain_worker import explain_worker
from loopline_master.core.policies import REGISTRY
from loopline_master.core.wings.trust.trust import Mismatch
from loopline_shared.model import AttemptId, JobState, Order, Outcome, Output, TaskId, TaskState
from tests.scheduling.driver import Grid, result


def printed(text: str) -> dict[str, Any]:
    return {"stdout": Output(len(text), data=text.encode()), "cpu_s": 2.0, "wall_s": 2.0}


def end_on(grid: Grid, name: str, text: str) -> None:
    grid.end(grid.running(name)[0], **printed(text))


def ledger(grid: Grid, job: int) -> dict[str, int]:
    row = grid.job(job)
    kinds = ("useful", "replicated", "won", "wasted", "lost")
    return {kind: ms for kind in kinds if (ms := getattr(row, f"{kind}_cpu_ms"))}


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_quorum_starts_all_its_attempts_at_once_on_different_workers(policy: str) -> None:
    grid = Grid(policy=policy)
    grid.workers("a", "b", slots=4)
    job = grid.submit(1, 9.0, quorum=2)
    assert (len(grid.running("a")), len(grid.running("b"))) == (1, 1)
    end_on(grid, "a", "same")
    assert grid.task(job).state is TaskState.RUNNING
    grid.restart()
    grid.join("b")
    end_on(grid, "b", "same")
    assert grid.job(job).state is JobState.SUCCEEDED
    assert (grid.job(job).mismatches, grid.task(job).mismatch) == (0, False)
    assert ledger(grid, job) == {"useful": 4000}, "attempts of a quorum count neither as waste nor as replicas"


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_worker_with_wrong_result_is_outvoted_and_marked(policy: str) -> None:
    grid = Grid(policy=policy)
    grid.workers("liar")
    job = grid.submit(1, 9.0, quorum=2)
    end_on(grid, "liar", "a lie")
    assert not grid.running("liar"), "a worker votes once"
    grid.restart()
    for name in ("liar", "b", "c"):
        grid.join(name)
    assert not grid.running("liar")
    for name in ("b", "c"):
        end_on(grid, name, "the truth")
    assert grid.job(job).state is JobState.SUCCEEDED
    assert (grid.job(job).mismatches, grid.task(job).mismatch, grid.task(job).winner) == (1, True, 3)
    assert [grid.store.workers[name].mismatches for name in ("liar", "b", "c")] == [1, 0, 0]
    assert (ledger(grid, job)["useful"], ledger(grid, job)["wasted"]) == (4000, 2000)
    said = explain_worker(grid.scheduler, "liar")
    assert said is not None
    assert "1 result of its contradict" in said.sentence


def test_task_fails_when_too_many_results_disagree() -> None:
    grid = Grid()
    grid.workers("a", "b", "c")
    job = grid.submit(1, quorum=2, max_attempts=2)
    for name in ("a", "b", "c"):
        grid.report(name)
        end_on(grid, name, name)
    assert grid.job(job).state is JobState.FAILED
    assert grid.task(job).verdict == "of 3 results, 1 agree: the job's quorum is 2"
    assert ledger(grid, job)["lost"] == 6000
    grid.step(grid.retry_event(job))
    assert (grid.task(job).votes, grid.task(job).verdict) == ((), "")


def test_failed_attempt_does_not_vote() -> None:
    grid = Grid()
    grid.workers("a", "b")
    job = grid.submit(1, quorum=2, max_attempts=2)
    grid.end(grid.running("a")[0], Outcome.FAILED)
    assert grid.running("a"), "its worker may try again"
    end_on(grid, "a", "same")
    end_on(grid, "b", "same")
    assert grid.job(job).state is JobState.SUCCEEDED


def test_explain_says_that_a_quorum_needs_another_worker() -> None:
    grid = Grid(stall_after_s=60.0)
    grid.workers("a")
    job, later = grid.submit(1, 5.0, quorum=2), grid.submit(1, 5.0)
    end_on(grid, "a", "same")
    task = explain_task(grid.scheduler, TaskId(job, 1))
    whole = explain_job(grid.scheduler, job)
    assert task is not None
    assert whole is not None
    assert "1 result so far: 2 have to agree" in task.sentence
    assert "1 task needs a result from another worker: 2 have to agree, 1 worker could run it" in whole.sentence
    grid.wait(61.0)
    assert grid.job(job).stalled, "too few workers for its quorum: it holds no other job"
    grid.join("a")
    grid.end(grid.running("a")[0])
    assert grid.job(later).state is JobState.SUCCEEDED


def test_quorum_without_a_further_voter_stops_holding_later_jobs() -> None:
    grid = Grid(stall_after_s=60.0, lease_s=1e6)
    grid.workers("a", "liar")
    job, later = grid.submit(1, 5.0, quorum=2), grid.submit(1, 5.0)
    end_on(grid, "a", "the truth")
    end_on(grid, "liar", "a lie")
    assert grid.task(job).state is TaskState.QUEUED
    assert not grid.running("a") + grid.running("liar"), "the later job is held"
    grid.wait(61.0)
    assert grid.job(job).stalled
    said = explain_job(grid.scheduler, job)
    assert said is not None
    assert "no other worker is connected that its quorum of 2 needs, so it holds no other job" in said.sentence
    grid.end(grid.attempts_of(TaskId(later, 1))[0])
    assert grid.job(later).state is JobState.SUCCEEDED
    grid.join("c")
    assert not grid.job(job).stalled
    end_on(grid, "c", "the truth")
    assert grid.job(job).state is JobState.SUCCEEDED


def test_result_that_crosses_its_cancel_is_compared_for_free() -> None:
    grid = Grid()
    grid.workers("a", "b")
    job = grid.submit(1)
    grid.step(deliver=False)
    loser = grid.running("b")[0]
    grid.report("a", result(grid.running("a")[0], **printed("one")), deliver=False)
    assert grid.job(job).state is JobState.SUCCEEDED
    effects = grid.report("b", result(loser, **printed("another")), deliver=False)
    assert effects.told(Mismatch) == [Mismatch(TaskId(job, 1))]
    assert (grid.task(job).mismatch, grid.job(job).mismatches) == (True, 1)
    assert [grid.store.workers[name].mismatches for name in "ab"] == [1, 1]
    assert ledger(grid, job) == {"useful": 2000, "replicated": 2000, "wasted": 2000}


def test_accounts_show_a_replica_that_won() -> None:
    grid = Grid()
    grid.workers("a", "b")
    job = grid.submit(1)
    grid.end(AttemptId(job, 1, 2), cpu_s=3.0)
    grid.report("a", result(AttemptId(job, 1, 1), Outcome.CANCELLED, cpu_s=1.0))
    assert ledger(grid, job) == {"useful": 3000, "replicated": 3000, "won": 3000, "wasted": 1000}


def test_assumed_loss_is_taken_back_when_the_worker_returns() -> None:
    grid = Grid(lease_s=30.0)
    grid.workers("a")
    job = grid.submit(1, max_replicas=1)
    grid.report("a")
    grid.now += 12.0
    grid.report("a")
    grid.wait(31.0)
    assert ledger(grid, job) == {"lost": 12_000}
    grid.join("a")
    assert ledger(grid, job) == {}, "it is still running"
    grid.end(grid.running("a")[0], cpu_s=40.0)
    assert ledger(grid, job) == {"useful": 40_000}


def test_failed_and_cancelled_attempts_count_as_lost() -> None:
    grid = Grid()
    grid.workers("a")
    job = grid.submit(1, max_replicas=1)
    grid.end(grid.running("a")[0], Outcome.FAILED, cpu_s=1.0)
    grid.end(grid.running("a")[0], Outcome.GIVEN_BACK, cpu_s=2.0)
    grid.step(JobCancelled(job), deliver=False)
    grid.report("a", result(grid.running("a")[0], Outcome.CANCELLED, cpu_s=4.0))
    assert ledger(grid, job) == {"lost": 7000}


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_spent_replica_budget_ends_replication(policy: str) -> None:
    """The expected time of running replicas counts; attempts of a quorum do not."""
    grid = Grid(policy=policy, order=Order.NONE)
    grid.workers("a")
    job = grid.submit(1, 60.0, replica_budget_s=0.0)
    grid.report("a", slots=0, frozen=True)
    grid.join("b")
    grid.report("b")
    assert not grid.running("b")
    said = explain_job(grid.scheduler, job)
    assert said is not None
    assert "no more replicas of it: its budget of 0 s is spent" in said.sentence
    voted = grid.submit(1, 60.0, replica_budget_s=0.0, quorum=2)
    grid.join("c")
    assert [a.job for a in grid.running("b") + grid.running("c")] == [voted, voted]


def test_replica_budget_reserves_the_expected_time_of_running_replicas() -> None:
    grid = Grid()
    grid.workers("a", slots=4)
    grid.submit(4, 400.0, replica_budget_s=150.0)
    grid.join("b", None)
    grid.join("c")
    grid.join("d")
    assert sum(len(grid.running(name)) for name in "bcd") == 2, "each is expected to take 100 s"


def test_replica_budget_reserves_what_a_task_has_shown() -> None:
    """A declared size does not make replicas cheap once a task has exceeded it."""
    grid = Grid(order=Order.NONE)
    grid.workers("a", slots=4)
    grid.submit(4, 1e-6, replica_budget_s=250.0)
    grid.workers("b", slots=2)
    grid.end(AttemptId(1, 1, 1), wall_s=100.0, cpu_s=100.0)
    grid.workers("c", "d", "e")
    running = [attempt for name in "bcde" for attempt in grid.running(name)]
    assert len(running) == 2, "each counts as 100 s, like the one that was cancelled"
