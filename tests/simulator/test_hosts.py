"""Speeds that fluctuate: the searched integral against literal stepping, and the owners' chain against its theory."""

import numpy as np
import pytest

from loopline_simulator.fast.hosts import Floats, Fluctuating, Pattern, Steady
from loopline_simulator.fast.machines import PATTERN_1, PATTERN_2
from loopline_simulator.streams import stream

UNITS = 12_000


def end_by_stepping(speeds: Floats, start: float, work: float) -> float:
    """Unit by unit, as the paper has it."""
    now = start
    while True:
        unit = int(now)
        left = unit + 1 - now
        if work <= speeds[unit] * left:
            return now + (work / speeds[unit] if work else 0.0)
        work -= speeds[unit] * left
        now = float(unit + 1)


def recorded(pattern: Pattern, seed: int) -> tuple[Fluctuating, Floats]:
    """Return a host's speed, and the speeds of its units, read independently."""
    speed = pattern.speed(2.0, stream(seed, "host"))
    return speed, np.array([speed.work_between(unit, unit + 1) for unit in range(UNITS)])


@pytest.mark.parametrize("pattern", [PATTERN_1, PATTERN_2])
def test_the_end_of_a_task_is_where_stepping_finds_it(pattern: Pattern) -> None:
    random = stream(7, "tasks")
    for seed in range(4):
        speed, speeds = recorded(pattern, seed)
        for _ in range(100):
            start, work = float(random.uniform(0, 4000)), float(random.exponential(300.0))
            expected = end_by_stepping(speeds, start, work)
            found = pattern.speed(2.0, stream(seed, "host")).end_of(start, work)  # drawn again, only up to here
            assert found == pytest.approx(expected, abs=1e-6)
            assert speed.work_between(start, found) == pytest.approx(work, abs=1e-6)


def test_end_of_work_at_unit_edges_and_in_idle_units() -> None:
    speeds = np.array([1.0, 0.0, 0.0, 2.0] + [1.0] * 100)
    parts = iter(np.split(np.tile(speeds, 60), 2))
    speed = Fluctuating(lambda count: next(parts))
    assert speed.end_of(0.0, 1.0) == 1.0
    assert speed.end_of(0.0, 1.5) == 3.25
    assert speed.end_of(0.5, 0.5) == 1.0
    assert speed.end_of(1.5, 1.0) == 3.5
    assert speed.end_of(2.25, 0.0) == 2.25
    assert speed.work_between(0.5, 3.5) == 1.5


def test_earlier_queries_change_nothing() -> None:
    asked, fresh = (PATTERN_2.speed(1.0, stream(3, "x")) for _ in range(2))
    for start in range(0, 9000, 7):
        asked.end_of(start, 13.0)
    assert asked.end_of(100.0, 5000.0) == fresh.end_of(100.0, 5000.0)


def test_a_steady_host() -> None:
    assert Steady(4.0).end_of(1.0, 8.0) == 3.0
    assert Steady(4.0).work_between(1.0, 3.0) == 8.0


def test_the_owners_come_and_go_as_their_chain_says() -> None:
    units = 400_000
    speed = PATTERN_2.speed(1.0, stream(11, "owner"))
    speed.end_of(0.0, units * 0.8)
    speeds = np.diff(speed._done)[: int(units * 0.9)]
    loaded = speeds <= 0.2
    assert np.all(loaded | (speeds >= 0.8))
    assert loaded.mean() == pytest.approx(1 / 11, rel=0.05)
    assert speeds.mean() == pytest.approx(PATTERN_2.mean_share, rel=0.01)
    stays = np.diff(np.flatnonzero(np.diff(loaded)))
    assert sorted((stays[::2].mean(), stays[1::2].mean())) == pytest.approx([10.0, 100.0], rel=0.06)
    lengths = min(stays[::2], stays[1::2], key=np.mean)
    assert lengths.std() == pytest.approx(np.sqrt(90.0), rel=0.06)  # geometric: sqrt(1 - p) / p
    assert speeds[loaded].mean() == pytest.approx(0.1, rel=0.03)
    assert speeds[~loaded].mean() == pytest.approx(0.9, rel=0.003)


def test_at_time_0_hosts_are_in_their_long_run_state() -> None:
    first = [PATTERN_1.speed(1.0, stream(seed, "host")).work_between(0.0, 1.0) for seed in range(4000)]
    assert np.mean(np.array(first) <= 0.05) == pytest.approx(1 / 11, abs=0.012)


def test_streams_are_their_objects_own() -> None:
    assert stream(1, "host", 2).random() == stream(1, "host", 2).random()
    draws = {stream(seed, *name).random() for seed in (1, 2) for name in (("host", 2), ("host", 3), ("host2",))}
    assert len(draws) == 6
