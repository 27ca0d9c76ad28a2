"""Fair start times (Sabin, Kochhar and Sadayappan, ICPP 2004), and delays by later arrivals.

A job's fair start is its start under the same policy if no job came after it. A later start is unfair: a later
arrival has delayed it. The same is measured of ends, as a job here is a bag of tasks. Machines have the same speeds
in all runs of a seed, so that only the jobs differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from loopline_simulator.fast.metrics import JobRecord
from loopline_simulator.fast.trial import Case, record

_CLOSELY = 1e-6
"""Share of a time below which a difference is rounding."""


@dataclass(frozen=True, slots=True)
class FairAnswer:
    """Measures of one run. Delays are means over all jobs, in seconds; a job that came out sooner counts as 0."""

    case: Case
    jobs: int
    delayed_starts: float  # share of the jobs
    start_delay_s: float
    delayed_ends: float
    end_delay_s: float
    passed: int  # pairs of jobs, as in Measures
    events: int  # calls of the kernel, in all runs


def run(case: Case) -> FairAnswer:
    """Run the case once as it is, and once for each job without those behind it."""
    recorder, world = record(case)
    jobs, events = recorder.jobs(), world.kernel.events
    alone: list[JobRecord] = []
    for count in range(1, len(jobs) + 1):
        early, world = record(case, first=count)
        alone.append(early.jobs()[-1])
        events += world.kernel.events
    measures = recorder.measures(case.park.capacity, case.park.fastest)
    starts = [_delay(job.started, fair.started) for job, fair in zip(jobs, alone, strict=True)]
    ends = [_delay(job.finished, fair.finished) for job, fair in zip(jobs, alone, strict=True)]
    return FairAnswer(
        case,
        jobs=len(jobs),
        delayed_starts=_share_delayed(starts),
        start_delay_s=fmean(starts),
        delayed_ends=_share_delayed(ends),
        end_delay_s=fmean(ends),
        passed=measures.passed,
        events=events,
    )


def _delay(actual: float | None, fair: float | None) -> float:
    assert actual is not None
    assert fair is not None
    delay = actual - fair
    return delay if delay > _CLOSELY * actual else 0.0


def _share_delayed(delays: Sequence[float]) -> float:
    return fmean(delay > 0 for delay in delays)
