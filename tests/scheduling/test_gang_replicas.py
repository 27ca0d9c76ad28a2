"""Replicas of gangs, on request: each is a whole launch, and the first launch to succeed brings the result."""

from loopline_master.core.explain.explain_job import explain_task
from loopline_master.core.wings.gangs.gang import GangPhase
from loopline_master.core.wings.gangs.phases import launches_of
from loopline_shared.model import AttemptId, AttemptState, JobState, Order, Outcome, TaskId, TaskState
from tests.scheduling.driver import Grid

NAMES = ("ant", "bee", "cat", "dog", "eel")


def grid(*names: str, **chosen: object) -> Grid:
    made = Grid(**{"max_replicas": 2, **chosen})
    made.workers(*(names or NAMES), gangs=True)
    return made


def all_report(made: Grid, times: int = 1) -> None:
    for _ in range(times):
        for name in made.agents:
            made.report(name)


def phases_of(made: Grid, job: int = 1) -> list[GangPhase]:
    return [gang.phase for gang in launches_of(made.scheduler.state, TaskId(job, 1))]


def with_a_replica(max_attempts: int = 3, **chosen: object) -> Grid:
    """A grid of five whose job 1 is a gang of two that runs twice, as attempts 1 and 2, and 3 and 4."""
    made = grid(**chosen)
    made.submit(nodes=2, max_replicas=2, max_attempts=max_attempts)
    all_report(made, 4)
    assert phases_of(made) == [GangPhase.RUNNING, GangPhase.RUNNING]
    return made


def states(made: Grid) -> list[AttemptState]:
    return [made.attempt(1, 1, number).state for number in range(1, 5)]


def test_gang_is_replicated_only_on_request() -> None:
    made = grid()
    made.submit(nodes=2)
    all_report(made, 4)
    assert phases_of(made) == [GangPhase.RUNNING]


def test_replica_of_a_gang_is_a_launch_on_other_workers() -> None:
    made = grid()
    made.submit(nodes=2, max_replicas="unlimited")
    assert phases_of(made) == [GangPhase.PREPARING]
    all_report(made, 4)
    assert phases_of(made) == [GangPhase.RUNNING, GangPhase.RUNNING], "a third would need a sixth worker"
    workers = [name for gang in launches_of(made.scheduler.state, TaskId(1, 1)) for name in gang.workers]
    assert len(set(workers)) == 4
    assert [made.attempt(1, 1, number).replica for number in range(1, 5)] == [False, False, True, True]
    explanation = explain_task(made.scheduler, TaskId(1, 1))
    assert explanation
    assert explanation.sentence == "running on ant, bee; a replica: running on cat, dog"


def test_first_launch_to_succeed_wins_and_the_other_is_ended() -> None:
    made = with_a_replica()
    made.end(AttemptId(1, 1, 1))
    made.end(AttemptId(1, 1, 3))
    assert made.job(1).state is JobState.RUNNING, "each launch still has a running member"
    made.end(AttemptId(1, 1, 4))
    assert made.job(1).state is JobState.SUCCEEDED
    assert made.task(1, 1).winner == 3
    assert [made.attempt(1, 1, number).accepted for number in range(1, 5)] == [False, False, True, True]
    all_report(made)
    assert states(made)[:2] == [AttemptState.CANCELLED, AttemptState.CANCELLED]
    assert not any(agent.running for agent in made.agents.values())


def test_other_launch_continues_when_one_fails() -> None:
    made = with_a_replica(max_attempts=2)
    made.end(AttemptId(1, 1, 2), Outcome.FAILED)
    assert phases_of(made) == [GangPhase.RUNNING]
    assert made.job(1).state is JobState.RUNNING
    all_report(made, 4)
    assert phases_of(made) == [GangPhase.RUNNING], "with another replica it could fail a third time"
    made.end(AttemptId(1, 1, 3))
    made.end(AttemptId(1, 1, 4))
    assert made.job(1).state is JobState.SUCCEEDED


def test_final_failure_ends_all_launches() -> None:
    made = with_a_replica()
    made.end(AttemptId(1, 1, 2), Outcome.FAILED, is_final=True)
    assert phases_of(made) == []
    assert made.job(1).state is JobState.FAILED
    all_report(made, 2)
    assert not any(agent.running for agent in made.agents.values())


def test_task_has_not_failed_while_a_lost_launch_may_return() -> None:
    made = with_a_replica(max_attempts=2, gang_grace_s=1000.0)
    away = [made.attempt(1, 1, number).worker for number in (1, 2)]
    for _ in range(8):
        made.wait(5.0)
        for name in set(NAMES) - set(away):
            made.report(name)
    assert states(made)[:2] == [AttemptState.LOST, AttemptState.LOST]
    made.end(AttemptId(1, 1, 3), Outcome.FAILED)
    assert made.task(1).state is TaskState.RUNNING
    for name in away:
        made.join(name)
    all_report(made, 2)
    assert phases_of(made)[0] is GangPhase.RUNNING


def test_both_launches_survive_a_restart() -> None:
    made = with_a_replica()
    made.restart()
    for name in NAMES:
        made.join(name)
    all_report(made, 2)
    assert phases_of(made) == [GangPhase.RUNNING, GangPhase.RUNNING]
    assert states(made) == [AttemptState.RUNNING] * 4


def test_replica_does_not_delay_a_planned_gang() -> None:
    made = grid("ant", "bee", "cat", "dog", order=Order.NONE, plan_times="naive")
    made.submit(nodes=2, max_replicas=2, timeout_s=100.0, size=10)
    waiting = made.submit(nodes=3, timeout_s=50.0, size=10)
    made.wait(10.0)
    all_report(made, 4)
    assert phases_of(made) == [GangPhase.RUNNING], "a replica started now would end after the first launch"
    assert made.store.plans[TaskId(waiting, 1)].is_promise
    assert not made.store.broken


def test_gang_is_not_replicated_under_a_policy_without_replicas() -> None:
    made = grid(policy="first-come")
    made.submit(nodes=2, max_replicas=2)
    all_report(made, 4)
    assert phases_of(made) == [GangPhase.RUNNING]
