"""Counters that a step adds to: plain numbers, which are copied to Prometheus' own on request."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily


class Totals:
    """A counter with labels; ``of`` has its numbers by their values."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labels, self._began = name, text, labels, time.time()
        self.of: dict[tuple[str, ...], float] = defaultdict(float)
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the numbers as Prometheus reads them."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, number in self.of.items():
            family.add_metric(values, number, created=self._began)
        yield family
