"""The full world in virtual time: through every disaster, each job ends, in order, with one result for each task."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from loopline_master.core.events import BATCH, Batch, SchedulerSettings, SnapshotWritten
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.state import State
from loopline_master.core.policies import REGISTRY
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.snapshot import Snapshot
from loopline_master.core.wings.gangs import phases
from loopline_master.core.wings.gangs.gang import Gang, GangPhase
from loopline_master.core.wings.gangs.planning.plan import Plan
from loopline_shared.model import AttemptId, Facts, Order, TaskState
from loopline_shared.spec import JobSpec
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.world import Arrival, FastWorld, Host
from loopline_simulator.full import Conditions, Faults, Scenario, live_through, run, summary
from loopline_simulator.full.grid_world import GridWorld
from loopline_simulator.full.store import MemoryStore
from loopline_simulator.full.timed import TimedWorld
from tests.campaign import CHECK_EVERY, LONG, tried
from tests.properties.test_planted_bugs import BUGS, SHOWN_BY_TIME, SLOW_TO_SHOW

ROOT = Path(__file__).parents[2]
ROUGH = Scenario(machines=4, jobs=8, until_s=3_000.0, check_every=CHECK_EVERY)
CALM = Scenario(
    max_slots=1, jobs=15, known_sizes=1.0, interval_s=10.0, check_every=1 if LONG else 50,
    conditions=Conditions(), faults=Faults(),
)  # fmt: skip
SEEDS = range(tried(3))
DISASTERS = ("crashes", "reboots", "stops", "breaks", "partitions", "lost", "duplicated", "lost_attempts")


@pytest.mark.parametrize("policy", sorted(REGISTRY) if LONG else ["fair"])
def test_all_is_well_in_the_end(policy: str) -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        times = {"lease_s": (5.0, 30.0)[seed % 2], "report_every_s": 4.0, "stall_after_s": 20.0}
        settings = SchedulerSettings(policy, **times, prefetch_s=(0.0, 60.0)[seed // 2 % 2])
        world = live_through(seed, settings, ROUGH)  # checks each step, and the end: rows, machines, replay
        met.update(_counts(world, seed))
        store = world.world.store
        assert len(store.jobs) == ROUGH.jobs
        assert not any(job.is_live for job in store.jobs.values())
        assert not store.passings
        winners = Counter(attempt.task_id for attempt in store.attempts.values() if attempt.accepted)
        succeeded = [task.id for task in store.tasks.values() if task.state is TaskState.SUCCEEDED]
        assert winners == dict.fromkeys(succeeded, 1)
    missing = [disaster for disaster in DISASTERS if not met[disaster]]
    assert not missing, f"never happened in {len(SEEDS)} runs: {missing}"


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.campaign), None])
@pytest.mark.parametrize("order", list(Order))
def test_under_every_promise(order: Order, replicas: int | None) -> None:
    for seed in range(100, 100 + tried(1)):
        live_through(seed, SchedulerSettings(order=order, max_replicas=replicas, max_attempts=2), ROUGH)


@pytest.mark.parametrize("order", [Order.HOLD, pytest.param(Order.DELIVER, marks=pytest.mark.campaign)])
def test_gangs_come_through_every_disaster(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    met: Counter[str] = Counter()
    turn, disband = phases._turn, phases.disband

    def turned(state: State, gang: Gang, phase: GangPhase) -> None:
        met[f"{gang.phase}, then {phase}"] += 1
        turn(state, gang, phase)

    def disbanded(state: State, gang: Gang, reason: str) -> None:
        met[f"{gang.phase}, then over"] += 1
        disband(state, gang, reason)

    monkeypatch.setattr(phases, "_turn", turned)
    monkeypatch.setattr(phases, "disband", disbanded)
    for seed in range(200, 200 + tried(1)):
        times = {"lease_s": (5.0, 30.0)[seed % 2], "report_every_s": 4.0, "gang_prepare_s": 30.0}
        settings = SchedulerSettings(order=order, **times, gang_grace_s=(2.0, 20.0)[seed // 2 % 2])
        world = live_through(seed, settings, replace(ROUGH, jobs=4, gangs=0.6, replicas=0.5, until_s=6_000.0))
        assert not world.world.store.passings
    expected = {"preparing, then running", "preparing, then over", "running, then halted", "halted, then running"}
    assert {*expected, "running, then over", "halted, then over"} <= {*met}, met


def test_log_from_a_snapshot_leads_to_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of gangs that wait, are halted and run, as a scheduler begins that has nothing but rows."""
    begun: list[tuple[int, Snapshot]] = []
    commit = MemoryStore.commit

    def commit_and_note(store: MemoryStore, batch: Batch, effects: Effects) -> None:
        if batch.events and isinstance(batch.events[0], SnapshotWritten):
            begun.append((len(store.log), deepcopy(store.snapshot())))
        commit(store, batch, effects)

    monkeypatch.setattr(MemoryStore, "commit", commit_and_note)
    monkeypatch.setattr(GridWorld, "snapshot_every", 40)
    store = live_through(204, SchedulerSettings("fair"), replace(ROUGH, jobs=4, gangs=0.6)).world.store
    assert len(begun) > 3
    for start, snapshot in begun[1::3]:
        scheduler, attempts, plans = Scheduler(snapshot), {}, {}
        for line in store.log[start:]:
            batch = BATCH.validate_json(line)
            effects = scheduler.step(batch.events, batch.now)
            attempts.update((number, copy(one)) for number, one in effects.attempts.items())
            plans.update((number, copy(one)) for number, one in effects.rows(Plan).items())
        known = {number: one for number, one in attempts.items() if not store.attempts[number].late}
        assert known == {number: store.attempts[number] for number in known}
        assert plans == {number: store.plans[number] for number in plans}


