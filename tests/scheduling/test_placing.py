"""Policies that choose a worker for the next task: turnaround, and the paper's alternatives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.chance import draw
from loopline_master.core.estimates import measure
from loopline_master.core.kernel import placement
from loopline_master.core.kernel.entities import Attempt, Job
from loopline_master.core.policies.policy import View
from loopline_master.core.policies.task_first import ReadyTask, WorkerIndex
from loopline_master.core.policies.turnaround import Turnaround
from loopline_shared.model import AttemptId, AttemptState, Load, Order
from tests.campaign import PATIENT, tried
from tests.scheduling.driver import Grid, facts, result, spec

ALTERNATIVES = ["random", "cyclic", "shortest-queue", "most-throughput"]


def grid_of(policy: str, speeds: dict[str, float], slots: int = 1, **chosen: Any) -> Grid:
    """A grid without an order guarantee, so that no task is held."""
    grid = Grid(policy=policy, lease_s=1e6, order=Order.NONE, **chosen)
    for name, speed in speeds.items():
        grid.join(name, replace(facts(slots), speed=speed))
    return grid


def far(grid: Grid, name: str, delay_s: float) -> None:
    """Its network is slow."""
    worker = grid.scheduler.state.workers[name]
    worker.load = replace(worker.load or Load(1), delay_s=delay_s)
    grid.scheduler.state.put(worker)
    grid.scheduler.state.flush()


def place_of(grid: Grid, job: int) -> list[str]:
    return [a.worker for a in grid.scheduler.state.attempts.values() if a.job == job]


def waits(grid: Grid, name: str) -> list[AttemptId]:
    return [a.id for a in grid.scheduler.state.attempts.values() if a.worker == name and a.is_queued]


# --- turnaround -------------------------------------------------------------------------------------------------


def test_task_goes_to_the_worker_that_finishes_it_first() -> None:
    grid = grid_of("turnaround", {"slow": 1.0, "fast": 4.0, "middle": 2.0})
    assert place_of(grid, grid.submit(1, 8.0)) == ["fast"]
    assert place_of(grid, grid.submit(1, 8.0)) == ["middle"]
    assert place_of(grid, grid.submit(1, 8.0)) == ["slow"]


def test_waiting_task_stays_where_a_distant_worker_is_idle() -> None:
    """The step that places a task must not undo that: 2 s here, 101 s there."""
    grid = grid_of("turnaround", {"near": 1.0, "far": 1.0}, prefetch_s=100.0)
    far(grid, "far", 100.0)
    job = grid.submit(2, 2.0)
    assert [(a.worker, a.state) for a in grid.scheduler.state.attempts.values() if a.job == job] == [
        ("near", AttemptState.DISPATCHED),
        ("near", AttemptState.PREFETCHED),
    ]


@settings(PATIENT, max_examples=tried(60))
@given(
    speeds=st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=2, max_size=4),
    delays=st.lists(st.sampled_from([0.0, 0.03, 1.0, 20.0]), min_size=4, max_size=4),
    count=st.integers(1, 6),
    each=st.sampled_from([0.2, 1.0, 10.0]),
)
def test_step_moves_no_task_that_it_has_placed(
    speeds: list[float], delays: list[float], count: int, each: float
) -> None:
    """The second decision weighs the same terms as the first (paper: T = J/c + D + W + R)."""
    grid = grid_of("turnaround", {f"w{number}": speed for number, speed in enumerate(speeds)}, prefetch_s=100.0)
    for number, delay_s in enumerate(delays[: len(speeds)]):
        far(grid, f"w{number}", delay_s)
    with pytest.MonkeyPatch.context() as patch:
        moved = list[Attempt]()
        patch.setattr(placement, "_move", lambda state, attempt, worker: moved.append(attempt))
        grid.submit(count, count * each)
    assert not moved


def test_network_delay_counts() -> None:
    grid = grid_of("turnaround", {"near": 1.0, "far": 1.1})
    far(grid, "far", 5.0)
    assert place_of(grid, grid.submit(1, 2.0)) == ["near"], "2 s here, 1.8 + 5 s there"
    grid = grid_of("turnaround", {"near": 1.0, "far": 1.1})
    far(grid, "far", 5.0)
    assert place_of(grid, grid.submit(1, 100.0)) == ["far"], "100 s here, 90.9 + 5 s there"


def test_task_waits_for_a_fast_worker_if_that_is_sooner() -> None:
    grid = grid_of("turnaround", {"fast": 8.0}, prefetch_s=1.0)
    grid.submit(1, 80.0)  # 10 s there
    grid.join("slow", facts())
    short, long = grid.submit(1, 4.0), grid.submit(1, 40.0)
    assert place_of(grid, short) == ["slow"], "4 s there; 10 + 0.5 s on the fast one"
    assert place_of(grid, long) == ["fast"], "10 + 5 s there; 4 + 40 s on the slow one"
    assert [a.job for a in waits(grid, "fast")] == [long]


def test_late_task_is_expected_to_take_as_long_again() -> None:
    grid = grid_of("turnaround", {"late": 1.0, "slow": 0.25}, prefetch_s=1.0)
    first = grid.submit(1, 10.0)
    assert place_of(grid, first) == ["late"]
    grid.now += 40.0
    assert place_of(grid, grid.submit(1, 4.0)) == ["slow"], "16 s there; 30 + 4 s on the late worker"


def test_slow_worker_is_used_if_tasks_may_not_wait() -> None:
    grid = grid_of("turnaround", {"fast": 8.0, "slow": 1.0})
    job = grid.submit(2, 80.0)
    assert sorted(place_of(grid, job)) == ["fast", "slow"]


def test_choice_among_equal_workers_is_random_and_survives_a_restart() -> None:
    speeds = dict.fromkeys("abcdefgh", 1.0)
    places = []
    for _ in range(2):
        grid = grid_of("turnaround", speeds)
        jobs = [grid.submit(1, float(10 - number)) for number in range(8)]
        places.append([place_of(grid, job)[0] for job in jobs])
    assert places[0] == places[1]
    assert places[0] != sorted(places[0]), "not ordered by name"
    assert len(set(places[0])) == 8


def test_size_is_learned_from_earlier_runs() -> None:
    """Without sizes: after some runs, the short program no longer goes to the fast but distant worker."""
    grid = grid_of("turnaround", {"fast": 4.0, "slow": 1.0})
    far(grid, "fast", 6.0)
    for _ in range(6):
        for name, wall_s in (("short", 1.0), ("long", 100.0)):
            grid.submit(1, name=name)
            worker = next(name for name in grid.agents if grid.running(name))
            grid.end(grid.running(worker)[0], wall_s=wall_s / (4.0 if worker == "fast" else 1.0))
            far(grid, "fast", 6.0)
    assert place_of(grid, grid.submit(1, name="short")) == ["slow"]
    assert place_of(grid, grid.submit(1, name="long")) == ["fast"]


@pytest.mark.parametrize(("share", "place"), [(1.0, "slow"), (0.2, "fast")])
def test_owner_slows_down_only_programs_that_need_more_than_is_spare(share: float, place: str) -> None:
    """Half of the fast worker is spare: too little for a program that computes, enough for one that mostly sleeps."""
    grid = grid_of("turnaround", {"fast": 4.0, "slow": 3.0})
    for _ in range(3):
        grid.submit(1, 40.0, name="program")
        grid.end(grid.running("fast")[0], wall_s=10.0, cpu_s=10.0 * share)
    owner_leaves(grid, "fast", 0.5)
    assert place_of(grid, grid.submit(1, 40.0, name="program")) == [place]


@dataclass(frozen=True)
class Term:
    """One worker's row in the table of terms of T = J / c + D + W + R."""

    name: str
    speed: float  # by its benchmark and its finished tasks
    left: float  # share of its slot that its owner leaves spare now
    delay_s: float
    began_s: float | None  # seconds ago that a task of 60 s started there; None: its slot is free
    waits_s: tuple[float, ...]  # expected times of the tasks prefetched there
    run_s: float  # J / c for J = 24
    until_s: float  # W + R: until its slot is free, plus the tasks already waiting there

    @property
    def total_s(self) -> float:
        return self.run_s + self.delay_s + self.until_s


