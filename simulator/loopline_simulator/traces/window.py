"""Windows of a recorded workload: consecutive jobs of a log, each window a run of its own.

So one log gives intervals: the runs differ in their jobs, as those of drawn workloads do. A window is stretched or
compressed to the load that is asked for, because the load of a log comes and goes with the terms of its users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from loopline_shared.errors import LooplineError
from loopline_simulator.fast.world import Arrival
from loopline_simulator.traces.files import named, opened
from loopline_simulator.traces.swf import Selection, arrivals, read_jobs


@dataclass(frozen=True, slots=True)
class LogWindow:
    """The jobs of a run: ``jobs`` consecutive ones of a log, ``work_a_second`` arriving in the mean.

    The run ``seed`` takes the window of that number; behind the last one, the first follows.
    """

    swf: Path
    work_a_second: float  # reference CPU-seconds
    jobs: int = 500
    unit: float = 1.0  # factor on all times of the log, as in Selection

    @property
    def windows(self) -> int:
        """Return the number of windows. Raises LooplineError if the log has not even one."""
        count = _usable(self.swf) // self.jobs
        if not count:
            raise LooplineError("trace", f"{self.swf}: there are fewer than {self.jobs} jobs in it that could run")
        return count

    def of(self, seed: int) -> list[Arrival]:
        """Return the jobs of the run, the first of them at time 0."""
        count = self.windows
        with opened(self.swf) as lines, named(self.swf):
            chosen = Selection(self.jobs, skip=(seed - 1) % count * self.jobs, unit=self.unit)
            found = list(arrivals(read_jobs(lines), chosen))
        return at_load(found, self.work_a_second)


def at_load(jobs: Sequence[Arrival], work_a_second: float) -> list[Arrival]:
    """Return the jobs, the first of them at time 0, stretched or compressed to this work a second."""
    began = jobs[0].at
    lasted = max(jobs[-1].at - began, 1e-9)
    stretch = sum(float(each.spec.size or 0.0) for each in jobs) / work_a_second / lasted
    return [replace(each, at=(each.at - began) * stretch) for each in jobs]


@lru_cache
def _usable(swf: Path) -> int:
    with opened(swf) as lines, named(swf):
        return sum(1 for _ in arrivals(read_jobs(lines), Selection()))