@pytest.mark.parametrize(
    "plant", [*SHOWN_BY_TIME, *(pytest.param(bug, marks=pytest.mark.campaign) for bug in BUGS), *SLOW_TO_SHOW]
)
def test_planted_bugs_are_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bugs as in the hypothesis world."""
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        _live_through_many()


def test_run_reports_the_broken_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopline_simulator.full.grid_world.check", _complain)
    at_once, later = (run(1, SchedulerSettings(), replace(ROUGH, machines=2, check_every=every)) for every in (1, 20))
    assert at_once.broken == later.broken == "as planted"
    assert at_once.steps == 0
    assert later.steps > 10


# --- the same seed ---------------------------------------------------------------------------------------------


@pytest.mark.campaign
def test_the_same_seed_gives_the_same_bytes() -> None:
    few = replace(ROUGH, jobs=3)
    logs = [live_through(3, SchedulerSettings(), few).world.store.log for _ in range(2)]
    assert logs[0] == logs[1]
    assert logs[0] != live_through(4, SchedulerSettings(), few).world.store.log


@pytest.mark.campaign
def test_in_any_process_under_any_hash_seed() -> None:
    script = (
        "from loopline_simulator.full import Scenario, run\n"
        "from loopline_master.core.events import SchedulerSettings\n"
        "for policy in ('round-robin', 'space-partition'):\n"
        "    print(run(3, SchedulerSettings(policy), Scenario(machines=4, jobs=8)))\n"
    )
    here = [repr(run(3, SchedulerSettings(policy), ROUGH)) for policy in ("round-robin", "space-partition")]
    assert _python(script, "4242").splitlines() == here  # strings have other hashes here in each run


# --- against the fast world ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", sorted(REGISTRY) if LONG else ["fair", "round-robin", "turnaround"])
@pytest.mark.parametrize("order", list(Order))
def test_without_faults_and_delays_it_is_the_fast_world(policy: str, order: Order) -> None:
    """To the last bit: sessions, periodic reports and news of starts, which the fast world omits, decide nothing.

    One difference is necessary, and avoided here by machines of one slot: the fast world steps once for each of
    several results of the same moment, while the full world's master, like the live one, steps once for all.
    """
    settings = SchedulerSettings(policy, order, lease_s=1e9)
    for seed in range(30) if LONG else (11,):  # 11: `fair` once read the clock between events
        full = live_through(seed, settings, CALM).world.store
        fast_jobs, fast_attempts = _fast(settings, seed)
        assert {job.id: job.finished_at for job in full.jobs.values()} == fast_jobs
        assert {attempt.id: _course(attempt) for attempt in full.attempts.values()} == fast_attempts


def test_a_delay_costs_a_round_trip() -> None:
    """An Assign goes down, a Report comes up: a lone task ends that much later than in the fast world."""
    facts = Facts("linux", "x86_64", "3.11", "0", "model", cpus=1, memory_bytes=10**9, slots=1)
    arrival = Arrival(100.0, JobSpec(command=["work"], size=30.0))
    conditions = Conditions(delay_s=0.25)
    world = TimedWorld(1, SchedulerSettings(), [Host("ant", facts, Steady(2.0))], [arrival], conditions=conditions)
    world.run()
    assert world.world.store.jobs[1].finished_at == 100.0 + 0.25 + 30.0 / 2.0 + 0.25


# --- the network -----------------------------------------------------------------------------------------------


def test_a_machine_that_is_cut_off_is_given_up_and_adopted_again() -> None:
    """Longer than the lease: its task is lost to the master, but computes on, and its result is taken."""
    facts = Facts("linux", "x86_64", "3.11", "0", "model", cpus=1, memory_bytes=10**9, slots=1)
    arrival = Arrival(1.0, JobSpec(command=["work"], size=300.0))
    world = TimedWorld(1, SchedulerSettings(lease_s=30.0), [Host("ant", facts, Steady(1.0))], [arrival])
    lost: list[int] = []
    world.kernel.at(10.0, lambda: world.network.partition("ant", 100.0))
    world.kernel.at(60.0, lambda: lost.append(sum(a.state == "lost" for a in world.world.store.attempts.values())))
    world.run()
    assert lost == [1]
    assert [attempt.accepted for attempt in world.world.store.attempts.values()] == [True]
    assert world.world.store.jobs[1].finished_at == 301.0


def test_reporting_machine_is_kept_though_its_reports_are_kept_back() -> None:
    facts = Facts("linux", "x86_64", "3.11", "0", "model", cpus=1, memory_bytes=10**9, slots=1)
    hosts = [Host(name, facts, Steady(1.0)) for name in ("ant", "bee")]
    arrivals = [Arrival(at, JobSpec(command=["work"], size=50.0)) for at in (1.0, 305.0, 340.0, 600.0)]
    world = TimedWorld(1, SchedulerSettings(lease_s=30.0), hosts, arrivals)
    world.run()
    assert world.world.sessions == len(hosts)


def _live_through_many() -> None:
    for seed in range(40):
        policy = ("round-robin", "first-come")[seed % 2]
        prefetch_s = (0.0, 60.0)[seed // 2 % 2]
        settings = SchedulerSettings(policy, lease_s=20.0, max_replicas=(2, 1)[seed % 2], prefetch_s=prefetch_s)
        live_through(seed, settings, replace(ROUGH, until_s=1_500.0))


def _counts(world: TimedWorld, seed: int) -> dict[str, int]:
    counted = asdict(summary(seed, world))
    return {name: counted[name] for name in DISASTERS}


def _complain(state: object) -> None:
    raise AssertionError("as planted")


def _fast(settings: SchedulerSettings, seed: int) -> tuple[dict[int, float | None], dict[AttemptId, Any]]:
    jobs: dict[int, float | None] = {}
    attempts: dict[AttemptId, Any] = {}

    def observe(effects: Effects) -> None:
        jobs.update({job.id: job.finished_at for job in effects.jobs.values()})
        attempts.update({attempt.id: _course(attempt) for attempt in effects.attempts.values()})

    FastWorld(settings, CALM.hosts(seed), CALM.arrivals(seed), observe).run()
    return jobs, attempts


def _course(attempt: Any) -> tuple[object, ...]:
    return attempt.worker, attempt.dispatched_at, attempt.ended_at, attempt.state, attempt.accepted


def _python(script: str, hash_seed: str) -> str:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout
