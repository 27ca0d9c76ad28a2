"""Checkpoints: each new attempt continues from the newest one it may use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loopline_master.core.estimates import measure
from loopline_master.core.estimates.eta import Forecast, Unknown, outlook
from loopline_master.core.events import CheckpointsRecalled, JobCancelled, WorkerReported
from loopline_master.core.explain.explain_job import explain_task
from loopline_master.core.kernel.entities import Attempt, Worker
from loopline_master.core.policies import REGISTRY
from loopline_master.core.wings.checkpoints.checkpoints_wing import KEPT, Checkpoints
from loopline_master.core.wings.checkpoints.interruption_history import InterruptionHistory
from loopline_shared.job.checkpoint_spec import CheckpointSpec
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import AttemptId, AttemptState, Function, Held, JobState, Load, Outcome, TaskId, TaskState
from loopline_shared.protocol.checkpoints import (
    NO_COSTS,
    USUAL_LOSS_S,
    USUAL_STOP_S,
    CheckpointCosts,
    CheckpointReport,
    RefusedCheckpoint,
    TakenCheckpoint,
)
from loopline_shared.protocol.software import PACKAGES
from loopline_shared.protocol.worker_link import Report
from loopline_shared.spec import JobSpec
from tests.scheduling.driver import Grid, facts, result

POLICIES = sorted(REGISTRY)


class SavingGrid(Grid):
    """A grid whose workers take checkpoints when the test says so, and may be silent for long."""

    def __init__(self, **chosen: Any) -> None:
        super().__init__(**{"lease_s": 1e6, **chosen})
        self.saved = 0

    def saves(
        self, attempt: AttemptId, cpu_s: float, wall_s: float | None = None, name: str | None = None,
        costs: CheckpointCosts = NO_COSTS, progress: float | None = None, step: int | None = None,
    ) -> str:  # fmt: skip
        """Have the worker of a running attempt report a checkpoint with this CPU time. Return its name."""
        name = name or self.worker_of(attempt)
        agent = self.agents[name]
        run = agent.running[attempt]
        resume = run.checkpoint and run.checkpoint.resume
        self.saved += 1
        manifest = f"{self.saved:064x}"
        line, times = (resume.line, resume.times) if resume else ((), 0)
        taken = TakenCheckpoint(
            attempt,
            manifest,
            1000,
            100,
            cpu_s,
            cpu_s if wall_s is None else wall_s,
            (*line, name),
            times,
            costs,
            progress,
            step,
        )
        agent.sent += 1
        held = tuple(Held(one) for one in agent.running)
        report = Report(
            agent.sent, agent.seen, held, (), Load(agent.facts.slots), checkpoints=CheckpointReport((taken,))
        )
        self.step(WorkerReported(name, agent.session, report))
        return manifest

    def worker_of(self, attempt: AttemptId) -> str:
        return next(name for name, agent in self.agents.items() if attempt in agent.running)

    def gives_back(self, attempt: AttemptId, slots: int | None = 0) -> None:
        """Have the owner return: the attempt is preempted. ``slots``: that its worker offers now; None: all."""
        name = self.worker_of(attempt)
        self.report(name, result(attempt, Outcome.GIVEN_BACK, reason="the owner is back"), slots=slots)

    def only(self, job: int) -> AttemptId:
        """Return the job's only attempt."""
        (attempt,) = [one for agent in self.agents.values() for one in agent.running if one.job == job]
        return attempt

    def resumed(self, attempt: AttemptId) -> str | None:
        """Return the checkpoint that a running attempt continues from."""
        order = self.agents[self.worker_of(attempt)].running[attempt].checkpoint
        assert order
        return order.resume and order.resume.manifest


def saving(**more: Any) -> CheckpointSpec:
    return CheckpointSpec(**more)


