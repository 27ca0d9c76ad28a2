"""Policy fair: what it looks things up in, against plain definitions, and what it decides."""

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


# --- what it looks things up in ---------------------------------------------------------------------------------


@given(sizes=sizes, data=st.data())
def test_by_size_finds_the_largest_that_is_small_enough(sizes: list[float], data: st.DataObject) -> None:
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
        assert faster <= total / 2 + 1e-4, "and no greater speed would do, to a sixteenth of a factor of two"


@given(tags=st.lists(st.integers(1, 50), max_size=10), clock=st.integers(0, 30), work=st.integers(1, 400))
def test_the_clock_shares_work_among_the_tags_ahead(tags: list[int], clock: int, work: int) -> None:
    index = VirtualTime()
    for job, tag in enumerate(tags):
        index.put(job, float(tag))
    expected, left = float(clock), float(work)
    while left > 1e-9 and (ahead := [tag for tag in tags if tag > expected]):
        step = min(left / len(ahead), min(ahead) - expected)
        expected, left = expected + step, left - step * len(ahead)
    assert index.after(float(clock), float(work)) == pytest.approx(expected)


# --- what finished attempts show --------------------------------------------------------------------------------


def test_speeds_are_measured() -> None:
    """Two workers of the same benchmark; one turns out to be four times as fast as the other."""
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
    assert slow <= 1.0 <= fast, "what both hang on is their benchmark"


def test_what_was_measured_survives_a_restart() -> None:
    grid = known(4.0, 1.0)
    before = speed_of(grid.scheduler.state.workers["w0"])
    grid.restart()
    assert speed_of(grid.scheduler.state.workers["w0"]) == before
    assert before > 1.5 * speed_of(grid.scheduler.state.workers["w1"])


# --- what it decides --------------------------------------------------------------------------------------------


def known(*speeds: float) -> Grid:
    """Workers w0, w1, ... whose speeds have been seen."""
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


def test_every_job_is_started_at_once_if_a_worker_is_idle() -> None:
    grid = Grid(policy="fair")
    long = grid.submit(50, 5000.0)
    grid.workers("a", "b")
    grid.submit(10, 1000.0)
    assert grid.job(long).running == 2
    grid.end(grid.running("a")[0], wall_s=100.0)
    assert grid.running("a")[0].job == 2, "a job that has never run comes first"


def test_large_tasks_come_first_and_slow_workers_work_for_jobs_further_back() -> None:
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
    assert [of for of in order if of != 1] == [2, 4, 3], "by size, falling"


@pytest.mark.parametrize("left", [0.5, 0.25])
def test_a_worker_is_as_fast_as_its_owner_leaves_it(left: float) -> None:
    grid = known(1.0, 0.9)
    grid.report("w0", spare_cpu=left)
    grid.submit(1, 10.0)
    assert (len(grid.running("w0")), len(grid.running("w1"))) == (0, 1)


@pytest.mark.parametrize(
    ("slots", "spare", "quarters"), [(1, 1.0, 4), (2, 1.0, 2), (4, 1.0, 1), (2, 3.0, 4), (0, 0.5, 2)]
)
def test_what_an_owner_leaves_is_shared_by_the_slots_that_are_offered(
    slots: int, spare: float, quarters: int
) -> None:
    assert quarters_of(Load(slots, spare), slots) == quarters


def test_a_straggler_is_copied_to_a_worker_that_will_be_much_sooner() -> None:
    grid = known(1.0, 1.0)
    job = grid.submit_spec(of_sizes(100.0, 100.0))
    late, soon = grid.running("w0")[0], grid.running("w1")[0]
    grid.now += 100
    grid.end(soon, wall_s=100.0)
    assert grid.attempts_of(late.task_id) == [late], "not late yet: a copy would bring nothing"
    grid.now += 600
    grid.report("w1")
    assert grid.attempts_of(late.task_id) == [late, AttemptId(job, late.task, 2)]
    grid.now += 100
    grid.end(AttemptId(job, late.task, 2), wall_s=100.0)
    assert late in grid.agents["w0"].killed


def test_no_copy_that_would_bring_little() -> None:
    grid = known(1.0, 1.0)
    grid.submit_spec(of_sizes(100.0, 350.0))
    short = next(grid.running(name)[0] for name in grid.agents if grid.running(name)[0].task == 1)
    grid.now += 100
    grid.end(short, wall_s=100.0)
    assert len(grid.scheduler.state.index.attempts.used) == 1, "250 s are left of the other, a copy would take 350 s"


