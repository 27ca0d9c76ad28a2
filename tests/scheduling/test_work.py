"""Work per event does not grow with the number of jobs, tasks or workers, except logarithmically.

Work is the number of Python calls in one step, not a time. Each case runs in a small grid and in one sixteen times as
large; a logarithm may add a little, a loop over all entities would multiply.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import pytest

from loopline_master.core.events import (
    JobCancelled,
    JobPaused,
    JobResumed,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    WorkerDrained,
    WorkerJoined,
    WorkerReported,
)
from loopline_master.core.policies import REGISTRY
from loopline_master.core.scheduler import Scheduler
from loopline_shared.model import AttemptId, Facts, Held, Load, Result
from loopline_shared.protocol.worker_link import Report
from tests.campaign import LONG
from tests.scheduling.driver import facts, result, spec

SMALL, LARGE = 20, 320


def calls(act: Callable[[], object]) -> int:
    """Return the number of Python functions that it calls."""
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    before = sys.getprofile()
    gc.disable()  # or finalizers of objects of other tests may be counted
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(before)
        gc.enable()
    return counted


class Bare:
    """Like Grid in driver.py, but without parts around the scheduler that grow themselves."""

    def __init__(self, policy: str) -> None:
        self.scheduler, self.now = Scheduler(), 0.0
        self.step(MasterStarted(SchedulerSettings(policy, lease_s=1e6, stall_after_s=60.0)))
        self.held: dict[str, list[AttemptId]] = {}
        self.sent: dict[str, int] = {}

    def step(self, *events: object) -> None:
        effects = self.scheduler.step(events, self.now)  # type: ignore[arg-type]
        for name, assign in effects.assigns.items():
            self.held[name] += [run.attempt for run in assign.run]

    def join(self, *names: str, own: Facts | None = None) -> None:
        """Join all workers in one step: the setup of a case is not counted."""
        self.held.update((name, []) for name in names)
        self.sent.update(dict.fromkeys(names, 0))
        sessions = range(len(self.held) - len(names) + 1, len(self.held) + 1)
        joined = zip(names, sessions, strict=True)
        self.step(*(WorkerJoined(name, session, "boot", own or facts()) for name, session in joined))
        self.step(*(self._said(name) for name in names))

    def report(self, name: str, *, ends: bool = False) -> None:
        self.step(self._said(name, *([result(self.held[name].pop(0))] if ends else [])))

    def _said(self, name: str, *results: Result) -> WorkerReported:
        self.sent[name] += 1
        holding = tuple(Held(attempt) for attempt in self.held[name])
        said = Report(self.sent[name], self.sent[name], holding, results, Load(1))
        return WorkerReported(name, self.scheduler.state.workers[name].session or 0, said)

    def submit(self, count: int, times: int = 1, requires: Sequence[dict[str, object]] = ({},)) -> None:
        """Submit ``times`` jobs of ``count`` tasks for each of these requirements."""
        self.step(*(JobSubmitted("user", spec(count, 1.0, each)) for each in (*requires,) * times))


Act = Callable[[Bare], object]
Case = Callable[[Bare, int], Act]


def a_result_among_many_tasks(grid: Bare, size: int) -> Act:
    grid.submit(size * 100)
    grid.join("w0")
    return lambda grid: grid.report("w0", ends=True)


def a_result_among_many_jobs(grid: Bare, size: int) -> Act:
    grid.submit(20, size)
    grid.join("w0")
    return lambda grid: grid.report("w0", ends=True)


def a_result_among_many_busy_workers(grid: Bare, size: int) -> Act:
    grid.submit(1000)
    grid.join(*(f"w{number}" for number in range(size)))
    return lambda grid: grid.report("w0", ends=True)


def a_result_among_many_held_jobs(grid: Bare, size: int) -> Act:
    grid.submit(100)
    grid.submit(1, size)
    grid.join("w0")
    return lambda grid: grid.report("w0", ends=True)


def a_result_among_many_kinds_of_jobs(grid: Bare, size: int) -> Act:
    grid.submit(20, requires=[{"memory_bytes": number} for number in range(size)])
    grid.join("w0")
    return lambda grid: grid.report("w0", ends=True)


def a_report_among_many_idle_workers(grid: Bare, size: int) -> Act:
    grid.join(*(f"w{number}" for number in range(size)))
    return lambda grid: grid.report("w0")


def an_idle_report_among_jobs_that_nobody_can_run(grid: Bare, size: int) -> Act:
    grid.submit(10, size, [{"os": "windows"}])
    grid.join("w0")
    return lambda grid: grid.report("w0")


def a_result_among_jobs_that_only_another_can_run(grid: Bare, size: int) -> Act:
    grid.submit(10, size, [{"os": "windows"}])
    grid.join("busy", own=facts(os="windows"))
    grid.submit(10)
    grid.join("w0")
    return lambda grid: grid.report("w0", ends=True)


def an_idle_report_where_nobody_idle_can_run_what_waits(grid: Bare, size: int) -> Act:
    """As many jobs as workers: each idle worker is skipped, but not once for each job."""
    grid.join("busy", own=facts(os="windows"))
    grid.submit(10, size, [{"os": "windows"}])
    grid.join(*(f"w{number}" for number in range(size)))
    return lambda grid: grid.report("w0")


def a_submission(grid: Bare, size: int) -> Act:
    grid.submit(10, size)
    return lambda grid: grid.submit(10)


def a_lone_job_among_many_idle_workers(grid: Bare, size: int) -> Act:
    """The workers that meet its requirements are known from the previous job, although that has left the grid."""
    for number in range(size):
        grid.join(f"w{number}")
    grid.submit(1)
    grid.report(next(name for name, held in grid.held.items() if held), ends=True)
    return lambda grid: grid.submit(1)


def a_pause(grid: Bare, size: int) -> Act:
    grid.submit(1, size)
    return lambda grid: grid.step(JobPaused(size // 2))


def a_resumption(grid: Bare, size: int) -> Act:
    grid.submit(1, size)
    grid.step(JobPaused(2))
    return lambda grid: grid.step(JobResumed(2))


def a_cancellation(grid: Bare, size: int) -> Act:
    grid.submit(10, size)
    return lambda grid: grid.step(JobCancelled(size // 2))


def a_drain(grid: Bare, size: int) -> Act:
    grid.submit(10, size)
    grid.join(*(f"w{number}" for number in range(size)))
    return lambda grid: grid.step(WorkerDrained("w3"))


def the_return_of_the_only_worker_for_each_stalled_job(grid: Bare, size: int) -> Act:
    """The one event that concerns every job: its work may grow linearly, not quadratically."""
    grid.submit(1, size)
    grid.now += 60.0
    grid.step()
    grid.held["w0"], grid.sent["w0"] = [], 0
    return lambda grid: grid.step(WorkerJoined("w0", 1, "boot", facts()))


ALL = sorted(REGISTRY) if LONG else ["fair", "first-come", "round-robin", "space-partition", "turnaround"]
ROUNDS = ["first-come", "round-robin"]
PLACING = ["turnaround", "random", "cyclic", "shortest-queue", "most-throughput"] if LONG else ["turnaround"]
CUTS = [
    "space-partition"
]  # divides all workers again in each step with an idle one, so some work per job is inherent
LOGARITHMIC = 1.3
A_LITTLE_EACH = 5.0  # some ten calls for each of SMALL or LARGE beside the hundreds that a result costs
LINEAR = 1.1 * LARGE / SMALL
CASES: list[tuple[Case, list[str], float]] = [
    (a_result_among_many_tasks, ALL, LOGARITHMIC),
    (a_result_among_many_jobs, ROUNDS + PLACING, LOGARITHMIC),
    (a_result_among_many_jobs, CUTS, A_LITTLE_EACH),
    (a_result_among_many_busy_workers, ROUNDS + PLACING, LOGARITHMIC),
    (a_result_among_many_busy_workers, CUTS, A_LITTLE_EACH),
    (a_result_among_many_held_jobs, ROUNDS + PLACING, LOGARITHMIC),
    (a_result_among_many_held_jobs, CUTS, A_LITTLE_EACH),
    (a_result_among_many_kinds_of_jobs, ALL, A_LITTLE_EACH),  # per set of requirements, not per job
    (a_report_among_many_idle_workers, ALL, LOGARITHMIC),
    (an_idle_report_among_jobs_that_nobody_can_run, ALL, LOGARITHMIC),
    (a_result_among_jobs_that_only_another_can_run, ROUNDS, LOGARITHMIC),
    (a_result_among_jobs_that_only_another_can_run, CUTS, A_LITTLE_EACH),
    (an_idle_report_where_nobody_idle_can_run_what_waits, ALL, LINEAR),
    (a_submission, ALL, LOGARITHMIC),
    (a_lone_job_among_many_idle_workers, [*ROUNDS, "fair", "turnaround"], LOGARITHMIC),
    (a_pause, ALL, LOGARITHMIC),
    (a_resumption, ALL, LOGARITHMIC),
    (a_cancellation, ALL, LOGARITHMIC),
    (a_drain, ALL, LOGARITHMIC),
    (the_return_of_the_only_worker_for_each_stalled_job, ["round-robin"], LINEAR),
]


@pytest.mark.parametrize(
    ("case", "policy", "factor"),
    [(case, policy, factor) for case, policies, factor in CASES for policy in policies],
    ids=lambda value: getattr(value, "__name__", value) if not isinstance(value, float) else "",
)
def test_work_does_not_grow_with_the_grid(case: Case, policy: str, factor: float) -> None:
    small, large = (_work(case, policy, size) for size in (SMALL, LARGE))
    assert large <= factor * small + 50, f"{small} calls in the small grid, {large} in the large"


def _work(case: Case, policy: str, size: int) -> int:
    grid = Bare(policy)
    act = case(grid, size)
    return calls(lambda: act(grid))
