"""Checkpoints in the full world: after a kill, a task continues from the newest one at the master."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.kernel.entities import Job
from loopline_master.core.wings.checkpoints import checkpoints_wing, gang_checkpoints
from loopline_master.core.wings.checkpoints.checkpoints_wing import Checkpoints
from loopline_master.core.wings.checkpoints.saved_work import SavedCheckpoint
from loopline_shared.model import AttemptId, TaskId, TaskState
from loopline_shared.parallel import rank_of
from loopline_simulator.full import ROUGH, Scenario, live_through, summary
from tests.campaign import CHECK_EVERY

KILLS = 500
DEADLY = Scenario(
    machines=4, jobs=6, checkpoints=1.0, until_s=6_000.0, check_every=CHECK_EVERY,
    faults=replace(ROUGH, reboot_every_s=60.0, task_failure=0.02),
)  # fmt: skip


def _live_through(seed: int, scenario: Scenario = DEADLY) -> Counter[str]:
    """Run a seed, which checks each step and the end. Return what happened."""
    times = {"lease_s": (5.0, 30.0)[seed % 2], "report_every_s": 4.0, "stall_after_s": 20.0}
    policy, replicas = ("fair", "round-robin", "first-come")[seed % 3], (None, 1)[seed // 2 % 2]
    world = live_through(seed, SchedulerSettings(policy, max_replicas=replicas, **times), scenario)
    store, counts = world.world.store, summary(seed, world)
    assert counts.jobs == scenario.jobs
    assert not any(job.is_live for job in store.jobs.values())
    accepted = [attempt for attempt in store.attempts.values() if attempt.accepted]
    winners = Counter(one.task_id for one in accepted if rank_of(one.number, store.jobs[one.job].nodes) == 0)
    succeeded = [task.id for task in store.tasks.values() if task.state is TaskState.SUCCEEDED]
    assert winners == dict.fromkeys(succeeded, 1)
    assert counts.passings == 0
    names = ("kills", "crashes", "stops", "partitions", "saves", "resumptions", "attempts", "steps")
    return Counter({name: getattr(counts, name) for name in names} | {"succeeded": len(succeeded), "worlds": 1})


def test_tasks_continue_through_kills() -> None:
    met = _live_through(1)
    assert min(met[name] for name in ("kills", "crashes", "saves", "resumptions", "succeeded")) > 0


@pytest.mark.campaign
def test_tasks_continue_through_500_kills() -> None:
    met, seed = Counter[str](), 1000
    while met["kills"] < KILLS:
        met += _live_through(seed)
        seed += 1
    print(dict(met))


GANGS = replace(DEADLY, gangs=0.7, replicas=0.3, machines=5)


def test_gangs_continue_from_one_step_through_kills() -> None:
    met = _live_through(3, GANGS)
    assert min(met[name] for name in ("kills", "crashes", "saves", "resumptions", "succeeded")) > 0


@pytest.mark.campaign
def test_gangs_continue_from_one_step_through_500_kills() -> None:
    met, seed = Counter[str](), 2000
    while met["kills"] < KILLS:
        met += _live_through(seed, GANGS)
        seed += 1
    print(dict(met))


def _keep_the_oldest(wing: Checkpoints, job: Job, task: TaskId, kept: int) -> None:
    known = wing._saved.pop(task, [])
    for saved in known[kept:]:
        wing.state.effects.drop(SavedCheckpoint, saved.key)
    if known[:kept]:
        wing._saved[task] = known[:kept]
    wing._note_work(task)


def test_lost_checkpoint_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "_trim", _keep_the_oldest)
    with pytest.raises(AssertionError, match="was acknowledged, and not kept"):
        _live_through(1)


def test_disregarded_checkpoint_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints_wing, "MOST_FAILED", 0)  # as if all of them had failed
    with pytest.raises(AssertionError, match="starts from"):
        _live_through(1)


def test_disregarded_checkpoint_of_a_gang_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_checkpoints, "cuts", lambda saved, nodes: [])
    with pytest.raises(AssertionError, match="starts from"):
        _live_through(3, GANGS)


def test_member_that_begins_from_the_start_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    resume = Checkpoints._resume

    def leave_out_the_last(wing: Checkpoints, attempt: AttemptId, saved: SavedCheckpoint) -> None:
        nodes = wing.state.jobs[attempt.job].nodes
        if nodes == 1 or rank_of(attempt.number, nodes) < nodes - 1:
            resume(wing, attempt, saved)

    monkeypatch.setattr(Checkpoints, "_resume", leave_out_the_last)
    with pytest.raises(AssertionError, match="starts from"):
        _live_through(3, GANGS)
