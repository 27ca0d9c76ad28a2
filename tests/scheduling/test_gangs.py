"""Gangs: all members or none, prepared everywhere before one start, frozen and moved together."""

from dataclasses import replace

import pytest

from loopline_master.core.events import JobCancelled, WorkerReported
from loopline_master.core.explain.explain_job import explain_job, explain_task
from loopline_master.core.kernel.invariants import check
from loopline_master.core.wings.gangs.gang import GangPhase
from loopline_master.core.wings.gangs.phases import launches_of
from loopline_master.core.wings.trust.trust import Trust
from loopline_shared.model import AttemptId, AttemptState, JobState, Load, Order, Outcome, TaskId, TaskState
from loopline_shared.parallel import rank_of
from loopline_shared.protocol.gang_messages import MemberOrder
from loopline_shared.protocol.transfers import CachedFile, PeerReport
from loopline_shared.protocol.worker_link import Report
from loopline_shared.spec import JobSpec
from tests.scheduling.driver import Grid, facts, result

NAMES = ("ant", "bee", "cat")


def grid(*names: str, slots: int = 1, **chosen: object) -> Grid:
    made = Grid(max_replicas=1, **chosen)
    made.workers(*(names or NAMES), slots=slots, gangs=True)
    return made


def all_report(made: Grid, times: int = 1) -> None:
    for _ in range(times):
        for name in made.agents:
            made.report(name)


def running(made: Grid) -> Grid:
    """A grid whose job 1 is a gang of three that runs."""
    made.submit(nodes=3, size=0.5)
    all_report(made, 3)
    assert phase(made) is GangPhase.RUNNING
    assert states(made) == {AttemptState.RUNNING}
    return made


def phase(made: Grid, job: int = 1) -> GangPhase | None:
    launches = launches_of(made.scheduler.state, TaskId(job, 1))
    return launches[0].phase if launches else None


def states(made: Grid, launch: int = 0, job: int = 1, nodes: int = 3) -> set[AttemptState]:
    """The states of a launch's members, as they are stored."""
    return {made.attempt(job, 1, launch * nodes + rank + 1).state for rank in range(nodes)}


def orders(made: Grid, name: str) -> list[MemberOrder]:
    return [word.order for word in made.agents[name].words]


# --- the two phases ---------------------------------------------------------------------------------------------


def test_members_have_their_ranks_after_a_restore() -> None:
    """Ranks follow from the numbers of attempts, which a restore leaves out."""
    made = grid()
    numbers = made.scheduler.state.grid
    numbers.restored_jobs, numbers.attempts_skipped = 2, 100
    for job in (1, 2):
        made.submit(nodes=3, size=0.5)
        all_report(made, 3)
        ids = sorted(made.attempts_of(TaskId(job, 1)))
        assert [rank_of(each.number, 3) for each in ids] == [0, 1, 2]
        assert (ids[0].number > 100) is (job == 1)
        made.step(JobCancelled(job))
        all_report(made, 3)


def test_no_member_starts_before_all_are_prepared() -> None:
    made = grid()
    made.submit(nodes=3, size=0.5)
    made.report("ant")
    made.report("bee")
    made.report("cat", ready=False)
    assert phase(made) is GangPhase.PREPARING
    assert not any(made.running(name) for name in NAMES)
    assert states(made) == {AttemptState.PREPARED, AttemptState.DISPATCHED}
    made.report("cat")
    assert phase(made) is GangPhase.RUNNING
    assert all(made.running(name) for name in NAMES)


def test_members_have_ranks_on_different_workers_and_one_rendezvous() -> None:
    made = running(grid(slots=4))
    runs = {name: next(iter(agent.running.values())) for name, agent in made.agents.items()}
    places = [run.gang for run in runs.values()]
    assert sorted(place.rank for place in places if place) == [0, 1, 2]
    assert {place.hosts for place in places if place} == {tuple(sorted(NAMES, key=lambda n: runs[n].attempt.number))}
    first = next(name for name, run in runs.items() if run.gang and run.gang.rank == 0)
    assert {word.rendezvous for agent in made.agents.values() for word in agent.words} == {f"{first}:4000"}


