"""With several users, prefetching goes as deep as a job's finished tasks confirm its expected times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.estimates import measure
from loopline_master.core.events import JobSubmitted
from loopline_master.core.kernel.effects import Submitted
from loopline_master.core.policies import REGISTRY
from loopline_master.forecaster import Forecaster
from loopline_master.store.records import EtaRecords
from loopline_master.task_progress import TaskProgress
from loopline_shared.model import AttemptId, JobState, Order
from loopline_shared.rest.bodies import Counts
from tests.campaign import PATIENT, tried
from tests.cli import views
from tests.scheduling.driver import START, Grid, facts, spec

SLOTS = {"a": 1, "b": 2}


class Life:
    """A grid with real run times set by the test, independent of declared ones."""

    def __init__(
        self,
        lasts: Callable[[int, int], float],
        policy: str = "round-robin",
        *,
        users: int = 2,
        order: Order = Order.NONE,
    ) -> None:
        self.grid = Grid(policy=policy, order=order, shares=True, prefetch_s=1.0, lease_s=1e9, max_replicas=1)
        self.lasts, self.began = lasts, dict[AttemptId, float]()
        self._ended_s = Counter[int]()  # by job: slot time of tasks that have ended
        for name, slots in SLOTS.items():
            self.grid.join(name, facts(slots, labels=[name]))
        for user in ("ann", "bob")[:users]:
            self.submit(user, 1, size=0.01)
            self.live(until=START + 1.0)

    def submit(self, owner: str, count: int, size: float | None = None, labels: Sequence[str] = ()) -> int:
        reply = self.grid.ask(JobSubmitted(owner, spec(count, size, {"labels": [*labels]})))
        assert isinstance(reply, Submitted)
        self._note_begun()
        return reply.job

    def queue(self, name: str) -> list[AttemptId]:
        return self.grid.waiting(name)

    def first_begun(self, job: int) -> float | None:
        return min((began for attempt, began in self.began.items() if attempt.job == job), default=None)

    def live(self, *, until: float) -> None:
        """Let tasks end one after another, each in its time, and wake the scheduler when it asked to be."""
        while True:
            following, wake_at = self._next_end(), self.grid.scheduler.wake_at
            if wake_at is not None and wake_at <= min(until, following[0] if following else until):
                self.grid.now = max(wake_at, self.grid.now)
                for name in self.grid.agents:
                    self.grid.report(name)
                self._note_begun()
                continue
            if following is None or following[0] > until:
                break
            self.grid.now, name, attempt = following
            lasted = self.lasts(attempt.job, attempt.task)
            self._ended_s[attempt.job] += lasted
            self.grid.end(attempt, wall_s=lasted, cpu_s=lasted)
            self.grid.report(name)
            self._note_begun()
        self.grid.now = until

    def slot_s(self, job: int) -> float:
        """Return the slot time that the job has had, including that of its running tasks."""
        running = [one for agent in self.grid.agents.values() for one in agent.running if one in self.began]
        return self._ended_s[job] + sum(self.grid.now - self.began[one] for one in running if one.job == job)

    def _next_end(self) -> tuple[float, str, AttemptId] | None:
        ends = [
            (self.began[attempt] + self.lasts(attempt.job, attempt.task), name, attempt)
            for name, agent in self.grid.agents.items()
            for attempt in agent.running
            if attempt in self.began
        ]
        return min(ends, default=None)

    def _note_begun(self) -> None:
        for name, agent in self.grid.agents.items():
            waiting = set(agent.waiting())
            for attempt in agent.running:
                if attempt not in waiting:
                    self.began.setdefault(attempt, self.grid.now)
            assert not waiting & self.began.keys(), f"{name} has begun what waits"


def bimodal(job: int, task: int) -> float:
    return 0.01 if job < 3 or task <= 100 else 10.0


@pytest.mark.parametrize("policy", ["round-robin", "fair", "turnaround", "first-come"])
def test_two_tasks_wait_for_each_slot_until_some_have_ended(policy: str) -> None:
    life = Life(bimodal, policy)
    job = life.submit("ann", 1000, size=1e-6)
    assert {name: len(life.queue(name)) for name in SLOTS} == {"a": 2, "b": 4}
    life.live(until=life.grid.now + 0.1)
    assert len(life.queue("a")) > 2, "its tasks are short"
    assert life.grid.job(job).confirmed > 2


def test_prefetching_is_not_limited_for_a_single_user() -> None:
    life = Life(bimodal, users=1)
    life.submit("ann", 1000, size=1e-6)
    assert len(life.queue("a")) == life.grid.settings.max_prefetch


def test_jobs_without_experience_share_the_two_places_for_each_slot() -> None:
    life = Life(bimodal)
    for _ in range(10):
        life.submit("ann", 10, size=1e-6)
    assert {name: len(life.queue(name)) for name in SLOTS} == {"a": 2, "b": 4}


def test_queue_is_cut_back_once_a_task_takes_longer_than_expected() -> None:
    life = Life(bimodal)
    job = life.submit("ann", 1000)
    life.live(until=life.grid.now + 0.9)
    assert len(life.queue("a")) > 20, "a hundred short tasks have confirmed the mean"
    life.live(until=life.grid.now + 10.5)
    assert life.grid.job(job).confirmed == 0
    assert len(life.queue("a")) <= 2
    assert len(life.queue("b")) <= 4


def test_second_user_is_served_after_at_most_three_tasks() -> None:
    life = Life(bimodal)
    life.submit("ann", 1000)
    life.live(until=life.grid.now + 5.0)
    came_at, late = life.grid.now, life.submit("bob", 20)
    life.live(until=came_at + 31.0)
    began = life.first_begun(late)
    assert began is not None
    assert began <= came_at + 30.0


@pytest.mark.parametrize("users", [1, 2])
def test_policy_prefetches_an_hour_of_work_only_for_a_single_user(users: int) -> None:
    life = Life(lambda job, _: 0.01 if job <= users else 0.8, "turnaround", users=users)
    life.submit("ann", 600, size=600 * 0.8)
    life.live(until=life.grid.now + 6.0)
    came_at, late = life.grid.now, life.submit("bob", 20)
    life.live(until=came_at + 1.7)
    assert sum(map(len, map(life.queue, SLOTS))) <= 6, "two wait for each of three slots"
    life.live(until=came_at + 5.4)
    assert life.first_begun(late) is not None


def test_nothing_waits_behind_a_task_that_takes_far_longer_than_expected() -> None:
    life = Life(bimodal)
    job = life.submit("ann", 1000)
    life.live(until=life.grid.now + 0.9)
    assert len(life.queue("a")) > 2, "its tasks are short so far"
    life.live(until=life.grid.now + 4.0)
    assert [life.queue(name) for name in SLOTS] == [[], []]
    state = life.grid.scheduler.state
    assert measure.work_of(state.grid, state.jobs[job], 1) > 0.015, "a running task counts"


def test_nothing_waits_behind_a_task_that_waits_for_its_inputs() -> None:
    life = Life(lambda _job, _task: 0.2)
    job = life.submit("ann", 1000, size=200.0)
    life.live(until=life.grid.now + 5.0)
    assert life.queue("a")
    for attempt in life.grid.scheduler.state.attempts.values():
        attempt.is_set_up = attempt.is_queued  # as the first Reports about the running ones say
    for _ in range(3):
        life.grid.now += 0.6
        for name in SLOTS:
            life.grid.report(name, clock=(0.0, life.grid.now - START))
    assert not life.queue("a")
    assert life.grid.job(job).longest < 0.5, "the time in a slot is no work"


def test_tasks_of_a_user_whose_turn_comes_later_make_way() -> None:
    life = Life(lambda job, _: 0.01 if job < 3 else 0.4)
    life.submit("ann", 1000, size=400.0)
    life.live(until=life.grid.now + 5.0)
    assert [len(life.queue(name)) for name in SLOTS] == [2, 4]
    late = life.submit("bob", 5)
    assert {life.queue(name)[0].job for name in SLOTS} == {late}, "no other task waits before his"
    life.live(until=life.grid.now + 0.5)
    assert life.first_begun(late) is not None


@pytest.mark.parametrize("policy", ["round-robin", "fair", "turnaround", "first-come"])
def test_size_that_a_task_has_exceeded_is_void(policy: str) -> None:
    life = Life(lambda job, _: 0.01 if job < 2 else 3.0, policy, users=1)
    job = life.submit("ann", 1000, size=1e-3)
    life.live(until=life.grid.now + 3.5)
    state = life.grid.scheduler.state
    assert state.jobs[job].size == 1e-3, "the stamped size stays"
    assert measure.work_of(state.grid, state.jobs[job], 1000) == pytest.approx(3.0, rel=0.01)


async def never(work: object) -> Any:
    raise AssertionError("nothing is stored")


def test_job_whose_tasks_only_wait_at_workers_is_queued() -> None:
    life = Life(bimodal, users=1)
    first, later = life.submit("ann", 3, size=30.0), life.submit("ann", 2, size=1e-3)
    forecaster = Forecaster(life.grid.scheduler, EtaRecords(never, never), lambda: life.grid.now, TaskProgress())
    found = [
        forecaster.with_eta(views.job(job, JobState.RUNNING, tasks=Counts(running=2), condition="running"))
        for job in (first, later)
    ]
    assert [(view.condition, view.tasks.prefetched) for view in found] == [("running", 0), ("queued", 2)]


DURATIONS = st.sampled_from([0.01, 0.2, 0.8, 3.0, 20.0])


@settings(PATIENT, max_examples=tried(8))
@given(
    policy=st.sampled_from(sorted(REGISTRY)),
    size=st.sampled_from([None, 1e-6, 1e-2, 1.0, 1e3, 1e9]),
    durations=st.lists(st.tuples(st.integers(1, 40), DURATIONS), min_size=1, max_size=4),
    his=DURATIONS,
    came_after_s=st.floats(0.0, 20.0),
)
def test_second_user_is_served_soon_for_any_sizes_and_run_times(
    policy: str, size: float | None, durations: list[tuple[int, float]], his: float, came_after_s: float
) -> None:
    """They wait for the longest task there, ``prefetch_s``, and the noise that an expectation allows."""
    pattern = [seconds for count, seconds in durations for _ in range(count)]
    late = 0

    def lasts(job: int, task: int) -> float:
        return 0.01 if job < 3 else his if job == late else pattern[task % len(pattern)]

    life = Life(lasts, policy)
    life.submit("ann", 600, size)
    life.live(until=life.grid.now + came_after_s)
    came_at, late = life.grid.now, life.submit("bob", 20)
    within_s = max(pattern) + life.grid.settings.prefetch_s + 0.1
    life.live(until=came_at + within_s)
    began = life.first_begun(late)
    assert began is not None, f"nothing of his has begun after {within_s} s"


@settings(PATIENT, max_examples=tried(8))
@given(
    policy=st.sampled_from(["round-robin", "fair", "turnaround", "first-come"]),
    sizes=st.tuples(*[st.sampled_from([None, 1e-6, 1e-2, 1.0, 1e3, 1e9])] * 2),
    durations=st.lists(st.tuples(st.integers(1, 40), st.sampled_from([0.2, 0.8, 3.0])), min_size=1, max_size=4),
    his=st.sampled_from([0.3, 0.8, 3.0]),
    order=st.sampled_from([Order.HOLD, Order.NONE]),
    labels=st.sampled_from([(), ("b",)]),
)
def test_each_user_gets_their_share_for_any_sizes_and_run_times(
    policy: str,
    sizes: tuple[float | None, float | None],
    durations: list[tuple[int, float]],
    his: float,
    order: Order,
    labels: tuple[str, ...],
) -> None:
    """Each has half of the slots, up to a task that runs and the queue before theirs in each slot.

    Ann's tasks may fit two of the three slots only.
    """
    pattern, of_user = [seconds for count, seconds in durations for _ in range(count)], dict[int, str]()

    def lasts(job: int, task: int) -> float:
        return 0.01 if job < 3 else his if of_user.get(job) == "bob" else pattern[task % len(pattern)]

    life, span_s, slots = Life(lasts, policy, order=order), 24.0, sum(SLOTS.values())
    for user, size, needed in zip(("ann", "bob"), sizes, (labels, ()), strict=True):
        of_user[life.submit(user, 500, size, needed)] = user
    life.live(until=life.grid.now + span_s)
    used_s = {of_user[job]: life.slot_s(job) for job in of_user}
    margin_s = slots * (max([*pattern, his]) + life.grid.settings.prefetch_s + 0.1)
    for user in ("ann", "bob"):
        assert used_s[user] >= slots * span_s / 2 - margin_s, f"{user} got {used_s}"
