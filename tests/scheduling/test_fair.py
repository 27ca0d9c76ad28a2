"""Policy fair: its lookup structures against their definitions, and its decisions."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.estimates.measure import quarters_of, speed_of
from loopline_master.core.kernel.index.job_order import VirtualTime
from loopline_master.core.kernel.index.sorted_collections import IntervalSet
from loopline_master.core.policies.fair_index import BySize, Capacity
from loopline_shared.model import AttemptId, Load, Order, Outcome, TaskId
from loopline_shared.spec import JobSpec, TaskSpec
from tests.campaign import PATIENT, tried
from tests.scheduling.driver import Grid, facts, result

sizes = st.lists(st.sampled_from([1.0, 2.0, 2.0, 3.5, 10.0]), min_size=1, max_size=12)


# --- lookup structures ---------------------------------------------------------------------------------


@given(sizes=sizes, data=st.data())
def test_by_size_finds_the_largest_size_within_a_limit(sizes: list[float], data: st.DataObject) -> None:
    numbers = st.integers(1, len(sizes))
    index, startable = BySize(sizes), set(data.draw(st.sets(numbers)))
    index.place_all(IntervalSet.of(startable))
    for number, present in data.draw(st.lists(st.tuples(numbers, st.booleans()))):
        index.place(number, present)
        startable = startable | {number} if present else startable - {number}
    but, limit = data.draw(st.none() | numbers), data.draw(st.sampled_from([0.5, 1.0, 2.0, 5.0, 99.0]))
    wanted = sorted((sizes[n - 1], n) for n in startable if n != but)
    fitting = [number for size, number in wanted if size <= limit]
    assert index.largest(limit, but) == (fitting[-1] if fitting else None)
    assert index.smallest(but) == (wanted[0][1] if wanted else None)
    assert index.work == pytest.approx(sum(sizes[n - 1] for n in startable))


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.floats(0.01, 100), st.integers(0, 4)), max_size=30))
def test_capacity_is_halved_at_the_median_speed(changes: list[tuple[str, float, int]]) -> None:
    capacity, there = Capacity(), dict[str, tuple[float, int]]()
    for worker, speed, slots in changes:
        capacity.place(worker, speed, slots)
        there[worker] = (speed, slots)
    total = sum(speed * slots for speed, slots in there.values())
    assert capacity.total == pytest.approx(total, abs=1e-4)
    if total:
        at_least = [sum(s * n for s, n in there.values() if s >= speed) for speed in (capacity.median, 2 ** (1 / 16))]
        faster = sum(s * n for s, n in there.values() if s >= capacity.median * 2 ** (1 / 16))
        assert at_least[0] >= total / 2 - 1e-4, "those at least as fast deliver half"
        assert faster <= total / 2 + 1e-4, "a greater speed would not, to a sixteenth of a factor of two"


@given(tags=st.lists(st.integers(1, 50), max_size=10), clock=st.integers(0, 30), work=st.integers(1, 400))
def test_virtual_clock_shares_work_among_later_tags(tags: list[int], clock: int, work: int) -> None:
    index = VirtualTime()
    for job, tag in enumerate(tags):
        index.put(job, float(tag))
    expected, left = float(clock), float(work)
    while left > 1e-9 and (ahead := [tag for tag in tags if tag > expected]):
        step = min(left / len(ahead), min(ahead) - expected)
        expected, left = expected + step, left - step * len(ahead)
    assert index.after(float(clock), float(work)) == pytest.approx(expected)


# --- measured speeds --------------------------------------------------------------------------------


def test_speeds_are_measured_from_finished_attempts() -> None:
    """Two workers have the same benchmark, but one proves to be four times as fast."""
    grid = Grid(policy="fair")
    grid.workers("fast", "slow")
    for number in range(20):
        grid.submit(2, 200.0)
        for attempt, wall_s in ((grid.running("slow"), 100.0), (grid.running("fast"), 25.0)):
            grid.report(
                "slow" if wall_s == 100.0 else "fast", *[result(a, wall_s=wall_s) for a in attempt]
            ) if number else grid.end(attempt[0], wall_s=wall_s)
    state = grid.scheduler.state
    fast, slow = (speed_of(state.workers[name]) for name in ("fast", "slow"))
    assert fast / slow == pytest.approx(4.0, rel=0.15)
    assert slow <= 1.0 <= fast, "their mean is that of their benchmarks"


def test_measured_speed_survives_a_restart() -> None:
    grid = known(4.0, 1.0)
    before = speed_of(grid.scheduler.state.workers["w0"])
    grid.restart()
    assert speed_of(grid.scheduler.state.workers["w0"]) == before
    assert before > 1.5 * speed_of(grid.scheduler.state.workers["w1"])


# --- decisions --------------------------------------------------------------------------------------------


def known(*speeds: float) -> Grid:
    """Workers w0, w1, ... with measured speeds."""
    grid = Grid(policy="fair", lease_s=1e9)
    grid.workers(*(f"w{place}" for place in range(len(speeds))))
    state = grid.scheduler.state
    for place, speed in enumerate(speeds):
        worker = state.workers[f"w{place}"]
        worker.work_done, worker.work_s = 4000.0, 4000.0 / speed
        state.put(worker)
    grid.step()
    return grid


def of_sizes(*sizes: float) -> JobSpec:
    return JobSpec(command=["work"], tasks=[TaskSpec(size=size) for size in sizes])


def test_new_job_starts_first_on_an_idle_worker() -> None:
    grid = Grid(policy="fair")
    long = grid.submit(50, 5000.0)
    grid.workers("a", "b")
    grid.submit(10, 1000.0)
    assert grid.job(long).running == 2
    grid.end(grid.running("a")[0], wall_s=100.0)
    assert grid.running("a")[0].job == 2, "a job that has never run comes first"


def test_largest_tasks_start_first_and_slow_workers_serve_later_jobs() -> None:
    grid = known(4.0, 0.1)
    first = grid.submit_spec(of_sizes(10.0, 40.0, 20.0, 30.0))
    second = grid.submit(40, 4000.0)
    assert grid.running("w0") == [AttemptId(first, 2, 1)]
    assert {attempt.job for attempt in grid.running("w1")} <= {first, second}
    order = []
    while grid.job(first).is_live:
        attempt = grid.running("w0")[0]
        order.append(attempt.task) if attempt.job == first else None
        grid.end(attempt, wall_s=10.0)
        if grid.running("w1") and grid.running("w1")[0].job == first:
            grid.end(grid.running("w1")[0], wall_s=100.0)
    assert [of for of in order if of != 1] == [2, 4, 3], "largest first"


@pytest.mark.parametrize("left", [0.5, 0.25])
def test_speed_of_a_worker_depends_on_its_spare_cpu(left: float) -> None:
    grid = known(1.0, 0.9)
    grid.report("w0", spare_cpu=left)
    grid.submit(1, 10.0)
    assert (len(grid.running("w0")), len(grid.running("w1"))) == (0, 1)


@pytest.mark.parametrize(
    ("slots", "spare", "quarters"), [(1, 1.0, 4), (2, 1.0, 2), (4, 1.0, 1), (2, 3.0, 4), (0, 0.5, 2)]
)
def test_spare_cpu_is_shared_by_the_offered_slots(slots: int, spare: float, quarters: int) -> None:
    assert quarters_of(Load(slots, spare), slots) == quarters


def test_straggler_is_replicated_on_a_worker_that_finishes_much_sooner() -> None:
    grid = known(1.0, 1.0)
    job = grid.submit_spec(of_sizes(100.0, 100.0))
    late, soon = grid.running("w0")[0], grid.running("w1")[0]
    grid.now += 100
    grid.end(soon, wall_s=100.0)
    assert grid.attempts_of(late.task_id) == [late], "not late yet: a replica would gain nothing"
    grid.now += 600
    grid.report("w1")
    assert grid.attempts_of(late.task_id) == [late, AttemptId(job, late.task, 2)]
    grid.now += 100
    grid.end(AttemptId(job, late.task, 2), wall_s=100.0)
    assert late in grid.agents["w0"].killed


def test_straggler_is_not_replicated_for_a_small_gain() -> None:
    grid = known(1.0, 1.0)
    grid.submit_spec(of_sizes(100.0, 350.0))
    short = next(grid.running(name)[0] for name in grid.agents if grid.running(name)[0].task == 1)
    grid.now += 100
    grid.end(short, wall_s=100.0)
    assert len(grid.scheduler.state.index.attempts.used) == 1, "the other has 250 s left, a replica would take 350 s"


def test_straggler_is_not_replicated_if_its_job_ends_later_anyway() -> None:
    grid = known(1.0, 1.0, 1.0)
    job = grid.submit_spec(of_sizes(200.0, 10.0))
    for waited, attempts in ((103, 1), (5, 2)):
        grid.now += waited
        for name in grid.agents:
            grid.report(name)
        assert len(grid.attempts_of(TaskId(job, 2))) == attempts, (
            f"after {grid.now - 1000:g} s: the job may last 105 s more"
        )


def test_task_has_at_most_two_live_attempts() -> None:
    grid = Grid(policy="fair", max_replicas=None, lease_s=1e9)
    grid.workers("a", "b", "c", "d")
    grid.submit(1, 10.0)
    for _ in range(5):
        grid.now += 10_000
        for name in grid.agents:
            grid.report(name)
    assert len(grid.attempts_of(TaskId(1, 1))) == 2


def test_smallest_task_is_held() -> None:
    """Holding the smallest task costs least."""
    grid = Grid(policy="fair", max_replicas=1)
    grid.join("a")
    grid.submit(1, 90.0)
    later = grid.submit_spec(of_sizes(50.0, 10.0, 40.0))
    grid.workers("b", "c")
    started = {attempt.task for name in "abc" for attempt in grid.running(name) if attempt.job == later}
    assert started == {1, 3}
    assert grid.scheduler.state.fresh[later].pairs() == [(2, 3)]


def test_jobs_of_unknown_size_are_served() -> None:
    grid = Grid(policy="fair")
    grid.workers("a", "b")
    for _ in range(3):
        grid.submit(4)
    while running := [attempt for name in grid.agents for attempt in grid.running(name)]:
        grid.end(running[0], wall_s=5.0)
        for name in grid.agents:
            if grid.agents[name].killed:
                grid.report(name)
    assert not grid.scheduler.state.jobs


@settings(PATIENT, max_examples=tried(8, 500))
@given(st.integers(0, 10**6))
def test_decisions_depend_on_rows_alone(seed: int) -> None:
    """A restarted master decides like one that kept running."""
    chance = random.Random(seed)
    grid = Grid(policy="fair")
    grid.workers("a", "b", "c", slots=2)
    for _ in range(chance.randint(1, 4)):
        grid.submit_spec(of_sizes(*(float(chance.randint(1, 9)) for _ in range(chance.randint(1, 6)))))
    for _ in range(12):
        running = [(name, attempt) for name in grid.agents for attempt in grid.running(name)]
        if not running:
            break
        grid.now += chance.random() * 10
        name, attempt = chance.choice(running)
        grid.report(name, result(attempt, wall_s=chance.random() * 9))
        twin = type(grid.scheduler)(grid.store.snapshot())
        twin.set_policy(grid.settings)
        assert twin.state.policy_index == grid.scheduler.state.policy_index


# --- regressions ---------------------------------------------------------------------------------------


def silent(*names: str, **chosen: object) -> Grid:
    grid = Grid(policy="fair", lease_s=1e9, **chosen)
    grid.workers(*names)
    return grid


def test_job_behind_a_hundred_running_jobs_is_served() -> None:
    grid = silent(*(f"w{number}" for number in range(101)))
    for number in range(101):
        grid.submit(1, 2000.0 - number)
    last = grid.submit(20, 20_000.0)
    grid.workers("x", "y", "z")
    assert grid.job(last).running == 3


def test_slow_worker_gets_work_although_a_faster_one_will_be_free() -> None:
    grid = known(1.0, 0.05)
    grid.submit(1, 36_000.0, max_replicas=1)
    job = grid.submit(10, 600.0, max_replicas=1)
    for _ in range(130):
        grid.now += 10
        grid.report("w1")
    assert [attempt.job for attempt in grid.running("w1")] == [job]


@pytest.mark.parametrize(("straggler", "other"), ["ab", "ba"])
def test_worker_that_runs_a_straggler_keeps_no_other_from_replicating_it(straggler: str, other: str) -> None:
    grid = Grid(policy="fair", lease_s=1e9)
    grid.workers(straggler, slots=8)
    grid.submit(1, 100.0)
    grid.workers(other)
    for _ in range(50):
        grid.now += 100
        grid.report(straggler)
        grid.report(other)
    assert grid.running(other) == [AttemptId(1, 1, 2)]


@pytest.mark.parametrize("wrong", [(1e12, 1.0, 1.0), (1e15, 0.0, 1e-6)])
def test_one_wrong_size_or_benchmark_does_no_lasting_harm(wrong: tuple[float, float, float]) -> None:
    size, wall_s, speed = wrong
    grid = Grid(policy="fair", lease_s=1e9)
    grid.join("a", replace(facts(), speed=speed))
    grid.submit(1, size)
    grid.end(grid.running("a")[0], wall_s=wall_s)
    grid.join("b")
    for _ in range(30):
        grid.submit(2, 20.0)
        while running := [attempt for name in "ab" for attempt in grid.running(name)]:
            grid.end(running[0], wall_s=10.0)
    state = grid.scheduler.state
    assert speed_of(state.workers["b"]) == pytest.approx(1.0, rel=0.9)


def test_tag_of_a_retried_job_counts_only_its_unfinished_tasks() -> None:
    grid = silent("a")
    job = grid.submit(4, 400.0, max_attempts=1)
    for _ in range(3):
        grid.end(grid.running("a")[0], wall_s=100.0)
    grid.end(grid.running("a")[0], Outcome.FAILED)
    grid.step(grid.retry_event(job))
    assert grid.job(job).tag - grid.store.grid.virtual == pytest.approx(100.0)


def test_virtual_clock_restarts_when_the_grid_is_empty() -> None:
    grid = silent("a")
    for _ in range(3):
        grid.submit(1, 1e15)
        grid.end(grid.running("a")[0], wall_s=10.0)
    grid.submit(1, 2.0)
    assert grid.job(4).tag == 2.0


def test_large_job_among_small_ones_ends_by_its_fair_sharing_time() -> None:
    """Two small jobs are always present: the large one has a third of the capacity and ends as under fair sharing."""
    grid = Grid(policy="fair", lease_s=1e9, max_replicas=1, order=Order.NONE)
    grid.workers("a", "b")
    large, began = grid.submit(30, 300.0), grid.now
    small = [grid.submit(4, 40.0) for _ in range(2)]
    while grid.job(large).is_live and grid.now < began + 2000.0:
        grid.now += 10.0
        for name in ("a", "b"):
            grid.end(grid.running(name)[0], wall_s=10.0, cpu_s=10.0)
        small = [job if grid.job(job).is_live else grid.submit(4, 40.0) for job in small]
    shared_s = 300.0 / (2 / 3)  # its work, by its share of two workers
    assert not grid.job(large).is_live, "the large job starves"
    assert grid.now - began <= 1.25 * shared_s, "each new job starts one task at once, in addition"