def test_gang_waits_for_free_workers_and_later_jobs_do_not_delay_it() -> None:
    made = grid()
    short = made.submit(size=1)
    gang = made.submit(nodes=3, size=0.5)
    later = made.submit(3, size=300)
    assert not made.attempts_of(TaskId(gang, 1))
    assert not made.attempts_of(TaskId(later, 1)), "it would run past the gang's planned start"
    made.end(AttemptId(short, 1, 1))
    assert phase(made, gang) is GangPhase.PREPARING


def test_later_gang_is_planned_behind_the_first() -> None:
    made = grid("ant", "bee", "cat", "dog", "eel")
    busy = made.submit(size=1)
    first, second = made.submit(nodes=4, size=0.5), made.submit(nodes=2, size=0.4)
    assert phase(made, first) is GangPhase.PREPARING
    made.end(AttemptId(busy, 1, 1))
    assert phase(made, second) is None
    assert made.job(second).state is JobState.QUEUED
    plan = made.store.plans[TaskId(second, 1)]
    assert plan.start is not None
    assert plan.start > made.now


def test_plan_is_removed_when_its_job_ends() -> None:
    made = grid()
    made.submit(size=1)
    gang = made.submit(nodes=3, size=0.5)
    later = made.submit(2, size=300)
    assert not made.attempts_of(TaskId(later, 1))
    made.ask(JobCancelled(gang))
    assert made.store.plans[TaskId(gang, 1)].withdrawn_at == made.now
    assert made.attempts_of(TaskId(later, 1))


def test_gang_that_needs_all_workers_gets_one_in_quarantine() -> None:
    made = grid(quarantine_s=1e5)
    made.scheduler.state.wings[Trust].accuse(made.scheduler.state.workers["cat"], "it lied")
    made.step()
    made.submit(nodes=2)
    assert phase(made, 1) is GangPhase.PREPARING
    assert "cat" not in launches_of(made.scheduler.state, TaskId(1, 1))[0].workers
    made.ask(JobCancelled(1))
    all_report(made)
    made.submit(nodes=3)
    assert phase(made, 2) is GangPhase.PREPARING


def test_worker_that_does_not_support_gangs_gets_none() -> None:
    made = grid("ant", "bee")
    made.workers("old")
    made.submit(nodes=3, size=0.5)
    assert phase(made) is None
    assert made.job(1).starved_since is not None


# --- standing down ----------------------------------------------------------------------------------------------


def test_launch_stands_down_at_no_cost_if_a_member_cannot_start() -> None:
    made = grid()
    made.submit(nodes=3, size=0.5)
    made.report("ant")
    first = next(iter(made.agents["bee"].members))
    made.report("bee", result(first, Outcome.GIVEN_BACK, reason="no inputs"))
    assert made.task(1).failures == 0
    all_report(made, 4)
    assert phase(made) is GangPhase.RUNNING, "another launch followed"
    assert states(made, launch=1) == {AttemptState.RUNNING}
    assert made.job(1).lost_cpu_ms == 0


def test_launch_stands_down_when_a_workers_lease_ends() -> None:
    made = grid(lease_s=30.0, gang_prepare_s=300.0)
    made.submit(nodes=3, size=0.5)
    for _ in range(8):
        made.wait(5.0)
        made.report("ant")
        made.report("bee")
    assert phase(made) is None
    assert made.task(1).state is TaskState.QUEUED
    assert not made.agents["ant"].members


def test_launch_that_is_not_ready_in_time_stands_down() -> None:
    made = grid(gang_prepare_s=60.0)
    made.submit(nodes=3, size=0.5)
    for _ in range(7):
        made.wait(10.0)
        made.report("ant", ready=False)
        made.report("bee")
        made.report("cat")
    assert made.attempt(1, 1, 1).state is AttemptState.CANCELLED


# --- ends -------------------------------------------------------------------------------------------------------


def test_gang_succeeds_when_all_members_have_succeeded() -> None:
    made = running(grid())
    for number in (1, 2, 3):
        assert made.job(1).state is JobState.RUNNING
        made.end(AttemptId(1, 1, number), cpu_s=2.0, wall_s=2.0)
    assert made.job(1).state is JobState.SUCCEEDED
    assert states(made) == {AttemptState.SUCCEEDED}
    assert all(made.attempt(1, 1, number).accepted for number in (1, 2, 3))
    assert made.task(1).winner == 1
    assert made.job(1).useful_cpu_ms == 6000


