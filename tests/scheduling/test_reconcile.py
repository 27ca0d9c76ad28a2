"""A worker's Report against the master's belief: the table of worker_sessions.py, cell by cell, and related cases."""

from __future__ import annotations

import pytest

from loopline_master.core.events import JobCancelled, JobPaused, WorkerLeft, WorkerReported
from loopline_master.core.explain.explain_worker import explain_worker
from loopline_master.core.kernel.invariants import check_slots
from loopline_master.core.wings.leases.kept_back import brings_news
from loopline_shared.model import AttemptId, Held, JobState, Load, Outcome, Phases, TaskId
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.worker_link import MAX_STRANGERS_PER_ASSIGN, Assign, Report
from tests.scheduling.driver import Grid, facts, result

FIRST, SECOND = AttemptId(1, 1, 1), AttemptId(1, 1, 2)
STRANGER = AttemptId(99, 1, 1)


def believed(state: str) -> Grid:
    """A grid whose only worker, ``a``, is believed to have FIRST in this state; its last command is under way."""
    grid = Grid(lease_s=30.0)
    grid.join("a")
    grid.submit(1)
    if state == "dispatched":
        return grid
    grid.report("a")
    if state == "cancelling":
        grid.step(JobCancelled(1))
    elif state == "lost":
        grid.wait(30.0)
        grid.join("a", reports=False)
    elif state == "succeeded":
        grid.end(FIRST)
    assert grid.attempt(1).state == state
    return grid


def said(assign: Assign) -> list[str]:
    return [f"run {run.attempt}" for run in assign.run] + [f"cancel {attempt}" for attempt in assign.cancel]


@pytest.mark.parametrize(
    ("state", "held", "seen", "after", "commands"),
    [
        ("dispatched", True, True, "running", []),
        ("dispatched", True, False, "running", []),
        ("dispatched", False, False, "dispatched", []),
        ("dispatched", False, True, "dispatched", ["run 1.1.1"]),
        ("running", True, True, "running", []),
        ("running", False, True, "lost", ["run 1.1.2"]),
        ("running", False, False, "lost", ["run 1.1.2"]),
        ("cancelling", True, False, "cancelling", []),
        ("cancelling", True, True, "cancelling", ["cancel 1.1.1"]),
        ("cancelling", False, False, "cancelling", []),
        ("cancelling", False, True, "cancelled", []),
        ("lost", True, False, "running", []),
        ("lost", False, False, "lost", ["run 1.1.2"]),
        ("succeeded", True, True, "succeeded", ["cancel 1.1.1"]),
        ("succeeded", False, True, "succeeded", []),
    ],
)
def test_reconciliation_follows_the_table(
    state: str, held: bool, seen: bool, after: str, commands: list[str]
) -> None:
    grid = believed(state)
    last = grid.agents["a"].seen
    effects = grid.report("a", holding=[FIRST] if held else [], seen=last if seen else max(0, last - 1))
    assert grid.attempt(1).state == after
    assert said(effects.assigns["a"]) == commands


def test_repeated_command_waits_until_it_is_seen() -> None:
    grid = believed("dispatched")
    again = grid.report("a", holding=[]).assigns["a"]
    assert said(again) == ["run 1.1.1"]
    assert said(grid.report("a", holding=[], seen=again.seq - 1).assigns["a"]) == []
    assert said(grid.report("a", holding=[], seen=again.seq).assigns["a"]) == ["run 1.1.1"]


def test_attempt_lost_for_good_is_cancelled_when_it_returns() -> None:
    grid = believed("lost")
    grid.report("a", holding=[])
    assert grid.attempt(1).ended_at == grid.now
    effects = grid.report("a", holding=[FIRST, SECOND])
    assert said(effects.assigns["a"]) == ["cancel 1.1.1"]
    assert grid.attempt(1).state == "lost"


