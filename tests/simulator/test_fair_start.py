"""Fair start times: on workloads small enough to be worked out by hand, and in general."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from loopline_shared.model import Order
from loopline_simulator.fast.fair_start import run
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.trial import Case
from loopline_simulator.fast.workload import Workload
from loopline_simulator.fast.world import Arrival
from tests.simulator.test_metrics import job

PARK = Park(1, (1.0,), (), fit=1.0)


@dataclass(frozen=True)
class Listed:
    """Jobs by (arrival, sizes of tasks)."""

    listed: tuple[tuple[float, tuple[float, ...]], ...]

    @property
    def jobs(self) -> int:
        return len(self.listed)

    def of(self, seed: int) -> list[Arrival]:
        return [job(at, *sizes) for at, sizes in self.listed]


def _case(policy: str, order: Order, *listed: tuple[float, tuple[float, ...]]) -> Case:
    return Case(1, policy, order, Workload(), PARK, max_replicas=1, log=Listed(listed))


JOBS = (0.0, (10.0, 10.0, 10.0)), (1.0, (10.0,))


def test_first_come_delays_no_job_for_a_later_one() -> None:
    found = run(_case("first-come", Order.NONE, *JOBS))
    assert (found.delayed_starts, found.start_delay_s, found.delayed_ends, found.end_delay_s) == (0.0, 0.0, 0.0, 0.0)
    assert found.jobs == 2


def test_round_robin_delays_the_first_job_by_a_task_of_the_second() -> None:
    """Alone it would end at 30 s; its last task begins after the second job's, and its start is not delayed."""
    found = run(_case("round-robin", Order.NONE, *JOBS))
    assert (found.delayed_starts, found.start_delay_s) == (0.0, 0.0)
    assert (found.delayed_ends, found.end_delay_s) == (0.5, 5.0)


def test_start_behind_a_later_smaller_job_is_unfair() -> None:
    jobs = (0.0, (10.0,)), (1.0, (20.0,)), (2.0, (3.0,))
    found = run(_case("fair", Order.NONE, *jobs))
    assert found.delayed_starts == pytest.approx(1 / 3)
    assert found.start_delay_s == pytest.approx(3.0 / 3)


@pytest.mark.parametrize("order", list(Order))
def test_fluctuating_machines_alone_delay_nothing(order: Order) -> None:
    """Under first come, a job starts as if no job came after it."""
    case = Case(3, "first-come", order, Workload(4, 6, interval=100.0), Park(4), max_replicas=1)
    found = run(case)
    assert found.delayed_starts == 0.0