def test_no_copy_where_the_job_lasts_longer_anyway() -> None:
    grid = known(1.0, 1.0, 1.0)
    job = grid.submit_spec(of_sizes(200.0, 10.0))
    for waited, attempts in ((103, 1), (5, 2)):
        grid.now += waited
        for name in grid.agents:
            grid.report(name)
        assert len(grid.attempts_of(TaskId(job, 2))) == attempts, (
            f"after {grid.now - 1000:g} s: the job may last 105 s more"
        )


def test_no_task_has_more_than_two_attempts() -> None:
    grid = Grid(policy="fair", max_replicas=None, lease_s=1e9)
    grid.workers("a", "b", "c", "d")
    grid.submit(1, 10.0)
    for _ in range(5):
        grid.now += 10_000
        for name in grid.agents:
            grid.report(name)
    assert len(grid.attempts_of(TaskId(1, 1))) == 2


def test_the_held_task_is_the_smallest() -> None:
    """The last to be started is the one whose wait costs least."""
    grid = Grid(policy="fair", max_replicas=1)
    grid.join("a")
    grid.submit(1, 90.0)
    later = grid.submit_spec(of_sizes(50.0, 10.0, 40.0))
    grid.workers("b", "c")
    started = {attempt.task for name in "abc" for attempt in grid.running(name) if attempt.job == later}
    assert started == {1, 3}
    assert grid.scheduler.state.fresh[later].pairs() == [(2, 3)]


def test_jobs_of_unknown_size_are_served_too() -> None:
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
def test_it_decides_from_rows_alone(seed: int) -> None:
    """A master that is started again in the middle goes on as one that was not."""
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


# --- what once went wrong ---------------------------------------------------------------------------------------


def silent(*names: str, **chosen: object) -> Grid:
    grid = Grid(policy="fair", lease_s=1e9, **chosen)
    grid.workers(*names)
    return grid


def test_a_crowd_of_running_jobs_hides_nobody() -> None:
    grid = silent(*(f"w{number}" for number in range(101)))
    for number in range(101):
        grid.submit(1, 2000.0 - number)
    last = grid.submit(20, 20_000.0)
    grid.workers("x", "y", "z")
    assert grid.job(last).running == 3


def test_a_slow_worker_does_not_wait_for_ever_for_faster_ones_to_come_free() -> None:
    grid = known(1.0, 0.05)
    grid.submit(1, 36_000.0, max_replicas=1)
    job = grid.submit(10, 600.0, max_replicas=1)
    for _ in range(130):
        grid.now += 10
        grid.report("w1")
    assert [attempt.job for attempt in grid.running("w1")] == [job]


@pytest.mark.parametrize(("straggler", "other"), ["ab", "ba"])
def test_a_worker_that_runs_the_straggler_itself_bars_nobody_else(straggler: str, other: str) -> None:
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
def test_one_wrong_size_or_benchmark_spoils_nothing(wrong: tuple[float, float, float]) -> None:
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


def test_a_job_that_is_retried_is_served_by_what_is_left_of_it() -> None:
    grid = silent("a")
    job = grid.submit(4, 400.0, max_attempts=1)
    for _ in range(3):
        grid.end(grid.running("a")[0], wall_s=100.0)
    grid.end(grid.running("a")[0], Outcome.FAILED)
    grid.step(grid.retry_event(job))
    assert grid.job(job).tag - grid.store.grid.virtual == pytest.approx(100.0)


def test_the_clock_begins_anew_when_nothing_is_left_to_do() -> None:
    grid = silent("a")
    for _ in range(3):
        grid.submit(1, 1e15)
        grid.end(grid.running("a")[0], wall_s=10.0)
    grid.submit(1, 2.0)
    assert grid.job(4).tag == 2.0


def test_a_large_job_under_a_stream_of_small_ones_ends_by_its_fair_sharing_time() -> None:
    """Two small jobs are always there: the large one has a third of the workers, and ends as if they were shared."""
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
    assert not grid.job(large).is_live, "it starves"
    assert grid.now - began <= 1.25 * shared_s, "every new job has one task started at once, which comes on top"