@pytest.mark.parametrize("policy", POLICIES)
def test_attempt_continues_from_the_newest_checkpoint(policy: str) -> None:
    grid = SavingGrid(policy=policy)
    grid.workers("ant", "bee")
    job = grid.submit(checkpoint=saving(every_s=60.0, exit_code=85, max_bytes=500), max_replicas=1)
    first = grid.only(job)
    order = grid.agents[grid.worker_of(first)].running[first].checkpoint
    assert order
    assert (order.every_s, order.exit_code, order.max_bytes, order.resume) == (60.0, 85, 500, None)
    grid.now += 100.0
    grid.saves(first, cpu_s=50.0)
    newest = grid.saves(first, cpu_s=90.0)
    where = grid.worker_of(first)
    grid.gives_back(first, slots=None)
    second = grid.only(job)
    order = grid.agents[grid.worker_of(second)].running[second].checkpoint
    assert order
    assert order.resume
    assert order.resume.manifest == newest
    assert (order.resume.cpu_s, order.resume.times, order.resume.line) == (90.0, 1, (where,))
    grid.end(second, wall_s=10.0, cpu_s=10.0)
    assert grid.job(job).state is JobState.SUCCEEDED
    assert grid.store.checkpoints == {}, "a task that succeeded keeps none"


def test_run_of_a_job_without_checkpoints_has_no_checkpoint_order() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    with_some, without = grid.submit(checkpoint=saving()), grid.submit()
    grid.end(grid.only(with_some))
    assert grid.agents["ant"].running[grid.only(without)].checkpoint is None


def running_gang() -> tuple[SavingGrid, AttemptId, AttemptId]:
    grid = SavingGrid()
    grid.workers("ant", "bee", gangs=True)
    job = grid.submit(nodes=2, checkpoint=saving())
    for name in ("ant", "bee") * 4:
        grid.report(name)
    grid.now += 100.0
    return grid, AttemptId(job, 1, 1), AttemptId(job, 1, 2)


def test_gangs_members_expect_the_interruptions_of_all_of_them() -> None:
    grid, *members = running_gang()
    for member in members:
        order = grid.agents[grid.worker_of(member)].running[member].checkpoint
        assert order
        each_s = 1 / (1 / USUAL_STOP_S + 1 / USUAL_LOSS_S)
        assert order.lost_every_s == order.stopped_every_s == pytest.approx(each_s / 2)


def test_step_of_one_member_is_no_progress_of_its_gang() -> None:
    """Else a task that takes down an agent at each barrier would be started again for ever."""
    grid, one, other = running_gang()
    task = grid.scheduler.state.tasks[one.task_id]
    task.took_down = ("cat",)
    grid.saves(one, cpu_s=1.0, step=1)
    assert task.took_down == ("cat",)
    grid.saves(other, cpu_s=1.0, step=1)
    assert task.took_down == ()


def test_newest_is_the_one_with_most_work_and_two_are_kept() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    attempt = grid.only(grid.submit(checkpoint=saving()))
    grid.now += 1000.0
    names = [grid.saves(attempt, cpu_s=cpu_s) for cpu_s in (10.0, 30.0, 20.0, 30.0, 40.0)]
    assert {one.manifest for one in grid.store.checkpoints.values()} == {names[1], names[4]}
    assert len(grid.store.checkpoints) == KEPT


def test_checkpoint_on_a_fast_worker_contains_more_work_than_one_on_a_slow_worker() -> None:
    grid = SavingGrid(max_replicas=2)
    grid.join("ant", replace(facts(), speed=4.0))
    grid.join("bee", replace(facts(), speed=1.0))
    job = grid.submit(checkpoint=saving(), max_replicas=2)
    grid.now += 1000.0
    for name in grid.agents:
        grid.report(name)
    attempts = {name: agent for name, agent in grid.agents.items() if agent.running}
    assert set(attempts) == {"ant", "bee"}, "the task has a replica"
    (fast,), (slow,) = grid.agents["ant"].running, grid.agents["bee"].running
    newest = grid.saves(fast, cpu_s=30.0)
    grid.saves(slow, cpu_s=100.0)
    assert [one.manifest for one in grid.store.checkpoints.values()] == [newest]
    assert grid.store.checkpoints[job, 1, newest].work == 120.0


def test_worker_cannot_claim_more_time_than_has_passed() -> None:
    grid = SavingGrid()
    grid.join("ant", facts(2))
    job = grid.submit(checkpoint=saving())
    grid.now += 10.0
    name = grid.saves(grid.only(job), cpu_s=1e9, wall_s=1e9)
    saved = grid.store.checkpoints[job, 1, name]
    assert (saved.cpu_s, saved.wall_s) == (20.0, 10.0)


