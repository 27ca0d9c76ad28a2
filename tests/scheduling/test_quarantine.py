"""A worker that fails where others succeed, or is far slower than it claims, enters quarantine for a time."""

from __future__ import annotations

import pytest

from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.wings.trust.trust import Trust
from loopline_shared.model import AttemptId, Outcome, TaskId
from tests.scheduling.driver import Grid, facts


def grid_of(*names: str, slots: int = 1, **chosen: float) -> Grid:
    """Workers that have each completed a task of the program in 10 s."""
    grid = Grid(policy="first-come", max_attempts=5, **{"lease_s": 1e6, **chosen})
    grid.workers(*names, slots=slots)
    for _ in range(6):
        grid.submit(len(names) * slots)
        for name in names:
            for attempt in grid.running(name):
                grid.end(attempt, wall_s=10.0)
    for worker in grid.scheduler.state.workers.values():
        worker.health = 0.0
    return grid


def goes_wrong(grid: Grid, bad: str, good: str) -> float:
    """Let a task fail on one worker and succeed on the other. Return when the first entered quarantine, else now."""
    job, seen_at = grid.submit(2), list[float]()

    def end(attempt: AttemptId, outcome: Outcome, **more: float) -> None:
        grid.end(attempt, outcome, **more)
        if grid.store.workers[bad].quarantined_until is not None:
            seen_at.append(grid.now)

    for attempt in grid.running(bad):
        if attempt.job == job:
            end(attempt, Outcome.FAILED)
    for _ in range(6):
        for attempt in [*grid.running(good), *grid.running(bad)]:
            if attempt in grid.running(good):
                end(attempt, Outcome.SUCCEEDED, wall_s=10.0)
    return seen_at[0] if seen_at else grid.now


def health_of(grid: Grid, name: str) -> tuple[float, bool, bool]:
    worker = grid.store.workers[name]
    return worker.health, worker.quarantined_until is not None, worker.half_open


def fail_often(grid: Grid, bad: str, good: str) -> float:
    """Return when the bad worker entered quarantine."""
    seen_at = grid.now
    for _ in range(20):
        if grid.store.workers[bad].quarantined_until is not None:
            return seen_at
        seen_at = goes_wrong(grid, bad, good)
    raise AssertionError(f"{bad} was never put into quarantine: {grid.store.workers[bad]}")


def test_one_failure_does_not_lead_to_quarantine() -> None:
    grid = grid_of("a", "b")
    goes_wrong(grid, "a", "b")
    assert health_of(grid, "a") == (-1.0, False, False), "a half for the failure, a half for the other's success"
    assert health_of(grid, "b")[0] > 0


def test_failures_where_others_succeed_lead_to_quarantine() -> None:
    grid = grid_of("a", "b")
    fail_often(grid, "a", "b")
    worker = grid.store.workers["a"]
    assert worker.quarantined_until == grid.now + 60.0
    assert "failed there, and then succeeded on b" in worker.quarantine_reason
    job = grid.submit(4)
    assert (grid.running("a"), len(grid.running("b"))) == ([], 1), "it gets no new task"
    explanation = explain_job(grid.scheduler, job)
    assert explanation is not None
    assert "1 of them is in quarantine: on a task" in explanation.sentence


def test_every_frame_tells_the_owner_about_the_quarantine() -> None:
    grid = grid_of("a", "b")
    fail_often(grid, "a", "b")
    shown = grid.report("a").assigns["a"].quarantine
    assert shown is not None
    assert (shown.until, "succeeded on b" in shown.reason) == (grid.now + 60.0, True)
    grid.wait(60.0)
    assert grid.report("a").assigns["a"].quarantine is None


def test_worker_returns_from_quarantine_with_one_attempt_at_a_time() -> None:
    grid = grid_of("a", "b", slots=3)
    fail_often(grid, "a", "b")
    grid.submit(20)
    assert grid.running("a") == []
    assert grid.scheduler.wake_at == grid.now + 60.0
    grid.wait(59.0)
    assert grid.running("a") == []
    grid.wait(1.0)
    assert health_of(grid, "a") == (0.0, False, True)
    assert len(grid.running("a")) == 1, "one attempt at a time"
    grid.end(grid.running("a")[0], wall_s=10.0)
    assert health_of(grid, "a")[2] is False
    assert len(grid.running("a")) == 3


def test_quarantine_doubles_up_to_a_limit_and_successes_shorten_it() -> None:
    grid = grid_of("a", "b", max_quarantine_s=200.0)
    lasted = []
    for _ in range(4):
        began_at = fail_often(grid, "a", "b")
        until = grid.store.workers["a"].quarantined_until or 0.0
        lasted.append(until - began_at)
        grid.wait(until - grid.now)
        assert grid.store.workers["a"].half_open
    assert lasted == [60.0, 120.0, 200.0, 200.0]
    assert grid.store.workers["a"].quarantines == 4
    for _ in range(8):
        grid.submit(2)
        for name in "ab":
            grid.end(grid.running(name)[0], wall_s=10.0)
    assert grid.store.workers["a"].quarantines < 4


def test_first_failure_after_quarantine_starts_the_next_one() -> None:
    grid = grid_of("a", "b")
    fail_often(grid, "a", "b")
    grid.wait(60.0)
    began_at = goes_wrong(grid, "a", "b")
    assert grid.store.workers["a"].quarantined_until == began_at + 120.0


