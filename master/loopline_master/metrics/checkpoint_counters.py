"""Counters of checkpoints: their costs, and the CPU time that they saved."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from loopline_master.core.kernel.effects import Effects
from loopline_shared.protocol.checkpoints import CheckpointCosts


class CheckpointCounters:
    """Counts the checkpoints of all tasks since the master started."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sent = Counter("loopline_checkpoints", "Checkpoints of tasks that workers sent", registry=registry)
        self._sent_bytes = Counter("loopline_checkpoint_bytes", "... their bytes", registry=registry)
        self._held_s = Counter(
            "loopline_checkpoint_held_seconds", "... time that tasks were stopped for them", registry=registry
        )
        self._kept_s = Counter(
            "loopline_checkpoint_kept_cpu_seconds", "CPU time of stopped attempts that they saved", registry=registry
        )

    def count(self, effects: Effects) -> None:
        """Count the checkpoints of a step, and the time that they saved of attempts that have ended."""
        for costs in effects.told(CheckpointCosts):
            self._sent.inc(costs.sent)
            self._sent_bytes.inc(costs.sent_bytes)
            self._held_s.inc(costs.held_s)
        for attempt in effects.attempts.values():
            if attempt.kept_cpu_ms and attempt.ended_at == effects.grid.now:
                self._kept_s.inc(attempt.kept_cpu_ms / 1000)
