"""Entity: the energy of an attempt that has ended, by one source."""

from __future__ import annotations

from dataclasses import dataclass

from loopline_shared.protocol.attempt_figures import EnergySource


@dataclass(slots=True)
class AttemptEnergy:
    """Energy of an attempt as its worker reported it, as one row."""

    job: int
    task: int
    number: int
    source: EnergySource
    joules: float

    @property
    def key(self) -> tuple[int, int, int, str]:
        return self.job, self.task, self.number, self.source
