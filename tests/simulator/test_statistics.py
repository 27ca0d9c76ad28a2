"""Intervals, against figures worked out by hand and against how often they hold."""

import math

import pytest

from loopline_simulator.statistics import difference, estimate, moments, ratio
from loopline_simulator.streams import stream


def test_moments_are_of_all_values() -> None:
    assert (moments([1.0, 2.0, 6.0]).mean, moments([1.0, 2.0, 6.0]).variance) == (3.0, pytest.approx(14 / 3))


def test_an_interval_by_hand() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 3.0
    assert found.half_width == pytest.approx(2.776445 * math.sqrt(2.5 / 5), rel=1e-6)
    assert found.over(2.0).mean == 1.5
    assert found.over(2.0).half_width == pytest.approx(found.half_width / 2)
    assert math.isnan(estimate([1.0]).half_width)


def test_intervals_hold_the_truth_19_times_in_20() -> None:
    held = sum(5.0 in estimate(stream(seed, "normal").normal(5.0, 2.0, 6).tolist()) for seed in range(2000))
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_pairs_share_their_luck() -> None:
    luck = stream(1, "luck").normal(100.0, 20.0, 30)
    ours, theirs = (luck * 0.9).tolist(), (luck + stream(2, "luck").normal(0.0, 1.0, 30)).tolist()
    assert difference(ours, theirs).half_width < 0.3 * estimate(ours).half_width
    share = ratio(ours, theirs)
    assert 0.9 in share
    assert share.half_width < 0.01
