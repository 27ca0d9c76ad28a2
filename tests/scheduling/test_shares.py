"""Shares: slots go to the user who has used least, for any policy and any number of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.events import (
    JobCancelled,
    JobPaused,
    JobResumed,
    JobSubmitted,
    SchedulerSettings,
    ShareChanged,
    WorkersHeard,
)
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.kernel.effects import Declined, Effects, Submitted
from loopline_master.core.kernel.entities import Attempt, Job
from loopline_master.core.policies import REGISTRY
from loopline_master.core.policies.policy import Placement, View
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.exemptions import overdrawn
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_master.core.wings.shares.accounts import Accounts
from loopline_master.core.wings.shares.shares_wing import in_turn
from loopline_master.core.wings.shares.user import User
from loopline_master.core.wings.shares.user_slots import slots_of_task
from loopline_shared.model import AttemptId, AttemptState, Facts, Order, OrderWithin, Outcome, Resource
from loopline_shared.protocol.gpus import GPU, Gpu
from loopline_shared.spec import JobSpec, TaskSpec
from loopline_simulator.experiments.users import UsersCase, run
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.passings import JobSpan, count
from loopline_simulator.fast.world import Arrival, FastWorld, Host
from loopline_simulator.streams import stream
from tests.campaign import LONG, PATIENT, tried
from tests.scheduling.driver import START, Grid, facts, spec

HOUR_S = 3600.0


def an_hour(policy: str, arrivals: Sequence[Arrival], order: Order, **shares: float) -> dict[str, float]:
    """Return each user's share of all slot-seconds after an hour on ten computers of two speeds."""
    attempts: dict[AttemptId, Attempt] = {}
    jobs: dict[int, Job] = {}

    def observe(effects: Effects) -> None:
        attempts.update(effects.attempts)
        jobs.update(effects.jobs)

    facts = Facts("linux", "x86_64", "3", "0", "model", cpus=1, memory_bytes=2**30, slots=1)
    hosts = [Host(f"pc{number}", facts, Steady(1.0 + number % 2)) for number in range(10)]
    times = {"lease_s": 1e9, "report_every_s": 1e8, "stall_after_s": 1e9}
    world = FastWorld(
        SchedulerSettings(policy, order, shares=True, prefetch_s=1.0, **times), hosts, arrivals, observe
    )
    world.scheduler.step([ShareChanged(name, share) for name, share in shares.items()], 0.0)
    world.kernel.run(until=HOUR_S)
    had: Counter[str] = Counter()
    for attempt in attempts.values():
        if not attempt.is_queued and attempt.since < HOUR_S:
            end = HOUR_S if attempt.ended_at is None else attempt.ended_at
            had[jobs[attempt.job].owner] += end - min(end, attempt.since)
    return {user: time / sum(had.values()) for user, time in had.items()}


def many_against_one(sizes: tuple[float, float]) -> list[Arrival]:
    """Ann submits sixty jobs in the first ten minutes, Bob one job with more tasks than can run."""
    draw = stream(7, "shares")
    hers = [
        Arrival(float(draw.uniform(0.0, 600.0)), work(20, sizes[0] * float(draw.uniform(0.5, 1.5))), owner="ann")
        for _ in range(60)
    ]
    return [*sorted(hers, key=lambda arrival: arrival.at), Arrival(0.0, work(20_000, sizes[1]), owner="bob")]


def work(tasks: int, seconds: float) -> JobSpec:
    return JobSpec(command=["work", "{i}"], parameters={"i": {"range": [1, tasks]}}, size=tasks * seconds)


POLICIES = sorted(REGISTRY) if LONG else ["fair", "round-robin"]


