"""An exemption begins with evidence that the rows confirm: the grid's store checks it (full/store.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.events import JobPaused, JobResumed
from loopline_master.core.wings.exemptions.exemption import Evidence
from loopline_master.core.wings.exemptions.overdrawn import LOOK_EVERY_S
from loopline_shared.model import AttemptId, Outcome, TaskId
from tests.campaign import PATIENT, tried
from tests.scheduling.driver import Grid, result

FIRST = AttemptId(1, 1, 1)


def overdrawn_grid(policy: str = "round-robin", **more: float) -> tuple[Grid, int]:
    """Job 1 of two tasks and size 5 has run for 60 s on worker ant; a held job waits for worker bee."""
    grid = Grid(policy=policy, overdrawn_after=10.0, max_replicas=1, **{"lease_s": 1e6, **more})
    grid.workers("ant", "bee")
    grid.submit(2, 5.0)
    grid.report("ant")
    grid.end(AttemptId(1, 2, 1), wall_s=0.5, cpu_s=0.5)
    held = grid.submit(1, 5.0)
    grid.now += 60.0
    grid.report("ant")
    grid.wait(LOOK_EVERY_S)
    assert grid.job(1).overdrawn
    return grid, held


def evidence(grid: Grid) -> list[Evidence]:
    return [one for one in grid.store.evidence.values() if one.reason == "overdrawn"]


def test_exemption_keeps_the_measured_work_of_each_attempt() -> None:
    grid, held = overdrawn_grid()
    assert grid.running("bee") == [AttemptId(held, 1, 1)]
    (found,) = evidence(grid)
    (work,) = found.attempts
    assert (found.used, found.limit, found.size) == (pytest.approx(0.5), 10.0, 5.0)
    assert (work.task, work.attempt, work.worker, work.heard_at) == (1, 1, "ant", grid.now - LOOK_EVERY_S)
    assert work.work == pytest.approx(60.0, abs=1.0)


@pytest.mark.parametrize("policy", ["round-robin", "fair"])  # fair gives it another place in the queue, and back
def test_job_holds_others_again_when_results_show_less(policy: str) -> None:
    grid, _ = overdrawn_grid(policy)
    grid.submit(1, 5.0)
    grid.report("ant", result(FIRST, Outcome.FAILED, wall_s=3.0, cpu_s=3.0))
    assert not grid.job(1).overdrawn
    assert grid.job(1).proof == ()
    assert [(one.reason, one.until) for one in grid.store.exemptions.values()] == [("overdrawn", grid.now)]
    later = grid.submit(1, 6.0)
    grid.end(AttemptId(2, 1, 1))
    assert not grid.attempts_of(TaskId(later, 1)), "it is held"
    assert not grid.store.passings


def test_job_stays_overdrawn_when_results_confirm_it() -> None:
    grid, _ = overdrawn_grid()
    grid.report("ant", result(FIRST, Outcome.FAILED, wall_s=60.0, cpu_s=60.0))
    assert grid.job(1).overdrawn
    assert grid.job(1).proof == ()
    grid.restart()
    assert grid.job(1).overdrawn


def test_measured_work_stays_evidence_when_its_worker_is_lost() -> None:
    grid, _ = overdrawn_grid(lease_s=100.0)
    grid.wait(30.0)
    grid.report("bee")
    grid.wait(75.0)
    grid.report("bee")
    assert grid.attempt(1).state == "lost"
    assert grid.job(1).overdrawn
    for event in (JobPaused(1), JobResumed(1)):
        grid.ask(event)
        grid.now += 1.0
    assert [one.attempts for one in evidence(grid)] == [grid.job(1).proof] * 2


def test_time_that_an_attempt_was_frozen_is_no_evidence() -> None:
    grid = Grid(overdrawn_after=10.0, max_replicas=1, lease_s=1e6)
    grid.workers("ant", "bee")
    grid.submit(1, 5.0)
    grid.submit(1, 5.0)
    grid.report("ant", frozen=True)
    grid.now += 300.0
    grid.report("ant")
    grid.wait(LOOK_EVERY_S)
    assert not grid.job(1).overdrawn


def test_time_until_inputs_are_there_is_no_evidence() -> None:
    grid = Grid(overdrawn_after=10.0, max_replicas=1, lease_s=1e6)
    grid.workers("ant", "bee")
    grid.submit(1, 5.0)
    grid.submit(1, 5.0)
    grid.report("ant", clock=(0.0, 0.01))
    grid.now += 300.0
    grid.report("ant", clock=(0.0, 300.0))
    grid.wait(LOOK_EVERY_S)
    assert not grid.job(1).overdrawn, "it has not begun"
    grid.report("ant", clock=(20.0, 330.0))
    grid.now += 20.0
    grid.report("ant", clock=(40.0, 350.0))
    grid.wait(LOOK_EVERY_S)
    assert not grid.job(1).overdrawn, "it has run for 40 s"
    grid.report("ant", clock=(70.0, 380.0))
    grid.wait(LOOK_EVERY_S)
    assert grid.job(1).overdrawn
    ((work,),) = (one.attempts for one in evidence(grid))
    assert work.work == pytest.approx(70.0)


def test_larger_limit_after_a_restart_lets_the_job_hold_others_again() -> None:
    grid, _ = overdrawn_grid()
    grid.settings = replace(grid.settings, overdrawn_after=20.0)
    grid.restart()
    assert not grid.job(1).overdrawn


NAMES = st.sampled_from(["ant", "bee"])
ACTIONS = st.one_of(
    st.tuples(st.just("wait"), st.floats(0.1, 60.0)),
    st.tuples(st.just("report"), NAMES),
    st.tuples(st.just("report"), NAMES),
    st.tuples(st.just("freeze"), NAMES),
    st.tuples(st.just("join"), NAMES),
    st.tuples(st.just("end"), st.tuples(NAMES, st.floats(0.01, 100.0), st.booleans())),
    st.tuples(st.just("pause"), st.integers(1, 3)),
    st.tuples(st.just("resume"), st.integers(1, 3)),
    st.tuples(st.just("restart"), st.none()),
)


@settings(PATIENT, max_examples=tried(60))
@given(
    sizes=st.lists(st.sampled_from([0.5, 5.0, 50.0]), min_size=2, max_size=4),
    actions=st.lists(ACTIONS, min_size=5, max_size=40),
)
def test_no_exemption_begins_without_evidence(sizes: list[float], actions: list[tuple[str, object]]) -> None:
    """Whatever workers report and however long they are silent."""
    grid = Grid(overdrawn_after=2.0, idle_budget_s=40.0, stall_after_s=20.0, lease_s=70.0)
    grid.workers("ant", "bee")
    for count, size in enumerate(sorted(sizes), start=1):
        grid.submit(1 if count > 1 else 2, size)
    for name in ("ant", "bee"):
        grid.report(name)
    for kind, what in actions:
        act(grid, kind, what)


def act(grid: Grid, kind: str, what: object) -> None:
    match kind, what:
        case "wait", float(seconds):
            grid.wait(seconds)
        case (("report" | "freeze"), str(name)) if grid.scheduler.state.workers[name].session is not None:
            grid.report(name, frozen=kind == "freeze")
        case "join", str(name):
            grid.join(name)
        case "end", (str(name), float(wall_s), bool(is_good)) if grid.scheduler.state.workers[name].session:
            agent = grid.agents[name]
            for attempt in [one for one in agent.running if one not in agent.waiting()][:1]:
                outcome = Outcome.SUCCEEDED if is_good else Outcome.FAILED
                grid.report(name, result(attempt, outcome, wall_s=wall_s, cpu_s=wall_s))
        case "pause", int(job):
            grid.step(JobPaused(job))
        case "resume", int(job):
            grid.step(JobResumed(job))
        case "restart", None:
            grid.restart()


def test_job_paused_and_resumed_in_one_step_was_paused() -> None:
    grid = Grid()
    job = grid.submit(2, 5.0)
    grid.step(JobPaused(job), JobResumed(job))
    assert [(one.reason, one.until == one.since) for one in grid.store.exemptions.values()] == [("paused", True)]
