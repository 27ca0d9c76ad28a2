"""What a run is judged by: the paper's utilisation, fairness and computing cost, and how promises moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from loopline_simulator.papers.rack.rack import Rack
from loopline_simulator.papers.rack.rack_world import JobHistory
from loopline_simulator.statistics import RegressionLine, line

_SETTLED = 0.2
"""Utilisation is measured from this share of the arrivals' span on, until the last arrival."""


@dataclass(frozen=True, slots=True)
class RackMeasures:
    """Of one run. Times in steps."""

    utilisation: float
    correlation: float  # of waits with nodes: 1 is as fair as can be
    residual: float  # what the line of waits over nodes leaves, root of the mean square
    largest_wait: float
    mean_wait: float
    calls: (
        float  # of Bottom-Left, as the paper counts them; of a thrifty algorithm, those whose answer it did not know
    )
    needed: float  # of these, those whose answer was not known
    moved: float  # share of the jobs whose promise moved
    moves: float  # of a promise, in the mean over all jobs
    step: float  # by which a promise moves at once, in the mean
    sooner: float  # than first promised a job starts, in the mean over all jobs
    soonest: float  # ... at most


def measure(histories: Sequence[JobHistory], rack: Rack, calls: int, needed: int) -> RackMeasures:
    fit = fairness(histories)
    waits = [history.wait for history in histories]
    gains = [history.plans[0][1].start - history.plan.start for history in histories]
    moves = sum(len(history.plans) - 1 for history in histories)
    return RackMeasures(
        utilisation=utilisation(histories, rack, *window(histories)),
        correlation=fit.correlation,
        residual=fit.residual,
        largest_wait=max(waits),
        mean_wait=fmean(waits),
        calls=calls,
        needed=needed,
        moved=fmean(len(history.plans) > 1 for history in histories),
        moves=moves / len(histories),
        step=sum(gains) / moves if moves else 0.0,
        sooner=fmean(gains),
        soonest=max(gains),
    )


def fairness(histories: Sequence[JobHistory]) -> RegressionLine:
    """The line of waits over nodes."""
    return line([history.job.nodes for history in histories], [history.wait for history in histories])


def window(histories: Sequence[JobHistory]) -> tuple[float, float]:
    """When the rack is neither filling nor running empty; all the time where all jobs come at once."""
    first, last = min(history.job.arrival for history in histories), max(history.job.arrival for history in histories)
    return (
        (first + _SETTLED * (last - first), last)
        if last > first
        else (first, max(history.end for history in histories))
    )


def utilisation(histories: Sequence[JobHistory], rack: Rack, start: float, end: float) -> float:
    """The share of nodes in use from ``start`` to ``end``."""
    used = sum(
        history.job.nodes * max(0.0, min(end, history.end) - max(start, history.plan.start)) for history in histories
    )
    return used / (rack.nodes * (end - start))
