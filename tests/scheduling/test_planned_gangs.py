"""Plans in the scheduler: made at submission, moved forward when attempts end, broken only for a reason, and equal
after a restart.
"""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from loopline_master.core.estimates.eta import outlook
from loopline_master.core.events import JobCancelled, JobSubmitted, WorkerDrained
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.wings.gangs.gang import GangPhase
from loopline_master.core.wings.gangs.phases import launches_of
from loopline_master.core.wings.gangs.planning.explain_plan import estimated_start
from loopline_master.core.wings.gangs.planning.grid_horizons import switch_of
from loopline_master.core.wings.gangs.planning.plan import Plan, PlanKind
from loopline_master.forecaster import Forecaster
from loopline_master.store.records import EtaRecords
from loopline_master.task_progress import TaskProgress
from loopline_shared.model import AttemptId, AttemptState, JobState, Order, TaskId
from loopline_shared.rest.bodies import PlanView
from loopline_simulator.full.promises import SecondPlanner
from tests.cli import views
from tests.scheduling.driver import Grid, facts, spec

NAMES = ("ant", "bee", "cat", "dog")


def grid(*names: str, slots: int = 1, **chosen: object) -> Grid:
    made = Grid(max_replicas=1, **chosen)
    made.workers(*(names or NAMES), slots=slots, gangs=True)
    return made


def plan_of(made: Grid, job: int) -> Plan:
    return made.store.plans[TaskId(job, 1)]


def begun(made: Grid, job: int) -> bool:
    return bool(launches_of(made.scheduler.state, TaskId(job, 1)))


def end(made: Grid, job: int) -> None:
    """Let all attempts of a job's first task succeed."""
    for name, agent in made.agents.items():
        for attempt in [attempt for attempt in agent.running if attempt.task_id == TaskId(job, 1)]:
            made.end(attempt)
            assert name in made.agents


def reports(made: Grid) -> None:
    for _ in range(3):
        for name in made.agents:
            made.report(name)


def test_gang_behind_limited_jobs_gets_a_promise_that_moves_forward() -> None:
    made = grid(order=Order.NONE)
    first = made.submit(nodes=3, size=600, timeout_s=1000)
    second = made.submit(nodes=2, size=60, timeout_s=100)
    reports(made)
    assert begun(made, first)
    plan = copy(plan_of(made, second))
    assert (plan.kind, plan.limit_s, plan.is_given) == (PlanKind.PROMISE, 100, True)
    assert plan.start is not None
    assert 1000 <= plan.start - made.now <= 1000 + 1024, "the distance between the times tried grows"
    made.now += 20
    end(made, first)
    assert begun(made, second)
    assert plan_of(made, second).started_at == made.now
    assert (plan_of(made, second).moves, plan_of(made, second).broken) == (1, 0)
    assert not made.store.broken


def test_explain_says_that_a_start_would_delay_a_planned_gang() -> None:
    made = grid("ant", "bee", order=Order.NONE)
    made.submit(size=600, timeout_s=1000)
    gang = made.submit(nodes=2, size=60, timeout_s=100)
    reports(made)
    long = made.submit(size=6000)
    reports(made)
    assert plan_of(made, gang).start is not None
    explained = explain_job(made.scheduler, long)
    assert explained is not None
    assert "a start on 1 free worker would delay a job of several nodes that is planned there" in explained.sentence
    assert "another use" not in explained.sentence


def test_gang_behind_a_task_without_limit_gets_an_estimate() -> None:
    made = grid("ant", "bee", order=Order.NONE)
    made.submit(size=100)
    gang = made.submit(nodes=2, size=60, timeout_s=100)
    plan = plan_of(made, gang)
    assert plan.kind is PlanKind.ESTIMATE
    assert plan.start is not None
    assert plan.p50 is not None
    assert plan.p90 == plan.start
    assert made.now + 95 <= plan.p50 <= made.now + 105 < plan.p90