def test_replica_starts_from_the_checkpoint_of_the_attempt_that_it_helps() -> None:
    grid = SavingGrid()
    grid.join("ant")
    job = grid.submit(checkpoint=saving(), max_replicas=2)
    grid.now += 50.0
    name = grid.saves(grid.only(job), cpu_s=40.0)
    grid.join("bee")
    grid.wait(1000.0)
    grid.report("ant")
    grid.report("bee")
    (replica,) = grid.running("bee")
    assert grid.resumed(replica) == name


def test_failures_from_a_checkpoint_make_the_one_before_be_used_and_then_none() -> None:
    grid = SavingGrid()
    grid.workers("ant", "bee", "cat")
    job = grid.submit(checkpoint=saving(), max_attempts=9, max_replicas=1)
    grid.now += 100.0
    old, new = (grid.saves(grid.only(job), cpu_s=cpu_s) for cpu_s in (30.0, 60.0))
    used = []
    for _ in range(6):
        grid.end(grid.only(job), Outcome.FAILED, wall_s=1.0)
        used.append(grid.resumed(grid.only(job)))
    assert used == [new, new, old, old, None, None], "the first failure was of the attempt that took them"


def test_checkpoint_that_makes_attempts_fail_keeps_no_later_one_away() -> None:
    """Attempts that start from the one before it, or from none, have less work for a long time."""
    grid = SavingGrid()
    grid.workers("ant", "bee")
    job = grid.submit(checkpoint=saving(), max_attempts=9, max_replicas=1, size=1000.0)
    grid.now += 100.0
    bad = grid.saves(grid.only(job), cpu_s=60.0)
    for _ in range(3):
        grid.end(grid.only(job), Outcome.FAILED, wall_s=1.0)
    live, state = grid.scheduler.state.jobs[job], grid.scheduler.state
    assert grid.resumed(grid.only(job)) is None
    assert measure.work_left(state.grid, live, 1) == measure.work_of(state.grid, live, 1)
    grid.now += 100.0
    good = [grid.saves(grid.only(job), cpu_s=cpu_s) for cpu_s in (10.0, 20.0)]
    assert [one.manifest for one in grid.store.checkpoints.values()] == good != [bad]
    grid.gives_back(grid.only(job), slots=None)
    assert grid.resumed(grid.only(job)) == good[-1]


def test_spoilt_checkpoint_is_not_offered_for_ever() -> None:
    grid = SavingGrid()
    grid.workers("ant", "bee")
    job = grid.submit(checkpoint=saving(), max_replicas=1)
    grid.now += 100.0
    old, new = (grid.saves(grid.only(job), cpu_s=cpu_s) for cpu_s in (30.0, 60.0))
    grid.gives_back(grid.only(job), slots=None)
    used = []
    for _ in range(5):
        attempt = grid.only(job)
        used.append(grid.resumed(attempt))
        name = grid.worker_of(attempt)
        agent = grid.agents[name]
        agent.sent += 1
        ended = (result(attempt, Outcome.GIVEN_BACK, reason="its checkpoint is not complete"),)
        del agent.running[attempt]
        report = Report(agent.sent, agent.seen, (), ended, Load(1), checkpoints=CheckpointReport(spoilt=(attempt,)))
        grid.step(WorkerReported(name, agent.session, report))
    assert used == [new, new, old, old, None]


def test_failure_after_newer_progress_does_not_count() -> None:
    grid = SavingGrid()
    grid.workers("ant", "bee")
    job = grid.submit(checkpoint=saving(), max_attempts=9, max_replicas=1)
    newest = ""
    for step in range(1, 6):
        grid.now += 100.0
        newest = grid.saves(grid.only(job), cpu_s=50.0 * step)
        grid.end(grid.only(job), Outcome.FAILED, wall_s=1.0)
        assert grid.resumed(grid.only(job)) == newest


def test_lost_worker_and_restarted_master_change_nothing() -> None:
    grid = SavingGrid(lease_s=10.0)
    grid.workers("ant")
    job = grid.submit(checkpoint=saving())
    grid.now += 100.0
    name = grid.saves(grid.only(job), cpu_s=80.0)
    grid.restart()
    grid.join("bee")
    for _ in range(3):
        grid.wait(11.0)
        grid.report("bee")
    (attempt,) = grid.running("bee")
    assert grid.resumed(attempt) == name
    grid.restart()
    grid.join("bee")
    assert grid.store.replayed().checkpoints == grid.store.checkpoints
    grid.end(attempt, wall_s=5.0, cpu_s=5.0)
    assert grid.job(job).used == pytest.approx(85.0), "the work in the checkpoint counts, once"


