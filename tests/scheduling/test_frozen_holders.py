"""A frozen task that holds a limit which others wait for is preempted after ``limit_grace_s``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loopline_master.core.events import JobPaused
from loopline_master.core.wings.resources.frozen_holders import OTHERS_WAIT
from loopline_shared.model import AttemptId, AttemptState, TaskState
from tests.scheduling.driver import Grid, facts
from tests.scheduling.units import limit, running, submit, worker_of

GRACE_S = 60.0


class Desks:
    """Two workers. A task on ``ant`` holds the only licence and was just frozen; ``bee`` is idle.

    A task that was given back may be the next to get the licence: it is the earliest.
    """

    def __init__(self, units: int = 1, tasks: int = 1, slots: int = 2) -> None:
        self.grid = Grid(policy="first-come", lease_s=1000.0)
        limit(self.grid, "lic", units)
        self.grid.join("ant", facts(slots))
        self.job = submit(self.grid, tasks, "bob", needs={"lic": 1})
        self.grid.join("bee", facts(slots))
        self.freeze(*running(self.grid, self.job))

    def freeze(self, *attempts: AttemptId) -> None:
        for agent in self.grid.agents.values():
            agent.frozen |= set(attempts) & set(agent.running)
        self.report()

    def report(self) -> None:
        for name in self.grid.agents:
            self.grid.report(name, slots=0 if name == "ant" else None)

    def wait(self, seconds: float = GRACE_S) -> None:
        """Let time pass, and the workers report."""
        self.grid.wait(seconds)
        self.report()

    def at_work(self) -> list[str]:
        """Return the workers of the attempts that hold a licence and are not frozen."""
        there = self.grid.agents.values()
        return [worker_of(self.grid, one) for agent in there for one in agent.running if one not in agent.frozen]

    def waiting(self, owner: str = "ann", **more: Any) -> int:
        return submit(self.grid, 1, owner, needs={"lic": 1}, **more)

    def state(self, task: int = 1) -> TaskState:
        return self.grid.task(self.job, task).state


def test_frozen_holder_is_given_back_when_another_task_waits_for_its_unit() -> None:
    desks = Desks()
    other = desks.waiting()
    desks.wait(GRACE_S - 1)
    assert desks.at_work() == []
    desks.wait(1)
    assert desks.at_work() == ["bee"]
    assert desks.grid.store.attempts[AttemptId(desks.job, 1, 1)].state is AttemptState.CANCELLED
    assert desks.grid.task(desks.job, 1).failures == 0
    desks.grid.end(running(desks.grid)[0])
    assert running(desks.grid, other)


def test_frozen_holder_leaves_only_after_another_task_begins_to_wait() -> None:
    desks = Desks()
    desks.wait(10 * GRACE_S)
    assert desks.at_work() == []
    assert desks.state() is TaskState.RUNNING
    desks.waiting()
    desks.wait(0)
    assert desks.at_work() == ["bee"]


@pytest.mark.parametrize("why", ["paused", "no worker", "busy", "own limit", "other limit"])
def test_frozen_holder_stays_if_its_unit_would_let_nothing_start(why: str) -> None:
    desks = Desks(slots=1)
    grid, requires = desks.grid, {}
    match why:
        case "no worker":
            requires = {"labels": ["elsewhere"]}
        case "busy":
            submit(grid, 1, "cat")
        case "own limit":
            limit(grid, "lic", 0, "ann")
        case "other limit":
            limit(grid, "dongle", 0)
    needs = {"lic": 1, "dongle": 1} if why == "other limit" else {"lic": 1}
    job = submit(grid, 1, "ann", requires=requires, needs=needs)
    if why == "paused":
        grid.ask(JobPaused(job))
    desks.wait()
    desks.wait()
    assert desks.grid.attempt(desks.job, 1).state is AttemptState.FROZEN


def test_as_many_frozen_holders_leave_as_tasks_can_start() -> None:
    desks = Desks(units=2, tasks=2)
    submit(desks.grid, 1, "cat", timeout_s=1000.0)
    desks.waiting()
    desks.wait()
    assert desks.at_work() == ["bee", "bee"]
    assert len(desks.grid.agents["ant"].frozen & {*running(desks.grid)}) == 1, "one of them stays"


@pytest.mark.parametrize("why", ["two users wait for one slot", "max_running", "user_slots"])
def test_no_more_frozen_holders_leave_than_tasks_can_start(why: str) -> None:
    desks = Desks(units=2, tasks=2, slots=2)
    match why:
        case "two users wait for one slot":
            submit(desks.grid, 1, "dan", timeout_s=1000.0)  # it takes a slot of bee
            desks.waiting("ann")
            desks.waiting("eve")
        case "max_running":
            submit(desks.grid, 2, "ann", needs={"lic": 1}, max_running=1)
        case "user_slots":
            desks.grid.settings = replace(desks.grid.settings, user_slots=1, shares=True)
            desks.grid.restart()
            for name in ("ant", "bee"):
                desks.grid.join(name)
            submit(desks.grid, 2, "ann", needs={"lic": 1})
    desks.wait()
    left = [one for one in desks.grid.store.attempts.values() if one.state is AttemptState.CANCELLED]
    assert len(left) == 1
    assert desks.at_work() == ["bee"] * (2 if why == "two users wait for one slot" else 1)


def test_frozen_holder_stays_while_running_attempts_hold_too_many_units() -> None:
    desks = Desks(units=2, tasks=1)
    running_one = submit(desks.grid, 1, "dan", needs={"lic": 1}, timeout_s=1000.0)
    submit(desks.grid, 1, "ann", needs={"lic": 2}, timeout_s=10.0)
    desks.wait(2 * GRACE_S)
    first = desks.grid.attempt(desks.job)
    assert first.state is AttemptState.FROZEN, "one unit would not suffice"
    desks.grid.end(*running(desks.grid, running_one))
    desks.wait(1)
    assert desks.grid.attempt(desks.job).state is AttemptState.CANCELLED


def test_only_holders_of_a_users_own_limit_leave_for_that_user() -> None:
    grid = Grid(policy="first-come", lease_s=1000.0)
    limit(grid, "lic", 4)
    limit(grid, "lic", 1, "*")
    desks = Desks.__new__(Desks)
    desks.grid = grid
    grid.join("ant", facts(2))
    bob, ann = submit(grid, 1, "bob", needs={"lic": 1}), submit(grid, 2, "ann", needs={"lic": 1})
    desks.freeze(*running(grid))
    grid.join("bee", facts(2))
    desks.wait()
    assert [worker_of(grid, one) for one in running(grid, ann)] == ["bee"]
    assert [worker_of(grid, one) for one in running(grid, bob)] == ["ant"], "its end would give ann nothing"


def test_attempt_that_was_thawed_before_its_preemption_continues() -> None:
    desks = Desks()
    desks.waiting()
    desks.grid.agents["ant"].frozen.clear()  # not yet reported
    desks.grid.wait(GRACE_S)
    desks.wait(0)
    assert desks.state() is TaskState.RUNNING
    assert desks.grid.attempt(desks.job, 1).reason == ""
    desks.freeze(*running(desks.grid, desks.job))
    desks.wait(GRACE_S - 1)
    assert desks.state() is TaskState.RUNNING, "its grace begins again"
    desks.wait(1)
    assert desks.at_work() == ["bee"]


@pytest.mark.parametrize("lost", ["frame", "master"])
def test_preemption_is_repeated_until_the_attempt_is_gone(lost: str) -> None:
    desks = Desks()
    grid = desks.grid
    desks.waiting()
    grid.now += GRACE_S
    grid.step(deliver=False)
    assert grid.attempt(desks.job, 1).reason == OTHERS_WAIT
    for agent in grid.agents.values():
        agent.mail.clear()
    if lost == "master":
        grid.restart()
    for name in ("ant", "bee"):
        grid.join(name)
    desks.wait(0)
    assert desks.at_work() == ["bee"]


def test_task_of_the_same_job_waits_for_the_unit_of_a_frozen_one_as_well() -> None:
    desks = Desks(tasks=2)
    desks.wait()
    assert desks.at_work() == ["bee"]
