"""The steps: how long each took, and its commit. A step adds three numbers; the rest is computed on request.

The page shows the latest steps; Prometheus has all of them, in buckets.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from loopline_shared.rest.bodies import Spread, StepTimes

BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_KEPT = 1000


class LatestSteps:
    """The times of the latest steps, and the counts of all."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._steps: deque[tuple[float, float, int]] = deque(maxlen=_KEPT)
        self._uncounted = 0  # of the latest: they are not in the buckets yet
        self._took = _Buckets("loopline_step_seconds", "A step: decided and on disk")
        self._commits = _Buckets("loopline_commit_seconds", "The commit of a step: written and on disk")
        if registry:
            registry.register(self)

    def add(self, took_s: float, commit_s: float, waiting: int) -> None:
        """Add a step. ``waiting``: events that had come by its end."""
        self._steps.append((took_s, commit_s, waiting))
        self._uncounted += 1
        if self._uncounted == _KEPT:
            self._count()

    def view(self) -> StepTimes:
        """Return how long they took."""
        took, commits, waiting = zip(*self._steps, strict=True) if self._steps else ((), (), ())
        return StepTimes(
            count=len(self._steps),
            step=_spread(took),
            commit=_spread(commits),
            waiting=waiting[-1] if waiting else 0,
            most_waiting=max(waiting, default=0),
        )

    def collect(self) -> Iterator[Metric]:
        """Yield what Prometheus reads."""
        self._count()
        yield self._took.family()
        yield self._commits.family()
        waiting = self._steps[-1][-1] if self._steps else 0
        text = "Events that had come by the end of the latest step"
        yield GaugeMetricFamily("loopline_events_waiting", text, waiting)

    def _count(self) -> None:
        """Put the latest steps into the buckets."""
        for took_s, commit_s, _ in islice(self._steps, len(self._steps) - self._uncounted, None):
            self._took.add(took_s)
            self._commits.add(commit_s)
        self._uncounted = 0


class _Buckets:
    """Counts of times, each in the first bucket that is not below it."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text, self._began = name, text, time.time()
        self._counts, self._sum_s = [0] * (len(BOUNDS_S) + 1), 0.0

    def add(self, took_s: float) -> None:
        self._counts[bisect_left(BOUNDS_S, took_s)] += 1
        self._sum_s += took_s

    def family(self) -> Metric:
        """Return the histogram that they are."""
        family = HistogramMetricFamily(self._name, self._text)
        bounds = map(floatToGoString, (*BOUNDS_S, float("inf")))
        family.add_metric([], [*zip(bounds, map(float, accumulate(self._counts)), strict=True)], self._sum_s)
        family.add_sample(f"{self._name}_created", {}, self._began)
        return family


def _spread(times: Sequence[float]) -> Spread | None:
    if not times:
        return None
    ordered = sorted(times)
    last = len(ordered) - 1
    return Spread(p50_s=ordered[last // 2], p99_s=ordered[round(last * 0.99)], most_s=ordered[-1])
