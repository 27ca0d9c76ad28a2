"""ETAs: their evidence, what they depend on, and their correction by past errors."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from loopline_master import forecaster
from loopline_master.change_feed import ChangeFeed
from loopline_master.core.estimates.eta import Forecast, Unknown, outlook, preview
from loopline_master.core.estimates.lognormal import Lognormal, fitted
from loopline_master.core.events import JobPaused
from loopline_master.core.policies import REGISTRY
from loopline_master.forecaster import MOMENTS, Calibration, EtaOutcome, Forecaster, Situation, moment_of
from loopline_master.task_progress import TaskProgress
from loopline_shared.model import Order
from tests.scheduling.driver import Grid, facts, result, spec


def run(grid: Grid, tasks: int, each_s: float = 10.0, worker: str = "a") -> None:
    for _ in range(tasks):
        grid.now += each_s
        grid.end(grid.running(worker)[0], wall_s=each_s, cpu_s=each_s)
        grid.report(worker)


def forecast(grid: Grid, job: int) -> Forecast:
    found = outlook(grid.scheduler.state)[job]
    assert isinstance(found, Forecast), found
    return found


def unknown(grid: Grid, job: int) -> str:
    found = outlook(grid.scheduler.state)[job]
    assert isinstance(found, Unknown), found
    return found.reason


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_eta_is_estimated_from_finished_tasks(policy: str) -> None:
    grid = Grid(policy=policy)
    grid.workers("a")
    job = grid.submit(10, max_replicas=1)
    assert unknown(grid, job) == "no task of it has finished yet"
    run(grid, 4)
    found = forecast(grid, job)
    assert found.based_on == "4 finished tasks"
    assert 40 < found.p50_s < 80, "six tasks of ten seconds each are left"
    assert found.p50_s < found.p90_s < 200
    grid.restart()
    grid.join("a")
    assert forecast(grid, job) == found


def test_missing_eta_has_a_reason() -> None:
    grid = Grid()
    job = grid.submit(3)
    assert unknown(grid, job) == "no connected worker offers it a slot"
    waiting = grid.submit(1, after=[job])
    assert unknown(grid, waiting) == "it waits for other jobs, and is not yet in the grid"
    grid.workers("a")
    grid.step(JobPaused(job))
    assert unknown(grid, job) == "it is paused"


@pytest.mark.parametrize("order", [Order.HOLD, Order.DELIVER])
def test_eta_is_not_before_that_of_a_job_it_may_not_pass(order: Order) -> None:
    grid = Grid(policy="first-come", order=order)
    grid.workers("a")
    large, small = grid.submit(20, 400.0, max_replicas=1), grid.submit(2, 500.0, max_replicas=1)
    grid.join("b")
    run(grid, 4)
    first, second = forecast(grid, large), forecast(grid, small)
    assert second.p50_s >= first.p50_s
    assert second.p90_s >= first.p90_s
    unknowable = grid.submit(1, name="never seen before")
    assert unknown(grid, unknowable) == "no task of it has finished yet"


def test_eta_of_a_job_without_a_size_goes_by_its_measured_tasks() -> None:
    """It is smaller than the sweep before it, so its last task will not wait for that."""
    grid = Grid(policy="round-robin", max_replicas=1)
    grid.workers("a", slots=2)
    known = grid.submit(1, 1.0, name="known")
    run(grid, 1, 1.0)
    assert grid.job(known).succeeded
    sweep, small = grid.submit(1000, 10_000.0, name="sweep"), grid.submit(8, name="small")
    run(grid, 8, 1.0)
    assert grid.job(small).succeeded > 2
    assert grid.job(small).shown is None
    assert forecast(grid, small).p50_s < 0.1 * forecast(grid, sweep).p50_s


def test_eta_behind_a_job_without_one_is_unknown() -> None:
    grid = Grid(policy="first-come")
    grid.workers("a")
    done = grid.submit(1, 10.0)
    run(grid, 1)
    first = grid.submit(5, max_replicas=1, name="never seen before")
    grid.join("b")
    second = grid.submit(1, max_replicas=1, name="nor this")
    assert grid.job(done).succeeded
    assert "no task" in unknown(grid, first)
    assert "no task" in unknown(grid, second)


def test_eta_of_a_known_program_comes_from_earlier_runs() -> None:
    grid = Grid(policy="first-come")
    grid.workers("a")
    for _ in range(3):
        grid.submit(1, max_replicas=1)
        run(grid, 1)
    expected = forecast(grid, grid.submit(4, max_replicas=1))
    assert expected.based_on == "3 earlier runs of its program"
    assert 0 < expected.p50_s < expected.p90_s


def test_given_size_is_used_until_tasks_have_finished() -> None:
    grid = Grid()
    grid.workers("a")
    before = grid.submit(1, 10.0, max_replicas=1)
    assert unknown(grid, before) == "no task of it has finished yet", (
        "no finished task shows yet how sizes translate to seconds"
    )
    assert preview(grid.scheduler.state, spec(10, 100.0)) is None
    run(grid, 1)
    expected = preview(grid.scheduler.state, spec(10, 100.0))
    assert expected is not None
    assert 50 < expected.p50_s < 200
    job = grid.submit(10, 100.0)
    assert forecast(grid, job).based_on == "its size"


def test_more_slots_give_an_earlier_eta() -> None:
    grid = Grid()
    grid.workers("a")
    job = grid.submit(40, 400.0, max_replicas=1)
    run(grid, 2)
    alone = forecast(grid, job)
    grid.workers("b", "c", "d")
    assert forecast(grid, job).p50_s < alone.p50_s / 2


def test_owner_slows_down_programs_that_compute_but_not_ones_that_sleep() -> None:
    corrected = {}
    for name, cpu_s in (("computes", 5.0), ("waits", 0.1)):
        grid = Grid()
        grid.workers("a")
        job = grid.submit(40, max_replicas=1, name=name)
        for _ in range(4):
            grid.now += 10.0
            grid.report("a", result(grid.running("a")[0], wall_s=10.0, cpu_s=cpu_s), spare_cpu=0.5)
        corrected[name] = forecast(grid, job).p50_s
        attempt = grid.running("a")[0]
        assert grid.store.attempts[attempt].expected_s == pytest.approx(10.0, rel=0.01)
        grid.report("a", spare_cpu=0.25)
        assert forecast(grid, job).p50_s / corrected[name] == pytest.approx(
            2.0 if name == "computes" else 1.0, rel=0.05
        )
    assert corrected["waits"] == pytest.approx(corrected["computes"], rel=0.05), "each task took ten seconds so far"


def test_running_tasks_correct_an_estimate_from_short_ones() -> None:
    quick = fitted(3, math.log(10), 0.1, 0.05, [])
    humbled = fitted(3, math.log(10), 0.1, 0.05, [40.0] * 10)
    assert quick.mean == pytest.approx(10, rel=0.1)
    assert humbled.mean > 25
    assert fitted(3, math.log(10), 0.1, 0.05, [1.0] * 10) == quick


def test_first_finished_tasks_are_assumed_to_be_short_ones() -> None:
    each = []
    for finished in (1, 9):
        grid = Grid(policy="first-come")
        grid.workers("a")
        job = grid.submit(99 + finished, max_replicas=1)
        run(grid, finished)
        each.append(forecast(grid, job).p50_s / 99)
    assert each[0] > 1.4 * each[1] > 14.0


def test_remaining_time_follows_the_lognormal_law() -> None:
    law = Lognormal(math.log(10), 0.5)
    assert law.left(0.0, 0.5) == pytest.approx(10)
    assert law.mean_left(0.0) == pytest.approx(law.mean)
    assert law.left(30.0, 0.5) > 0
    assert law.mean_left(1e9) == 1e9


def test_moment_follows_from_the_share_of_finished_tasks() -> None:
    assert [moment_of(done, 8) for done in range(9)] == [None, 0, 25, 25, 50, 50, 75, 75, None]
    assert moment_of(0, 1) is None
    assert moment_of(1, 1) is None


def test_unreliable_eta_is_shown_only_once_its_errors_are_known() -> None:
    for policy in REGISTRY:
        sized, unsized = ([Situation(at, policy, given).is_shown(0) for at in MOMENTS] for given in (True, False))
        assert sized == [True, True, True, False]
        assert unsized == [False, True, True, True]
    assert Situation(0, "fair", False).is_shown(judged=20)


def test_p90_depends_on_the_policy_until_errors_are_known() -> None:
    said = Forecast(100.0, 200.0, "")
    shared, usual, fair = (
        Calibration().applied(Situation(0, policy, True), said).p90_s
        for policy in ("round-robin", "first-come", "fair")
    )
    assert fair < usual < shared, "later jobs share the machines in turn; first ones have the fastest"
    few = Calibration([EtaOutcome(0, 100.0, 200.0, 100.0)] * 3).applied(Situation(0, "round-robin", True), said)
    assert usual < few.p90_s < shared, "each accurate ETA narrows the spread a little"


def test_past_errors_correct_the_eta() -> None:
    said = Forecast(100.0, 200.0, "")
    late = Calibration(EtaOutcome(25, 100.0, 200.0, 300.0) for _ in range(200))
    first, quarter = Situation(0, "fair", True), Situation(25, "fair", True)
    assert late.applied(first, said) == Calibration().applied(first, said), "no errors are known at another moment"
    corrected = late.applied(quarter, said)
    assert 250 < corrected.p50_s <= corrected.p90_s
    few = Calibration(EtaOutcome(25, 100.0, 200.0, 300.0) for _ in range(3)).applied(quarter, said)
    assert 100 < few.p50_s < 150, "few errors change little"
    spread = Calibration(EtaOutcome(25, 100.0, 200.0, 50.0 + number) for number in range(100)).applied(quarter, said)
    assert 90 < spread.p50_s < 110
    assert 130 < spread.p90_s < 200


@pytest.mark.parametrize("policy", ["round-robin", "fair"])
@pytest.mark.parametrize("size", [1e-3, 20.0, 1e12])
def test_wrong_size_is_not_counted_as_an_eta_error(policy: str, size: float) -> None:
    """Tasks of a millisecond with a wrong size, and a job that waits for them."""
    grid = Grid(policy=policy)
    grid.workers("a")
    job, after = grid.submit(4, size=size, max_replicas=1), grid.submit(2, size=size)
    run(grid, 2, each_s=1e-3)
    for one in (job, after):
        found = forecast(grid, one)
        assert 0 <= found.p50_s <= found.p90_s < math.inf


async def test_eta_errors_are_reloaded_after_a_job_with_an_eta_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ETA_FRESH_FOR_S", "ETA_FRESH_SHARE"):
        monkeypatch.setattr(forecaster, name, 0.0)
    grid, changes, stored, read = Grid(), ChangeFeed(), list[int](), asyncio.Queue[None]()

    async def add(etas: list[forecaster.ToldEta]) -> None:
        stored.extend(eta.job for eta in etas)

    async def judged() -> list[forecaster.JudgedEta]:
        read.put_nowait(None)
        return []

    store = SimpleNamespace(add=add, judged=judged)
    watching = asyncio.create_task(Forecaster(grid.scheduler, store, lambda: grid.now, TaskProgress()).watch(changes))  # type: ignore[arg-type]
    await asyncio.wait_for(read.get(), 60)
    grid.workers("a")
    for tasks in (1, 2):
        job = grid.submit(tasks, size=10.0 * tasks)
        for _ in range(tasks):
            assert read.empty(), "the ended job had no stored ETA"
            grid.now += 10.0
            changes.publish(grid.end(grid.running("a")[0], wall_s=10.0, cpu_s=10.0))
            for _ in range(10):
                await asyncio.sleep(0)
    await asyncio.wait_for(read.get(), 60)
    assert stored == [job]
    watching.cancel()


def test_size_that_a_running_task_has_exceeded_gives_no_forecast() -> None:
    """The jobs that its job holds get none either."""
    grid = Grid(lease_s=1e9, max_replicas=1)
    grid.workers("a", "b")
    grid.submit(1, 2.0)
    grid.end(grid.running("a")[0], wall_s=2.0, cpu_s=2.0)
    endless, later = grid.submit(1, 1.0), grid.submit(1, 5.0)
    grid.report("a")
    grid.now += 100.0
    grid.report("a")
    found = outlook(grid.scheduler.state)
    assert found[endless] == Unknown("it takes longer than its size says, and no task of it has finished yet")
    assert found[later] == Unknown(f"it may not pass job {endless}, of which nothing is known yet")


def test_job_that_waits_behind_an_endless_one_has_no_forecast() -> None:
    grid = Grid(lease_s=1e9, max_replicas=1, prefetch_s=0.0)
    grid.join("a")
    grid.submit(1, 0.01)
    grid.end(grid.running("a")[0], wall_s=0.01, cpu_s=0.01)
    endless, later = grid.submit(1, name="endless"), grid.submit(1, 0.01)
    grid.report("a")
    reason = f"it waits for slots taken by jobs of which nothing is known yet, such as job {endless}"
    assert outlook(grid.scheduler.state)[later] == Unknown(reason)
    grid.join("b")
    assert isinstance(outlook(grid.scheduler.state)[later], Forecast)


def test_single_task_has_an_eta_by_its_progress() -> None:
    grid = Grid()
    grid.workers("a")
    job = grid.submit(1, max_replicas=1)
    (attempt,) = grid.running("a")
    grid.report("a")
    grid.now += 630.0
    grid.report("a")
    assert unknown(grid, job) == "no task of it has finished yet"
    found = outlook(grid.scheduler.state, {attempt: 0.63})[job]
    assert isinstance(found, Forecast)
    assert (found.p50_s, found.based_on) == (pytest.approx(370.0, rel=0.01), "the progress of 1 running task")
    assert found.p50_s < found.p90_s < 600
    assert isinstance(outlook(grid.scheduler.state, {attempt: 0.001})[job], Unknown), "too little to judge by"


def test_tasks_that_wait_are_estimated_by_the_progress_of_others() -> None:
    grid = Grid()
    grid.workers("a")
    job = grid.submit(3, max_replicas=1)
    attempt = grid.running("a")[0]
    grid.report("a")
    grid.now += 50.0
    grid.report("a")
    found = outlook(grid.scheduler.state, {attempt: 0.5})[job]
    assert isinstance(found, Forecast)
    assert 200 < found.p50_s < 330, "half a task, and two more of 100 s each"


def test_progress_of_a_late_task_counts_more_than_others_durations() -> None:
    grid = Grid(policy="first-come")
    grid.workers("a")
    job = grid.submit(3, max_replicas=1)
    run(grid, 2)
    (attempt,) = grid.running("a")
    grid.now += 100.0
    grid.report("a")
    found = outlook(grid.scheduler.state, {attempt: 0.1})[job]
    assert isinstance(found, Forecast)
    assert found.p50_s == pytest.approx(900.0, rel=0.1)
    assert not found.by_progress


def test_forecast_does_not_depend_on_the_order_of_workers_and_attempts() -> None:
    """A restart keeps them in another one."""
    grid, names, chance = Grid(lease_s=1e9, max_replicas=1), "abcdefghijklmn", Random(1)
    for name in names:
        grid.join(name, replace(facts(), speed=chance.uniform(0.3, 3.0)))
    job = grid.submit(100)
    for name in names:
        grid.now += chance.random()
        grid.report(name)
    grid.end(grid.running("c")[0], wall_s=3.3, cpu_s=3.3)
    state, found = grid.scheduler.state, forecast(grid, job)
    for known in (state.index.requirements.available, state.attempts):
        backwards = [*known.items()][::-1]
        known.clear()
        known.update(backwards)  # type: ignore[arg-type]
        assert forecast(grid, job) == found