def test_order_says_how_often_the_workers_attempts_were_interrupted() -> None:
    """The owner of ant returns every 100 s, bee is switched off every 1000 s, and cat is new."""
    grid = SavingGrid(lease_s=1000.0)
    job = grid.submit(count=9, checkpoint=saving())

    def told(name: str) -> tuple[float, float]:
        (attempt,) = grid.running(name)
        order = grid.agents[name].running[attempt].checkpoint
        assert order
        return order.stopped_every_s, order.lost_every_s

    grid.join("ant")
    usual = told("ant")
    assert usual == (USUAL_STOP_S, USUAL_LOSS_S)
    for _ in range(30):
        grid.wait(100.0)
        grid.gives_back(grid.only(job), slots=None)
    assert 100.0 < told("ant")[0] < 300.0
    assert told("ant")[1] > USUAL_LOSS_S / 2
    grid.end(grid.only(job))
    grid.leave("ant")
    for _ in range(10):
        grid.join("bee")
        grid.leave("bee")
        grid.reboot("bee")
        grid.wait(1001.0)
    grid.join("bee")
    assert told("bee")[1] < 2000.0
    grid.join("cat")
    assert told("bee")[1] < told("cat")[1] < USUAL_LOSS_S


def test_worker_that_is_never_interrupted_gets_times_within_the_protocols_bounds() -> None:
    history = InterruptionHistory()
    for number in range(1, 1001):
        attempt = Attempt(1, 1, number, f"w{number}", 1, replica=False, dispatched_at=0.0)
        history.follow(attempt, Worker(attempt.worker, "boot", facts(), 0.0, 0.0), 0.0, stops_itself=False)
    assert history.means_s("w1", 10.0**9) == (1e8, 1e8)


def test_other_system_continues_only_from_portable_checkpoints() -> None:
    for portable in (False, True):
        grid = SavingGrid()
        grid.join("ant")
        job = grid.submit(checkpoint=saving(portable=portable), max_replicas=1)
        grid.now += 100.0
        name = grid.saves(grid.only(job), cpu_s=80.0)
        grid.join("mac", facts(os="macos"))
        grid.gives_back(grid.only(job))
        assert grid.resumed(grid.only(job)) == (name if portable else None)


def test_function_continues_where_its_python_is_made_for_it() -> None:
    grid = SavingGrid()
    grid.join("ant", replace(facts(), functions="3.11"))
    call = Function(f"sha256:{0:064x}", python="3.11", session="s")
    needs = Requirements(python="3.11")
    job = grid.submit_spec(JobSpec(function=call, requires=needs, checkpoint=saving(), max_replicas=1))
    grid.now += 100.0
    name = grid.saves(grid.only(job), cpu_s=80.0)
    grid.join("bee", replace(facts(), functions="3.12", software=(f"{PACKAGES}3.11",)))
    grid.gives_back(grid.only(job))
    assert grid.resumed(grid.only(job)) == name


def test_vote_of_a_quorum_continues_only_from_its_own_line() -> None:
    grid = SavingGrid()
    grid.workers("ant", "bee")
    job = grid.submit(checkpoint=saving(), quorum=2)
    (one,), (two,) = grid.running("ant"), grid.running("bee")
    grid.now += 100.0
    grid.saves(one, cpu_s=80.0)
    grid.gives_back(two, slots=None)
    (again,) = grid.running("bee")
    assert grid.resumed(again) is None, "its vote would repeat the other's"
    grid.gives_back(one, slots=None)
    (third,) = grid.running("ant")
    assert grid.resumed(third) is not None
    assert grid.job(job).state is not JobState.SUCCEEDED


def test_line_with_a_worker_in_quarantine_is_not_used_elsewhere() -> None:
    grid = SavingGrid()
    grid.workers("ant", "bee")
    job = grid.submit(checkpoint=saving(), max_replicas=1)
    attempt = grid.only(job)
    name = grid.worker_of(attempt)
    grid.now += 100.0
    grid.saves(attempt, cpu_s=80.0)
    bad = grid.store.workers[name]
    bad.quarantined_until, bad.quarantines, bad.quarantine_reason = grid.now + 1000.0, 1, "it failed elsewhere"
    grid.restart()
    for each in ("ant", "bee"):
        grid.join(each)
    grid.gives_back(attempt)
    assert grid.worker_of(grid.only(job)) != name
    assert grid.resumed(grid.only(job)) is None


