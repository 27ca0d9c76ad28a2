"""Metrics of counted units: the limits of the grid, their use, and the check of each start against them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_master.core.wings.resources.limit import WHOLE_GRID


class UnitGauges:
    """Shows the counts of the scheduler. The check of starts begins at zero with each run of the master."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._limits = Gauge(
            "loopline_limit_units", "Units that a limit of the grid allows", ["limit"], registry=registry
        )
        self._used = Gauge("loopline_limit_units_used", "... units that attempts hold", ["limit"], registry=registry)
        self._starts = Gauge("loopline_unit_starts", "Attempts that took units as they started", registry=registry)
        self._beyond = Gauge(
            "loopline_unit_starts_beyond_limit", "... of these, beyond a limit in force; must be 0", registry=registry
        )

    def set(self, counts: CountedUnits) -> None:
        """Take over the counts."""
        self._limits.clear()
        self._used.clear()
        for name, allowed in counts.allowed.items():
            self._used.labels(name).set(counts.used[name, WHOLE_GRID])
            if WHOLE_GRID in allowed:
                self._limits.labels(name).set(allowed[WHOLE_GRID])
        self._starts.set(counts.starts)
        self._beyond.set(counts.starts_beyond)