TABLE = [
    Term("free", 1.0, 1.0, 0.0, None, (), run_s=24.0, until_s=0.0),
    Term("fast", 4.0, 1.0, 0.0, None, (), run_s=6.0, until_s=0.0),
    Term("far", 4.0, 1.0, 5.0, None, (), run_s=6.0, until_s=0.0),
    Term("owned", 4.0, 0.5, 0.0, None, (), run_s=12.0, until_s=0.0),
    Term("taken", 4.0, 0.1, 0.0, None, (), run_s=24.0, until_s=0.0),  # at least a quarter is assumed to be spare
    Term("busy", 8.0, 1.0, 0.0, 40.0, (), run_s=3.0, until_s=20.0),
    Term("late", 8.0, 1.0, 0.0, 70.0, (), run_s=3.0, until_s=10.0),
    Term("laden", 8.0, 1.0, 2.0, 50.0, (4.0, 5.0), run_s=3.0, until_s=19.0),
    Term("both", 8.0, 0.5, 1.0, 59.0, (7.0,), run_s=6.0, until_s=8.0),
]


def worker_of(row: Term) -> Grid:
    """Return a grid with only this worker, in the state of the row."""
    grid = grid_of("turnaround", {row.name: row.speed}, prefetch_s=1.0)
    owner_leaves(grid, row.name, row.left)
    if row.began_s is not None:
        grid.submit(1, 60.0 * row.speed * row.left)
        grid.now += row.began_s
        grid.step()
        for wait_s in row.waits_s:
            grid.submit(1, wait_s * row.speed * row.left)
    far(grid, row.name, row.delay_s)
    return grid