def test_cancelled_task_keeps_one_for_a_retry_and_from_start_removes_it() -> None:
    for from_start in (False, True):
        grid = SavingGrid()
        grid.workers("ant")
        job = grid.submit(checkpoint=saving())
        grid.now += 100.0
        names = [grid.saves(grid.only(job), cpu_s=cpu_s) for cpu_s in (30.0, 60.0)]
        grid.ask(JobCancelled(job))
        grid.report("ant")
        assert [one.manifest for one in grid.store.checkpoints.values()] == [names[1]]
        grid.submit()  # another step: the job leaves memory
        kept = tuple(grid.store.checkpoints.values())
        grid.end(grid.running("ant")[0])
        grid.step(CheckpointsRecalled(job, kept, is_dropped=from_start))
        grid.step()
        grid.step(grid.retry_event(job))
        assert grid.resumed(grid.only(job)) == (None if from_start else names[1])
        assert len(grid.store.checkpoints) == (0 if from_start else 1)


def test_checkpoints_of_a_declined_retry_are_forgotten() -> None:
    grid = SavingGrid(max_jobs=1)
    grid.workers("ant")
    job = grid.submit(checkpoint=saving())
    grid.now += 100.0
    name = grid.saves(grid.only(job), cpu_s=60.0)
    grid.ask(JobCancelled(job))
    grid.report("ant")
    grid.submit()
    kept, wing = tuple(grid.store.checkpoints.values()), grid.scheduler.state.wings[Checkpoints]
    grid.step(CheckpointsRecalled(job, kept))
    assert wing.of(TaskId(job, 1))
    assert grid.declined(grid.retry_event(job)).code == "queue_full"
    assert not wing.of(TaskId(job, 1))
    assert not wing.is_awake
    assert [one.manifest for one in grid.store.checkpoints.values()] == [name]


def test_expected_run_time_excludes_the_work_in_the_checkpoint() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    job = grid.submit(checkpoint=saving(), size=100.0)
    grid.now += 100.0
    grid.saves(grid.only(job), cpu_s=60.0)
    grid.gives_back(grid.only(job))
    grid.report("ant")
    attempt = grid.store.attempts[grid.only(job)]
    assert attempt.expected_s == pytest.approx(40.0)


def test_long_task_starts_in_a_short_allocation_if_two_checkpoints_fit() -> None:
    for left_s, every_s, starts in ((3600.0, 600.0, True), (1000.0, 600.0, False), (1000.0, None, True)):
        for checkpoint in (CheckpointSpec(every_s=every_s), None):
            grid = SavingGrid()
            grid.join("ant", replace(facts(), until=grid.now + left_s))
            grid.submit(size=4 * 3600.0, checkpoint=checkpoint)
            assert bool(grid.running("ant")) == (starts and checkpoint is not None)


def test_time_left_counts_the_work_in_the_checkpoint() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    job = grid.submit(checkpoint=saving(), size=100.0, max_replicas=1)
    grid.now += 100.0
    grid.saves(grid.only(job), cpu_s=60.0)
    grid.gives_back(grid.only(job), slots=None)

    def left() -> float:
        state = grid.scheduler.state
        attempt = state.attempts[grid.only(job)]
        return measure.left_of(state.grid, state.jobs[job], state.workers["ant"], attempt)

    assert left() == pytest.approx(40.0)
    grid.restart()
    grid.join("ant")
    assert left() == pytest.approx(40.0)
    assert measure.work_left(grid.scheduler.state.grid, grid.scheduler.state.jobs[job], 1) == pytest.approx(40.0)


