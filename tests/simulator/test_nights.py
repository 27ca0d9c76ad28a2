"""Computers that sleep, in the full world: nothing is lost, and only those are woken that waiting work needs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from loopline_master.core.events import SchedulerSettings
from loopline_shared.job.parameters import Range
from loopline_shared.model import Facts, Order, TaskState
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.spec import JobSpec
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.world import Arrival, Host
from loopline_simulator.full import NIGHT, ROUGH, Scenario, Sleep, live_through, summary
from loopline_simulator.full.timed import TimedWorld
from tests.campaign import CHECK_EVERY, tried

SCENARIO = Scenario(
    machines=5, jobs=8, interval_s=120.0, gangs=0.2, checkpoints=0.2, check_every=CHECK_EVERY,
    faults=replace(ROUGH, calm_at_s=1500.0),
    sleep=NIGHT,
)  # fmt: skip
NIGHTS = 200


def _live_through(seed: int) -> Counter[str]:
    """Run a night, which checks each step and the end. Return what happened."""
    policy, order = ("fair", "round-robin", "first-come")[seed % 3], list(Order)[seed % len(Order)]
    times = {"lease_s": (5.0, 30.0)[seed % 2], "report_every_s": 4.0, "stall_after_s": 20.0, "sleep_keep_s": 60.0}
    world = live_through(seed, SchedulerSettings(policy, order, **times), SCENARIO)
    counts = summary(seed, world)
    assert counts.jobs == SCENARIO.jobs
    assert not any(job.is_live for job in world.world.store.jobs.values())
    names = ("sleeps", "suspended_at_work", "woken", "returns", "crashes", "stops", "lost")
    return Counter({name: getattr(counts, name) for name in names})


def test_nothing_is_lost_in_a_night() -> None:
    met = _live_through(1)
    assert min(met[name] for name in ("sleeps", "woken", "crashes")) > 0, met


@pytest.mark.full
def test_nothing_is_lost_in_five_nights() -> None:
    met = sum((_live_through(seed) for seed in range(10, 15)), Counter[str]())
    assert min(met.values()) > 0, met


@pytest.mark.campaign
def test_nothing_is_lost_in_200_nights() -> None:
    print(dict(sum((_live_through(seed) for seed in range(1000, 1000 + tried(NIGHTS, NIGHTS))), Counter[str]())))


def lab(computers: int, tasks: int, task_s: float, **settings: object) -> TimedWorld:
    """Return the world of a lab that is asleep when a job of these tasks arrives."""
    facts = Facts("linux", "x86_64", "3.11", "0", "model", cpus=4, memory_bytes=10**9, slots=4)
    facts = replace(facts, link=HostLink("10.0.0.0/24", ""))
    hosts = [Host(f"pc-{number:02}", facts, Steady(1.0)) for number in range(computers)]
    job = JobSpec(command=["work"], parameters={"i": Range(range=[1, tasks])}, size=tasks * task_s)
    chosen = SchedulerSettings("first-come", **{"wake_at_once": computers} | settings)
    sleep = Sleep(idle_s=120.0, return_s=1e6, wake_s=30.0)
    return TimedWorld(0, chosen, hosts, [Arrival(1000.0, job)], sleep=sleep, check_every=50)


def asleep(world: TimedWorld) -> int:
    return sum(sleeper.is_asleep for sleeper in world.world.store.sleepers.values())


@pytest.mark.parametrize(("task_s", "expected"), [(600.0, 40), (10.0, 32), (0.5, 3)])
def test_sleeping_lab_wakes_as_many_computers_as_500_tasks_need(task_s: float, expected: int) -> None:
    world = lab(40, 500, task_s)
    world.kernel.run(999.0)
    assert asleep(world) == 40
    world.run()
    store = world.world.store
    assert sum(task.state is TaskState.SUCCEEDED for task in store.tasks.values()) == 500
    assert len({attempt.worker for attempt in store.attempts.values()}) == expected
    assert min(attempt.dispatched_at for attempt in store.attempts.values()) <= 1000.0 + 30.0 + 5.0
    assert world.nights
    assert world.nights.counts["woken"] == expected, "none was woken in vain"
    assert asleep(world) == 40, "all are asleep again"


def test_sleeping_lab_wakes_four_computers_a_minute_by_default() -> None:
    world = lab(12, 100, 600.0, wake_at_once=4)
    world.run()
    assert world.nights
    begun = sorted(world.nights.begun.values())
    assert all(later - earlier >= 60.0 for earlier, later in zip(begun, begun[4:], strict=False))
