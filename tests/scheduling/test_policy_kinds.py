"""The two kinds of policy: behaviour that every policy gets from its one method, ``next_task`` or ``cost``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loopline_master.core.events import JobSubmitted, SchedulerSettings
from loopline_master.core.kernel.entities import Worker
from loopline_master.core.policies import REGISTRY, Later, Placement, Policy, TaskFirst, WorkerFirst, register
from loopline_master.core.policies.policy import View
from loopline_master.core.policies.task_first import Candidate, ReadyTask
from loopline_shared.model import Order
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.world import Arrival, FastWorld, Host
from tests.scheduling.driver import START, Grid, facts, spec

NIGHT = START + 100.0


class FirstFound(WorkerFirst):
    """The smallest possible policy."""

    def next_task(self, view: View, worker: Worker) -> Placement | Later | None:
        for job in view.jobs_to_start(worker):
            task = view.first_startable(job, worker)
            if task is not None:
                return Placement(job.id, task, worker.name)
        return None


class AtNight(FirstFound):
    """Starts no task by day."""

    def next_task(self, view: View, worker: Worker) -> Placement | Later | None:
        return super().next_task(view, worker) if view.grid.now >= NIGHT else Later(NIGHT)


class EachLater(FirstFound):
    """Worker ``wN`` will be offered again N seconds after START."""

    def next_task(self, view: View, worker: Worker) -> Placement | Later | None:
        return Later(START + float(worker.name[1:]))


class Patient(TaskFirst):
    """Chooses the fast worker, or a slow one when the job has waited 10 s."""

    def cost(self, view: View, task: ReadyTask, candidate: Candidate) -> float | Later:
        at = task.job.submitted_at + 10.0
        return 0.0 if candidate.speed > 2.0 else 1.0 if view.grid.now >= at else Later(at)


class Counting(TaskFirst):
    """Gives all workers the same cost, and counts the calls."""

    priced = 0

    def cost(self, view: View, task: ReadyTask, candidate: Candidate) -> float | Later:
        type(self).priced += 1
        return 0.0


def grid_of(policy: type[Policy], monkeypatch: pytest.MonkeyPatch, **chosen: Any) -> Grid:
    monkeypatch.setitem(REGISTRY, "tried", policy)
    return Grid(policy="tried", lease_s=1e6, order=Order.NONE, **chosen)


# --- nothing now, ask again -------------------------------------------------------------------------------------


def test_worker_is_offered_again_at_the_requested_time(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grid_of(AtNight, monkeypatch)
    grid.workers("a", "b")
    grid.submit(2, 2.0)
    assert not grid.running("a"), "no task starts even if the whole grid is idle"
    assert grid.scheduler.wake_at == NIGHT
    grid.wait(99.0)
    assert not grid.running("a")
    grid.wait(1.0)
    assert len(grid.running("a")) == len(grid.running("b")) == 1
    assert grid.scheduler.wake_at != NIGHT


def test_earliest_requested_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grid_of(EachLater, monkeypatch)
    grid.workers("w30", "w20", "w40")
    grid.submit(1, 1.0)
    assert grid.scheduler.wake_at == START + 20.0


def test_leases_expire_while_a_policy_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grid_of(AtNight, monkeypatch)
    grid.step(JobSubmitted("user", spec()))
    grid.workers("a")
    grid.scheduler.state.settings = replace(grid.settings, lease_s=5.0)
    grid.report("a")
    assert grid.scheduler.wake_at == START + 5.0


def test_restarted_master_offers_the_worker_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grid_of(AtNight, monkeypatch)
    grid.workers("a")
    grid.submit(1, 1.0)
    grid.restart()
    grid.join("a")
    assert grid.scheduler.wake_at == NIGHT


@pytest.mark.parametrize(("at", "asked_after_s"), [(1e300, 3600.0), (float("inf"), 3600.0)])
def test_requested_wait_is_bounded_to_an_hour(
    at: float, asked_after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EachLater, "next_task", lambda policy, view, worker: Later(at))
    grid = grid_of(EachLater, monkeypatch)
    grid.workers("a")
    grid.submit(1, 1.0)
    assert grid.scheduler.wake_at == START + asked_after_s


@pytest.mark.parametrize("at", [START, START - 1.0, float("-inf"), float("nan")])
def test_requested_time_in_the_past_does_not_delay_a_worker(at: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EachLater, "next_task", lambda policy, view, worker: Later(at))
    grid = grid_of(EachLater, monkeypatch)
    grid.workers("a", "b")
    grid.submit(2, 2.0)
    assert len(grid.running("a")) + len(grid.running("b")) == 1, "the scheduler keeps an idle grid going"
    assert grid.scheduler.wake_at != at


def test_task_waits_for_its_worker_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grid_of(Patient, monkeypatch)
    grid.join("fast", replace(facts(), speed=4.0))
    grid.join("slow", facts())
    grid.submit(2, 2.0)
    assert (len(grid.running("fast")), grid.running("slow")) == (1, [])
    assert grid.scheduler.wake_at == START + 10.0
    grid.wait(10.0)
    assert len(grid.running("slow")) == 1


def test_simulator_offers_the_worker_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "tried", AtNight)
    hosts, arrivals = [Host("a", facts(), Steady(1.0))], [Arrival(5.0, spec(1, 30.0)), Arrival(50.0, spec(1, 30.0))]
    world = FastWorld(SchedulerSettings("tried", lease_s=1e9), hosts, arrivals)
    world.run()
    assert world.kernel.now == NIGHT + 60.0


# --- prefetching ------------------------------------------------------------------------------------------------


def test_prefetching_uses_the_same_method(monkeypatch: pytest.MonkeyPatch) -> None:
    for policy in (FirstFound, Counting):
        grid = grid_of(policy, monkeypatch, prefetch_s=2.0)
        grid.workers("a")
        grid.submit(10, 10.0)
        assert (len(grid.running("a")), len(grid.waiting("a"))) == (3, 2)


def test_proposed_prefetch_of_long_or_unknown_tasks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for policy in (FirstFound, Counting):
        for size in (None, 30.0):
            grid = grid_of(policy, monkeypatch, prefetch_s=2.0)
            grid.workers("a")
            grid.submit(10, size)
            assert not grid.waiting("a")


def test_policy_can_switch_prefetching_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FirstFound, "prefetches", False)
    grid = grid_of(FirstFound, monkeypatch, prefetch_s=2.0)
    grid.workers("a")
    grid.submit(10, 10.0)
    assert not grid.waiting("a")


# --- worker classes ---------------------------------------------------------------------------------------------


def test_cost_is_computed_once_per_worker_class_and_task(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grid_of(Counting, monkeypatch)
    for number in range(40):
        grid.join(f"w{number}", replace(facts(), speed=(1.0, 4.0)[number % 2]))
    monkeypatch.setattr(Counting, "priced", 0)
    grid.submit(1, 1.0)
    assert Counting.priced == 2


# --- the registry -----------------------------------------------------------------------------------------------


def test_policy_name_can_be_registered_once() -> None:
    with pytest.raises(ValueError, match="two policies are called fair"):
        register("fair")(FirstFound)


def test_every_policy_is_one_of_the_two_kinds() -> None:
    assert all(issubclass(policy, WorkerFirst | TaskFirst) for policy in REGISTRY.values())


def test_view_has_few_methods() -> None:
    """Authors of policies must learn them all; lookups that only indexes need belong to the indexes."""
    asked = {name for name in (*vars(View), *vars(Grid().scheduler._view)) if not name.startswith("_")}
    assert len(asked) <= 16


# --- properties of a computer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_worker_with_the_required_folder_gets_the_task(policy: str) -> None:
    """Workers differ only in their folders; also while the grid is not idle."""
    grid = Grid(policy=policy, order=Order.NONE)
    for name in ("a", "b", "c"):
        grid.join(name, replace(facts(), folders=(f"/{name}",)))
    jobs = [grid.submit(1, 1.0, requires={"folder": f"/{name}/mine"}) for name in ("b", "c", "a")]
    assert [attempt.job for name in ("b", "c", "a") for attempt in grid.running(name)] == jobs
