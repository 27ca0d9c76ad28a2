"""The kernel without wings, each wing alone, and all pairs: wings neither need nor disturb one another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import combinations
from types import FrameType

import pytest

from loopline_master.core import scheduler
from loopline_master.core.events import JobCancelled, JobPaused, JobResumed
from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.door.mechanism import Mechanism
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.scheduler import WINGS
from loopline_shared.model import AttemptId, JobState, Order, Outcome, TaskId, TaskState
from tests.scheduling.driver import Grid, facts

Wings = tuple[type[Wing], ...]
CHOICES: list[Wings] = [(), *((wing,) for wing in WINGS), *combinations(WINGS, 2), WINGS]


def named(wings: Wings) -> str:
    return "+".join(wing.__name__ for wing in wings) or "kernel"


def test_each_hook_has_a_wing_that_needs_it() -> None:
    hooks = {name for name in vars(Mechanism) if not name.startswith("_")}
    needed = {name for wing in WINGS for name in hooks if getattr(wing, name) is not getattr(Mechanism, name)}
    assert hooks - needed == set()


@pytest.mark.parametrize("policy", ["round-robin", "fair", "turnaround"])
@pytest.mark.parametrize("wings", CHOICES, ids=named)
def test_jobs_complete_in_order_with_any_choice_of_wings(
    wings: Wings, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "WINGS", wings)
    grid = Grid(policy=policy, prefetch_s=1.0, max_attempts=3)
    grid.join("ant", facts(1))
    grid.join("bee", facts(2))
    first, second, cancelled = grid.submit(5, size=50), grid.submit(3, size=60), grid.submit(2, size=900)
    attempt = next(iter(grid.agents["ant"].running))
    grid.end(attempt, Outcome.FAILED)
    grid.ask(JobCancelled(cancelled))
    grid.ask(JobPaused(second))
    grid.restart()
    grid.join("ant", facts(1))
    grid.join("bee", facts(2))
    grid.ask(JobResumed(second))
    for _ in range(100):
        running = [attempt for agent in grid.agents.values() for attempt in agent.running]
        if not running:
            break
        grid.now += 1.0
        grid.end(running[0], wall_s=1.0, cpu_s=1.0)
        for name in grid.agents:
            grid.report(name)
    states = [grid.job(job).state for job in (first, second, cancelled)]
    assert states == [JobState.SUCCEEDED, JobState.SUCCEEDED, JobState.CANCELLED]
    departures = [grid.job(job).departure or 0 for job in (first, second)]
    assert departures == sorted(departures), "the second job is not smaller, but passed the first"


def test_gang_waits_without_a_wing_that_leads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "WINGS", ())
    grid = Grid()
    for name in ("ant", "bee"):
        grid.join(name, facts(1, gangs=True))
    job = grid.submit(nodes=2)
    assert grid.job(job).state is JobState.QUEUED
    assert not any(agent.running or agent.members for agent in grid.agents.values())


class FailsWhilePlacing(Wing):
    """Fails tasks where a wing places its own, as one does whose attempt is retracted after its last failure."""

    doomed: TaskId | None = None

    def place(self) -> Iterator[None]:
        task = self.state.tasks.get(self.doomed) if self.doomed else None
        if task and task.is_open:
            lifecycle.end_task(self.state, self.state.jobs[task.job], task, TaskState.FAILED)
            yield


@pytest.mark.parametrize("order", [Order.HOLD, Order.DELIVER, Order.NONE])
def test_job_that_ends_while_tasks_are_placed_completes_in_that_step(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "WINGS", (FailsWhilePlacing,))
    grid = Grid(order=order)
    grid.join("ant", facts(2))
    first = grid.submit(1, size=5)
    second = grid.submit(1, size=5, after=[first], after_state="ended")
    monkeypatch.setattr(FailsWhilePlacing, "doomed", TaskId(first, 1))
    grid.report("ant")
    assert grid.job(first).state is JobState.FAILED
    assert [attempt.job for attempt in grid.agents["ant"].running] == [second]


def test_plain_job_enters_no_file_of_a_feature_that_it_does_not_use() -> None:
    grid, entered = Grid(policy="round-robin", prefetch_s=1.0), set[str]()
    grid.join("ant", facts(2))

    def note(frame: FrameType | None, event: str, argument: object) -> None:
        if event != "call" or frame is None or "/core/wings/" not in frame.f_code.co_filename:
            return
        called = f"{frame.f_code.co_filename.partition('/core/wings/')[2]}: {frame.f_code.co_qualname}"
        while frame and frame.f_code.co_name != "check":  # the driver checks all invariants
            frame = frame.f_back
        if not frame:
            entered.add(called)

    def run() -> int:
        job = grid.submit(3, size=30)
        for task in (1, 2, 3):
            grid.report("ant")
            grid.end(AttemptId(job, task, 1), wall_s=10.0, cpu_s=10.0)
        return job

    run()  # the first user's account wakes a wing
    sys.setprofile(note)
    try:
        job = run()
    finally:
        sys.setprofile(None)
    assert grid.job(job).state is JobState.SUCCEEDED
    others = ("exemptions/", "leases/", "shares/", "trust/")
    assert [one for one in sorted(entered) if not one.startswith(others)] == []