def test_plan_of_a_gang_without_a_limit_says_that_it_is_predicted() -> None:
    made = grid("ant", "bee", order=Order.NONE)
    made.submit(nodes=2, size=60)
    gang = made.submit(nodes=2, size=60, timeout_s=10)
    reports(made)
    assert not plan_of(made, 1).is_given
    assert plan_of(made, gang).kind is PlanKind.ESTIMATE


def test_promise_broken_by_a_loss_is_recorded_with_its_reason() -> None:
    made = grid("ant", "bee", "cat", order=Order.NONE)
    made.submit(nodes=2, size=600, timeout_s=1000)
    reports(made)
    gang = made.submit(nodes=3, size=60, timeout_s=100)
    plan = copy(plan_of(made, gang))
    assert plan.kind is PlanKind.PROMISE
    made.step(WorkerDrained("cat"))
    (told,) = made.store.broken
    assert (told.job, told.start, told.new_start) == (gang, plan.start, None)
    assert told.reason == "cat is being drained"
    assert plan_of(made, gang).start is None
    assert plan_of(made, gang).broken == 1


def test_promise_is_kept_on_another_worker() -> None:
    made = grid("ant", "bee", "cat", "dog", order=Order.NONE)
    made.submit(nodes=4, size=600, timeout_s=1000)
    reports(made)
    gang = made.submit(nodes=2, size=60, timeout_s=100)
    plan = copy(plan_of(made, gang))
    made.step(WorkerDrained(plan.machines[0]))
    assert plan_of(made, gang).start == plan.start
    assert plan.machines[0] not in plan_of(made, gang).machines
    assert not made.store.broken


def test_task_is_backfilled_before_a_promise_only_if_its_limit_fits() -> None:
    made = grid("ant", "bee", order=Order.NONE)
    made.submit(size=600, timeout_s=300)
    gang = made.submit(nodes=2, size=60, timeout_s=100)
    long = made.submit(size=10, timeout_s=400)
    endless = made.submit(size=10)
    short = made.submit(size=10, timeout_s=200)
    reports(made)
    assert plan_of(made, gang).kind is PlanKind.PROMISE
    assert not made.attempts_of(TaskId(long, 1))
    assert not made.attempts_of(TaskId(endless, 1))
    assert made.attempts_of(TaskId(short, 1))


def test_gang_without_a_limit_neither_backfills_nor_supports_a_promise() -> None:
    made = grid("ant", "bee", "cat", "dog", slots=1, order=Order.NONE)
    made.submit(1, size=50, timeout_s=100)
    reports(made)
    promised = made.submit(nodes=4, size=100, timeout_s=50)
    unlimited = made.submit(nodes=3, size=30)
    behind = made.submit(nodes=4, size=40, timeout_s=20)
    reports(made)
    assert plan_of(made, promised).is_promise
    assert not begun(made, promised)
    assert not begun(made, unlimited), "it has no limit and could run past the promise"
    assert plan_of(made, unlimited).start >= plan_of(made, promised).start
    assert not plan_of(made, behind).is_promise, "the gang before it has no limit"


def test_tasks_are_backfilled_before_an_estimate_by_their_forecast() -> None:
    made = grid("ant", "bee", order=Order.NONE)
    made.submit(size=600)
    gang = made.submit(nodes=2, size=60, timeout_s=100)
    short, long = made.submit(size=10), made.submit(size=2000)
    reports(made)
    assert plan_of(made, gang).kind is PlanKind.ESTIMATE
    assert made.attempts_of(TaskId(short, 1))
    assert not made.attempts_of(TaskId(long, 1))


