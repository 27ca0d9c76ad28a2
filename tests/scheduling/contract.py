"""The contract of policies. Each clause takes a policy's name and drives whole grids with it.

SAFETY holds for any policy, even a malicious one. A policy in the registry must also meet the other clauses of
CONTRACT: work gets done without waiting for the grid to become idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.events import Event, JobCancelled, JobPaused, JobResumed, WorkerDrained, WorkerUndrained
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import LIVE, UNRELEASED, UNSEATED, Attempt, Job
from loopline_master.core.kernel.index.requirement_class import meets, requirement_class_of
from loopline_master.core.kernel.invariants import check
from loopline_master.core.policies import policy_named
from loopline_master.core.scheduler import Scheduler
from loopline_shared.model import AttemptState, Outcome, TaskId
from tests.campaign import PATIENT, tried
from tests.scheduling.driver import Grid, facts

MACHINES = {
    "ant": facts(1, labels=["fast"]),
    "bee": facts(2),
    "cat": facts(3, os="windows", memory_bytes=16 * 10**9),
}
NEEDS: list[dict[str, Any]] = [
    {},
    {},
    {"os": "windows"},
    {"labels": ["fast"]},
    {"slots": 2},
    {"memory_bytes": 10**10},
]


class Watched(Grid):
    """Checks after each step, from rows alone, that each start and each completion was permitted."""

    def step(self, *events: Event, deliver: bool = True) -> Effects:
        known = set(self.store.attempts) if hasattr(self, "store") else set()
        effects = super().step(*events, deliver=deliver)
        for attempt in effects.attempts.values():
            if attempt.id not in known:
                self._may_have_started(attempt)
        for job_id in effects.completed:
            self._may_complete(self.store.jobs[job_id])
        return effects

    def _may_have_started(self, attempt: Attempt) -> None:
        job, worker = self.store.jobs[attempt.job], self.store.workers[attempt.worker]
        alive = [a for a in self.store.attempts.values() if a.task_id == attempt.task_id and a.state in LIVE]
        held = [a for a in self.store.attempts.values() if a.worker == worker.name and not a.is_over]
        beside = [a.id for a in held if a.task_id == attempt.task_id and a.id != attempt.id]
        assert not beside, f"{attempt.id} was started on {worker.name} beside {beside}"
        assert job.max_replicas is None or len(alive) <= job.max_replicas, f"{attempt.id}: too many replicas"
        assert attempt.replica == any(a.number < attempt.number for a in alive)
        assert not job.paused, f"{attempt.id} of a paused job was started"
        assert worker.session is not None, f"{attempt.id} was started on {worker.name}, which is away"
        assert not worker.draining, f"{attempt.id} was started on {worker.name}, which is draining"
        requirement_class = requirement_class_of(job.spec.requires)
        assert meets(worker.facts, requirement_class), f"{attempt.id}: {worker.name} cannot run it"
        if attempt.is_queued:
            self._may_wait(attempt, [a for a in held if a.is_queued])
        if worker.quarantined_until is not None:
            others = [w for w in self.store.workers.values() if w.is_trusted and w.offered >= attempt.slots]
            able = [w.name for w in others if meets(w.facts, requirement_class)]
            assert not able, f"{attempt.id} was started on {worker.name}, which is in quarantine, beside {able}"
        taken = sum(a.slots for a in held if a.state not in (AttemptState.LOST, *UNSEATED))
        assert taken <= worker.offered, (
            f"{attempt.id}: {worker.name} offers {worker.offered} slots, {taken} are taken"
        )

    def _may_wait(self, attempt: Attempt, queue: list[Attempt]) -> None:
        assert not attempt.replica, f"{attempt.id} is a replica, and waits"
        assert len(queue) <= self.settings.max_prefetch, f"{attempt.id}: too many wait on {attempt.worker}"
        work_s = sum(a.expected_s for a in queue) / self.store.workers[attempt.worker].offered
        most_s = (
            policy_named(self.settings.policy).prefetch_s or self.settings.prefetch_s
        )  # a policy may have its own
        assert work_s <= most_s + 0.01, f"{attempt.id}: too much waits on {attempt.worker}"

    def _may_complete(self, job: Job) -> None:
        """The definition of passing (docs/guarantee.md), ties included."""
        for other in self.store.jobs.values():
            came_first = UNRELEASED != other.arrival < job.arrival
            was_there = came_first and (other.departure is None or other.departure > job.arrival)
            is_there = other.departure is None or other.departure > (job.departure or 0)
            excused = self.store.is_exempt(other, job)
            is_ordered = job.spec.session is None and other.spec.session is None
            weight = job.shown if job.size is None else job.size
            has_claim = is_ordered and other.size is not None and (weight is None or other.size <= weight)
            passes = was_there and is_there and has_claim
            assert excused or not passes, f"job {job.id} passes job {other.id}"

    # --- a life ---------------------------------------------------------------------------------------------

    def do(self, verb: str, which: int, detail: Any) -> None:
        names, jobs = sorted(self.agents), sorted(self.store.jobs)
        name, job = names[which % len(names)], jobs[which % len(jobs)] if jobs else 0
        running = [a for agent in self.agents.values() for a in agent.running if a not in agent.waiting()]
        match verb:
            case "submit":
                self.submit(**detail)
            case "end" if running:
                self.end(running[which % len(running)], detail)
            case "silence":
                self.wait(31.0)
            case "rejoin":
                self.join(name)
            case "drain":
                self.step(WorkerDrained(name) if detail else WorkerUndrained(name))
            case "steer" if jobs:
                self.step(detail(job))

    def finish(self) -> None:
        """Let workers report until all jobs have ended, within a bounded number of rounds."""
        for name in self.agents:
            self.step(WorkerUndrained(name))
            self.join(name)
        for job in list(self.store.jobs.values()):
            if job.is_live:
                self.step(JobResumed(job.id))
        left = sum(job.task_count * job.max_attempts for job in self.store.jobs.values() if job.is_live)
        for _ in range(left + 2):
            for name in self.agents:
                for attempt in self.running(name)[:1]:
                    self.end(attempt)
                self.report(name)
        unfinished = [job.id for job in self.store.jobs.values() if job.is_live]
        assert not unfinished, f"jobs {unfinished} make no progress"
        assert not self.scheduler.state.jobs, "ended jobs are forgotten"
        check(self.scheduler.state)


jobs = st.fixed_dictionaries(
    {
        "count": st.integers(1, 4),
        "size": st.sampled_from([None, 1.0, 1.0, 2.0, 2.0, 3.0]),
        "requires": st.sampled_from(NEEDS),
        "max_replicas": st.sampled_from([1, 2, 3, "unlimited"]),
        "session": st.sampled_from([None, None, "s"]),
    }
)
deeds = st.one_of(
    st.tuples(st.just("submit"), st.just(0), jobs),
    st.tuples(st.just("submit"), st.just(0), jobs),
    *[st.tuples(st.just("end"), st.integers(0, 5), st.just(Outcome.SUCCEEDED))] * 4,
    st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from(Outcome)),
    st.tuples(st.just("silence"), st.just(0), st.none()),
    st.tuples(st.just("rejoin"), st.integers(0, 2), st.none()),
    st.tuples(st.just("rejoin"), st.integers(0, 2), st.none()),
    st.tuples(st.just("drain"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("steer"), st.integers(0, 5), st.sampled_from([JobPaused, JobResumed, JobCancelled])),
)
lives = st.lists(deeds, min_size=5, max_size=40)
Life = list[tuple[str, int, Any]]


def grid_of(policy: str, kind: type[Watched] = Watched, **more: Any) -> Watched:
    grid = kind(policy=policy, lease_s=30.0, max_attempts=3, **more)
    for name, own in MACHINES.items():
        grid.join(name, own)
    return grid


# --- clauses ---------------------------------------------------------------------------------------------------


def whatever_happens_rules_and_order_are_kept(policy: str) -> None:
    @settings(PATIENT, max_examples=tried(4, 400))
    @given(lives)
    def live(life: Life) -> None:
        grid = grid_of(policy)
        for deed in life:
            grid.do(*deed)
        grid.finish()

    live()


QUEUES = {"prefetch_s": 2.5, "max_prefetch": 3}


def rules_and_order_are_kept_where_tasks_wait_at_workers(policy: str) -> None:
    @settings(PATIENT, max_examples=tried(4, 400))
    @given(lives)
    def live(life: Life) -> None:
        grid = grid_of(policy, **QUEUES)
        for deed in life:
            grid.do(*deed)
        grid.finish()

    live()


class Twin(Watched):
    """Takes each step a second time, on a scheduler restored from the rows just before it."""

    def step(self, *events: Event, deliver: bool = True) -> Effects:
        snapshot = self.store.snapshot() if hasattr(self, "last") else None
        effects = super().step(*events, deliver=deliver)
        if snapshot is not None:
            twin = Scheduler(snapshot)
            twin.set_policy(self.settings)
            assert twin.step(events, self.now) == effects, "a restarted scheduler would have decided differently"
        return effects


def decisions_are_a_function_of_rows(policy: str) -> None:
    @settings(PATIENT, max_examples=tried(4, 400))
    @given(lives, st.sampled_from([{}, QUEUES]))
    def live(life: Life, queues: dict[str, float]) -> None:
        grid = grid_of(policy, Twin, **queues)
        for deed in life:
            grid.do(*deed)

    live()


def decisions_are_deterministic(policy: str) -> None:
    @settings(PATIENT, max_examples=tried(3, 100))
    @given(lives)
    def live(life: Life) -> None:
        once, again = grid_of(policy), grid_of(policy)
        for deed in life:
            once.do(*deed)
            again.do(*deed)
            assert list(once.last.assigns.items()) == list(again.last.assigns.items())
            assert list(once.last.attempts) == list(again.last.attempts)
        assert once.store.log == again.store.log

    live()


def jobs_with_different_needs_do_not_block_one_another(policy: str) -> None:
    grid = Watched(policy=policy)
    linux, windows = grid.submit(3, 1.0, requires={"os": "linux"}), grid.submit(3, 1.0, requires={"os": "windows"})
    grid.join("l", facts())
    grid.join("w", facts(os="windows"))
    assert [a.job for a in grid.running("l")] == [linux]
    assert [a.job for a in grid.running("w")] == [windows]
    grid.finish()


def more_jobs_than_workers_all_complete(policy: str) -> None:
    grid = Watched(policy=policy)
    for number in range(12):
        grid.submit(2, float(1 + number % 3))
    grid.workers("a", "b")
    grid.finish()


def wide_tasks_are_run_among_narrow_ones(policy: str) -> None:
    grid = Watched(policy=policy)
    for slots in (2, 1, 2, 1):
        grid.submit(3, 1.0, requires={"slots": slots})
    grid.join("narrow", facts(1))
    grid.join("wide", facts(2))
    grid.finish()


def free_slots_are_used_while_tasks_wait(policy: str) -> None:
    """One job of many tasks fills all slots in one step."""
    grid = Watched(policy=policy)
    grid.join("a", facts(3))
    grid.join("b", facts(1))
    job = grid.submit(9, 1.0)
    assert (len(grid.running("a")), len(grid.running("b"))) == (3, 1)
    assert grid.job(job).running == 4


def a_wide_machine_is_filled_while_others_are_held(policy: str) -> None:
    """Refused proposals of held tasks must not use up the limit on proposals before other tasks are proposed."""
    grid = Watched(policy=policy, max_replicas=2)
    grid.submit(100, 1.0)
    for _ in range(12):
        grid.submit(2, 1.0)
    grid.join("wide", facts(40))
    assert len(grid.scheduler.state.attempts) == 40


def a_report_without_news_changes_nothing(policy: str) -> None:
    """Even if the policy still proposes tasks that are refused: rows written at every report would add up."""
    grid = Watched(policy=policy, max_replicas=2)
    grid.submit(1, 1.0, max_replicas=1)
    for _ in range(3):
        grid.submit(2, 1.0)
    grid.join("a", facts(9))
    grid.report("a")
    effects = grid.report("a")
    assert (effects.jobs, effects.tasks, effects.attempts) == ({}, {}, {})


def a_task_that_stands_still_gets_a_shadow(policy: str) -> None:
    """The worker's owner has returned. A replica starts elsewhere at once, and the first to succeed wins."""
    for winner in "ab":
        grid = Watched(policy=policy, max_replicas=2)
        grid.join("a")
        job = grid.submit(1, 1.0)
        grid.report("a", slots=0, frozen=True)
        grid.join("b")
        grid.join("c")
        assert len(grid.attempts_of(TaskId(job, 1))) == 2, "at most one replica"
        assert len(grid.running("b")) + len(grid.running("c")) == 1
        grid.report("a", slots=1, frozen=False)
        grid.end(grid.attempts_of(TaskId(job, 1))[0 if winner == "a" else 1])
        assert grid.job(job).succeeded == 1
        assert not grid.attempts_of(TaskId(job, 1)), "the loser ends even if it is frozen"


