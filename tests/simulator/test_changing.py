"""Machines that come and go: leases, lost attempts, and attempts that are adopted again."""

import math
from itertools import pairwise
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Attempt, Job
from loopline_master.core.kernel.invariants import check
from loopline_shared.model import Facts, JobState, Order
from loopline_shared.spec import JobSpec, TaskSpec
from loopline_simulator.fast.availability import (
    Absence,
    Interrupted,
    Interval,
    Piecewise,
    Recurring,
    absences,
    alternating,
    merged,
)
from loopline_simulator.fast.changing_world import ChangingWorld
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.world import Arrival, FastWorld, Host
from loopline_simulator.streams import stream

SETTINGS = SchedulerSettings(policy="first-come", order=Order.NONE, lease_s=10.0, max_replicas=1)


def facts(speed: float = 1.0, slots: int = 1) -> Facts:
    return Facts("linux", "x86_64", "3.11", "0", "model", cpus=slots, memory_bytes=10**9, slots=slots, speed=speed)


def job(*sizes: float) -> JobSpec:
    return JobSpec(command=["work"], tasks=[TaskSpec(size=size) for size in sizes])


class Watch:
    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.attempts: dict[str, Attempt] = {}

    def __call__(self, effects: Effects) -> None:
        self.jobs |= effects.jobs
        self.attempts |= {str(attempt.id): attempt for attempt in effects.attempts.values()}


def run(hosts, arrivals, stays, absence=Absence.LOSES, settings=SETTINGS):
    watch = Watch()
    world = ChangingWorld(settings, hosts, arrivals, watch, stays=stays, absence=absence)
    world.run()
    assert not check(world.scheduler.state)
    return world, watch


def test_lost_attempt_runs_elsewhere_when_its_lease_ends():
    hosts = [Host("ant", facts(), Steady(1.0)), Host("bee", facts(), Steady(1.0))]
    stays = {"ant": [Interval(0.0, 20.0)], "bee": [Interval(5.0, math.inf)]}
    _, watch = run(hosts, [Arrival(0.0, job(100.0))], stays)
    assert watch.attempts["1.1.1"].worker == "ant"
    assert watch.attempts["1.1.2"].worker == "bee"
    lost_at = watch.attempts["1.1.2"].dispatched_at
    assert 20.0 < lost_at <= 30.0  # by then its last report is a lease old
    assert watch.jobs[1].finished_at == lost_at + 100.0


@pytest.mark.parametrize(
    ("absence", "end"), [(Absence.LOSES, 160.0), (Absence.SLEEPS, 140.0), (Absence.WORKS, 100.0)]
)
def test_attempt_has_the_chosen_fate_while_its_machine_is_away(absence, end):
    stays = [Interval(0.0, 20.0), Interval(60.0, math.inf)]
    speed = Interrupted(Steady(1.0), absences(stays)) if absence is Absence.SLEEPS else Steady(1.0)
    _, watch = run([Host("ant", facts(), speed)], [Arrival(0.0, job(100.0))], {"ant": stays}, absence)
    assert watch.jobs[1].finished_at == pytest.approx(end)


def test_a_result_is_brought_when_the_link_is_back():
    stays = [Interval(0.0, 2.0), Interval(60.0, math.inf)]
    _, watch = run([Host("ant", facts(), Steady(1.0))], [Arrival(0.0, job(30.0))], {"ant": stays}, Absence.WORKS)
    assert watch.jobs[1].finished_at == 60.0
    assert list(watch.attempts) == ["1.1.1"]


def test_machines_that_stay_are_never_taken_for_silent():
    hosts = [Host(name, facts(), Steady(1.0)) for name in ("ant", "bee")]
    _, watch = run(hosts, [Arrival(0.0, job(500.0, 70.0, 1.0))], {})
    assert [a.wall_s for a in watch.attempts.values()] == [500.0, 70.0, 1.0]
    assert watch.jobs[1].finished_at == 500.0


def test_without_absences_it_is_the_fast_world():
    def ends(kind):
        watch = Watch()
        hosts = [Host(f"h{n}", facts(), Steady(1.0 + n)) for n in range(5)]
        arrivals = [Arrival(7.0 * n, job(*(3.0 + (n * k) % 11 for k in range(9)))) for n in range(12)]
        kind(SchedulerSettings(lease_s=1e9), hosts, arrivals, watch).run()
        return [job.finished_at for job in watch.jobs.values()]

    assert ends(ChangingWorld) == ends(FastWorld)


def test_world_without_further_events_ends():
    needy = JobSpec(command=["work"], size=1.0, requires={"os": "windows"})
    world, watch = run([Host("ant", facts(), Steady(1.0))], [Arrival(0.0, needy)], {})
    assert watch.jobs[1].state is JobState.QUEUED
    assert world.kernel.now < 1000
    gone, left = run([Host("ant", facts(), Steady(1.0))], [Arrival(0.0, job(9.0))], {"ant": [Interval(0.0, 4.0)]})
    assert left.jobs[1].state is JobState.RUNNING
    assert gone.kernel.now < 1000


