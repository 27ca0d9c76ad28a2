"""The fast world against what is known without it: closed forms of queues, and SimPy."""

import math
from collections.abc import Iterator

import pytest
import simpy

from loopline_master.core.estimates import measure
from loopline_shared.model import Facts, Order
from loopline_shared.spec import JobSpec, TaskSpec
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.metrics import JobRecord, Recorder
from loopline_simulator.fast.trial import settings
from loopline_simulator.fast.world import Arrival, FastWorld, Host
from loopline_simulator.statistics import estimate
from loopline_simulator.streams import stream


def job(*sizes: float) -> JobSpec:
    return JobSpec(command=["x"], tasks=[TaskSpec(size=size) for size in sizes])


def host(name: str, speed: float) -> Host:
    return Host(
        name, Facts("linux", "x86_64", "3", "0", f"speed {speed}", cpus=1, memory_bytes=2**30, slots=1), Steady(speed)
    )


def first_come(hosts: list[Host], arrivals: list[Arrival]) -> tuple[list[JobRecord], Recorder]:
    recorder = Recorder(hosts, attempts=True)
    FastWorld(settings("first-come", Order.NONE), hosts, arrivals, observe=recorder).run()
    return recorder.jobs(), recorder


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival must wait."""
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(offered**n / math.factorial(n) for n in range(servers)) + last)


@pytest.mark.campaign
@pytest.mark.parametrize(("servers", "use"), [pytest.param(1, 0.5, marks=pytest.mark.campaign), (3, 0.6)])
def test_the_mean_wait_of_a_queue_is_that_of_its_formula(servers: int, use: float) -> None:
    expected = erlang_c(servers, servers * use) / (servers - servers * use)  # services of mean 1
    waits = []
    for seed in range(8):
        random, now, arrivals = stream(seed, "queue", servers), 0.0, []
        for _ in range(800):
            now += float(random.exponential(1 / (servers * use)))
            arrivals.append(Arrival(now, job(float(random.exponential(1.0)) + 1e-12)))
        jobs, _ = first_come([host(f"h{n}", 1.0) for n in range(servers)], arrivals)
        waits.append(sum(job.waiting for job in jobs[100:]) / len(jobs[100:]))
    found = estimate(waits)
    assert expected in found
    assert found.half_width < 0.3 * expected


@pytest.mark.parametrize("seed", range(5))
def test_simpy_finds_the_very_same_end_of_every_task(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "merit", lambda worker: 0)  # all are equally good: the first by name is taken
    speeds = [1.0, 2.0, 4.0, 1.0, 2.0]
    random, now, arrivals = stream(seed, "simpy"), 0.0, []
    for _ in range(60):
        now += int(random.integers(1, 2**21)) / 2**20  # whole numbers of 2**-20: sums are exact
        sizes = [int(n) / 2**18 for n in random.integers(1, 2**20, int(random.integers(1, 9)))]
        arrivals.append(Arrival(now, job(*sizes)))
    _, recorder = first_come([host(f"h{n}", speed) for n, speed in enumerate(speeds)], arrivals)
    ours = {(bar.id.job, bar.id.task): (bar.worker, bar.start, bar.end) for bar in recorder.attempts}
    assert ours == by_simpy(arrivals, speeds)


def by_simpy(arrivals: list[Arrival], speeds: list[float]) -> dict[tuple[int, int], tuple[str, float, float]]:
    """Tasks in order of submission; each takes the first idle host by name."""
    environment, ends = simpy.Environment(), {}
    queue, idle = simpy.Store(environment), simpy.PriorityStore(environment)
    idle.items = [simpy.PriorityItem(n, None) for n in range(len(speeds))]

    def submit() -> Iterator[simpy.Event]:
        for number, arrival in enumerate(arrivals, 1):
            yield environment.timeout(arrival.at - environment.now)
            for task, spec in enumerate(arrival.spec.tasks or [], 1):
                yield queue.put((number, task, spec.size))

    def dispatch() -> Iterator[simpy.Event]:
        while True:
            task = yield queue.get()
            place = yield idle.get()
            environment.process(compute(task, place.priority))

    def compute(task: tuple[int, int, float], place: int) -> Iterator[simpy.Event]:
        start = environment.now
        yield environment.timeout(task[2] / speeds[place])
        ends[task[:2]] = (f"h{place}", start, environment.now)
        yield idle.put(simpy.PriorityItem(place, None))

    environment.process(submit())
    environment.process(dispatch())
    environment.run()
    return ends