def a_task_that_may_not_be_replicated_waits_for_its_owner(policy: str) -> None:
    grid = Watched(policy=policy)
    grid.join("a")
    job = grid.submit(1, 1.0, max_replicas=1)
    grid.report("a", slots=0, frozen=True)
    grid.join("b")
    assert len(grid.attempts_of(TaskId(job, 1))) == 1
    grid.finish()


def one_attempt_of_a_task_at_a_time_where_its_job_asks_for_it(policy: str) -> None:
    grid = Watched(policy=policy)
    job = grid.submit(1, max_replicas=1)
    grid.workers("a", "b", "c")
    assert len(grid.attempts_of(TaskId(job, 1))) == 1
    grid.finish()


def held_tasks_are_released_when_their_predecessor_ends(policy: str) -> None:
    """The same in a long chain, where each job is held by the one before it."""
    grid = Watched(policy=policy)
    chain = [grid.submit(1, 1.0, max_replicas=1) for _ in range(6)]
    grid.workers("a", "b")
    for job in chain:
        assert [a.job for agent in grid.agents.values() for a in agent.running] == [job]
        grid.end(grid.attempts_of(TaskId(job, 1))[0])
    assert all(grid.job(job).state == "succeeded" for job in chain)


Clause = Callable[[str], None]

SAFETY: list[Clause] = [
    whatever_happens_rules_and_order_are_kept,
    rules_and_order_are_kept_where_tasks_wait_at_workers,
]
CONTRACT: list[Clause] = [
    *SAFETY,
    decisions_are_a_function_of_rows,
    decisions_are_deterministic,
    a_task_that_stands_still_gets_a_shadow,
    a_task_that_may_not_be_replicated_waits_for_its_owner,
    jobs_with_different_needs_do_not_block_one_another,
    more_jobs_than_workers_all_complete,
    wide_tasks_are_run_among_narrow_ones,
    free_slots_are_used_while_tasks_wait,
    a_wide_machine_is_filled_while_others_are_held,
    a_report_without_news_changes_nothing,
    one_attempt_of_a_task_at_a_time_where_its_job_asks_for_it,
    held_tasks_are_released_when_their_predecessor_ends,
]