@pytest.mark.parametrize("absence", [Absence.LOSES, Absence.WORKS])
def test_many_machines_that_come_and_go_at_random_complete_everything(absence):
    settings = SchedulerSettings(lease_s=5.0, stall_after_s=20.0)
    hosts = [Host(f"h{n}", facts(slots=1 + n % 2), Steady(1.0)) for n in range(8)]
    stays = {host.name: alternating(stream(3, host.name), 60.0, 20.0) for host in hosts}
    arrivals = [Arrival(10.0 * n, job(*[5.0 + n % 7] * 10)) for n in range(20)]
    _, watch = run(hosts, arrivals, stays, absence, settings)
    assert [job.state for job in watch.jobs.values()] == [JobState.SUCCEEDED] * 20
    assert sum(attempt.state == "lost" for attempt in watch.attempts.values()) > 0


# --- speeds -------------------------------------------------------------------------------------------------

numbers = st.floats(0.0, 50.0).map(lambda x: round(x, 2))
speeds = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=6)


@given(speeds, numbers, st.floats(0.01, 60.0))
def test_a_piecewise_speed_ends_where_its_integral_says(values, start, work):
    speed = Piecewise([3.0 * place for place in range(len(values))], values)
    end = speed.end_of(start, work)
    if end == math.inf:
        assert values[-1] == 0
        assert speed.work_between(start, 1000.0) < work
    else:
        assert speed.work_between(start, end) == pytest.approx(work)
        assert speed.work_between(start, (start + end) / 2) <= work + 1e-9


@given(speeds, st.floats(0.0, 19.0), numbers, st.floats(0.01, 60.0))
def test_a_past_that_is_lived_again_and_again(values, begin, start, work):
    past = Piecewise([3.0 * place for place in range(len(values))], values)
    speed = Recurring(past, begin, 20.0)
    end = speed.end_of(start, work)
    if past.work_between(0.0, 20.0) == 0:
        assert end == math.inf
        return
    assert speed.work_between(start, end) == pytest.approx(work)
    assert speed.work_between(0.0, 20.0 - begin) == pytest.approx(past.work_between(begin, 20.0))
    assert speed.work_between(start, start + 20.0) == pytest.approx(past.work_between(0.0, 20.0))


def test_speed_drawn_from_past_blocks_has_its_mean_and_variance():
    """Slow and fast for 40 s in turn; a block is 20 s long."""
    past = Piecewise([40.0 * place for place in range(10)], [1.0 + 2.0 * (place % 2) for place in range(10)])
    starts = [stream(seed, "past").uniform(0.0, 400.0, 20) for seed in range(200)]
    drawn = [past.of_blocks(each, 20.0, 400.0) for each in starts]
    works = [one.work_between(0.0, 400.0) for one in drawn]
    assert fmean(works) == pytest.approx(past.work_between(0.0, 400.0), rel=0.02)
    assert 40.0 < pstdev(works) < 100.0, "20 blocks, most of them slow or fast"
    for number, start in enumerate(starts[0]):
        rest = min(20.0, 400.0 - start)
        expected = past.work_between(start, start + rest) + past.work_between(0.0, 20.0 - rest)
        assert drawn[0].work_between(20.0 * number, 20.0 * (number + 1)) == pytest.approx(expected)


intervals = st.lists(st.tuples(numbers, numbers).map(lambda ends: Interval(*sorted(ends))), max_size=6)


@given(intervals, st.sampled_from([0.0, 0.25, 1.0]), numbers, st.floats(0.01, 60.0))
def test_an_interrupted_speed_ends_where_its_integral_says(given_, share, start, work):
    away = merged(given_)
    speed = Interrupted(Steady(2.0), away, share)
    end = speed.end_of(start, work)
    assert speed.work_between(start, end) == pytest.approx(work)
    inside = sum(max(0.0, min(end, gap.end) - max(start, gap.start)) for gap in away)
    assert work == pytest.approx(2.0 * (end - start - inside * (1 - share)))


@given(intervals)
def test_stays_and_absences_are_all_there_is(given_):
    stays = merged(given_)
    gaps = absences(stays)
    assert merged([*stays, *gaps]) == [Interval(-math.inf, math.inf)]
    assert all(stay.end <= other.start for stay, other in pairwise(stays))
    covered = {x for low, high in ((i.start, i.end) for i in given_) for x in (low,) if low < high}
    assert all(any(stay.start <= x < stay.end for stay in stays) for x in covered)


def test_random_stays_have_the_share_they_should():
    stays = alternating(stream(1, "share"), 300.0, 100.0)
    there, last = 0.0, Interval(0.0, 0.0)
    for _ in range(20_000):
        last = next(stays)
        there += last.end - last.start
    assert there / last.end == pytest.approx(0.75, abs=0.01)
