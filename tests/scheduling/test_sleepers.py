"""Workers whose computers sleep, and their attempts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopline_master.core.events import JobCancelled, MasterStoodStill, WorkerForgotten, WorkerJoined, WorkerReported
from loopline_master.core.explain.explain_job import explain_job, explain_task
from loopline_master.core.explain.explain_worker import explain_worker
from loopline_master.core.kernel.sessions.leases import ended_after_s
from loopline_master.core.wings.leases.kept_back import brings_news
from loopline_master.core.wings.power.power_wing import Power
from loopline_master.core.wings.power.sleeper import Sleeper, Sleepers
from loopline_shared.model import AttemptId, AttemptState, Load, TaskState
from loopline_shared.protocol.power import Armed, GoodBye, PowerOrders, SleepCause, SleepKind, WakeFacts
from loopline_shared.protocol.worker_link import Report
from tests.scheduling.driver import Grid, facts
from tests.scheduling.units import limit, running, submit

WAKE = WakeFacts("enp3s0", "52:54:00:12:34:56", "10.1.2.0/24", can_suspend=True)
SUSPENDED = GoodBye(SleepKind.SUSPEND, SleepCause.IDLE, WAKE)
SWITCHED_OFF = GoodBye(SleepKind.OFF, SleepCause.OWNER, WAKE)
KEEP_S = 600.0


def sleepers(grid: Grid) -> Sleepers:
    return grid.scheduler.state.own(Sleepers)


def sleeper(grid: Grid, name: str = "ant") -> Sleeper:
    """Return the row of a sleeper, as stored."""
    return grid.store.sleepers[name]


def state(grid: Grid, attempt: AttemptId) -> AttemptState:
    return grid.store.attempts[attempt].state


def busy_grid(count: int = 1, **chosen: object) -> tuple[Grid, int]:
    """Return a grid whose worker ``ant`` runs the first task of a job."""
    grid = Grid(policy="first-come", **chosen)
    grid.join("ant", facts(1))
    job = grid.submit(count)
    return grid, job


def test_good_bye_ends_the_session_and_is_remembered() -> None:
    grid, _ = busy_grid()
    effects = grid.report("ant", good_bye=SUSPENDED)
    assert effects.closes == [("ant", grid.agents["ant"].session)]
    assert sleeper(grid) == Sleeper("ant", grid.now, SleepKind.SUSPEND, SleepCause.IDLE, WAKE)
    grid.restart()
    assert sleepers(grid).asleep("ant") == sleeper(grid)


def test_return_ends_the_sleep_without_claiming_a_wake() -> None:
    grid, _ = busy_grid()
    grid.report("ant", good_bye=SUSPENDED)
    grid.now += 50.0
    grid.join("ant")
    assert sleepers(grid).asleep("ant") is None
    assert (sleeper(grid).woken_from, sleeper(grid).woken_at) == ((), None), "it came by itself"


def test_return_after_a_wake_proves_that_it_can_be_woken() -> None:
    grid, _ = busy_grid()
    grid.report("ant", good_bye=SUSPENDED)
    asleep = sleepers(grid).of["ant"]
    asleep.waking_since, asleep.failed_wakes = grid.now, 2
    grid.now += 40.0
    grid.join("ant")
    found = sleeper(grid)
    assert (found.woken_from, found.failed_wakes, found.woken_at) == ((SleepKind.SUSPEND,), 0, grid.now)
    grid.report("ant", good_bye=replace(SUSPENDED, kind=SleepKind.OFF))
    assert not sleeper(grid).is_proven, "it was woken from suspend only"
    assert sleeper(grid).woken_at is None


def test_return_in_the_same_step_keeps_the_new_session() -> None:
    grid, _ = busy_grid()
    said = Report(9, 1, (), (), Load(0), good_bye=SUSPENDED)
    grid.step(WorkerReported("ant", 1, said), WorkerJoined("ant", 2, "boot", facts(1)))
    assert sleepers(grid).asleep("ant") is None
    assert grid.store.workers["ant"].session == 2


def test_declined_twin_does_not_end_the_sleep() -> None:
    grid = Grid(max_workers=1)
    grid.join("ant", replace(facts(1), machine="a"))
    grid.report("ant", good_bye=SUSPENDED)
    grid.scheduler.state.workers["ant"].session = 7  # as if its link had never been closed
    grid.scheduler.step([WorkerJoined("ant", 8, "boot", replace(facts(1), machine="b"))], grid.now)
    assert sleepers(grid).asleep("ant")


def test_attempt_sleeps_with_its_worker_and_continues_there() -> None:
    grid, job = busy_grid()
    (attempt,) = running(grid, job)
    grid.report("ant", good_bye=SUSPENDED)
    assert state(grid, attempt) is AttemptState.FROZEN
    grid.wait(KEEP_S - 1)
    assert state(grid, attempt) is AttemptState.FROZEN
    grid.join("ant")
    assert state(grid, attempt) is AttemptState.RUNNING
    grid.end(attempt)
    assert grid.task(job, 1).state is TaskState.SUCCEEDED


def test_attempt_is_given_up_when_its_worker_sleeps_for_long() -> None:
    grid, job = busy_grid(max_replicas=1)
    (attempt,) = running(grid, job)
    grid.report("ant", good_bye=SUSPENDED)
    grid.join("bee", facts(1))
    assert not grid.agents["bee"].running
    grid.now += KEEP_S
    grid.report("bee")
    assert state(grid, attempt) is AttemptState.LOST
    assert [one.job for one in grid.agents["bee"].running] == [job]


def test_replica_starts_at_once_beside_a_sleeping_attempt() -> None:
    grid, job = busy_grid()
    (attempt,) = running(grid, job)
    grid.report("ant", good_bye=SUSPENDED)
    grid.join("bee", facts(1))
    (replica,) = grid.agents["bee"].running
    assert (replica.task_id, state(grid, attempt)) == (attempt.task_id, AttemptState.FROZEN)
    grid.end(replica)
    grid.join("ant")
    assert not grid.agents["ant"].running, "the loser ends when its computer wakes"


def test_waiting_attempts_leave_a_sleeper() -> None:
    grid = Grid(policy="first-come", prefetch_s=10.0)
    grid.join("ant", facts(1))
    job = grid.submit(3, size=3.0)
    grid.report("ant", good_bye=SUSPENDED)
    grid.join("bee", facts(1))
    assert {one.task for one in running(grid, job) if one in grid.agents["bee"].running} >= {2, 3}


def test_holder_of_a_limit_leaves_a_sleeper() -> None:
    grid = Grid(policy="first-come")
    limit(grid, "lic", 1)
    grid.join("ant", replace(facts(1), fences=True))
    job = submit(grid, 1, needs={"lic": 1})
    (attempt,) = running(grid, job)
    grid.report("ant", good_bye=SUSPENDED)
    assert state(grid, attempt) is AttemptState.LOST
    assert grid.task(job, 1).state is TaskState.QUEUED


@pytest.mark.parametrize("restarts", [False, True])
def test_waiting_task_that_must_not_run_twice_leaves_a_sleeper(restarts: bool) -> None:
    grid = Grid(policy="first-come", prefetch_s=10.0)
    grid.join("ant", replace(facts(1), fences=True))
    job = grid.submit(2, size=3.0, max_replicas=1)
    first, second = running(grid, job)
    assert state(grid, second) is AttemptState.PREFETCHED
    grid.report("ant", good_bye=SUSPENDED)
    if restarts:
        grid.restart()
    grid.wait(ended_after_s(30.0))
    grid.join("bee", replace(facts(2), fences=True))
    assert {one.task for one in grid.agents["bee"].running} == {first.task, second.task}


@pytest.mark.parametrize("good_bye", [SUSPENDED, SWITCHED_OFF])
def test_limit_of_a_sleeper_is_free_after_its_term(good_bye: GoodBye) -> None:
    grid = Grid(policy="first-come")
    limit(grid, "lic", 1)
    grid.join("ant", replace(facts(2), fences=True))
    submit(grid, 1, needs={"lic": 1})
    grid.submit(1)
    grid.report("ant", good_bye=good_bye)
    grid.wait(ended_after_s(30.0) - 0.1)
    grid.join("bee", replace(facts(2), fences=True))
    assert not any(grid.store.jobs[one.job].needs for one in grid.agents["bee"].running)
    grid.now += 0.1
    grid.report("bee")
    assert any(grid.store.jobs[one.job].needs for one in grid.agents["bee"].running)


def test_cancelled_holder_of_a_limit_leaves_a_sleeper() -> None:
    grid = Grid(policy="first-come")
    limit(grid, "lic", 1)
    grid.join("ant", replace(facts(1), fences=True))
    job = submit(grid, 1, needs={"lic": 1})
    (attempt,) = running(grid, job)
    grid.report("ant", deliver=False)
    grid.step(JobCancelled(job), deliver=False)
    assert state(grid, attempt) is AttemptState.CANCELLING
    grid.report("ant", good_bye=SUSPENDED, deliver=False)
    assert state(grid, attempt) is AttemptState.LOST
    grid.wait(ended_after_s(30.0))
    assert grid.store.attempts[attempt].is_over


@pytest.mark.parametrize("delivers", [False, True])
def test_switched_off_computer_loses_its_attempts_at_once(delivers: bool) -> None:
    grid, job = busy_grid(max_replicas=1)
    (attempt,) = running(grid, job)
    if delivers:
        grid.delivers(attempt)
    grid.report("ant", good_bye=SWITCHED_OFF)
    assert state(grid, attempt) is AttemptState.LOST
    grid.join("bee", facts(1))
    assert [one.task_id for one in grid.agents["bee"].running] == [attempt.task_id]


def test_result_that_a_sleeper_has_yet_to_deliver_is_given_up() -> None:
    grid, job = busy_grid(max_replicas=1)
    (attempt,) = running(grid, job)
    grid.delivers(attempt)
    grid.report("ant", good_bye=SUSPENDED)
    grid.wait(KEEP_S - 1)
    assert state(grid, attempt) is AttemptState.DELIVERING
    grid.wait(1.0)
    assert state(grid, attempt) is AttemptState.LOST
    grid.join("ant")
    assert state(grid, attempt) is AttemptState.DELIVERING, "it is taken if no other result came first"


def test_task_of_a_job_that_holds_others_leaves_a_sleeper() -> None:
    grid = Grid(policy="first-come", max_replicas=1)
    grid.join("ant", facts(1))
    first = grid.submit(1, size=10.0)
    grid.submit(1, size=20.0)
    (attempt,) = running(grid, first)
    grid.report("ant", good_bye=SUSPENDED)
    assert state(grid, attempt) is AttemptState.LOST
    grid.join("bee", facts(1))
    assert [one.job for one in grid.agents["bee"].running] == [first]


def test_members_of_a_gang_leave_a_sleeper() -> None:
    grid = Grid(policy="first-come", gang_grace_s=0.0)
    grid.workers("ant", "bee", gangs=True)
    job = grid.submit(1, nodes=2)
    grid.report("ant")
    grid.report("bee")
    grid.report("ant")
    members = running(grid, job)
    assert len(members) == 2
    grid.report("ant", good_bye=SUSPENDED)
    assert grid.store.attempts[next(one for one in members if grid.store.attempts[one].worker == "ant")].is_over


@pytest.mark.parametrize("starts", [True, False], ids=["start", "pause"])
def test_start_and_pause_of_the_master_keep_the_leases_of_sleepers(starts: bool) -> None:
    grid, job = busy_grid(max_replicas=1)
    (attempt,) = running(grid, job)
    grid.report("ant", good_bye=SUSPENDED)
    if starts:
        grid.restart()
    else:
        grid.step(MasterStoodStill())
    grid.wait(KEEP_S - 1)
    assert state(grid, attempt) is AttemptState.FROZEN
    grid.wait(1.0)
    assert state(grid, attempt) is AttemptState.LOST


def test_woken_computer_is_suspended_after_its_work_unless_its_owner_comes() -> None:
    grid, _ = busy_grid()
    grid.report("ant", good_bye=SUSPENDED)
    sleepers(grid).of["ant"].waking_since = grid.now
    effects = grid.join("ant")
    assert effects.assigns["ant"].power == PowerOrders(sleep_after_s=300.0)
    for awake_s, idle_s in ((20.0, 0.0), (120.0, None), (120.0, 100.0)):
        grid.now = (sleeper(grid).woken_at or 0.0) + awake_s
        effects = grid.report("ant", in_use=True, idle_s=idle_s)
        assert effects.assigns["ant"].power == PowerOrders(sleep_after_s=300.0)
    effects = grid.report("ant", in_use=True, idle_s=10.0)
    assert sleeper(grid).woken_at is None
    assert effects.assigns["ant"].power is None


def test_forgotten_worker_is_no_sleeper() -> None:
    grid = Grid()
    grid.join("ant", facts(1))
    grid.report("ant", good_bye=SUSPENDED)
    grid.step(WorkerForgotten("ant"))
    assert not sleepers(grid).of
    assert not grid.store.sleepers


def test_wing_is_asleep_until_a_worker_says_good_bye() -> None:
    grid, _ = busy_grid()
    wing = grid.scheduler.state.wings[Power]
    assert wing not in grid.scheduler.state.wings.awake
    said = Report(9, 1, (), (), Load(1, spare_cpu=1.0), good_bye=SUSPENDED)
    grid.end(*running(grid))
    ant = grid.scheduler.state.workers["ant"]
    assert not brings_news(grid.scheduler.state, ant, replace(said, good_bye=None))
    assert brings_news(grid.scheduler.state, ant, said)
    grid.report("ant", good_bye=SUSPENDED)
    assert wing in grid.scheduler.state.wings.awake
    assert grid.store.replayed().sleepers == grid.store.sleepers


def test_explanations_tell_sleep_from_absence() -> None:
    grid, job = busy_grid()
    (attempt,) = running(grid, job)
    grid.report("ant", good_bye=SUSPENDED)
    grid.now += 540.0
    grid.step()
    found = explain_worker(grid.scheduler, "ant")
    assert found
    assert (found.state, found.reasons[0].code) == ("asleep", "asleep")
    assert "asleep for 9 min, suspended because nobody used it" in found.sentence
    assert "has not been woken from suspend yet" in found.sentence
    task = explain_task(grid.scheduler, attempt.task_id)
    assert task
    assert task.sentence == "running on ant (frozen: its computer is asleep)"


@pytest.mark.parametrize(("count", "words"), [(1, "the last wake failed"), (2, "the last 2 wakes failed")])
def test_explanation_counts_the_failed_wakes(count: int, words: str) -> None:
    grid, _ = busy_grid()
    grid.report("ant", good_bye=SUSPENDED)
    asleep = sleepers(grid).of["ant"]
    asleep.waking_since, asleep.failed_wakes = grid.now, count
    grid.now += 45.0
    grid.step()
    found = explain_worker(grid.scheduler, "ant")
    assert found
    assert "the grid has been trying to wake it for 45 s" in found.sentence
    assert words in found.sentence


def test_job_that_only_a_sleeper_could_run_names_it() -> None:
    grid = Grid()
    grid.join("ant", facts(1))
    grid.report("ant", good_bye=SUSPENDED)
    found = explain_job(grid.scheduler, grid.submit(1))
    assert found
    assert "1 of 1 known worker could (asleep: ant)" in found.sentence


@pytest.mark.parametrize(
    ("wake", "words"),
    [
        (None, "no network card"),
        (replace(WAKE, is_allowed=False), "does not allow"),
        (replace(WAKE, obstacle="its lid is closed"), "cannot be woken: its lid is closed"),
        (replace(WAKE, from_suspend=Armed.NO), "not armed"),
        (replace(WAKE, can_suspend=False), "not permitted to suspend it"),
        (WAKE, "has not been woken from suspend yet"),
    ],
)
def test_sleeper_names_its_obstacle(wake: WakeFacts | None, words: str) -> None:
    known = Sleeper("ant", 0.0, SleepKind.SUSPEND, SleepCause.IDLE, wake)
    assert words in known.obstacle
    assert replace(known, wake=WAKE, woken_from=(SleepKind.SUSPEND,)).obstacle == ""