def test_quarantined_worker_gets_tasks_that_no_other_can_run() -> None:
    grid = grid_of("a", "b")
    fail_often(grid, "a", "b")
    grid.join("c", facts(os="windows"))
    linux = grid.submit(3, requires={"os": "linux"})
    assert (grid.running("a"), grid.job(linux).running) == ([], 1), "b could run it too, although it is busy"
    grid.report("b", slots=0)
    assert [a.job for a in grid.running("a")] == [linux], "b offers no slots now, so only a is left"
    grid.report("b", slots=1)
    grid.end(grid.running("a")[0], wall_s=10.0)
    assert grid.running("a") == []


def test_task_that_fails_everywhere_leads_to_no_quarantine() -> None:
    grid = grid_of("a", "b")
    for _ in range(12):
        job = grid.submit(1, max_attempts=4)
        while grid.attempts_of(TaskId(job, 1)):
            grid.end(grid.attempts_of(TaskId(job, 1))[0], Outcome.FAILED)
        grid.submit(2)
        for name in "ab":
            grid.end(grid.running(name)[0], wall_s=10.0)
    assert not any(worker.quarantines for worker in grid.store.workers.values())


def test_broken_computer_does_not_use_up_the_attempts_of_a_task() -> None:
    """It is idle again at once, and could get the same task again and again."""
    grid = grid_of("a", "b")
    grid.submit(1, 1e6)
    job = grid.submit(8)
    for _ in range(40):
        for attempt in [a for a in grid.running("a") if a.job == job]:
            grid.end(attempt, Outcome.FAILED)
        for attempt in [a for a in grid.running("b") if a.job == job]:
            grid.end(attempt, wall_s=10.0)
        first = [a for a in grid.running("b") if a.job != job] + [a for a in grid.running("a") if a.job != job]
        for attempt in first:
            grid.end(attempt, wall_s=10.0)
    assert (grid.job(job).succeeded, grid.job(job).failed) == (8, 0)
    assert grid.store.workers["a"].quarantines == 1


def test_worker_far_slower_than_its_benchmark_enters_quarantine() -> None:
    grid = grid_of("a", "b")
    for _ in range(3):
        grid.submit(2)
        grid.end(grid.running("b")[0], wall_s=10.0)
        grid.end(grid.running("a")[0], wall_s=80.0)
    worker = grid.store.workers["a"]
    assert worker.quarantined_until is not None
    assert "80 s, far longer than it would have taken others" in worker.quarantine_reason


def test_program_that_changed_leads_to_no_quarantine() -> None:
    grid = grid_of("a", "b")
    for _ in range(8):
        grid.submit(2)
        for name in "ab":
            grid.end(grid.running(name)[0], wall_s=80.0)
    assert not any(worker.quarantines for worker in grid.store.workers.values())


def test_quarantine_can_be_switched_off() -> None:
    grid = grid_of("a", "b", quarantine_s=0.0)
    for _ in range(6):
        goes_wrong(grid, "a", "b")
    assert health_of(grid, "a")[1] is False


def test_prefetched_tasks_are_retracted_from_a_quarantined_worker() -> None:
    grid = grid_of("a", "b", prefetch_s=1000.0)
    grid.submit(6)
    waiting = [a for a in grid.scheduler.state.attempts.values() if a.worker == "a" and a.is_queued]
    assert waiting
    state = grid.scheduler.state
    state.workers["a"].health = -2.5
    running = [a for a in grid.running("a") if state.attempts[a].is_seated]
    grid.end(running[0], Outcome.FAILED)
    assert grid.store.workers["a"].quarantined_until is not None
    assert not any(a.is_queued for a in grid.scheduler.state.attempts.values() if a.worker == "a")


def test_attempts_started_before_the_quarantine_do_not_shorten_it() -> None:
    grid = grid_of("a", "b", slots=3)
    grid.submit(40)
    state = grid.scheduler.state
    state.workers["a"].health = -2.5
    grid.end(grid.running("a")[0], Outcome.FAILED)
    assert grid.store.workers["a"].quarantines == 1
    for attempt in grid.running("a"):
        grid.end(attempt, wall_s=10.0)
    assert (health_of(grid, "a"), grid.store.workers["a"].quarantines) == ((0.0, True, False), 1)


def test_quarantine_survives_a_restart() -> None:
    grid = grid_of("a", "b")
    fail_often(grid, "a", "b")
    grid.restart()
    for name in "ab":
        grid.join(name)
    grid.submit(4)
    assert (grid.running("a"), len(grid.running("b"))) == ([], 1)


def test_lost_and_preempted_attempts_do_not_lower_health() -> None:
    grid = grid_of("a", "b")
    job = grid.submit(1)
    attempt = AttemptId(job, 1, 1)
    grid.end(attempt, Outcome.GIVEN_BACK)
    grid.end(grid.attempts_of(TaskId(job, 1))[0], wall_s=10.0)
    assert all(worker.health >= 0 for worker in grid.store.workers.values())


@pytest.mark.parametrize("policy", ["round-robin", "fair", "space-partition", "turnaround", "random", "cyclic"])
def test_no_policy_uses_a_quarantined_worker(policy: str) -> None:
    grid = Grid(policy=policy)
    grid.workers("a", "b", "c")
    worker = grid.scheduler.state.workers["b"]
    grid.scheduler.state.wings[Trust].accuse(worker, "it lied")
    grid.scheduler.state.flush()
    grid.submit(9)
    assert [len(grid.running(name)) for name in "abc"] == [1, 0, 1]