def test_plan_under_hold_starts_after_the_job_it_may_not_pass() -> None:
    made = grid()
    first = made.submit(nodes=2, size=10, timeout_s=500)
    gang = made.submit(nodes=2, size=20, timeout_s=100)
    reports(made)
    assert begun(made, first)
    assert not begun(made, gang), "workers are free, but it would pass the first job"
    plan = copy(plan_of(made, gang))
    assert plan.kind is PlanKind.PROMISE
    assert plan.start is not None
    assert 500 <= plan.start - made.now <= 510
    end(made, first)
    assert begun(made, gang)


def test_restart_makes_the_same_plans() -> None:
    made = grid(order=Order.NONE)
    made.submit(nodes=3, size=600, timeout_s=1000)
    reports(made)
    gangs = [made.submit(nodes=2 + number % 3, size=60, timeout_s=100 + 7 * number) for number in range(8)]
    before = {job: copy(plan_of(made, job)) for job in gangs}
    made.restart()
    for name in NAMES:
        made.join(name)
    assert {job: plan_of(made, job) for job in gangs} == before
    made.step(JobCancelled(1))
    reports(made)
    assert plan_of(made, gangs[0]).started_at is not None
    rows = made.store.replayed()
    assert rows.plans == made.store.plans
    assert rows.grid == made.store.grid


def test_gangs_of_one_job_are_planned_one_after_another() -> None:
    made = grid("ant", "bee", order=Order.NONE)
    job = made.submit(3, size=60, nodes=2, timeout_s=100)
    for number in (1, 2, 3):
        reports(made)
        assert made.store.plans[TaskId(job, number)].started_at == made.now
        (gang,) = launches_of(made.scheduler.state, TaskId(job, number))
        assert gang.phase is GangPhase.RUNNING
        for rank in range(2):
            made.end(AttemptId(job, number, gang.first + rank))
    assert made.job(job).succeeded == 3


def test_held_gang_reserves_no_slot_from_the_job_that_holds_it() -> None:
    made = grid("ant", "bee")
    running = made.submit(nodes=2, size=10, timeout_s=20)
    first = made.submit(1, size=300)
    gang = made.submit(nodes=2, size=400, timeout_s=500)
    reports(made)
    assert begun(made, running)
    end(made, running)
    assert made.attempts_of(TaskId(first, 1))
    assert not begun(made, gang)
    end(made, first)
    assert begun(made, gang)


def test_held_gang_behind_queued_tasks_gets_an_estimate() -> None:
    made = grid("ant", "bee", slots=1)
    known = made.submit(2, size=20)
    for number in (1, 2):
        made.end(AttemptId(known, number, 1), wall_s=10.0, cpu_s=10.0)
    made.submit(4, size=400)
    gang = made.submit(nodes=2, size=2000, timeout_s=2000)
    reports(made)
    assert TaskId(gang, 1) not in made.store.plans, "the tasks before it could need any slot it reserved"
    explanation = explain_job(made.scheduler, gang)
    assert explanation is not None
    [said] = [reason.detail for reason in explanation.reasons if reason.code == "outlook"]
    likely, late = (float(word) for word in re.findall(r"in (\d+) s", said))
    assert 150 <= likely < late, "four tasks of 100 s on two slots"
    assert likely < 300, "the held gang takes no slots from them"
    state = made.scheduler.state
    told = estimated_start(state, state.jobs[gang], outlook(state))
    assert isinstance(told, PlanView)
    assert (told.kind, told.machines, told.start_at) == ("estimate", [], told.p90_at)
    assert (round(told.p50_at - state.now), round(told.p90_at - state.now)) == (likely, late)


async def never(work: object) -> Any:
    raise AssertionError("no database is asked")