@pytest.mark.parametrize("stranger", [STRANGER, AttemptId(1, 1, 7), AttemptId(1, 2, 1)])
def test_unknown_attempt_is_cancelled(stranger: AttemptId) -> None:
    grid = believed("running")
    effects = grid.report("a", holding=[FIRST, stranger])
    assert said(effects.assigns["a"]) == [f"cancel {stranger}"]
    assert list(effects.attempts) == []


def test_many_unknown_attempts_are_cancelled_over_several_reports() -> None:
    grid = believed("running")
    strangers = [AttemptId(99, task, 1) for task in range(MAX_STRANGERS_PER_ASSIGN + 2)]
    first = grid.report("a", holding=[FIRST, *strangers]).assigns["a"].cancel
    assert first == tuple(strangers[:-2])
    assert grid.report("a", holding=[FIRST, *strangers[-2:]]).assigns["a"].cancel == tuple(strangers[-2:])


def test_attempt_of_another_worker_counts_as_unknown() -> None:
    grid = believed("running")
    grid.join("b", reports=False)
    effects = grid.report("b", holding=[FIRST])
    assert "cancel 1.1.1" in said(effects.assigns["b"])
    assert grid.attempt(1).state == "running"
    assert grid.attempt(1).worker == "a"


# --- leases ----------------------------------------------------------------------------------------------------


def test_report_renews_the_lease() -> None:
    grid = believed("running")
    assert grid.scheduler.wake_at == grid.now + 30.0
    grid.now += 20
    grid.report("a")
    grid.wait(29.9)
    assert grid.attempt(1).state == "running"
    effects = grid.wait(0.2)
    assert (grid.attempt(1).state, grid.task(1).state) == ("lost", "queued")
    assert effects.closes == [("a", grid.agents["a"].session)]
    assert grid.store.workers["a"].session is None


def test_closed_link_does_not_lose_attempts() -> None:
    """The worker counts as working until its lease ends, and may return with all its attempts."""
    grid = believed("running")
    grid.leave("a")
    assert grid.attempt(1).state == "running"
    grid.now += 10
    effects = grid.join("a")
    assert grid.attempt(1).state == "running"
    assert said(effects.assigns["a"]) == []
    grid.leave("a")
    grid.wait(30.0)
    assert grid.attempt(1).state == "lost"
    assert grid.scheduler.wake_at is not None, "no worker can run the job, so it stalls"


@pytest.mark.parametrize("state", ["dispatched", "running", "cancelling"])
def test_attempt_is_lost_in_every_state_when_its_lease_ends(state: str) -> None:
    grid = believed(state)
    grid.wait(30.0)
    assert grid.attempt(1).state == "lost"
    may_come_back = state != "cancelling"
    assert (grid.attempt(1).ended_at is None) == may_come_back
    assert bool(grid.scheduler.state.attempts) == may_come_back


def test_attempt_lost_while_cancelling_is_cancelled_when_it_returns() -> None:
    grid = believed("cancelling")
    grid.agents["a"].running = dict.fromkeys([FIRST])  # type: ignore[arg-type]
    grid.agents["a"].killed = []
    grid.wait(30.0)
    assert not grid.scheduler.state.attempts
    assert said(grid.join("a").assigns["a"]) == ["cancel 1.1.1"]


# --- lost attempts return --------------------------------------------------------------------------------------


def replaced(max_replicas: int) -> Grid:
    """FIRST was lost with its worker ``a``; SECOND is at work on ``b``."""
    grid = Grid(lease_s=30.0)
    grid.join("a")
    grid.submit(1, max_replicas=max_replicas)
    grid.report("a")
    grid.wait(30.0)
    grid.join("b")
    assert (grid.attempt(1).state, grid.running("b")) == ("lost", [SECOND])
    return grid


def test_lost_attempt_is_adopted_if_its_task_may_have_another() -> None:
    grid = replaced(max_replicas=2)
    effects = grid.join("a")
    assert (grid.attempt(1).state, said(effects.assigns["a"])) == ("running", [])
    assert grid.attempt(1).reason == ""
    effects = grid.end(FIRST)
    assert grid.task(1).winner == 1
    assert said(effects.assigns["b"]) == ["cancel 1.1.2"]


