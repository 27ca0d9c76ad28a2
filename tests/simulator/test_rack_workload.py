"""Rectangles for a rack: drawn with the load asked for, and read from logs that are generated here."""

from dataclasses import replace
from pathlib import Path

import pytest

from loopline_master.core.wings.gangs.planning.rack import Rack
from loopline_shared.errors import LooplineError
from loopline_simulator.papers.rack.workload import Drawn, Logged, Sides, load_of, squarest

RACK = Rack()


@pytest.mark.parametrize("sides", Sides)
@pytest.mark.parametrize(
    ("used", "shares"), [(1.0, (1.0, 1.0)), (0.5, (0.0, 1.0)), (0.8, (0.6, 1.0)), (0.2, (0.0, 0.4))]
)
def test_the_load_and_the_share_of_limits_come_out(sides: Sides, used: float, shares: tuple[float, float]) -> None:
    workload = Drawn(count=4000, used=used, load=0.8, sides=sides, longest=100)
    jobs = workload.of(1, RACK)
    assert load_of(jobs, RACK) == pytest.approx(0.8, rel=0.06)
    assert sum(job.runs for job in jobs) / sum(job.limit for job in jobs) == pytest.approx(used, abs=0.02)
    for job in jobs:
        assert 1 <= job.runs <= job.limit <= 100
        assert shares[0] * job.limit <= job.runs < shares[1] * job.limit + 1
    expected = {1, 2, 4, 8} if sides is Sides.POWERS else set(range(1, 9))
    assert {job.width for job in jobs} == {job.height for job in jobs} == expected


def test_load_and_shares_change_no_shape() -> None:
    def shapes(workload: Drawn) -> list[tuple[int, int, int]]:
        return [(job.width, job.height, job.limit) for job in workload.of(3, RACK)]

    one = Drawn(count=50)
    assert shapes(one) == shapes(replace(one, used=0.5, load=1.2)) == shapes(replace(one, count=60))[:50]
    assert shapes(one) != [(job.width, job.height, job.limit) for job in one.of(4, RACK)]


@pytest.mark.parametrize(
    ("nodes", "sides"),
    [(1, (1, 1)), (2, (2, 1)), (5, (3, 2)), (16, (4, 4)), (17, (5, 4)), (64, (8, 8)), (100, (13, 8)), (128, (16, 8))],
)
def test_a_number_of_nodes_becomes_the_squarest_rectangle(nodes: int, sides: tuple[int, int]) -> None:
    assert squarest(nodes, Rack(16, 8)) == sides


LOG = """; generated
1 100 5 600 4 50 -1 4 1200 -1 1 3 1 -1 1 -1 -1 -1
2 160 5 1200 -1 50 -1 6 600 -1 1 3 1 -1 1 -1 -1 -1
3 280 5 61 2 50 -1 -1 -1 -1 1 3 1 -1 1 -1 -1 -1
4 300 5 60 257 50 -1 257 60 -1 1 3 1 -1 1 -1 -1 -1
5 340 5 -1 4 50 -1 4 60 -1 0 3 1 -1 1 -1 -1 -1
6 460 5 60 9 50 -1 9 120 -1 1 3 1 -1 1 -1 -1 -1
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log.swf").write_text(LOG)
    return tmp_path / "log.swf"


def test_a_log_becomes_rectangles(log: Path) -> None:
    """4 is too large for the rack, 5 never ran; 2 was killed at its limit."""
    jobs = Logged(log).of(1, RACK)
    assert [(job.arrival, job.width, job.height, job.limit, job.runs) for job in jobs] == [
        (0, 2, 2, 20, 10),
        (1, 3, 2, 10, 10),
        (3, 2, 1, 2, 2),
        (6, 3, 3, 2, 1),
    ]
    assert [job.number for job in jobs] == [0, 1, 2, 3]
    assert Logged(log).of(2, RACK) == jobs
    assert Logged(log, first=2).of(1, RACK) == jobs[:2]
    assert [job.limit for job in Logged(log, step_s=600.0).of(1, RACK)] == [2, 1, 1, 1]


def test_a_log_is_stretched_to_a_load(log: Path) -> None:
    jobs = Logged(log, load=0.01).of(1, RACK)
    assert load_of(jobs, RACK) == pytest.approx(0.01, rel=0.05)
    assert [job.runs for job in jobs] == [10, 10, 2, 1]


def test_log_without_a_runnable_job_is_refused(log: Path) -> None:
    log.write_text("1 0 5 600 9 50 -1 9 1200 -1 1 3 1 -1 1 -1 -1 -1\n")
    with pytest.raises(LooplineError, match="no job in it can run"):
        Logged(log).of(1, Rack(2, 2))
    log.write_text("1 0 5\n")
    with pytest.raises(LooplineError, match=r"log.swf: line 1 is not a job"):
        Logged(log).of(1, RACK)