def test_eta_note_gives_the_latest_end_of_a_promised_gang() -> None:
    made = grid(order=Order.NONE)
    made.submit(nodes=3, size=600, timeout_s=1000)
    promised = made.submit(nodes=2, timeout_s=100)
    predicted = made.submit(nodes=2)
    reports(made)
    start = plan_of(made, promised).start
    assert start is not None
    no_records = EtaRecords(never, never)
    forecaster = Forecaster(made.scheduler, no_records, lambda: made.now, TaskProgress())
    notes = [forecaster.with_eta(views.job(job, JobState.QUEUED)).eta_note for job in (promised, predicted)]
    unknown = "no task of it has finished yet"
    by_limit = f"by its promised start and its limit it would be over in {start + 100 - made.now:.0f} s at the latest"
    assert notes == [f"{unknown}; {by_limit}", unknown]


def test_all_plans_move_forward_within_a_few_steps() -> None:
    """Each step moves a few of them; no other event occurs in the grid."""
    made = grid(order=Order.NONE)
    first = made.submit(nodes=4, size=600, timeout_s=1000)
    waiting = [made.submit(nodes=4, size=60, timeout_s=100) for _ in range(8)]
    reports(made)
    before = plan_of(made, waiting[-1]).start
    end(made, first)
    for _ in range(5):
        made.step()
    after = plan_of(made, waiting[-1]).start
    assert before is not None
    assert after is not None
    assert before - after > 990, "the first gang ended 1000 s before its limit"


def test_held_gang_without_an_estimate_has_a_reason() -> None:
    made = grid("ant", "bee", slots=1)
    made.submit(4, size=400)
    gang = made.submit(nodes=2, size=2000, timeout_s=2000)
    reports(made)
    state = made.scheduler.state
    assert estimated_start(state, state.jobs[gang], outlook(state)) == "no task of it has finished yet"


@pytest.mark.parametrize(
    ("labels", "address", "switch"),
    [
        (("lab", "switch.b2"), "10.1.2.3", "switch.b2"),
        ((), "10.1.2.3", "10.1.2"),
        ((), "fd00:1:2:3::9", "fd00:1:2:3"),
        ((), "fd00::9", ""),
        ((), "", ""),
    ],
)
def test_switch_of_a_computer_is_named_by_a_label_or_its_subnet(
    labels: tuple[str, ...], address: str, switch: str
) -> None:
    assert switch_of(replace(facts(labels=labels), address=address)) == switch


def test_forecast_runs_members_of_a_gang_at_the_same_time() -> None:
    made = grid(slots=1, order=Order.NONE)
    known = made.submit(1, size=10)
    made.end(AttemptId(known, 1, 1), wall_s=10.0, cpu_s=10.0)
    job = made.submit(2, nodes=4, size=800, timeout_s=900)
    again = made.submit(2, nodes=4, timeout_s=900)
    reports(made)
    assert 150 <= outlook(made.scheduler.state)[job].p50_s <= 220, "one gang after the other, 100 s each"
    for task in (TaskId(job, 1), TaskId(job, 2), TaskId(again, 1)):
        for attempt in made.attempts_of(task):
            made.end(attempt, wall_s=100.0, cpu_s=100.0)
        reports(made)
    assert 90 <= outlook(made.scheduler.state)[again].p50_s <= 180, "the time that its first gang took, and a margin"


@pytest.mark.parametrize("limit_s", [7, 33, 40, 63, 100, 170])
def test_backfilled_task_breaks_no_promise_while_it_runs(limit_s: int) -> None:
    made = grid("ant", "bee", order=Order.NONE, plan_times="naive", lease_s=1e6)
    made.submit(size=600, timeout_s=300)
    reports(made)
    gang = made.submit(nodes=2, size=60, timeout_s=100)
    start = plan_of(made, gang).start
    assert start is not None
    made.wait(start - made.now - limit_s - 9)
    have_gone_first = 0
    while made.now < start - limit_s:  # from the last task that fits before the promise to one that does not
        task = made.submit(size=10, timeout_s=limit_s)
        reports(made)
        for attempt in made.attempts_of(TaskId(task, 1)):
            have_gone_first += 1
            made.end(attempt)
        made.step(JobCancelled(task))
        made.wait(1)
    assert have_gone_first
    assert not made.store.broken