@pytest.mark.parametrize(("ran_s", "stays"), [(35.0, FIRST), (1e9, FIRST), (5.0, SECOND), (0.0, SECOND)])
def test_attempt_that_is_further_ahead_stays_when_a_lost_one_is_back(ran_s: float, stays: AttemptId) -> None:
    """The agent had hung, and its task has run on; or it was suspended with its computer."""
    grid = replaced(max_replicas=1)
    grid.report("b")
    grid.wait(10.0)
    grid.join("a", reports=False)
    grid.report("a", clock=(ran_s, 0.0))
    grid.report("a", clock=(ran_s, 0.0))
    grid.report("b")
    states = {one: grid.store.attempts[one].state for one in (FIRST, SECOND)}
    assert states.pop(stays) == "running"
    assert [*states.values()] == ["cancelled"]
    grid.end(stays)
    assert grid.task(1).winner == stays.number


def test_lost_attempt_is_cancelled_if_its_task_may_have_no_other() -> None:
    grid = replaced(max_replicas=1)
    effects = grid.join("a")
    assert (grid.attempt(1).state, said(effects.assigns["a"])) == ("cancelling", ["cancel 1.1.1"])
    assert grid.attempt(1).reason == "replaced while it was lost"
    grid.report("a")
    assert grid.attempt(1).state == "cancelled"
    grid.end(SECOND)
    assert grid.job(1).state == "succeeded"


def test_result_of_a_cancelled_lost_attempt_wins_if_it_is_first() -> None:
    grid = replaced(max_replicas=1)
    grid.join("a")
    effects = grid.report("a", result(FIRST))
    assert (grid.task(1).winner, grid.attempt(1).accepted) == (1, True)
    assert said(effects.assigns["b"]) == ["cancel 1.1.2"]


@pytest.mark.parametrize("max_replicas", [1, 2])
def test_result_of_a_lost_attempt_wins_if_it_is_first(max_replicas: int) -> None:
    grid = replaced(max_replicas)
    grid.join("a", reports=False)
    effects = grid.report("a", result(FIRST))
    assert (grid.attempt(1).state, grid.attempt(1).accepted, grid.task(1).winner) == ("succeeded", True, 1)
    assert said(effects.assigns["b"]) == ["cancel 1.1.2"]
    assert effects.completed == [1]


def test_failure_of_a_lost_attempt_counts_but_its_successor_continues() -> None:
    grid = replaced(max_replicas=1)
    grid.join("a", reports=False)
    grid.report("a", result(FIRST, Outcome.FAILED))
    assert (grid.attempt(1).state, grid.task(1).failures, grid.task(1).state) == ("failed", 1, "running")
    assert grid.attempt(1, 1, 2).state == "dispatched"


# --- results ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outcome", "end"), [(Outcome.SUCCEEDED, "succeeded"), (Outcome.FAILED, "failed")])
def test_result_that_crosses_its_cancel_is_recorded_but_not_accepted(outcome: Outcome, end: str) -> None:
    grid = believed("running")
    grid.step(JobCancelled(1), deliver=False)
    grid.report("a", result(FIRST, outcome, wall_s=3.0))
    attempt = grid.attempt(1)
    assert (attempt.state, attempt.accepted, attempt.wall_s) == (end, False, 3.0)
    assert (grid.task(1).state, grid.task(1).winner, grid.job(1).state) == ("cancelled", None, "cancelled")
    assert not grid.last.late


def test_first_of_two_results_is_accepted() -> None:
    grid = Grid()
    grid.workers("a", "b")
    grid.submit(1, max_replicas=2)
    assert {*grid.running("a"), *grid.running("b")} == {FIRST, SECOND}
    reports = [
        WorkerReported(name, grid.agents[name].session, Report(2, 2, (), (result(attempt),), Load(1)))
        for name, attempt in (("b", SECOND), ("a", FIRST))
        if attempt in grid.running(name)
    ]
    assert len(reports) == 2
    grid.step(*reports, deliver=False)
    assert [grid.attempt(1, 1, n).accepted for n in (1, 2)] == [False, True]
    assert [grid.attempt(1, 1, n).state for n in (1, 2)] == ["succeeded", "succeeded"]


