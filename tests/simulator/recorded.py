"""Worlds that write the event log that a live master would have written."""

from __future__ import annotations

from loopline_master.core.events import BATCH, Batch, Event
from loopline_master.core.kernel.effects import Effects
from loopline_simulator.fast.changing_world import ChangingWorld
from loopline_simulator.fast.world import FastWorld


class Recorded(FastWorld):
    log: list[bytes]

    def _step(self, events: list[Event]) -> Effects:
        if not hasattr(self, "log"):
            self.log = []
        self.log.append(BATCH.dump_json(Batch(self.kernel.now, events)) + b"\n")
        return super()._step(events)


class RecordedChanging(Recorded, ChangingWorld):
    """The same with machines that come and go."""
