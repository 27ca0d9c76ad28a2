"""The wing resources: no start exceeds a limit, and every task with units left runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.events import (
    JobLimited,
    JobSubmitted,
)
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.kernel.effects import Declined, Done, Submitted
from loopline_master.core.kernel.index.requirements import RequirementClass, RequirementIndex
from loopline_master.core.policies import REGISTRY
from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_shared.model import AttemptId, AttemptState, JobState
from loopline_shared.parallel import launch_of
from tests.campaign import PATIENT, tried
from tests.scheduling.driver import Grid, facts, spec
from tests.scheduling.lives import VERBS, Life
from tests.scheduling.units import limit, offering, running, submit, worker_of

POLICIES = sorted(REGISTRY)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_more_attempts_run_than_a_limit_allows_and_all_tasks_run(policy: str) -> None:
    grid = Grid(policy=policy, prefetch_s=10.0)
    limit(grid, "matlab", 2)
    grid.join("ant", facts(3))
    grid.join("bee", facts(3))
    needing, free = submit(grid, 6, size=6, needs={"matlab": 1}), submit(grid, 4, size=4)
    assert len(running(grid, needing)) == 2
    assert len(running(grid, free)) == 4, "jobs that need no unit are not kept waiting"
    for _ in range(20):
        if not running(grid):
            break
        grid.now += 1.0
        grid.end(running(grid)[0], wall_s=1.0, cpu_s=1.0)
        for name in grid.agents:
            grid.report(name)
        assert len(running(grid, needing)) <= 2
    assert [grid.job(job).state for job in (needing, free)] == [JobState.SUCCEEDED] * 2


@pytest.mark.parametrize("policy", POLICIES)
def test_job_waits_only_while_all_units_of_its_tasks_are_not_left(policy: str) -> None:
    grid = Grid(policy=policy)
    limit(grid, "matlab", 3)
    for name in ("ant", "bee"):
        grid.join(name, facts(2))
    one, two = submit(grid, 2, needs={"matlab": 1}), submit(grid, needs={"matlab": 2})
    assert len(running(grid, one)) == 2
    assert running(grid, two) == []
    grid.end(running(grid, one)[0])
    assert len(running(grid, two)) == 1


def test_limit_for_one_user_and_for_each_user() -> None:
    grid = Grid()
    limit(grid, "matlab", 1, user="*")
    limit(grid, "matlab", 2, user="ann")
    grid.join("ant", facts(8))
    jobs = {name: submit(grid, 4, owner=name, needs={"matlab": 1}) for name in ("ann", "bob", "cat")}
    assert {name: len(running(grid, job)) for name, job in jobs.items()} == {"ann": 2, "bob": 1, "cat": 1}
    limit(grid, "matlab", None, user="ann")
    grid.end(running(grid, jobs["ann"])[0])
    assert len(running(grid, jobs["ann"])) == 1, "the limit of each user applies to ann, too"
    limit(grid, "matlab", 3)
    grid.end(running(grid, jobs["ann"])[0])
    assert len(running(grid)) == 3


def test_worker_runs_as_many_tasks_as_it_has_units() -> None:
    grid = Grid()
    grid.join("ant", offering(4, fpga=2))
    grid.join("bee", offering(4, fpga=1))
    grid.join("cat", facts(4))
    job = submit(grid, 6, needs={"fpga": 1})
    on = Counter(worker_of(grid, attempt) for attempt in running(grid, job))
    assert on == {"ant": 2, "bee": 1}
    grid.end(next(attempt for attempt in running(grid) if worker_of(grid, attempt) == "bee"))
    assert len(running(grid, job)) == 3


def test_running_attempts_of_a_job_are_limited_and_the_limit_can_change() -> None:
    grid = Grid()
    grid.join("ant", facts(8))
    job = submit(grid, 8, max_running=2)
    other = submit(grid, 1)
    assert len(running(grid, job)) == 2
    assert len(running(grid, other)) == 1
    assert grid.ask(JobLimited(job, 4)) == Done()
    assert len(running(grid, job)) == 4
    grid.ask(JobLimited(job, 1))
    for attempt in running(grid, job)[:3]:
        grid.end(attempt)
    assert len(running(grid, job)) == 1
    grid.ask(JobLimited(job, None))
    assert len(running(grid, job)) == 5
    grid.ask(JobLimited(other, 1))
    assert isinstance(grid.ask(JobLimited(77, 1)), Declined)


def test_job_with_an_unknown_need_stalls_with_a_warning() -> None:
    grid = Grid(stall_after_s=0.0)
    grid.join("ant", facts(2))
    reply = grid.ask(JobSubmitted("ann", spec(requires={"needs": {"matlab": 1}})))
    assert isinstance(reply, Submitted)
    assert "matlab" in reply.warnings[0]
    assert grid.job(reply.job).stalled
    limit(grid, "matlab", 1)
    assert len(running(grid, reply.job)) == 1
    assert not grid.job(reply.job).stalled


def test_need_above_a_limit_is_accepted_with_a_warning() -> None:
    grid = Grid()
    grid.join("ant", facts(2))
    limit(grid, "matlab", 3)
    limit(grid, "matlab", 1, "ann")
    warning = "a task needs 2 matlab, and the limit is 1: none starts before an admin raises it"
    reason = "ann has 0 of the 1 matlab that one user may have at once (a task needs 2, which is more than the limit)"
    for user, warned, said in (("ann", [warning], [(reason, 1)]), ("bob", [], [])):
        reply = grid.ask(JobSubmitted(user, spec(requires={"needs": {"matlab": 2}})))
        assert isinstance(reply, Submitted)
        assert [*reply.warnings] == warned
        explained = explain_job(grid.scheduler, reply.job)
        assert explained is not None
        assert [(one.detail, one.count) for one in explained.reasons if one.code == "limit"] == said


def test_limit_cannot_have_the_name_of_an_offered_resource() -> None:
    grid = Grid()
    grid.join("ant", offering(1, fpga=1))
    reply = limit(grid, "fpga", 5)
    assert isinstance(reply, Declined)
    assert "ant" in reply.message
    limit(grid, "matlab", 1)
    grid.join("bee", offering(4, matlab=1000))
    job = submit(grid, 4, needs={"matlab": 1})
    assert len(running(grid, job)) == 1, "what a worker offers under the name of a limit adds nothing to it"


def test_unknown_limit_cannot_be_removed() -> None:
    reply = limit(Grid(), "matlab", None)
    assert isinstance(reply, Declined)
    assert reply.status == 404


@pytest.mark.parametrize("prefetch_s", [0.0, 1000.0])
def test_attempt_that_waits_at_its_worker_holds_its_units(prefetch_s: float) -> None:
    grid = Grid(prefetch_s=prefetch_s)
    limit(grid, "matlab", 1)
    for name in ("ant", "bee"):
        grid.join(name, facts(1))
    job = submit(grid, 2, needs={"matlab": 1}, size=1.0)
    (held,) = running(grid, job)
    there = worker_of(grid, held)
    grid.agents[there].running = {AttemptId(99, 1, 1): None, **grid.agents[there].running}  # type: ignore[dict-item]
    grid.report(there, deliver=False)
    assert grid.attempt(held.job, held.task).state is AttemptState.RETRACTING
    grid.report("bee" if there == "ant" else "ant", deliver=False)
    assert set(grid.store.attempts) == {held}, "its worker may start it until the master's word arrives"
    grid.deliver()
    grid.report(there)
    grid.report(there)
    assert len(running(grid, job)) == 1


def test_lost_attempt_that_turns_out_to_wait_at_its_worker_holds_its_units() -> None:
    grid = Grid(lease_s=20.0)
    limit(grid, "matlab", 1)
    for name in ("ant", "bee"):
        grid.join(name, facts(1))
    job = submit(grid, 2, needs={"matlab": 1})
    (held,) = running(grid, job)
    there = worker_of(grid, held)
    other = "bee" if there == "ant" else "ant"
    grid.now += 30.0
    grid.report(other)
    assert grid.attempt(held.job, held.task).state is AttemptState.LOST
    grid.agents[there].running = {AttemptId(99, 1, 1): None, **grid.agents[there].running}  # type: ignore[dict-item]
    grid.join(there, reports=False)
    grid.report(there, deliver=False)
    assert grid.attempt(held.job, held.task).state is AttemptState.RETRACTING
    grid.report(other, deliver=False)
    assert set(grid.store.attempts) == {held}


def test_prefetched_attempts_are_called_back_when_their_job_is_limited() -> None:
    grid = Grid(prefetch_s=1000.0)
    grid.join("ant", facts(2))
    job = submit(grid, 8, size=8.0)
    assert grid.waiting("ant")
    grid.ask(JobLimited(job, 1))
    assert not grid.waiting("ant")
    for attempt in running(grid, job):
        grid.end(attempt)
    assert len(running(grid, job)) == 1


def test_limit_lowered_under_running_attempts_starts_nothing_until_enough_have_ended() -> None:
    grid = Grid()
    limit(grid, "matlab", 3)
    grid.join("ant", facts(4))
    job = submit(grid, 5, needs={"matlab": 1})
    limit(grid, "matlab", 1)
    for left in (2, 1):
        grid.end(running(grid, job)[0])
        assert len(running(grid, job)) == left
    grid.end(running(grid, job)[0])
    assert len(running(grid, job)) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_exclusive_task_has_a_whole_worker(policy: str) -> None:
    grid = Grid(policy=policy, prefetch_s=10.0)
    grid.join("ant", facts(3))
    small = submit(grid, 2, size=2.0)
    whole = submit(grid, requires={"exclusive": True})
    later = submit(grid, 4, size=400.0)
    assert not running(grid, whole)
    while not running(grid, whole):
        for attempt in running(grid, small) or running(grid, later):
            grid.end(attempt)
    (attempt,) = running(grid, whole)
    assert (grid.agents["ant"].running[attempt].slots, grid.store.attempts[attempt].slots) == (3, 3)
    grid.report("ant")
    assert set(grid.running("ant")) - set(grid.waiting("ant")) == {attempt}
    grid.end(attempt)
    while left := running(grid):
        grid.end(left[0])
    assert {grid.job(job).state for job in (small, whole, later)} == {JobState.SUCCEEDED}


def test_exclusive_task_waits_for_a_worker_that_offers_all_of_its_slots() -> None:
    grid = Grid()
    grid.join("ant", facts(3), reports=False)
    grid.report("ant", slots=2)
    job = submit(grid, requires={"exclusive": True})
    assert not running(grid)
    assert "is idle, with all of its slots offered" in explain_job(grid.scheduler, job).sentence
    grid.report("ant")
    assert len(running(grid, job)) == 1
    other = submit(grid)
    grid.report("ant")
    assert not running(grid, other)
    grid.join("bee", facts(2))
    assert [worker_of(grid, one) for one in running(grid, other)] == ["bee"]


counts = st.integers(1, 4)
needs = st.sampled_from(
    [
        {"m": 1},
        {"m": 2},
        {"n": 1, "m": 1},
        {"m": 1, "n": 2},
        {"m": 2, "n": 1},
        {"f": 1},
        {"f": 2},
        {"computer": 1},
        {},
    ]
)
most = st.sampled_from([None, 1, 2])
users = st.sampled_from(["", "*", "ann"])
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("submit"),
            st.sampled_from(["ann", "bob"]),
            counts,
            needs,
            most,
            st.booleans(),
            st.booleans(),
            st.sampled_from([1, 1, 2]),
        ),
        st.tuples(st.just("freeze"), st.sampled_from(["ant", "bee"]), st.booleans()),
        st.tuples(st.just("pass_s"), st.sampled_from([1.0, 70.0])),
        st.tuples(st.just("limit"), st.sampled_from(["m", "n"]), st.integers(0, 3), users),
        st.tuples(st.just("limit_job"), st.integers(1, 6), most),
        *VERBS,
    ),
    max_size=30,
)


class LimitedLife(Life):
    """Two workers with a resource each, and two limits."""

    def __init__(self, policy: str) -> None:
        super().__init__(policy)
        self.set_limits()

    def set_limits(self) -> None:
        for name in ("m", "n"):
            for user in ("*", "ann"):
                limit(self.grid, name, None, user)
            limit(self.grid, name, 2)

    def workers_join(self) -> None:
        for name in ("ant", "bee"):
            self.grid.join(name, replace(offering(3, f=2), gangs=True))

    def submit(
        self,
        owner: str,
        count: int,
        needs: dict[str, int],
        most: int | None,
        is_single: bool,
        is_short: bool,
        nodes: int,
    ) -> None:
        more = {**({"max_replicas": 1} if is_single else {}), **({"timeout_s": 100.0} if is_short else {})}
        if nodes > 1:  # its members hold as many units as the limits allow
            more["nodes"], needs = nodes, dict.fromkeys(needs, 1)
        self.jobs.append(submit(self.grid, count, owner, needs=needs, max_running=most, **more))

    def limit(self, name: str, units: int, user: str) -> None:
        limit(self.grid, name, units, user)

    def freeze(self, name: str, is_frozen: bool) -> None:
        """Have the owner of a worker come back, or leave."""
        agent = self.grid.agents[name]
        agent.frozen = {*agent.running} if is_frozen else set()
        self.reports()

    def pass_s(self, seconds: float) -> None:
        self.grid.now += seconds
        self.reports()

    def limit_job(self, job: int, most: int | None) -> None:
        self.grid.ask(JobLimited(job, most))

    def check_starts(self, before: set[AttemptId]) -> None:
        """Assert that the attempts started since then stay within the limits in force, and gangs are complete."""
        counts, store = self.grid.scheduler.state.own(CountedUnits), self.grid.store
        for number in store.attempts.keys() - before:
            attempt, job = store.attempts[number], store.jobs[number.job]
            for name, _ in job.needs:
                assert counts.used_up(name, job.owner, 0) is None
            launch = launch_of(number, job.nodes)
            assert all(launch._replace(number=launch.number + rank) in store.attempts for rank in range(job.nodes))
            assert job.max_running is None or counts.running[job.id] <= job.max_running
            if job.exclusive:
                here = self.grid.scheduler.state.index.attempts.of_worker[attempt.worker]
                assert [one.id for one in here.values() if one.state is not AttemptState.FINISHED] == [attempt.id]
            for name, used in counts.on_worker.get(attempt.worker, {}).items():
                assert used <= {"computer": 1, "f": 2}[name]


@settings(PATIENT, max_examples=tried(60))
@given(steps=steps, policy=st.sampled_from(POLICIES))
def test_random_lives_never_start_beyond_a_limit_and_run_everything(steps: list[Any], policy: str) -> None:
    life = LimitedLife(policy)
    life.play(steps)
    life.set_limits()
    life.run_everything()


def mixed(policy: str = "first-come") -> Grid:
    """Return a grid of 30 idle workers and a job that waits for units which no worker has."""
    grid = Grid(policy=policy, prefetch_s=0.0, max_replicas=1)
    for number in range(30):
        grid.join(f"w{number:02}", offering(2))
    submit(grid, needs={"lic": 1})
    return grid


@pytest.mark.parametrize("policy", POLICIES)
def test_idle_workers_are_listed_once_a_step_not_at_each_start(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = mixed(policy)
    listings, lists = list[int](), RequirementIndex.idle_that_serve

    def counting(self: RequirementIndex, *given: Any) -> Any:
        listings.append(grid.steps)
        return lists(self, *given)

    monkeypatch.setattr(RequirementIndex, "idle_that_serve", counting)
    job = submit(grid, 20)
    assert len(running(grid, job)) == 20
    assert len(listings) == len({*listings})


def test_listing_of_idle_workers_stops_once_it_cannot_be_short() -> None:
    grid = mixed()
    for number in range(10):
        submit(grid, requires={"memory_bytes": number})
    requirements, checked = grid.scheduler.state.index.requirements, list[object]()

    class Family(dict[RequirementClass, None]):
        def __contains__(self, key: object) -> bool:
            checked.append(key)
            return super().__contains__(key)

    family, idle = Family(dict.fromkeys(requirements.workers)), {name: (name,) for name in grid.agents}
    assert requirements.idle_that_serve(family, None, idle) is None, "each plain class is served by all of them"
    assert len(checked) == 1