def test_result_is_recorded_in_full() -> None:
    grid = believed("running")
    grid.now += 5
    told = result(FIRST, wall_s=4.0, cpu_s=3.5, peak_memory_bytes=10, reason="all is well")
    grid.report("a", told)
    row = grid.attempt(1)
    assert (row.wall_s, row.cpu_s, row.peak_memory_bytes, row.exit_code) == (4.0, 3.5, 10, 0)
    assert (row.reason, row.ended_at, row.stdout) == ("all is well", grid.now, told.stdout)


def test_start_is_computed_for_an_attempt_never_reported_running() -> None:
    grid = believed("dispatched")
    grid.now += 10
    grid.report("a", result(FIRST, wall_s=4.0))
    assert grid.attempt(1).started_at == grid.now - 4.0


@pytest.mark.parametrize("attempt", [STRANGER, AttemptId(1, 1, 9), AttemptId(1, 5, 1)])
def test_results_of_attempts_not_in_memory_are_late(attempt: AttemptId) -> None:
    grid = believed("running")
    effects = grid.report("a", result(attempt))
    assert effects.late == [("a", result(attempt))]
    assert not effects.attempts
    assert effects.assigns["a"].seen == grid.agents["a"].sent, "it is still acknowledged"


def test_worker_cannot_end_an_attempt_of_another() -> None:
    grid = believed("running")
    grid.join("b")
    effects = grid.report("b", result(FIRST))
    assert effects.late == [("b", result(FIRST))]
    assert grid.attempt(1).state == "running"


def test_duplicate_result_in_a_report_counts_once() -> None:
    grid = believed("running")
    effects = grid.report("a", result(FIRST, Outcome.FAILED), result(FIRST, Outcome.FAILED))
    assert grid.task(1).failures == 1
    assert len(effects.late) == 1


def test_result_ends_an_attempt_also_reported_as_held() -> None:
    grid = believed("running")
    effects = grid.report("a", result(FIRST), holding=[FIRST])
    assert grid.attempt(1).state == "succeeded"
    assert said(effects.assigns["a"]) == ["cancel 1.1.1"]


# Results that are being delivered


def delivering(state: str) -> Grid:
    """A grid whose worker ``a`` has FIRST in this state; it has ended there, and its result is not delivered yet."""
    grid = believed(state)
    grid.agents["a"].running, grid.agents["a"].killed = {}, []
    grid.agents["a"].delivering.add(FIRST)
    return grid


@pytest.mark.parametrize(
    ("state", "after", "commands"),
    [
        ("dispatched", "delivering", []),
        ("running", "delivering", []),
        ("lost", "delivering", []),
        ("cancelling", "retracting", ["cancel 1.1.1"]),
        ("succeeded", "succeeded", ["cancel 1.1.1"]),
    ],
)
def test_delivery_follows_the_table(state: str, after: str, commands: list[str]) -> None:
    grid = delivering(state)
    assert said(grid.report("a").assigns["a"]) == commands
    assert grid.attempt(1).state == after
    grid.report("a", result(FIRST))
    assert grid.attempt(1).state == "succeeded"


def test_delivery_takes_no_slot_and_is_no_news() -> None:
    grid = Grid(lease_s=30.0)
    grid.join("a", facts(2))
    grid.submit(15)
    for task in range(1, 14):
        grid.delivers(AttemptId(1, task, 1))
    assert [attempt.task for attempt in grid.running("a")] == [14, 15], "other attempts have their slots"
    state = grid.scheduler.state
    assert state.index.attempts.used == {"a": 2}
    check_slots(state.workers["a"], state.attempts.values())
    grid.report("a")
    waiting = ranges_of(sorted(grid.agents["a"].delivering))
    held = tuple(Held(attempt) for attempt in grid.running("a"))
    load = Load(2, spare_cpu=2.0)
    assert not brings_news(state, state.workers["a"], Report(99, 99, held, (), load, delivering=waiting))
    assert brings_news(state, state.workers["a"], Report(99, 99, held, (), load, delivering=waiting[:-1]))
    explained = explain_worker(grid.scheduler, "a")
    assert explained
    assert "delivering 13 results to the master" in explained.sentence