def test_finished_member_frees_its_slots_while_others_run() -> None:
    made = running(grid())
    other = made.submit(size=0.1)
    made.end(AttemptId(1, 1, 2))
    assert made.attempts_of(TaskId(other, 1))


def test_failed_member_ends_the_launch_as_one_failure() -> None:
    made = running(grid(max_attempts=2))
    made.end(AttemptId(1, 1, 1))
    made.end(AttemptId(1, 1, 2), Outcome.FAILED)
    assert made.task(1).failures == 1
    assert not made.running("cat")
    all_report(made, 4)
    assert states(made, launch=1) == {AttemptState.RUNNING}
    made.end(AttemptId(1, 1, 6), Outcome.FAILED)
    assert made.task(1).failures == 2
    assert made.job(1).state is JobState.FAILED


def test_gang_that_fails_as_another_wing_wakes_up_starts_again() -> None:
    """The launch ends, and the first large file is reported, before the retry is among the waiting jobs."""
    made = running(grid(max_attempts=2, peers=True))
    made.end(AttemptId(1, 1, 1))
    made.end(AttemptId(1, 1, 3))
    step, large = made.step, PeerReport(1, cached=(CachedFile("0" * 64, 10**9),))
    ant = made.agents["ant"]
    ant.sent += 1
    has_file = WorkerReported("ant", ant.session, Report(ant.sent, ant.seen, (), (), Load(1), peers=large))
    made.step = lambda *events, **how: step(*events, has_file, **how)  # type: ignore[method-assign]
    made.end(AttemptId(1, 1, 2), Outcome.FAILED)
    made.step = step  # type: ignore[method-assign]
    check(made.scheduler.state)
    all_report(made, 4)
    assert states(made, launch=1) == {AttemptState.RUNNING}


def test_final_failure_of_a_member_ends_the_task() -> None:
    made = running(grid(max_attempts=3))
    made.end(AttemptId(1, 1, 2), Outcome.FAILED, is_final=True)
    assert made.job(1).state is JobState.FAILED
    all_report(made, 2)
    assert not any(agent.running for agent in made.agents.values())


def test_cancelled_job_ends_its_members_in_every_phase() -> None:
    made = running(grid())
    made.end(AttemptId(1, 1, 1))
    made.ask(JobCancelled(1))
    all_report(made)
    assert states(made) == {AttemptState.CANCELLED}
    assert not made.scheduler.state.jobs


# --- loss and owners --------------------------------------------------------------------------------------------


def test_lost_member_halts_the_gang_and_then_moves_it() -> None:
    made = running(grid("ant", "bee", "cat", "dog", lease_s=30.0, gang_grace_s=20.0))
    lost = made.attempt(1, 1, 2).worker
    others = [made.attempt(1, 1, number).worker for number in (1, 3)]
    _silence(made, lost, 35.0)
    assert phase(made) is GangPhase.HALTED
    assert all(orders(made, name)[-1] is MemberOrder.FREEZE for name in others)
    explained = explain_job(made.scheduler, 1)
    assert explained is not None
    assert f"frozen on all of its workers: {lost}" in explained.sentence
    _silence(made, lost, 25.0)
    all_but(made, lost)
    all_but(made, lost)
    assert phase(made) is GangPhase.RUNNING, "on the three remaining workers"
    assert made.task(1).failures == 0
    assert states(made, launch=1) == {AttemptState.RUNNING}


def test_gang_continues_when_a_lost_member_returns_in_time() -> None:
    made = running(grid(lease_s=30.0, gang_grace_s=20.0))
    lost = made.attempt(1, 1, 2).worker
    _silence(made, lost, 35.0)
    assert phase(made) is GangPhase.HALTED
    made.join(lost)
    assert phase(made) is GangPhase.RUNNING
    all_report(made)
    assert states(made) == {AttemptState.RUNNING}
    assert not any(agent.frozen for agent in made.agents.values())