@pytest.mark.parametrize("order", [Order.HOLD, pytest.param(Order.NONE, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("policy", POLICIES)
def test_sixty_jobs_of_one_user_get_no_more_than_one_of_another(policy: str, order: Order) -> None:
    had = an_hour(policy, many_against_one((60.0, 20.0)), order, ann=1.0, bob=1.0)
    assert had["ann"] == pytest.approx(0.5, abs=0.025)


def test_user_with_three_times_the_share_gets_three_times_the_slots() -> None:
    had = an_hour("round-robin", many_against_one((60.0, 60.0)), Order.HOLD, ann=1.0, bob=3.0)
    assert had["ann"] == pytest.approx(0.25, abs=0.0125)


def test_user_without_work_leaves_all_slots_to_the_other() -> None:
    arrivals = [Arrival(0.0, work(20_000, 30.0), owner="ann"), Arrival(1800.0, work(10, 30.0), owner="bob")]
    assert an_hour("round-robin", arrivals, Order.HOLD, ann=1.0, bob=1.0)["ann"] > 0.98


def test_gang_of_the_user_who_has_used_least_is_planned_first() -> None:
    grid = Grid(shares=True, order=Order.NONE, lease_s=1e9)
    grid.workers("a", "b", gangs=True)
    grid.step(ShareChanged("bob", 1.0))
    grid.step(JobSubmitted("ann", spec(2, timeout_s=100.0)))
    grid.now += 50.0
    gang = spec(1, nodes=2, timeout_s=60.0)
    grid.step(JobSubmitted("ann", gang), JobSubmitted("bob", gang))
    starts = {plan.job: plan.start for plan in grid.scheduler.state.own(GangMemory).plans.values()}
    assert starts[3] < starts[2], "his is first, though hers came first"
    grid.step(JobSubmitted("bob", gang))
    assert {job: grid.scheduler.state.own(GangMemory).plans[job].start for job in starts} == starts, (
        "no promise moves back"
    )


# --- the guarantee within one user's jobs -------------------------------------------------------------------------


def test_order_within_users_holds_no_job_behind_another_users() -> None:
    grid = Grid(order_within=OrderWithin.USER)
    grid.workers("a")
    submitted(grid, "ann", 2, size=1.0)  # job 1
    submitted(grid, "bob", 1, size=1.0)
    submitted(grid, "ann", 1, size=1.0)
    grid.end(*grid.running("a"))
    assert {job.id for job in grid.scheduler.state.jobs.values() if grid.scheduler.state.index.is_held(job)} == {3}
    while running := grid.running("a"):
        grid.end(*running)
    jobs = grid.store.jobs
    assert [job.state for job in jobs.values()] == ["succeeded"] * 3
    assert jobs[2].departure < jobs[1].departure < jobs[3].departure
    assert not grid.store.passings


def test_job_submitted_under_the_order_over_all_jobs_keeps_it() -> None:
    grid = Grid()
    grid.workers("a")
    submitted(grid, "ann", 2, size=1.0)
    submitted(grid, "bob", 1, size=1.0)  # stamped to complete after ann's job 1
    grid.settings = SchedulerSettings(order_within=OrderWithin.USER, single_task_order="hold")
    grid.restart()
    submitted(grid, "bob", 1, size=1.0)
    held = {job.id for job in grid.scheduler.state.jobs.values() if grid.scheduler.state.index.is_held(job)}
    assert held == {2, 3}, "job 3 is held by bob's own job 2"


# --- accounts -----------------------------------------------------------------------------------------------------


def submitted(grid: Grid, user: str, tasks: int, spec_bytes: int = 0, size: float | None = None) -> int:
    reply = grid.ask(JobSubmitted(user, spec(tasks, size), spec_bytes=spec_bytes))
    assert isinstance(reply, Submitted)
    return reply.job


def test_use_halves_in_each_half_life() -> None:
    user = User("ann", usage=80.0, usage_at=1000.0)
    assert user.usage_now(1100.0, half_life_s=100.0) == pytest.approx(40.0)
    user.charge(2, 0, 1000.0, 100.0)
    assert user.usage_now(1000.001, 100.0) - user.usage_now(1000.0, 100.0) == pytest.approx(
        0.002 - 80e-5 * 0.6931, rel=0.01
    )
    assert user.usage_now(1e9, 100.0) == pytest.approx(2 * 100.0 / 0.6931, rel=1e-3)  # of two slots for ever


def test_single_user_has_no_account() -> None:
    grid = Grid(shares=True)
    grid.workers("a", slots=2)
    submitted(grid, "ann", 9)
    grid.wait(5.0)
    assert [user.at_work for user in grid.store.users.values()] == [0]
    submitted(grid, "bob", 9)
    assert {user.name: user.at_work for user in grid.store.users.values()} == {"ann": 2, "bob": 0}


@pytest.mark.parametrize(("gpu_cores", "per_second"), [(0, 2), (16, 2 + 2 * 16)])
def test_gpus_of_running_tasks_count_as_slots(gpu_cores: int, per_second: int) -> None:
    grid = Grid(shares=True, gpu_cores=gpu_cores, share_half_life_s=1e9, policy="first-come")
    gpus = tuple(Gpu(f"GPU-{number}", "A4000") for number in range(2))
    grid.join("a", replace(facts(4), resources=(Resource(GPU, 2, gpus),)))
    submitted(grid, "bob", 1)
    reply = grid.ask(JobSubmitted("ann", spec(2, requires={"gpus": 1})))
    assert isinstance(reply, Submitted)
    ann = grid.store.users["ann"]
    assert (ann.at_work, ann.charged) == (2, per_second)
    grid.report("a", frozen=True)
    assert grid.store.users["ann"].charged == 0
    grid.now += 10.0
    grid.report("a")
    grid.restart()
    grid.join("a")
    ann = grid.store.users["ann"]
    assert (ann.at_work, ann.charged) == (2, per_second)
    before = ann.usage_now(grid.now, 1e9)
    assert ann.usage_now(grid.now + 10.0, 1e9) - before == pytest.approx(10.0 * per_second, rel=1e-3)


def test_at_most_a_minute_of_work_is_prefetched_with_several_users() -> None:
    grid = Grid(policy="turnaround", shares=True, prefetch_s=1.0)  # an hour of work may wait if there is one user
    grid.workers("a")
    grid.step(JobSubmitted("ann", work(4, 100.0)))
    assert _waiting(grid) == {1: 3}
    grid.step(JobSubmitted("bob", work(4, 100.0)), JobSubmitted("ann", work(4, 20.0)))
    grid.end(grid.running("a")[0])
    assert _waiting(grid)[2] == 0, "each would take longer than a minute"


def _waiting(grid: Grid) -> Counter[int]:
    """Return how many tasks of each job wait at workers."""
    return Counter(one.job for one in grid.scheduler.state.attempts.values() if one.state is AttemptState.PREFETCHED)


def test_accounts_survive_a_restart() -> None:
    grid = Grid(shares=True)
    grid.workers("a")
    submitted(grid, "ann", 99)
    submitted(grid, "bob", 99)
    grid.now += 500.0
    grid.end(*grid.running("a"))
    before = {
        user.name: user.usage_now(grid.now, 86400.0) for user in grid.scheduler.state.own(Accounts).users.values()
    }
    grid.restart()
    assert before == {
        user.name: user.usage_now(grid.now, 86400.0) for user in grid.scheduler.state.own(Accounts).users.values()
    }
    grid.workers("a")
    assert {attempt.job for attempt in grid.scheduler.state.attempts.values()} == {2}, "it is Bob's turn"


@pytest.mark.campaign
def test_order_within_users_shortens_waits_of_a_user_with_few_jobs() -> None:
    everybodys, own = (run(UsersCase(1, "round-robin", Order.HOLD, within)) for within in OrderWithin)
    assert (everybodys.passings, everybodys.own_passings, own.own_passings) == (0, 0, 0)
    assert own.passings > 0
    assert own.total_s["bob"] < 0.5 * everybodys.total_s["bob"]


short_jobs = st.lists(
    st.tuples(
        st.integers(0, 30),  # arrival time
        st.sampled_from(["ann", "bob", "cid"]),
        st.integers(1, 5),  # tasks
        st.sampled_from([1.0, 3.0, 10.0]),  # declared seconds of each task ...
        st.sampled_from([1.0, 1.0, 0.1, 7.0]),  # ... times this factor is the truth
        st.sampled_from(["sized", "sized", "sized", "unsized", "session"]),
    ),
    min_size=2,
    max_size=12,
)


def unsized(tasks: int, seconds: float, kind: str) -> JobSpec:
    """A job without a size, although the simulated world knows how long its tasks run."""
    each = [TaskSpec(size=seconds) for _ in range(tasks)]
    return JobSpec(command=["work"], tasks=each, size="unknown", session="s" if kind == "session" else None)


@pytest.mark.parametrize("within", list(OrderWithin))
@pytest.mark.timeout(1800)  # 10,000 runs take minutes
@settings(PATIENT, max_examples=tried(40, 10_000))
@given(
    short_jobs,
    st.sampled_from([Order.HOLD, Order.DELIVER]),
    st.sampled_from(sorted(REGISTRY)),
    st.lists(st.sampled_from([0.3, 1.0, 4.0]), min_size=1, max_size=4),
    st.sampled_from([None, None, 1, 2]),
    st.sampled_from(["deliver", "hold"]),
)
def test_no_job_is_passed_in_random_runs(
    within: OrderWithin,
    chosen: list[tuple[int, str, int, float, float, str]],
    order: Order,
    policy: str,
    speeds: list[float],
    user_slots: int | None,
    single: Literal["deliver", "hold"],
) -> None:
    facts = Facts("linux", "x86_64", "3", "0", "model", cpus=1, memory_bytes=2**30, slots=1)
    hosts = [Host(f"pc{number}", facts, Steady(speed)) for number, speed in enumerate(speeds)]
    arrivals = [
        Arrival(at, work(n, seconds) if kind == "sized" else unsized(n, seconds, kind), scale, owner)
        for at, owner, n, seconds, scale, kind in sorted(chosen)
    ]
    jobs: dict[int, Job] = {}
    times = {"lease_s": 1e9, "report_every_s": 1e8}
    decided_by = SchedulerSettings(policy, order, within, single, shares=True, user_slots=user_slots, **times)
    FastWorld(decided_by, hosts, arrivals, lambda effects: jobs.update(effects.jobs)).run()
    groups: dict[str, list[JobSpan]] = {}
    for number in sorted(jobs):
        job = jobs[number]
        assert job.finished_at is not None, "every job completes"
        group = job.owner if within is OrderWithin.USER else ""
        if job.session is None:
            groups.setdefault(group, []).append(JobSpan(job.submitted_at, job.size, job.finished_at, job.shown))
    assert [count(group).passed for group in groups.values()] == [0] * len(groups)


# --- limits on the hold ----------------------------------------------------------------------------------------


def test_submission_beyond_user_jobs_or_user_tasks_is_refused() -> None:
    grid = Grid(user_jobs=2, user_tasks=10, shares=True)
    for _ in range(2):
        submitted(grid, "ann", 3)
    assert refusal(grid, "ann", 1) == (429, "user_jobs", "2 of the 2 unfinished jobs")
    submitted(grid, "bob", 3)
    assert refusal(grid, "bob", 8) == (429, "user_tasks", "3 of the 10 unfinished tasks")
    submitted(grid, "bob", 7)


def test_submission_beyond_user_spec_bytes_is_refused() -> None:
    grid = Grid(user_spec_bytes=100, shares=True)
    first = submitted(grid, "ann", 1, spec_bytes=60)
    assert refusal(grid, "ann", 1, spec_bytes=41)[:2] == (429, "user_spec_bytes")
    submitted(grid, "ann", 1, spec_bytes=40)
    assert refusal(grid, "ann", 1, spec_bytes=1)[2] == "100 of the 100 bytes of unfinished jobs' specs"
    grid.step(JobCancelled(first))
    submitted(grid, "ann", 1, spec_bytes=60)


def refusal(grid: Grid, user: str, tasks: int, spec_bytes: int = 0) -> tuple[int, str, str]:
    (reply,) = grid.step(JobSubmitted(user, spec(tasks), spec_bytes=spec_bytes)).replies
    assert isinstance(reply, Declined)
    return reply.status, reply.code, reply.message.removeprefix(f"{user} has ").partition(" that")[0]


@pytest.mark.parametrize("prefetch_s", [0.0, 60.0])
@pytest.mark.parametrize("policy", POLICIES)
def test_user_has_at_most_user_slots_at_once(policy: str, prefetch_s: float) -> None:
    grid = Grid(policy=policy, shares=True, user_slots=3, prefetch_s=prefetch_s, max_replicas=1)
    grid.workers("a", "b", slots=3)
    grid.ask(JobSubmitted("ann", work(6, 5.0)))
    assert slots_of(grid) == {"ann": 3}, "the other slots stay idle, even with no other user"
    assert "3 of the 3 slots" in str(explain_job(grid.scheduler, 1, {}))
    grid.ask(JobSubmitted("bob", work(6, 5.0)))
    assert slots_of(grid) == {"ann": 3, "bob": 3}
    while grid.scheduler.state.attempts:
        assert max(slots_of(grid).values()) <= 3
        grid.end(next(iter([*grid.running("a"), *grid.running("b")])))
    assert {job.state for job in grid.store.jobs.values()} == {"succeeded"}


def test_task_that_needs_more_than_user_slots_runs_alone() -> None:
    grid = Grid(shares=True, user_slots=2, order=Order.NONE)
    grid.workers("a", slots=8)
    grid.ask(JobSubmitted("ann", spec()))
    grid.ask(JobSubmitted("ann", spec(requires={"slots": 4})))
    assert slots_of(grid) == {"ann": 1}
    grid.end(*grid.running("a"))
    assert slots_of(grid) == {"ann": 4}


def test_gpus_count_towards_user_slots() -> None:
    grid = Grid(shares=True, user_slots=10, gpu_cores=4, order=Order.NONE, prefetch_s=0.0, max_replicas=1)
    gpus = tuple(Gpu(f"GPU-{number}", "A4000") for number in range(4))
    grid.join("a", replace(facts(12), resources=(Resource(GPU, 4, gpus),)))
    grid.ask(JobSubmitted("ann", spec(5, requires={"gpus": 1})))
    assert slots_of(grid) == {"ann": 2}, "each counts as five slots"
    expected = "10 of the 10 slots that one user may have at once, and a task of this job counts as 5"
    assert expected in str(explain_job(grid.scheduler, 1, {}))
    grid.end(grid.running("a")[0])
    assert slots_of(grid) == {"ann": 2}
    grid.report("a", frozen=True)
    grid.step()
    assert slots_of(grid) == {"ann": 4}, "frozen tasks do not count"


def test_attempt_that_waits_at_its_worker_counts_with_its_gpus() -> None:
    grid = Grid(policy="first-come", shares=True, prefetch_s=1000.0)
    grid.workers("a")
    grid.step(JobSubmitted("ann", work(2, 1.0)))
    state = grid.scheduler.state
    waiting = next(one for one in state.attempts.values() if one.state is AttemptState.PREFETCHED)
    job, role = replace(state.jobs[waiting.job]), state.index.attempts.roles[waiting.id]
    job.spec = spec(2, requires={"gpus": 2})
    counted = Accounts({"ann": User("ann")}, are_kept=True, gpu_cores=4)
    counted.charge(job, waiting, 0, role, grid.now)
    opened = Accounts({"ann": User("ann")}, are_kept=True, gpu_cores=4)
    opened.open([(job, waiting, role)], grid.now)
    assert counted.ahead == opened.ahead == {"ann": 9}


def test_gpus_of_all_members_count_towards_user_slots() -> None:
    grid = Grid(shares=True, gpu_cores=4)
    grid.ask(JobSubmitted("ann", spec(nodes=3, requires={"gpus": 1, "slots": 2})))
    assert slots_of_task(grid.scheduler.state, grid.store.jobs[1]) == 3 * (2 + 4)


def slots_of(grid: Grid) -> Counter[str]:
    """Return the number of slots that each user's attempts occupy or wait for."""
    state = grid.scheduler.state
    held = Counter[str]()
    for attempt in state.attempts.values():
        held[state.jobs[attempt.job].owner] += attempt.slots
    return held


def overdrawn_by(grid: Grid, size: float) -> int:
    """Return a job of one endless task that claims to be small, while others wait for it."""
    grid.workers("a", "b")
    job = grid.submit(1, size, max_replicas=1)
    grid.submit(1, 2 * size, max_replicas=1)
    grid.report("a")
    return job


@pytest.mark.parametrize("policy", ["round-robin", "fair"])  # fair gives it another place in the queue
def test_overdrawn_job_holds_no_other(policy: str) -> None:
    grid = Grid(policy=policy, overdrawn_after=10.0, lease_s=1e6)
    endless = overdrawn_by(grid, 5.0)
    assert grid.running("b") == [], "job 2 is held"
    grid.wait(49.0)
    assert not grid.job(endless).overdrawn
    assert grid.scheduler.wake_at is not None
    while not grid.job(endless).overdrawn:
        grid.now = grid.scheduler.wake_at
        grid.report("a")
        assert grid.now <= START + 90.0
    assert grid.running("b") == [AttemptId(2, 1, 1)]
    assert [(e.job, e.reason) for e in grid.store.exemptions.values()] == [(endless, "overdrawn")]
    explained = explain_job(grid.scheduler, endless)
    assert explained is not None
    assert "times its size of 5 s (overdrawn), so it holds no other job any more" in explained.sentence
    grid.restart()
    grid.workers("a", "b")
    assert grid.job(endless).overdrawn
    grid.end(AttemptId(2, 1, 1))
    assert not grid.store.passings


def test_time_of_a_silent_worker_does_not_count_as_work() -> None:
    """It hangs or sleeps: later jobs keep waiting until its lease ends or its work is measured."""
    grid = Grid(overdrawn_after=10.0, lease_s=1e6)
    endless = overdrawn_by(grid, 5.0)
    grid.now += 40.0
    grid.report("a")
    for _ in range(10):
        grid.wait(40.0)
        grid.report("b")
    assert not grid.job(endless).overdrawn
    assert grid.running("b") == []
    assert overdrawn.used_now(grid.scheduler.state, grid.job(endless)) == pytest.approx(40.0)
    grid.report("a")
    assert overdrawn.used_now(grid.scheduler.state, grid.job(endless)) == pytest.approx(440.0)
    grid.wait(30.0)
    assert grid.job(endless).overdrawn, "the attempt is running after all, so the whole time counts"
    assert grid.running("b") == [AttemptId(2, 1, 1)]


def test_restart_does_not_change_which_jobs_can_be_overdrawn() -> None:
    """Jobs 1 and 2 hold job 3; job 2 was paused when job 3 arrived."""
    grid = Grid(overdrawn_after=10.0, lease_s=1e6)
    grid.workers("a", "b")
    for size in (5.0, 4.0):
        grid.submit(1, size, max_replicas=1)
    for name in "ab":
        grid.report(name)
    grid.step(JobPaused(2))
    grid.submit(1, 10.0, max_replicas=1)
    grid.step(JobResumed(2))
    grid.now += 70.0
    again = Scheduler(grid.store.snapshot())
    again.set_policy(grid.settings)
    heard = WorkersHeard({"a": 0.0, "b": 0.0}, 1e6)
    again.step([heard], grid.now)
    grid.step(heard)
    assert [job for job in (1, 2) if grid.job(job).overdrawn] == [1, 2]
    assert [job for job in (1, 2) if again.state.jobs[job].overdrawn] == [1, 2]


def test_results_and_failures_count_as_use_but_cancelled_attempts_do_not() -> None:
    grid = Grid(overdrawn_after=10.0, lease_s=1e6)
    grid.workers("a")
    job = grid.submit(3, 30.0, max_replicas=1)
    grid.end(*grid.running("a"), wall_s=40.0, cpu_s=40.0)
    grid.end(*grid.running("a"), outcome=Outcome.FAILED, wall_s=50.0, cpu_s=50.0)
    assert grid.job(job).used == pytest.approx(90.0)
    grid.end(*grid.running("a"), outcome=Outcome.CANCELLED, wall_s=60.0, cpu_s=60.0)
    assert grid.job(job).used == pytest.approx(90.0)


def test_job_without_overdrawn_after_holds_others_while_it_runs() -> None:
    grid = Grid(lease_s=1e6)
    endless = overdrawn_by(grid, 5.0)
    grid.wait(1000.0)
    assert (grid.job(endless).overdrawn, grid.running("b")) == (False, [])


def test_refused_proposals_change_no_pointer() -> None:
    """It would differ from the database, where a step without effects writes nothing."""
    grid = Grid(shares=True)
    grid.join("ant", facts(2))
    for name in ("ann", "bob"):
        grid.step(JobSubmitted(name, spec(9)))
    state = grid.scheduler.state
    jobs = {job.owner: job.id for job in state.jobs.values()}
    users = state.own(Accounts).users
    for name, job in jobs.items():
        users[name].pointer = job

    def propose(view: View) -> Iterator[Placement]:
        assert state.index.turn is not None
        yield Placement(jobs[state.index.turn], 3, "ant")

    before = state.grid.pointer
    assert list(in_turn(state, propose, View(state)))
    assert state.grid.pointer == before != jobs["bob"]