def test_delivery_missing_from_a_report_is_lost() -> None:
    grid = delivering("running")
    grid.report("a")
    grid.agents["a"].delivering.clear()
    assert said(grid.report("a").assigns["a"]) == ["run 1.1.2"]
    assert grid.attempt(1).state == "lost"


@pytest.mark.parametrize("state", ["running", "cancelling"])
def test_delivery_is_lost_when_its_worker_stays_away(state: str) -> None:
    grid = delivering(state)
    grid.report("a")
    grid.leave("a")
    grid.wait(30.0)
    assert grid.attempt(1).state == "lost"


def test_delivery_of_an_unknown_attempt_is_cancelled() -> None:
    grid = believed("running")
    grid.agents["a"].delivering.add(STRANGER)
    assert said(grid.report("a").assigns["a"]) == [f"cancel {STRANGER}"]


def test_delivery_that_returns_too_late_is_cancelled() -> None:
    grid = replaced(max_replicas=1)
    grid.agents["a"].running.clear()
    grid.agents["a"].delivering.add(FIRST)
    grid.join("a")
    assert grid.attempt(1).state == "retracting"
    grid.report("a", result(FIRST))
    assert grid.job(1).state is JobState.SUCCEEDED, "the first result still wins"


def test_phases_of_an_attempt_are_stored_as_measured() -> None:
    grid = believed("running")
    phases = Phases(inputs_s=2.0, began_s=2.5, ended_s=9.0, frozen_s=1.5, delivered_s=20.0)
    grid.wait(25.0)
    grid.report("a", result(FIRST, wall_s=5.0, slot=1, phases=phases))
    attempt = grid.attempt(1)
    assert (attempt.fetch_s, attempt.frozen_s, attempt.deliver_s, attempt.phases) == (2.0, 1.5, 11.0, phases)


def test_result_of_a_lost_attempt_is_late_when_its_task_is_over() -> None:
    grid = replaced(max_replicas=1)
    grid.end(SECOND)
    effects = grid.join("a", reports=False)
    effects = grid.report("a", result(FIRST))
    assert effects.late == [("a", result(FIRST))]
    assert (grid.attempt(1).state, grid.attempt(1).accepted) == ("succeeded", False)


# --- sessions --------------------------------------------------------------------------------------------------


def test_each_report_is_answered_by_exactly_one_assign() -> None:
    grid = Grid()
    grid.workers("a", "b")
    assert list(grid.report("a").assigns) == ["a"], "even without commands, and only to this worker"
    grid.submit(3, max_replicas=1)
    effects = grid.end(grid.running("a")[0])
    assert list(effects.assigns) == ["a"]
    assert (len(effects.assigns["a"].run), effects.assigns["a"].seen) == (1, grid.agents["a"].sent)


def test_two_reports_in_one_step_are_answered_together() -> None:
    grid = Grid()
    grid.join("a")
    agent = grid.agents["a"]
    reports = [WorkerReported("a", agent.session, Report(n, 1, (), (), Load(1))) for n in (2, 3)]
    effects = grid.step(*reports)
    assert (effects.assigns["a"].seq, effects.assigns["a"].seen) == (2, 3)


def test_frames_are_numbered_by_session() -> None:
    grid = believed("running")
    assert grid.store.workers["a"].assigned == 3
    effects = grid.join("a")
    assert (effects.assigns["a"].seq, effects.assigns["a"].seen) == (1, 1)


def test_run_sent_in_an_earlier_session_is_sent_again() -> None:
    """Whether it arrived is unknown until the first Report of the new session."""
    grid = believed("dispatched")
    grid.reboot("a")
    grid.join("a", reports=False)
    assert grid.attempt(1).sent == 0
    effects = grid.report("a")
    assert (said(effects.assigns["a"]), grid.attempt(1).sent) == (["run 1.1.1"], 1)


