"""Means and variances, and confidence intervals by Student's t over the seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and variance of one run's values. The values are the whole population: the variance divides by their
    number.
    """

    mean: float
    variance: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean over the seeds, and half the width of its 95 % interval (NaN for a single seed)."""

    mean: float
    half_width: float

    def __contains__(self, value: float) -> bool:
        return abs(value - self.mean) <= self.half_width

    def over(self, reference: float) -> Estimate:
        """Return the ratio to a number that is known exactly."""
        return Estimate(self.mean / reference, self.half_width / abs(reference))


@dataclass(frozen=True, slots=True)
class RegressionLine:
    """Least-squares line through points, and how close the points lie to it."""

    slope: float
    intercept: float
    correlation: float  # Pearson's; 0 where all points have the same x or the same y
    residual: float  # root mean square distance of the points from the line


def moments(values: Sequence[float]) -> Moments:
    mean = fmean(values)
    return Moments(mean, fmean((value - mean) ** 2 for value in values))


def line(xs: Sequence[float], ys: Sequence[float]) -> RegressionLine:
    """Fit a line to the points of one run."""
    of_x, of_y = moments(xs), moments(ys)
    together = fmean((x - of_x.mean) * (y - of_y.mean) for x, y in zip(xs, ys, strict=True))
    slope = together / of_x.variance if of_x.variance else 0.0
    residual = math.sqrt(max(0.0, of_y.variance - slope * together))
    spread = math.sqrt(of_x.variance * of_y.variance)
    return RegressionLine(slope, of_y.mean - slope * of_x.mean, together / spread if spread else 0.0, residual)


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate a mean from one value per seed."""
    mean, count = fmean(values), len(values)
    if count < 2:
        return Estimate(mean, math.nan)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    return Estimate(mean, _t_quantile(count - 1) * deviation / math.sqrt(count))


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Estimate the difference of two policies on the same seeds. Pairing removes the variance that they share."""
    return estimate([one - other for one, other in zip(ours, theirs, strict=True)])


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Return the ratio of the means of two policies on the same seeds.

    Its interval is that of the paired residuals ours - ratio * theirs (the delta method).
    """
    base = fmean(theirs)
    quotient = fmean(ours) / base
    residuals = [one - quotient * other for one, other in zip(ours, theirs, strict=True)]
    return Estimate(quotient, estimate(residuals).half_width / abs(base))


@lru_cache
def _t_quantile(freedom: int) -> float:
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # much quicker to load than scipy.stats

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
