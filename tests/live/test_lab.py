"""A lab's network in namespaces with shaped links: the traffic on each cable. Needs root and iproute2.

Workers adjacent by name are at different switches, so a pipeline ordered by name would cross the cable many times.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.harness.lab import Lab, obstacle
from benchmarks.rates.transfers import Case, Measured, measure

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(bool(obstacle()), reason=f"no lab can be built here: {obstacle()}"),
    pytest.mark.xdist_group("lab"),
]
WORKERS, MIB, EDGE, BETWEEN = 6, 24, 100.0, 25.0


def brought(case: Case) -> Measured:
    found = measure(case, Lab(WORKERS, EDGE, BETWEEN, mixed=True), MIB, keep=None)
    assert found.right == found.expected
    return found


@pytest.mark.parametrize("knows", ["measured", "written"])
def test_file_leaves_the_master_once_and_crosses_the_cable_once(knows: str) -> None:
    found = brought(Case(knows, knows=knows))  # type: ignore[arg-type]
    assert found.master <= 1.2
    assert found.a_to_b <= 1.2
    assert found.b_to_a <= 1.2


def test_killed_worker_costs_others_only_its_unforwarded_pieces() -> None:
    found = brought(Case("killed", knows="written", fault="worker killed"))
    assert found.expected == WORKERS - 1
    assert found.replanned_s is not None
    assert found.master <= 1.7
    assert found.a_to_b <= 1.3


def test_running_transfers_continue_without_the_master() -> None:
    found = brought(Case("alone", knows="written", fault="master killed"))
    assert found.expected == WORKERS


def test_plan_adapts_to_a_cable_that_lost_half_its_capacity() -> None:
    assert brought(Case("halved", knows="written", fault="cable halved")).replanned_s is not None


def test_stopped_lab_leaves_no_namespace_behind(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.rates.transfers",
        "--workers",
        "2",
        "--mib",
        "64",
        "--knows",
        "written",
    ]
    running = subprocess.Popen(
        [*command, "--without-master-alone"], cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True
    )
    prefix = f"ll{running.pid}"
    while f"{prefix}w2" not in _namespaces():
        assert running.poll() is None, running.communicate()[1]
        time.sleep(0.1)  # polls
    running.send_signal(signal.SIGTERM)
    assert "the lab is taken down" in running.communicate(timeout=60)[1]
    assert prefix not in _namespaces()


def _namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