def test_no_command_is_sent_before_the_first_report() -> None:
    grid = believed("running")
    grid.join("a", reports=False)
    effects = grid.step(JobCancelled(1))
    assert (effects.assigns, grid.attempt(1).state, grid.attempt(1).sent) == ({}, "cancelling", 0)
    grid.submit(1)
    assert grid.last.assigns == {}
    effects = grid.report("a")
    assert said(effects.assigns["a"]) == ["cancel 1.1.1"]


def test_second_link_supersedes_the_first() -> None:
    grid = believed("running")
    old = grid.agents["a"].session
    effects = grid.join("a", reports=False)
    assert effects.closes == [("a", old)]
    stale = WorkerReported("a", old, Report(9, 9, (), (result(FIRST),), Load(1)))
    effects = grid.step(stale, WorkerLeft("a", old))
    assert (effects.assigns, effects.attempts, effects.late, effects.workers) == ({}, {}, [], {})
    assert grid.store.workers["a"].session == grid.agents["a"].session
    grid.report("a")
    assert grid.attempt(1).state == "running"


@pytest.mark.parametrize("name", ["a", "nobody"])
def test_events_of_a_closed_session_are_ignored(name: str) -> None:
    grid = believed("running")
    grid.leave("a")
    report = Report(1, 0, (Held(STRANGER),), (result(FIRST),), Load(1))
    effects = grid.step(WorkerReported(name, 77, report), WorkerLeft(name, 77))
    assert (effects.assigns, effects.attempts, effects.late, effects.workers) == ({}, {}, [], {})


# --- slots -----------------------------------------------------------------------------------------------------


def test_worker_gets_as_many_attempts_as_it_offers_slots() -> None:
    grid = Grid()
    grid.submit(9, max_replicas=1)
    grid.join("a", facts(4), reports=False)
    grid.report("a", slots=0)
    assert grid.running("a") == []
    grid.report("a", slots=2)
    assert len(grid.running("a")) == 2
    grid.report("a", slots=1)
    assert len(grid.running("a")) == 2, "running attempts continue"
    grid.end(grid.running("a")[0])
    grid.report("a", slots=99)
    assert len(grid.running("a")) == 4, "at most the slots of its computer"


def test_slot_is_free_only_when_its_cancelled_attempt_has_ended() -> None:
    grid = believed("running")
    grid.step(JobCancelled(1), deliver=False)
    other = grid.submit(1)
    assert not grid.attempts_of(TaskId(other, 1))
    grid.report("a")
    assert grid.attempts_of(TaskId(other, 1)) == grid.running("a")


def test_worker_gets_no_attempt_before_its_first_report() -> None:
    grid = Grid()
    grid.submit(1)
    grid.join("a", reports=False)
    assert not grid.last.attempts
    grid.step(JobPaused(1))
    assert grid.report("a").attempts == {}


def test_task_that_always_fails_ends_despite_replicas() -> None:
    grid = Grid(policy="round-robin", max_attempts=2, max_replicas=2)
    grid.workers("a", "b")
    job = grid.submit(1, size=1.0)
    for _ in range(3):
        one, *_others = (attempt for name in ("a", "b") for attempt in grid.running(name))
        grid.end(one, Outcome.FAILED)
        if not grid.attempts_of(TaskId(job, 1)):
            break
    assert grid.ended([job]) == {job: JobState.FAILED}


def test_start_of_an_attempt_follows_from_its_run_time() -> None:
    grid = Grid(policy="first-come")
    grid.workers("a")
    job = grid.submit(1)
    grid.now += 3.0
    agent = grid.agents["a"]
    holding = (Held(AttemptId(job, 1, 1), wall_s=2.5),)
    grid.step(WorkerReported("a", agent.session, Report(agent.sent + 1, agent.seen, holding, (), Load(1, 1.0))))
    assert grid.attempt(job).started_at == grid.now - 2.5
