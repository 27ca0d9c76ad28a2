"""The wing *energy*: it notes the energy in results, as rows. No decision depends on it.

Whether energy was useful or wasted follows from the attempt's row, as for CPU time (store/history/energy_sums.py).
An attempt without a result has no energy, nor has one whose worker was forgotten before the result came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from loopline_master.core.events import WorkerJoined
from loopline_master.core.kernel.door.mechanism import Handler, Tell
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.state import State
from loopline_master.core.kernel.stored_rows import Rows
from loopline_master.core.wings.energy.attempt_energy import AttemptEnergy

MOST_WATTS = 20_000.0
"""No computer draws more, by all sources together. Larger figures are cut, as a worker's other figures are."""


class Energy(Wing):
    """Awake once a worker that measures or declares energy has joined."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._has_source = False

    @property
    def is_awake(self) -> bool:
        return self._has_source

    def entities(self) -> Mapping[type, Callable[[Any], None]]:
        return {AttemptEnergy: self._note}

    def restore(self, rows: Rows) -> None:
        self._has_source = any(worker.facts.energy for worker in self.state.workers.values())

    def handlers(self) -> Mapping[type, Handler]:
        return {WorkerJoined: self._join}

    def _join(self, event: WorkerJoined, tell: Tell) -> None:
        if event.facts.energy and not self._has_source:
            self._has_source = True
            self.state.wings.arrange()

    def finish_step(self) -> None:
        """Note the energy of attempts that ended in this step, by the sources that their workers reported."""
        for attempt in self.state.effects.attempts.values():
            if attempt.joules:
                worker = self.state.workers.get(attempt.worker)
                left = MOST_WATTS * max(0.0, self.state.now - attempt.dispatched_at)
                for source, joules in attempt.joules.items():
                    if worker and source in worker.facts.energy:
                        self.state.put(AttemptEnergy(*attempt.id, source, min(joules, left)))
                        left -= min(joules, left)
                attempt.joules = None

    def _note(self, energy: AttemptEnergy) -> None:
        self.state.effects.note(energy.key, energy)
