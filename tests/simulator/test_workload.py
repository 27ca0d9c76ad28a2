"""Jobs and machines as they are asked for."""

import math
from dataclasses import replace

import numpy as np
import pytest

from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.workload import Arrivals, Sizes, Workload, arrival_times


def test_the_papers_jobs() -> None:
    arrivals = Workload(interval=50.0).of(seed=1)
    assert [arrival.at for arrival in arrivals] == [50.0 * n for n in range(32)]
    sizes = [task.size or 0.0 for task in arrivals[0].spec.tasks or []]
    assert len(sizes) == 128
    assert 200 <= min(sizes) < 215
    assert 585 < max(sizes) <= 600
    assert all(arrival.spec == arrivals[0].spec for arrival in arrivals)
    assert Workload().of(2)[0].spec != arrivals[0].spec


@pytest.mark.parametrize(("sizes", "inside"), [(Sizes.LOGNORMAL, 0.95), (Sizes.LOG_UNIFORM, 1.0)])
def test_unequal_jobs_spread_over_their_decades_and_keep_the_mean(sizes: Sizes, inside: float) -> None:
    workload = Workload(jobs=4000, tasks=1, smallest=400.0, largest=400.0, sizes=sizes, decades=2.0)
    found = np.array([workload.task_sizes(5, number)[0] for number in range(workload.jobs)])
    assert found.mean() == pytest.approx(workload.mean_size, rel=0.07)
    logs = np.log10(found)
    middle = np.median(logs)
    assert np.mean(np.abs(logs - middle) <= 1.03) == pytest.approx(inside, abs=0.012)
    assert np.mean(np.abs(logs - middle) <= 0.5) == pytest.approx(0.5 if inside == 1 else 0.673, abs=0.03)


def test_poisson_arrivals_bring_the_load_asked_for() -> None:
    park = Park()
    interval = Workload().interval_for(0.8, park.capacity)
    workload = Workload(jobs=3000, tasks=1, arrivals=Arrivals.POISSON, interval=interval)
    moments = np.array(list(arrival_times(workload.arrivals, 3, workload.jobs, workload.interval)))
    gaps = np.diff(moments, prepend=0.0)
    assert gaps.mean() == pytest.approx(interval, rel=0.06)
    assert gaps.std() == pytest.approx(interval, rel=0.08)
    assert Workload(interval=interval).load_on(park.capacity) == pytest.approx(0.8)


def test_a_job_more_changes_no_other() -> None:
    workload = Workload(jobs=5, tasks=3, sizes=Sizes.LOGNORMAL, arrivals=Arrivals.POISSON)
    assert replace(workload, jobs=6).of(1)[:5] == workload.of(1)


def test_the_papers_machines() -> None:
    hosts = Park().hosts(1)
    assert [sum(host.facts.model == f"type {kind}" for host in hosts) for kind in (1, 2, 3)] == [43, 43, 42]
    assert sorted(host.name for host in hosts) == [host.name for host in hosts]
    work = sum(host.speed.work_between(0.0, 20_000.0) for host in hosts) / 20_000
    assert work == pytest.approx(Park().capacity, rel=0.03)
    assert Park(fit=1.0).capacity == pytest.approx(Park().capacity / 0.95)
    assert Park().fastest == pytest.approx(4 * 0.95 * 0.8579, rel=1e-3)


def test_the_machines_of_a_seed_are_the_same_in_each_of_its_runs_and_other_in_another() -> None:
    ends = [[host.speed.end_of(0.0, 5000.0) for host in Park(count=9).hosts(seed)] for seed in (1, 1, 2)]
    assert ends[0] == ends[1] != ends[2]


def test_steady_machines() -> None:
    park = Park(count=4, peaks=(1.0, 3.0), patterns=(), fit=1.0)
    assert [host.speed for host in park.hosts(1)] == [Steady(1.0), Steady(3.0)] * 2
    assert (park.capacity, park.fastest) == (8.0, 3.0)
    assert math.isclose(Workload(tasks=2, interval=100.0).load_on(park.capacity), 1.0)
