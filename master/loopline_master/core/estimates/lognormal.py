"""Lognormal law of durations, fitted to a few samples and to the ages of running tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

_NORMAL = NormalDist()
_ROUNDS = 8
_MOST_AGES = 100
_FARTHEST = 6.0
MOST_LOG = 700.0
"""Largest exponent whose exponential is still a finite number."""


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal law: ``mu`` and ``sigma`` are those of the logarithm."""

    mu: float
    sigma: float

    @property
    def mean(self) -> float:
        return math.exp(min(MOST_LOG, self.mu + self.sigma**2 / 2))

    def scaled(self, factor: float) -> Lognormal:
        return Lognormal(self.mu + math.log(factor), self.sigma)

    def left(self, age: float, share: float) -> float:
        """Return the quantile ``share`` of the time left at ``age``."""
        done = _NORMAL.cdf(self._z(age))
        return max(0.0, self._quantile(done + share * (1 - done)) - age)

    def mean_left(self, age: float) -> float:
        """Return the mean time left at ``age``."""
        z = self._z(age)
        beyond = _NORMAL.cdf(-z)
        if beyond <= 1e-9:
            return age
        return max(0.0, self.mean * _NORMAL.cdf(self.sigma - z) / beyond - age)

    def _z(self, age: float) -> float:
        return (math.log(age) - self.mu) / self.sigma if age > 0 else -math.inf

    def _quantile(self, share: float) -> float:
        return math.exp(self.mu + self.sigma * _NORMAL.inv_cdf(min(max(share, 1e-9), 1 - 1e-9)))


def fitted(count: float, mean: float, squares: float, least_sigma: float, ages: Sequence[float]) -> Lognormal:
    """Fit a lognormal law to finished durations and to the ``ages`` of running tasks (expectation maximisation).

    The finished durations are given as ``count``, ``mean`` and sum of ``squares`` of their logarithms' deviations.
    Without the running tasks, the first to end would make all look short.
    """
    mu, sigma = mean, max(least_sigma, math.sqrt(squares / count))
    logs = [math.log(age) for age in sorted(ages)[-_MOST_AGES:] if age > 0]
    for _ in range(_ROUNDS if logs else 0):
        old = [log for log in logs if log > mu - sigma]  # the younger ones carry no information yet
        expected = [mu + sigma * _overshoot((log - mu) / sigma) for log in old]
        new = (count * mean + sum(expected)) / (count + len(old))
        spread = squares + count * (mean - new) ** 2 + sum((one - new) ** 2 for one in expected)
        mu, sigma = new, max(least_sigma, math.sqrt(spread / (count + len(old))))
    return Lognormal(mu, sigma)


def _overshoot(z: float) -> float:
    """Return the mean of a standard normal law cut off below ``z``."""
    if z > _FARTHEST:
        return z
    return _NORMAL.pdf(z) / _NORMAL.cdf(-z)
