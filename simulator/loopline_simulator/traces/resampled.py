"""A recorded workload, resampled by its users: each run has other users of the same log.

Windows of one log are not independent, for they share its users and their habits. Here users are drawn with
replacement (after Zakay and Feitelson, Workload resampling for performance evaluation of parallel job schedulers,
2014). Each brings all of its jobs, moved by whole weeks, so that days and nights stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from loopline_shared.errors import LooplineError
from loopline_simulator.fast.world import Arrival
from loopline_simulator.streams import stream
from loopline_simulator.traces.files import named, opened
from loopline_simulator.traces.swf import Selection, SwfJob, arrivals, read_jobs
from loopline_simulator.traces.window import at_load

_WEEK_S = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class ResampledLog:
    """The jobs of a run: ``jobs`` consecutive ones of a resampled log, ``work_a_second`` arriving in the mean."""

    swf: Path
    work_a_second: float  # reference CPU-seconds
    jobs: int = 500
    unit: float = 1.0  # factor on all times of the log, as in Selection

    def of(self, seed: int) -> list[Arrival]:
        """Return the jobs of the run, the first of them at time 0. Raises LooplineError if the log has too few."""
        random = stream(seed, "users")
        users = _by_user(self.swf)
        weeks = 1 + int(max(job.submitted for jobs in users for job in jobs) // _WEEK_S)
        drawn: list[tuple[float, int, SwfJob]] = []
        while len(drawn) < self.jobs:
            for user in random.integers(len(users), size=len(users)):
                moved_s = float(random.integers(weeks)) * _WEEK_S
                drawn += ((_moved(job, moved_s, weeks), len(drawn) + n, job) for n, job in enumerate(users[user]))
        drawn.sort(key=lambda one: one[:2])
        first = int(random.integers(len(drawn) - self.jobs + 1))
        chosen = [_at(time, job) for time, _, job in drawn[first : first + self.jobs]]
        return at_load(list(arrivals(chosen, Selection(unit=self.unit))), self.work_a_second)


def _moved(job: SwfJob, by_s: float, weeks: int) -> float:
    return (job.submitted + by_s) % (weeks * _WEEK_S)


def _at(time: float, job: SwfJob) -> SwfJob:
    return SwfJob(number=job.number, submitted=time, wait=None, run_time=job.run_time, processors=job.processors)


@lru_cache
def _by_user(swf: Path) -> Sequence[Sequence[SwfJob]]:
    """Return the jobs that could run, by user, in the order of the log."""
    users: dict[int | None, list[SwfJob]] = {}
    with opened(swf) as lines, named(swf):
        for job in read_jobs(lines):
            if job.run_time and job.processors:
                users.setdefault(job.user, []).append(job)
    if len(users) < 2:
        raise LooplineError("trace", f"{swf}: there are fewer than two users in it", "use its windows instead")
    return list(users.values())