def test_next_checkpoint_of_an_attempt_is_newer_though_its_worker_proved_slower() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    job = grid.submit(checkpoint=saving(), size=1000.0, max_replicas=1)
    grid.now += 100.0
    grid.saves(grid.only(job), cpu_s=50.0)
    ant = grid.scheduler.state.workers["ant"]
    ant.work_s, ant.work_done = 100.0, 25.0
    grid.scheduler.state.put(ant)
    newer = grid.saves(grid.only(job), cpu_s=90.0)
    grid.gives_back(grid.only(job), slots=None)
    assert grid.resumed(grid.only(job)) == newer
    (resumed,) = grid.store.resumed.values()
    assert resumed.work == pytest.approx(50.0 + 0.25 * 40.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_checkpoint_may_contain_more_work_than_was_expected(policy: str) -> None:
    """The rest of the task is then late from its start, also on a worker that has done nothing yet."""
    grid = SavingGrid(policy=policy)
    grid.workers("ant")
    job = grid.submit(checkpoint=saving(), size=100.0)
    grid.now += 150.0
    grid.saves(grid.only(job), cpu_s=120.0)
    grid.gives_back(grid.only(job), slots=None)
    grid.now += 50.0
    grid.workers("bee")
    state = grid.scheduler.state
    attempt = min(state.attempts.values(), key=lambda one: one.number)
    parts = state.grid, state.jobs[job], state.workers["ant"], attempt
    assert 0.0 < measure.left_of(*parts) < 10.0
    assert measure.late_from(*parts, 1.0) > attempt.since


def test_remainder_teaches_no_prediction() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    job = grid.submit(checkpoint=saving(), name="sweep")
    grid.now += 100.0
    grid.saves(grid.only(job), cpu_s=60.0)
    grid.gives_back(grid.only(job))
    grid.report("ant")
    grid.end(grid.only(job), wall_s=1.0, cpu_s=1.0)
    runs = [run for program in grid.store.programs.values() for run in program.window]
    assert runs == []
    assert grid.job(job).work_done == pytest.approx(61.0)


def test_task_that_sleeps_has_newer_checkpoints_too() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    attempt = grid.only(grid.submit(checkpoint=saving()))
    grid.now += 100.0
    names = [grid.saves(attempt, cpu_s=0.0, wall_s=wall_s) for wall_s in (10.0, 20.0, 30.0)]
    assert {one.manifest for one in grid.store.checkpoints.values()} == set(names[1:])


def test_explain_names_the_newest_checkpoint_and_why_there_is_no_newer_one() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    job = grid.submit(checkpoint=saving())
    attempt = grid.only(job)

    def says() -> str:
        explained = explain_task(grid.scheduler, attempt.task_id)
        assert explained
        return explained.sentence

    assert says() == "running on ant"
    grid.now += 100.0
    grid.saves(attempt, cpu_s=50.0)
    assert says() == "running on ant; its checkpoint from ant contains 50 s"
    agent, told = grid.agents["ant"], RefusedCheckpoint(attempt, "model.h5 is written in place")
    agent.sent += 1
    report = Report(
        agent.sent, agent.seen, (Held(attempt),), (), Load(1), checkpoints=CheckpointReport(refused=(told,))
    )
    grid.step(WorkerReported("ant", agent.session, report))
    assert says().endswith("contains 50 s; no checkpoint on ant: model.h5 is written in place")
    grid.saves(attempt, cpu_s=60.0)
    assert says() == "running on ant; its checkpoint from ant contains 60 s"


@pytest.mark.parametrize("saves", [False, True])
def test_newer_checkpoint_resets_the_count_of_agents_that_died(saves: bool) -> None:
    grid = SavingGrid()
    grid.workers("ant")
    job = grid.submit(checkpoint=saving(), max_replicas=1, max_attempts=1)
    for count in range(1, 7):
        if grid.job(job).is_over:
            break
        grid.now += 100.0
        attempt = grid.only(job)
        if saves:
            grid.saves(attempt, cpu_s=50.0 * count)
        grid.end(attempt, Outcome.GIVEN_BACK, reason="its agent died", took_down=True)
    assert grid.job(job).is_over != saves


def test_late_report_of_an_attempt_that_is_over_is_ignored() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    job = grid.submit(checkpoint=saving())
    attempt = grid.only(job)
    grid.end(attempt)
    agent = grid.agents["ant"]
    agent.sent += 1
    taken = TakenCheckpoint(attempt, "a" * 64, 1, 1, 1.0, 1.0, ("ant",), 0)
    grid.step(
        WorkerReported(
            "ant",
            agent.session,
            Report(agent.sent, agent.seen, (), (), Load(1), checkpoints=CheckpointReport((taken,))),
        )
    )
    assert grid.store.checkpoints == {}


def test_work_in_a_checkpoint_proves_no_size_wrong() -> None:
    """Only the work of results counts against a job's size, because the audit reads their rows."""
    grid = SavingGrid()
    grid.workers("ant")
    job = grid.submit(checkpoint=saving(), size=1.0)
    grid.now += 100.0
    grid.saves(grid.only(job), cpu_s=80.0)
    grid.gives_back(grid.only(job), slots=None)
    grid.end(grid.only(job), wall_s=5.0, cpu_s=5.0)
    assert grid.job(job).used == pytest.approx(85.0)
    assert grid.job(job).counted == pytest.approx(sum(one.work for one in grid.store.attempts.values()))


def test_row_says_which_attempt_continued_from_what() -> None:
    grid = SavingGrid()
    grid.workers("ant", "bee")
    job = grid.submit(checkpoint=saving(), max_replicas=1)
    grid.now += 100.0
    name = grid.saves(grid.only(job), cpu_s=60.0)
    grid.gives_back(grid.only(job))
    attempt = grid.only(job)
    (row,) = grid.store.resumed.values()
    assert (row.id, row.manifest, row.cpu_s, row.times) == (attempt, name, 60.0, 1)
    assert grid.store.attempts[attempt].state in (AttemptState.DISPATCHED, AttemptState.RUNNING)


def ledger(grid: SavingGrid, job: int) -> tuple[float, float, float, float]:
    """Return the job's CPU seconds: useful, wasted, lost and kept."""
    row = grid.job(job)
    kept = sum(one.kept_cpu_ms for one in grid.store.checkpoint_accounts.values() if one.job == job)
    return row.useful_cpu_ms / 1000, row.wasted_cpu_ms / 1000, row.lost_cpu_ms / 1000, kept / 1000


def test_only_work_after_the_newest_checkpoint_is_lost() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    job = grid.submit(checkpoint=saving(), max_replicas=1)
    grid.now += 200.0
    first = grid.only(job)
    grid.saves(first, cpu_s=60.0, costs=CheckpointCosts(1, 1000, 0.01))
    grid.saves(first, cpu_s=90.0, costs=CheckpointCosts(2, 1500, 0.02))
    grid.saves(first, cpu_s=90.0, costs=CheckpointCosts(2, 1500, 0.02))
    grid.restart()
    grid.join("ant")
    grid.report("ant", result(first, Outcome.GIVEN_BACK, cpu_s=100.0, wall_s=100.0), slots=None)
    assert ledger(grid, job) == (0.0, 0.0, 10.0, 90.0)
    second = grid.only(job)
    grid.now += 100.0
    grid.saves(second, cpu_s=95.0)
    grid.end(second, Outcome.FAILED, cpu_s=7.0, wall_s=7.0)
    assert ledger(grid, job) == (0.0, 0.0, 12.0, 95.0), "of the second attempt, the part that is its own"
    grid.end(grid.only(job), cpu_s=5.0, wall_s=5.0)
    assert ledger(grid, job) == (5.0, 0.0, 12.0, 95.0)
    account = grid.store.checkpoint_accounts[first]
    assert (account.sent, account.sent_bytes, account.held_s) == (2, 1500, 0.02)
    assert grid.store.replayed().checkpoint_accounts == grid.store.checkpoint_accounts


@pytest.mark.parametrize("continues", [True, False])
def test_time_of_a_loser_is_kept_only_if_the_winner_continued_from_it(*, continues: bool) -> None:
    grid = SavingGrid()
    grid.join("ant")
    job = grid.submit(checkpoint=saving(), max_replicas=2)
    grid.now += 50.0
    first = grid.only(job)
    if continues:
        grid.saves(first, cpu_s=40.0)
    grid.join("bee")
    grid.wait(1000.0)
    grid.report("ant")
    grid.report("bee")
    (replica,) = grid.running("bee")
    grid.saves(first, cpu_s=70.0)
    grid.end(replica, cpu_s=5.0, wall_s=5.0)
    grid.report("ant", result(first, Outcome.CANCELLED, cpu_s=80.0, wall_s=80.0))
    assert ledger(grid, job) == ((5.0, 40.0, 0.0, 40.0) if continues else (5.0, 80.0, 0.0, 0.0))


def test_lost_worker_loses_only_what_no_checkpoint_has() -> None:
    grid = SavingGrid(lease_s=10.0)
    grid.workers("ant")
    job = grid.submit(checkpoint=saving())
    grid.report("ant")
    for _ in range(10):
        grid.wait(8.0)
        grid.report("ant")
    grid.saves(grid.only(job), cpu_s=60.0)
    grid.join("bee")
    for _ in range(3):
        grid.wait(8.0)
        grid.report("bee")
    useful, wasted, lost, kept = ledger(grid, job)
    assert (useful, wasted, kept) == (0.0, 0.0, 60.0)
    assert lost == pytest.approx(20.0)


def test_eta_of_an_unsized_task_that_waits_follows_from_its_progress() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    done, job = grid.submit(size=10.0), grid.submit(checkpoint=saving(), max_replicas=1)
    grid.now += 10.0
    grid.end(grid.only(done), wall_s=10.0, cpu_s=10.0)
    grid.now += 63.0
    grid.saves(grid.only(job), cpu_s=63.0, progress=0.63)
    other = grid.submit(size=1.0, max_replicas=1)
    grid.gives_back(grid.only(job), slots=1)
    assert grid.only(other), "it has the slot, and the task waits"
    found = outlook(grid.scheduler.state)[job]
    assert isinstance(found, Forecast), found
    assert found.based_on == "the progress of 1 stopped task"
    assert 37.0 < found.p50_s < 50.0, "63 of about 100 s are saved"


def test_eta_counts_the_work_in_the_checkpoint() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    done, job = grid.submit(size=100.0), grid.submit(checkpoint=saving(), size=100.0, max_replicas=1)
    grid.now += 100.0
    grid.end(grid.only(done), wall_s=100.0, cpu_s=100.0)
    grid.report("ant")

    def p50_s() -> float:
        found = outlook(grid.scheduler.state)[job]
        assert isinstance(found, Forecast), found
        return found.p50_s

    grid.now += 80.0
    grid.saves(grid.only(job), cpu_s=80.0)
    other = grid.submit(size=1.0, max_replicas=1)
    grid.gives_back(grid.only(job), slots=1)
    assert grid.only(other), "it has the slot, and the task waits"
    assert p50_s() < 50.0, "80 of 100 s are saved"
    grid.end(grid.only(other), wall_s=1.0, cpu_s=1.0)
    assert grid.only(job), "a new attempt runs"
    assert p50_s() < 50.0, "80 of 100 s are saved"


def test_eta_does_not_count_failed_tasks_as_stopped_ones() -> None:
    """Before and after a restart: only a retry brings their checkpoints back."""
    grid = SavingGrid()
    grid.workers("ant")
    job = grid.submit(3, checkpoint=saving(), max_attempts=1, max_replicas=1)
    grid.now += 60.0
    failed = grid.only(job)
    grid.saves(failed, cpu_s=60.0, progress=0.6)
    grid.end(failed, Outcome.FAILED, cpu_s=60.0, wall_s=60.0)
    for _ in range(2):
        assert grid.task(job, failed.task).state is TaskState.FAILED
        assert grid.store.checkpoints, "it keeps one for a retry"
        assert not grid.scheduler.state.jobs[job].saved
        assert isinstance(outlook(grid.scheduler.state)[job], Unknown)
        grid.restart()
        grid.join("ant")


def test_retried_task_counts_as_stopped_whether_the_master_restarts_or_not() -> None:
    grid = SavingGrid()
    grid.workers("ant")
    done, job = grid.submit(size=10.0), grid.submit(checkpoint=saving(), max_attempts=1, max_replicas=1)
    grid.now += 10.0
    grid.end(grid.only(done), wall_s=10.0, cpu_s=10.0)
    grid.now += 60.0
    grid.saves(grid.only(job), cpu_s=60.0, progress=0.6)
    grid.end(grid.only(job), Outcome.FAILED, cpu_s=60.0, wall_s=60.0)
    other = grid.submit(size=1.0, max_replicas=1)
    assert grid.only(other), "it has the slot, and the first job leaves memory"
    kept = tuple(grid.store.checkpoints.values())
    grid.step(CheckpointsRecalled(job, kept))
    grid.step(grid.retry_event(job))
    for _ in range(2):
        found = outlook(grid.scheduler.state)[job]
        assert isinstance(found, Forecast), found
        assert found.based_on == "the progress of 1 stopped task"
        grid.restart()
        grid.join("ant")