def test_promise_holds_if_earlier_gangs_run_to_their_limits() -> None:
    made = grid(lease_s=1e6)
    first = made.submit(nodes=4, size=10, timeout_s=50)
    reports(made)
    second = made.submit(nodes=3, size=20, timeout_s=60)
    third = made.submit(nodes=2, size=30, timeout_s=70)
    plan = copy(plan_of(made, third))
    assert plan.kind is PlanKind.PROMISE
    for job, limit_s in ((first, 50), (second, 60)):
        assert begun(made, job)
        for _ in range(limit_s):
            made.wait(1)
            reports(made)
        end(made, job)
    assert begun(made, third)
    assert plan.start is not None
    assert made.now <= plan.start
    assert not made.store.broken


def test_late_start_counts_as_a_broken_promise() -> None:
    made = grid("ant", "bee", order=Order.NONE, lease_s=1e6)
    first = made.submit(nodes=2, size=60, timeout_s=100)
    reports(made)
    gang = made.submit(nodes=2, size=60, timeout_s=100)
    promised = plan_of(made, gang).start
    assert promised is not None
    for _ in range(int(promised - made.now) + 20):
        made.wait(1)
        for name in made.agents:
            made.report(name)
    end(made, first)
    made.wait(5)
    assert begun(made, gang)
    plan = plan_of(made, gang)
    assert plan.broken
    assert plan.promised == promised
    assert plan.broken_reason
    assert made.store.broken[0].start == promised


def test_replica_breaks_no_promise_of_a_gang_held_by_its_job() -> None:
    made = Grid(max_replicas=2, lease_s=1e6)
    larger = made.submit(size=5000, timeout_s=200)
    for size in (10, 5):
        made.submit(size=size, timeout_s=300)
    made.workers("ant", "bee", "cat", slots=1, gangs=True)
    reports(made)
    assert made.attempts_of(TaskId(larger, 1))
    gang = made.submit(nodes=3, size=20, timeout_s=100)
    assert plan_of(made, gang).kind is PlanKind.PROMISE
    made.wait(100)
    end(made, larger)
    reports(made)
    assert not made.store.broken
    assert plan_of(made, gang).kind is PlanKind.PROMISE


def test_task_retracted_for_a_changed_plan_is_ready_at_once() -> None:
    made = grid("ant", "bee", slots=2, order=Order.NONE, prefetch_s=60.0)
    made.submit(size=100)
    gang = made.submit(nodes=2, size=60, timeout_s=100, requires={"slots": 2})
    waits = made.submit(size=5, timeout_s=9)
    bee = made.agents["bee"]
    strangers = dict.fromkeys([AttemptId(9, 1, 1), AttemptId(9, 2, 1)])
    bee.running = strangers | bee.running  # type: ignore[assignment]
    made.report("bee", deliver=False)
    assert made.attempt(waits).state is AttemptState.PREFETCHED
    median = plan_of(made, gang).p50
    made.submit(size=140, timeout_s=160)
    assert plan_of(made, gang).p50 != median
    assert made.attempt(waits).state is AttemptState.RETRACTING
    assert 1 in made.scheduler.state.index.ready_sets[waits].to_retry


def test_plans_keep_their_predicted_limits_across_a_restart() -> None:
    made = grid("ant", "bee", "cat", order=Order.NONE, plan_times="by-load", lease_s=1e4)
    made.submit(nodes=2, size=1000, timeout_s=1000)
    reports(made)
    for _ in range(3):
        made.submit(nodes=2)
    (single,) = made.attempts_of(TaskId(made.submit(), 1))
    made.now += 300
    made.end(single, wall_s=300.0, cpu_s=300.0)  # raises the limit predicted for unknown programs
    again, event = SecondPlanner(made.store), JobSubmitted("user", spec(nodes=2, timeout_s=100))
    again.check([event], made.now, made.step(event), made.settings)
