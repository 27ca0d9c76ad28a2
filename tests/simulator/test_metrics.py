"""What is measured, on runs small enough to be worked out by hand."""

import pytest

from loopline_shared.model import AttemptState, Facts, Order
from loopline_shared.spec import JobSpec, TaskSpec
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.metrics import Recorder
from loopline_simulator.fast.trial import settings
from loopline_simulator.fast.world import Arrival, FastWorld, Host


def job(at: float, *sizes: float) -> Arrival:
    return Arrival(at, JobSpec(command=["x"], tasks=[TaskSpec(size=size) for size in sizes]))


def lived(policy: str, order: Order, speeds: list[float], *arrivals: Arrival, watts: float = 0.0) -> Recorder:
    facts = Facts("linux", "x86_64", "3", "0", "model", cpus=1, memory_bytes=2**30, slots=1)
    hosts = [Host(f"h{n}", facts, Steady(speed), joules_per_work=watts / speed) for n, speed in enumerate(speeds)]
    recorder = Recorder(hosts, attempts=True)
    FastWorld(settings(policy, order), hosts, arrivals, observe=recorder).run()
    return recorder


def test_losing_replicas_work_counts_as_lost() -> None:
    recorder = lived("round-robin", Order.HOLD, [1.0, 4.0], job(0.0, 8.0, 8.0))
    (only,) = recorder.jobs()
    assert (only.waiting, only.execution, only.total, only.size, only.longest_task) == (0.0, 4.0, 4.0, 16.0, 8.0)
    bars = sorted((bar.worker, bar.id.task, bar.start, bar.end, bar.state.value) for bar in recorder.attempts)
    assert bars == [("h0", 1, 0, 4, "cancelled"), ("h1", 1, 2, 4, "succeeded"), ("h1", 2, 0, 2, "succeeded")]
    assert [bar.replica for bar in recorder.attempts if bar.id.number == 2] == [True]
    assert [bar.accepted for bar in recorder.attempts if bar.state is AttemptState.CANCELLED] == [False]
    measures = recorder.measures(capacity=5.0, fastest=4.0)
    assert (measures.lost_time, measures.lost_work) == (4 / 8, pytest.approx(4 / 20))
    assert (measures.replicas, measures.makespan, measures.unfinished) == (1, 4.0, 0)
    assert measures.mean_slowdown == measures.worst_slowdown == pytest.approx(4 / (16 / 5))


def test_losing_replicas_draw_power_too() -> None:
    recorder = lived("round-robin", Order.HOLD, [1.0, 4.0], job(0.0, 8.0, 8.0), watts=90.0)
    assert recorder.measures(5.0, 4.0).kwh == pytest.approx(90.0 * (4 + 2 + 2) / 3.6e6), "two PCs are busy for 4 s"
    free = lived("first-come", Order.NONE, [2.0], job(0.0, 8.0))
    assert free.measures(2.0, 2.0).kwh is None, "no power is declared"


def test_power_of_a_park_is_by_type_of_machine() -> None:
    park = Park(4, peaks=(1.0, 4.0), patterns=(), fit=1.0, watts=(90.0, 40.0))
    assert [host.joules_per_work for host in park.hosts(0)] == [90.0, 10.0, 90.0, 10.0]
    assert {
        host.joules_per_work for host in Park(4, peaks=(2.0, 2.0), patterns=(), fit=1.0, watts=(60.0,)).hosts(0)
    } == {30.0}


def test_slowdown_is_no_better_than_the_longest_task_allows() -> None:
    (only,) = lived("first-come", Order.NONE, [2.0, 2.0], job(0.0, 8.0)).jobs()
    assert only.slowdown(capacity=4.0, fastest=2.0) == 1.0


def test_a_passing_is_seen_where_nothing_forbids_it() -> None:
    arrivals = job(0.0, 8.0), job(1.0, 8.0)
    free = lived("first-come", Order.NONE, [1.0, 4.0], *arrivals).measures(5.0, 4.0)
    assert (free.passed, free.passable, free.held.mean) == (1, 1, 0.0)
    assert free.slowest_machines == 1.0 / 2.5, "one job got the slow machine alone"


def test_a_held_last_task_is_held_from_its_turn_to_its_predecessors_end() -> None:
    recorder = lived("first-come", Order.HOLD, [1.0, 4.0], job(0.0, 8.0), job(1.0, 8.0))
    first, second = recorder.jobs()
    assert (first.held, second.held, second.held_for, second.waiting) == (None, (1.0, 8.0), 7.0, 7.0)
    measures = recorder.measures(5.0, 4.0)
    assert (measures.passed, measures.passable, measures.held.mean) == (0, 1, 3.5)
    assert (measures.waiting.mean, measures.waiting.variance) == (3.5, 12.25)


def test_without_a_finished_job_there_is_nothing_to_measure() -> None:
    recorder = Recorder([])
    with pytest.raises(ValueError, match="no job has finished"):
        recorder.measures(1.0, 1.0)
