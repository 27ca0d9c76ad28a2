"""Gangs that hold units: of resources on each of their workers, and of limits for all members in one step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loopline_master.core.events import JobLimited
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.kernel.effects import Done
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.gangs.planning.plan import Plan, PlanKind
from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_shared.model import AttemptId, AttemptState, Facts, Order, Outcome, Resource, TaskId
from loopline_shared.protocol.gpus import GPU, Gpu
from tests.campaign import tried
from tests.scheduling.driver import Grid
from tests.scheduling.units import limit, offering, running, submit

NAMES = ("ant", "bee", "cat")


def grid(
    *names: str,
    slots: int = 1,
    order: Order = Order.NONE,
    policy: str = "round-robin",
    shares: bool = False,
    **resources: int,
) -> Grid:
    made = Grid(order=order, policy=policy, lease_s=20.0, max_replicas=1, prefetch_s=0.0, shares=shares)
    for name in names or NAMES:
        made.join(name, with_gangs(offering(slots, **resources)))
    return made


def with_gangs(facts: Facts) -> Facts:
    return replace(facts, gangs=True, fences=True)


def all_report(made: Grid, times: int = 3) -> None:
    for _ in range(times):
        for name in made.agents:
            made.report(name)


def members(made: Grid, job: int) -> set[str]:
    """Return the workers with a running member."""
    all_report(made)
    return {name for name, agent in made.agents.items() for attempt in agent.running if attempt.job == job}


def gang(made: Grid, nodes: int = 2, **more: Any) -> int:
    return submit(made, nodes=nodes, **{"timeout_s": 100, "size": 10, **more})


def plan_of(made: Grid, job: int, task: int = 1) -> Plan:
    return made.store.plans[TaskId(job, task)]


def test_members_hold_units_of_their_workers() -> None:
    made = grid(slots=4, fpga=1)
    first, second = gang(made, needs={"fpga": 1}), gang(made, needs={"fpga": 1})
    there = members(made, first)
    assert len(there) == 2
    assert not members(made, second)
    assert submit(made, 3, needs={"fpga": 1}), "one worker has a unit left"
    for attempt in running(made, first):
        made.end(attempt)
    assert len(members(made, second)) == 2


def test_gang_starts_when_running_tasks_leave_its_units_although_slots_are_free() -> None:
    made = grid(slots=4, fpga=1)
    holders = submit(made, 2, needs={"fpga": 1}, timeout_s=500)
    waiting = gang(made, needs={"fpga": 1})
    plan = plan_of(made, waiting)
    assert plan.start is not None
    assert 400 <= plan.start - made.now <= 700, "the holders have ended by then at the latest"
    assert plan.kind is PlanKind.ESTIMATE
    made.end(running(made, holders)[0])
    assert len(members(made, waiting)) == 2


def test_narrow_tasks_leave_a_planned_gang_its_units() -> None:
    made = grid("ant", "bee", slots=4, fpga=1)
    holder = submit(made, needs={"fpga": 1}, timeout_s=500)
    waiting = gang(made, needs={"fpga": 1})
    later, short = submit(made, 4, needs={"fpga": 1}, timeout_s=1000), submit(made, needs={"fpga": 1}, timeout_s=50)
    all_report(made)
    assert not running(made, later), "they may not end before the planned start"
    (brief,) = running(made, short)
    made.end(brief)
    made.end(*running(made, holder))
    assert members(made, waiting) == {"ant", "bee"}


def test_exclusive_gang_has_whole_computers() -> None:
    made = grid("ant", "bee", slots=3)
    small = submit(made, timeout_s=30)
    waiting = gang(made, requires={"exclusive": True})
    later = submit(made, 6, timeout_s=1000)
    all_report(made)
    assert not running(made, later), "the computers would not be empty by the planned start"
    made.end(*running(made, small))
    assert members(made, waiting) == {"ant", "bee"}
    assert {run.slots for agent in made.agents.values() for run in agent.running.values() if run} == {3}
    assert not running(made, later)


def test_explain_says_that_too_few_computers_are_idle_for_an_exclusive_gang() -> None:
    made = grid("ant", "bee", slots=3)
    for name in ("ant", "bee"):
        made.report(name, slots=2)
    waiting = gang(made, requires={"exclusive": True})
    explained = explain_job(made.scheduler, waiting)
    assert explained is not None
    said = "fewer than 2 of the 2 workers that could run a member are idle, with all of their slots offered"
    assert said in explained.sentence


def test_plans_of_an_exclusive_gang_and_another_never_meet_on_a_worker() -> None:
    made = grid("ant", "bee", slots=4)
    submit(made, 2, timeout_s=500, requires={"slots": 4})
    whole, other = gang(made, requires={"exclusive": True}), gang(made)
    assert plan_of(made, whole).machines
    assert not plan_of(made, other).machines
    for attempt in running(made):
        made.end(attempt)
    assert members(made, whole) == {"ant", "bee"}
    plan = plan_of(made, other)
    assert plan.start is not None
    assert plan.start >= made.now + 100


def gpu(name: str) -> Gpu:
    return Gpu(f"GPU-{name}", "NVIDIA RTX A2000", 12 * 10**9, "550.54", "8.6", 0)


def with_gpus(*gpus: Gpu) -> Facts:
    return with_gangs(replace(offering(4), resources=(Resource(GPU, len(gpus), gpus),)))


def test_each_member_has_gpus_of_its_own_worker() -> None:
    made = grid("ant")
    for name in ("bee", "cat"):
        made.join(name, with_gpus(gpu(name), gpu(f"{name}-2")))
    job = gang(made, requires={"gpus": 2})
    assert members(made, job) == {"bee", "cat"}
    for name in ("bee", "cat"):
        (run,) = made.agents[name].running.values()
        assert run is not None
        assert set(run.gpus) == {f"GPU-{name}", f"GPU-{name}-2"}


def test_two_members_never_have_one_gpu_of_a_computer_with_two_workers() -> None:
    made = grid("zoo")
    for name in ("ant", "bee"):
        made.join(name, with_gpus(gpu("shared")))
    job = gang(made, requires={"gpus": 1})
    assert not members(made, job)
    made.join("cat", with_gpus(gpu("cat")))
    assert members(made, job) == {"ant", "cat"}


# --- limits -----------------------------------------------------------------------------------------------------


def test_gang_takes_the_units_of_all_members_in_one_step() -> None:
    made = grid(*NAMES, "dog")
    limit(made, "matlab", 3)
    first, second = gang(made, needs={"matlab": 1}), gang(made, needs={"matlab": 1})
    assert len(members(made, first)) == 2
    assert not members(made, second), "one unit is left, and it needs two"
    assert made.scheduler.state.own(CountedUnits).used["matlab", ""] == 2
    explained = explain_job(made.scheduler, second)
    assert explained is not None
    assert "2 of 3 matlab in use, by ann (2) (2 are needed)" in explained.sentence
    for attempt in running(made, first):
        made.end(attempt)
    assert len(members(made, second)) == 2


def test_finished_member_gives_its_units_back() -> None:
    made = grid()
    limit(made, "matlab", 2)
    job, narrow = gang(made, needs={"matlab": 1}), submit(made, needs={"matlab": 1})
    assert len(members(made, job)) == 2
    made.end(running(made, job)[0])
    all_report(made)
    assert len(running(made, narrow)) == 1
    assert len(running(made, job)) == 1


def test_gang_with_a_limit_starts_in_bounded_time_under_a_stream_of_narrow_tasks() -> None:
    made = grid(*NAMES, "dog", slots=2)
    limit(made, "matlab", 3)
    narrow = submit(made, 60, "bob", needs={"matlab": 1}, timeout_s=10)
    waiting = gang(made, nodes=3, needs={"matlab": 1})
    started, begun = made.now, dict[AttemptId, float]()
    while not members(made, waiting):
        assert made.now <= started + 20, "twice the longest narrow task"
        assert running(made, narrow)
        for attempt in running(made, narrow):
            if made.now - begun.setdefault(attempt, made.now - 3 * (attempt.task % 3)) >= 10:
                made.end(attempt)
        made.now += 1.0
        all_report(made, 1)
    assert running(made, narrow) == []
    for attempt in running(made, waiting):
        made.end(attempt)
    all_report(made)
    assert len(running(made, narrow)) == 3


@settings(max_examples=tried(3))
@given(
    nodes=st.integers(2, 4),
    stream=st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 3])), min_size=3, max_size=8),
    order=st.sampled_from([Order.NONE, Order.DELIVER]),
)
@example(nodes=4, stream=[(2, 1)], order=Order.NONE)
@example(nodes=4, stream=[(2, 1), (2, 1), (2, 1)], order=Order.DELIVER)
@example(nodes=2, stream=[(2, 1), (2, 1), (1, 3), (1, 1)], order=Order.NONE)
def test_all_tasks_with_a_limit_start_under_a_stream_of_others(
    nodes: int, stream: list[tuple[int, int]], order: Order
) -> None:
    """``stream``: nodes and units of the jobs that keep arriving; together they need more than four units."""
    made = grid(*map(str, range(8)), slots=8, order=order, policy="first-come")
    limit(made, "matlab", 4)
    begun, waiting = dict[AttemptId, float](), list[int]()

    def arrive(turn: int) -> int:
        wide, units = stream[turn % len(stream)]
        needs = {"matlab": units if wide == 1 else 1}
        return submit(made, nodes=wide, needs=needs, timeout_s=20, size=10 * wide, owner=f"user-{wide}-{units}")

    turns = iter(range(1000))
    for turn in turns:
        waiting.append(arrive(turn))
        if turn == 2 * len(stream):
            break
    watched = [submit(made, nodes=nodes, needs={"matlab": 1}, timeout_s=20, size=10 * nodes), *waiting]
    for _ in range(100):
        all_report(made, 1)
        made.now += 5.0
        for attempt in running(made):
            if made.now - begun.setdefault(attempt, made.now) >= 10:
                made.end(attempt)
        started = {attempt.job for attempt in begun}
        watched = [job for job in watched if job not in started]
        waiting = [job for job in waiting if job not in started]
        while len(waiting) < len(stream):
            waiting.append(arrive(next(turns)))
    assert not watched


def test_gang_sets_nothing_aside_while_a_holder_has_no_expected_end() -> None:
    made = grid(slots=2)
    limit(made, "matlab", 2)
    endless = submit(made, 2, needs={"matlab": 1})
    waiting, other = gang(made, needs={"matlab": 1}), gang(made)
    assert len(running(made, endless)) == 2
    assert plan_of(made, waiting).start is None
    assert len(members(made, other)) == 2, "the waiting gang keeps no worker"
    limit(made, "matlab", 3)
    narrow = submit(made, needs={"matlab": 1})
    assert len(running(made, narrow)) == 1


def test_units_set_aside_for_a_gang_stay_so_after_a_snapshot() -> None:
    made = grid(slots=2)
    limit(made, "matlab", 2)
    first = submit(made, 2, needs={"matlab": 1}, timeout_s=50)
    waiting = gang(made, needs={"matlab": 1})
    assert plan_of(made, waiting).sets_aside
    key = made.scheduler.state.index.requirements.keys[waiting]
    marker = made.scheduler.snapshot_event()
    made.scheduler = Scheduler(made.store.snapshot())
    made.step(marker)
    assert made.scheduler.state.own(CountedUnits).aside_for("matlab") == key
    narrow = submit(made, 2, needs={"matlab": 1})
    made.end(running(made, first)[0])
    all_report(made)
    assert not running(made, narrow)
    made.end(*running(made, first))
    assert len(members(made, waiting)) == 2
    assert not plan_of(made, waiting).sets_aside


@pytest.mark.parametrize("fences", [True, False])
def test_lost_member_keeps_its_units_after_its_gang_has_moved(fences: bool) -> None:
    made = grid(*NAMES, "dog")
    limit(made, "matlab", 3)
    for name in (*NAMES, "dog"):
        made.join(name, replace(made.agents[name].facts, fences=fences))
    job = gang(made, needs={"matlab": 1}, timeout_s=1000)
    there = members(made, job)
    silent = min(there)
    left = [name for name in made.agents if name != silent]

    def wait(seconds: int) -> None:
        for _ in range(seconds):
            made.now += 1.0
            for name in left:
                made.report(name)

    wait(25)
    lost = next(number for number in (1, 2) if made.attempt(job, 1, number).worker == silent)
    assert made.attempt(job, 1, lost).state is AttemptState.LOST
    wait(25)
    assert made.scheduler.state.own(CountedUnits).used["matlab", ""] == (2 if fences else 3)
    assert len([name for name in left if made.agents[name].running]) == 2, "its gang runs elsewhere"
    made.join(silent)
    all_report(made)
    assert not made.agents[silent].running, "it is called back"
    all_report(made)
    assert made.scheduler.state.own(CountedUnits).used["matlab", ""] == 2


def test_limit_of_a_job_counts_gangs_and_can_change() -> None:
    made = grid(*NAMES, "dog")
    job = submit(made, 3, nodes=2, timeout_s=100, max_running=1)
    assert len(members(made, job)) == 2
    made.end(running(made, job)[0])
    all_report(made)
    assert len(running(made, job)) == 1, "its gang still runs"
    assert made.ask(JobLimited(job, 2)) == Done()
    all_report(made)
    assert len(running(made, job)) == 3


@pytest.mark.parametrize("needs", [{"fpga": 1}, {}])
def test_lost_member_is_called_back_when_its_gang_has_moved_but_has_not_started(needs: dict[str, int]) -> None:
    made = grid("ant", "bee", fpga=1)
    job = gang(made, needs=needs, timeout_s=1000)
    assert members(made, job) == {"ant", "bee"}
    for _ in range(50):
        made.now += 1.0
        made.report("bee")
    held = made.scheduler.state.own(CountedUnits).on_worker
    assert held == ({"ant": needs} if needs else {}), "bee has its unit back"
    made.join("ant")
    assert made.agents["ant"].killed, "a member does not run without its gang"
    assert members(made, job) == {"ant", "bee"}
    assert {attempt.number for attempt in running(made, job)} == {3, 4}


def test_held_gang_keeps_no_units_from_the_gang_that_it_waits_for() -> None:
    made = grid("ant", "bee", slots=2, order=Order.HOLD, fpga=1)
    first = gang(made, needs={"fpga": 1})
    held = gang(made, requires={"exclusive": True}, size=1000)
    assert members(made, first) == {"ant", "bee"}
    made.end(running(made, first)[0], Outcome.GIVEN_BACK)
    assert members(made, first) == {"ant", "bee"}
    assert not running(made, held)
    for attempt in running(made, first):
        made.end(attempt)
    assert members(made, held) == {"ant", "bee"}