def owner_leaves(grid: Grid, name: str, left: float) -> None:
    worker = grid.scheduler.state.workers[name]
    assert worker.load is not None
    worker.load = replace(worker.load, spare_cpu=left)
    grid.scheduler.state.put(worker)
    grid.scheduler.state.flush()


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_turnaround_is_the_papers_term_by_term(row: Term) -> None:
    grid = worker_of(row)
    state = grid.scheduler.state
    worker = state.workers[row.name]
    view = View(state)
    policy = Turnaround(view)
    (workers,) = policy.index.classes.values()
    (best,) = policy.index.best_of(workers, busy=row.began_s is not None)
    of_24 = Job(9, "user", spec(1, 24.0), 1, 24.0, Order.NONE, 1, 1, 9, grid.now)
    cost = policy.cost(view, ReadyTask(of_24, 1, 24.0), best)
    assert 24.0 / policy.speed(view, worker) == pytest.approx(row.run_s)
    due_s = view.prefetch.free_at(worker) - grid.now if row.began_s is not None else 0.0
    assert abs(due_s) == pytest.approx(row.until_s), "a task late by N seconds is expected to run N seconds more"
    assert cost == pytest.approx(row.total_s, abs=0.011), "rounded to hundredths of a second"


@pytest.mark.parametrize("left", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("policy", ["turnaround", "most-throughput"])
def test_owners_share_counts_once_in_a_learned_speed(policy: str, left: float) -> None:
    """Two equally fast computers; the owner of one has used a share of it during all runs."""
    grid = grid_of(policy, {"a": 1.0, "b": 1.0}, max_replicas=1)
    for _ in range(20):
        owner_leaves(grid, "a", left)
        grid.submit(2, 20.0)
        grid.now += 10.0 / left
        for name, share in (("a", left), ("b", 1.0)):
            said = result(grid.running(name)[0], wall_s=10.0 / share, cpu_s=10.0)
            grid.report(name, said, spare_cpu=share)
    speeds = {name: measure.speed_now(worker) for name, worker in grid.scheduler.state.workers.items()}
    assert speeds["a"] == pytest.approx(left * speeds["b"], rel=0.03)
    job = grid.submit(1, 1.0)
    assert place_of(grid, job) == ["b"] or left == 1.0
    owner_leaves(grid, "a", 1.0)
    worker = grid.scheduler.state.workers["a"]
    assert measure.speed_now(worker) == pytest.approx(speeds["b"], rel=0.03), "when the owner has gone"


# --- the alternatives -------------------------------------------------------------------------------------------


def test_cyclic_chooses_workers_in_turn() -> None:
    grid = grid_of("cyclic", {"b": 1.0, "a": 1.0, "c": 1.0})
    assert [place_of(grid, grid.submit(1, size)) for size in (9.0, 8.0)] == [["a"], ["b"]]
    for name in "ab":
        grid.end(grid.running(name)[0])
    grid.restart()
    for name in "abc":
        grid.join(name)
    assert place_of(grid, grid.submit(1, 7.0)) == ["c"], "the next in turn, even after a restart"
    assert place_of(grid, grid.submit(1, 6.0)) == ["a"]


def test_shortest_queue_chooses_the_fewest_tasks_per_slot() -> None:
    grid = Grid(policy="shortest-queue", lease_s=1e6)
    grid.join("narrow", facts(1))
    grid.join("wide", facts(4))
    assert place_of(grid, grid.submit(1, 9.0)) in (["narrow"], ["wide"])
    grid = Grid(policy="shortest-queue", lease_s=1e6, prefetch_s=1000.0)
    grid.join("narrow", facts(1))
    grid.join("wide", facts(4))
    grid.submit(10, 10.0)
    counts = Counter(a.worker for a in grid.scheduler.state.attempts.values())
    assert counts == {"narrow": 2, "wide": 8}


def test_most_throughput_chooses_the_fastest_unshared_worker() -> None:
    grid = grid_of("most-throughput", {"slow": 1.0, "fast": 3.0}, slots=2)
    job = grid.submit(4, 8.0)
    assert place_of(grid, job) == ["fast", "fast", "slow", "slow"]


def test_random_policy_is_uniform_in_the_long_run() -> None:
    grid = grid_of("random", dict.fromkeys("abcd", 1.0))
    places: Counter[str] = Counter()
    for _ in range(200):
        (name,) = place_of(grid, grid.submit(1, 1.0))
        places[name] += 1
        grid.end(grid.running(name)[0])
    assert all(30 <= count <= 70 for count in places.values()), places


@pytest.mark.parametrize("policy", ["turnaround", *ALTERNATIVES])
def test_task_of_several_slots_finds_the_worker_that_has_them(policy: str) -> None:
    """Even behind many otherwise equal workers with too few slots."""
    grid = Grid(policy=policy, lease_s=1e6)
    for number in range(50):
        grid.join(f"w{number}", facts(2), reports=False)
        grid.report(f"w{number}", slots=1)
    grid.join("x", facts(2))
    assert place_of(grid, grid.submit(1, 1.0, requires={"slots": 2})) == ["x"]


def test_draws_are_uniform_and_repeatable() -> None:
    drawn = [draw(job, 1, 0) for job in range(1000)]
    assert drawn == [draw(job, 1, 0) for job in range(1000)]
    assert all(0 <= number < 1 for number in drawn)
    assert 0.45 < sum(drawn) / 1000 < 0.55
    assert len({draw(1, 2, 3), draw(3, 2, 1), draw(2, 1, 3), draw(1, 2), draw(1)}) == 5


@pytest.mark.parametrize("policy", ["turnaround", *ALTERNATIVES])
def test_replica_of_a_frozen_task_goes_to_the_same_worker_in_any_join_order(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions must not depend on history, which a restarted master does not know."""
    found = []
    for names in (["x", "y"], ["y", "x"]):
        grid = grid_of(policy, {"frozen": 1.0})
        job = grid.submit(1, 8.0, max_replicas=2)
        for name in names:
            grid.join(name, replace(facts(labels=[name]), speed=0.1))
        assert place_of(grid, job) == ["frozen"]
        with monkeypatch.context() as patch:
            patch.setattr(WorkerIndex, "to_start", lambda index, job: iter(()))  # as behind many others
            grid.report("frozen", frozen=True)
        found.append(place_of(grid, job))
    assert found[0] == found[1]
    assert len(found[0]) == 2


# --- workers with an end time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["round-robin", "first-come", "fair", "turnaround"])
def test_worker_with_an_end_time_gets_only_tasks_that_finish_by_then(policy: str) -> None:
    grid = Grid(policy=policy, order=Order.NONE, prefetch_s=100.0)
    grid.join("w", replace(facts(1), until=grid.now + 60.0))
    long = grid.submit(3, 3 * 40.0)
    assert [attempt.job for attempt in grid.running("w")] == [long], (
        "40 s of the 60 s left; a second task does not fit behind it"
    )
    grid.now += 40.0
    grid.end(grid.running("w")[0], wall_s=40.0, cpu_s=40.0)
    assert not grid.running("w"), "40 s do not fit in 20 s"
    grid.now += 1.0
    grid.submit(1, 10.0)
    assert len(grid.running("w")) == 1, "10 s fit in 19 s"
    grid.join("other", facts(1))
    assert grid.running("other")[0].job == long


@pytest.mark.parametrize("policy", ["round-robin", "first-come", "fair", "turnaround"])
def test_task_of_unknown_size_starts_before_the_end_time(policy: str) -> None:
    grid = Grid(policy=policy)
    grid.join("w", replace(facts(1), until=grid.now + 60.0))
    grid.submit(1)
    assert len(grid.running("w")) == 1
    late = Grid(policy=policy)
    late.join("w", replace(facts(1), until=late.now - 1.0))
    late.submit(1)
    assert not late.running("w")


def test_allocation_runs_replicas_only_for_jobs_that_request_them() -> None:
    for asked, copies in (({}, 0), ({"max_replicas": 2}, 1)):
        grid = Grid(policy="round-robin", max_replicas=2)
        grid.join("own", facts(1))
        grid.submit(1, 10.0, **asked)
        grid.join("paid", replace(facts(1), until=grid.now + 600.0))
        assert len(grid.running("paid")) == copies
