"""Laws, rates and packets: means that are as asked for, and traffic that is as bursty as it says."""

from pathlib import Path
from statistics import fmean, pvariance
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_shared.errors import LooplineError
from loopline_simulator.papers.global_computing.files import trace
from loopline_simulator.papers.global_computing.laws import Constant, Exponential, Lognormal, Pareto, Uniform, draws
from loopline_simulator.papers.global_computing.traffic import OnOff, Packets, Poisson, Rate, Traffic
from loopline_simulator.streams import stream

LAWS = [Exponential(), Constant(), Uniform(spread=0.5), Lognormal(cv=0.7), Pareto(shape=3.5)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_every_law_has_the_mean_1(law: Any) -> None:
    numbers = law.draw(stream(1, "law"), 400_000)
    assert numbers.min() >= 0
    assert numbers.mean() == pytest.approx(1, rel=0.005)
    found = draws(law, 7.0, stream(1, "law"))
    assert fmean(next(found) for _ in range(100_000)) == pytest.approx(7, rel=0.01)


def test_rest_of_a_pareto_period_has_its_equilibrium_distribution() -> None:
    """Its mean is E[X^2] / 2 E[X]; seen at random moments of a long row of periods it is the same."""
    law, random = Pareto(shape=6.0), stream(2, "rest")
    left = fmean(law.rest(random) for _ in range(100_000))
    assert left == pytest.approx(6 * (5 / 6) ** 2 / 4 / 2, rel=0.01)
    ends = np.cumsum(law.draw(random, 200_000))
    moments = random.uniform(0, ends[-1], 100_000)
    assert (ends[np.searchsorted(ends, moments)] - moments).mean() == pytest.approx(left, rel=0.02)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), max_size=12).map(sorted), st.integers(1, 30))
def test_a_rate_is_the_same_in_windows_of_any_length(changes: list[tuple[int, int]], length: int) -> None:
    rate = Rate(iter([(0.0, 5.0), *((float(at), float(value)) for at, value in changes)]))
    for start in range(0, 60, length):
        edges, values = rate.steps(float(start), float(start + length))
        assert (edges[0], edges[-1]) == (start, start + length)
        assert len(values) == len(edges) - 1
        for moment in range(start, start + length):
            expected = [5, *(value for at, value in changes if at <= moment)][-1]
            assert values[np.searchsorted(edges, moment, side="right") - 1] == expected


def counts(traffic: Traffic, seconds: int, seed: int) -> list[int]:
    """Packets in each second, of 50 in the mean."""
    packets = Packets(traffic.rate(50_000.0, stream(seed, "rate")), 50_000.0, 1000.0, Constant(), seed, ("packets",))
    times = [at for number in range(int(seconds / packets.window_s) + 1) for at in packets.window(number)[0]]
    assert times == sorted(times)
    return np.bincount(np.array([int(at) for at in times if at < seconds]), minlength=seconds).tolist()


def dispersion(seconds: list[int], together: int) -> float:
    """Return variance over mean of the packets in ``together`` seconds: 1 for Poisson at any interval."""
    sums = [sum(seconds[i : i + together]) for i in range(0, len(seconds) - together + 1, together)]
    return pvariance(sums) / fmean(sums)


def test_poisson_packets_are_as_many_as_asked_for_and_no_burstier_over_long_times() -> None:
    found = counts(Poisson(), 20_000, 1)
    assert fmean(found) == pytest.approx(50, rel=0.005)
    assert dispersion(found, 1) == pytest.approx(1, abs=0.05)
    assert dispersion(found, 100) == pytest.approx(1, abs=0.25)


def test_superposed_pareto_sources_are_as_many_and_burstier_the_longer_one_looks() -> None:
    found = [counts(OnOff(shape=1.5), 4000, seed) for seed in range(5)]
    assert fmean(map(fmean, found)) == pytest.approx(50, rel=0.05)
    at_1, at_10, at_100 = (fmean(dispersion(each, together) for each in found) for together in (1, 10, 100))
    assert 5 < at_1 < at_10 / 2
    assert at_10 < at_100 / 1.3  # grows as a power (2 H - 1 = 0.5) of the time; without heavy tails it would stop


def test_a_window_is_the_same_whatever_was_asked_for_before() -> None:
    def packets() -> Packets:
        return Packets(Poisson().rate(1e6, stream(3, "rate")), 1e6, 1000.0, Exponential(), 3, ("packets",))

    one, other = packets(), packets()
    for number in range(5):
        one.window(number)
    for ours, theirs in zip(one.window(5), other.window(5), strict=True):
        assert list(ours) == list(theirs)
    assert all(6 * one.window_s <= at <= 7 * one.window_s for at in other.window(6)[0])


def write(folder: Path, text: str) -> Path:
    file = folder / "trace.csv"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    "text", ["time,bytes\n10,100\n11,0\n12,600\n14,400\n", "time,rate\n10,100\n11,0\n12,300\n14,200\n"]
)
def test_a_trace_is_repeated_from_somewhere_at_the_mean_asked_for(text: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    for absolute, mean in ((False, 70.0), (True, 1100 / 6)):
        edges, values = trace(file, absolute=absolute).rate(70.0, stream(4, "trace")).steps(0.0, 600.0)
        assert (values * np.diff(edges)).sum() == pytest.approx(600 * mean)
        assert values.max() / mean == pytest.approx(300 / (1100 / 6))
        assert len(values) == pytest.approx(400, abs=2)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "its first line is ''"),
        ("seconds,bytes\n1,2\n2,2\n", "'seconds,bytes'"),
        ("time,bytes\n1,x\n2,3\n", "could not convert"),
        ("time,bytes\n1\n2,3\n", "float"),
        ("time,bytes\n1,2\n", "two lines"),
        ("time,bytes\n2,2\n1,2\n", "later than the one before"),
        ("time,bytes\n1,2\n2,-2\n", "negative"),
        ("time,bytes\n1,0\n2,0\n", "all of them 0"),
    ],
)
def test_a_bad_trace_is_refused_plainly(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(LooplineError, match="trace") as refused:
        trace(write(tmp_path, text))
    assert complaint in refused.value.message


def test_a_trace_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(LooplineError, match="No such file"):
        trace(tmp_path / "none.csv")