def test_gang_is_frozen_while_an_owner_uses_a_worker() -> None:
    made = running(grid(gang_grace_s=20.0))
    owner = made.attempt(1, 1, 3).worker
    made.report(owner, frozen=True)
    assert phase(made) is GangPhase.HALTED
    all_but(made, owner)
    assert states(made) == {AttemptState.FROZEN}
    made.report(owner)
    assert phase(made) is GangPhase.RUNNING
    all_report(made)
    assert states(made) == {AttemptState.RUNNING}


def test_gang_moves_at_once_without_grace() -> None:
    made = running(grid(gang_grace_s=0.0))
    made.report(made.attempt(1, 1, 3).worker, frozen=True, slots=0)
    assert phase(made) is None
    assert not made.running(made.attempt(1, 1, 1).worker)


def test_lost_member_command_is_sent_again() -> None:
    made = grid()
    made.submit(nodes=3, size=0.5)
    made.report("ant")
    made.report("bee")
    made.report("cat", deliver=False)
    made.agents["ant"].mail.clear()
    made.join("ant")
    assert made.running("ant")
    all_report(made)
    assert states(made) == {AttemptState.RUNNING}


@pytest.mark.parametrize("reported", [0, 1, 2, 3])
def test_launch_survives_a_restart_between_prepare_and_commit(reported: int) -> None:
    made = grid()
    made.submit(nodes=3, size=0.5)
    for name in NAMES[:reported]:
        made.report(name)
    made.restart()
    for name in NAMES:
        made.join(name)
    all_report(made, 2)
    assert states(made) == {AttemptState.RUNNING}


# --- the order guarantee ----------------------------------------------------------------------------------------


def test_held_gang_is_not_prepared() -> None:
    made = grid("ant", "bee", "cat", "dog")
    first = made.submit(size=1)
    gang = made.submit(nodes=3, size=1)
    assert phase(made, gang) is None, "its only task is its last one, and may not pass"
    made.end(AttemptId(first, 1, 1))
    assert phase(made, gang) is GangPhase.PREPARING


def test_gang_is_delivered_in_order_under_deliver() -> None:
    made = grid("ant", "bee", "cat", "dog", order=Order.DELIVER)
    first = made.submit(size=1)
    gang = made.submit(nodes=3, size=1)
    all_report(made, 3)
    for number in (1, 2, 3):
        made.end(AttemptId(gang, 1, number))
    assert made.job(gang).state is JobState.RUNNING
    made.end(AttemptId(first, 1, 1))
    assert made.job(gang).state is JobState.SUCCEEDED


# --- explanations ----------------------------------------------------------------------------------------


def explained(made: Grid, job: int) -> str:
    explanation = explain_task(made.scheduler, TaskId(job, 1))
    assert explanation
    return explanation.sentence


def test_explain_describes_the_state_of_a_gang() -> None:
    made = grid()
    short = made.submit(size=1)
    gang = made.submit(nodes=3, size=0.5)
    assert explained(made, gang) == "1 task waits for 3 workers at once: 2 of 3 are free now"
    made.end(AttemptId(short, 1, 1))
    made.report("ant")
    assert explained(made, gang) == "1 of 3 members are ready to start; it waits for bee, cat"
    all_report(made, 2)
    assert explained(made, gang) == "running on ant, bee, cat"
    made.report("cat", frozen=True)
    assert explained(made, gang) == "frozen on all of its workers: the owner of cat is back"


def test_explain_names_workers_that_refuse_the_network() -> None:
    made = grid("ant", "bee")
    made.join("cat", replace(facts(gangs=True), network=False))
    gang = made.submit(nodes=3, requires={"network": True})
    assert "refusing tasks the network: cat" in explained(made, gang)


def test_job_on_several_nodes_refuses_a_quorum() -> None:
    with pytest.raises(ValueError, match="leave out quorum"):
        JobSpec(command=["x"], nodes=2, quorum=2)


def all_but(made: Grid, silent: str) -> None:
    for name in made.agents:
        if name != silent:
            made.report(name)


def _silence(made: Grid, silent: str, seconds: float) -> None:
    for _ in range(int(seconds / 5)):
        made.wait(5.0)
        all_but(made, silent)
