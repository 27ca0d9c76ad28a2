"""A lab's network in namespaces, with shaped links: what each cable carries. Needs root and iproute2.

Neighbours in name are at different switches, so that a line of workers by name would cross the cable again and again.
"""

from __future__ import annotations

import pytest

from benchmarks.harness.lab import Lab, obstacle
from benchmarks.rates.transfers import Case, Measured, measure

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(obstacle()), reason=f"no lab can be built here: {obstacle()}"),
    pytest.mark.xdist_group("lab"),
]
WORKERS, MIB = 6, 24


def brought(case: Case) -> Measured:
    found = measure(case, Lab(WORKERS, 100.0, 25.0, mixed=True), MIB, keep=None)
    assert found.right == found.expected
    return found


@pytest.mark.parametrize("knows", ["measured", "written"])
def test_a_file_leaves_the_master_once_and_crosses_the_cable_once_each_way(knows: str) -> None:
    found = brought(Case(knows, knows=knows))  # type: ignore[arg-type]
    assert found.master <= 1.2
    assert found.a_to_b <= 1.2
    assert found.b_to_a <= 1.2


def test_a_worker_that_is_killed_halfway_costs_the_others_nothing_but_what_it_had_not_passed_on() -> None:
    found = brought(Case("killed", knows="written", kills=True))
    assert found.expected == WORKERS - 1
    assert found.master <= 2.2
    assert found.a_to_b <= 2.2
