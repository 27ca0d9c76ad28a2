"""Measures of a run: the paper's utilisation, fairness and computing cost, and the changes of promised starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from loopline_master.core.wings.gangs.planning.rack import Rack
from loopline_simulator.papers.rack.rack_world import JobHistory
from loopline_simulator.statistics import RegressionLine, line

_SETTLED = 0.2
"""Utilisation is measured from this share of the arrivals' span until the last arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RackMeasures:
    """Measures of one run. Times are in steps."""

    utilisation: float
    correlation: float  # of waits with nodes: 1 is the fairest
    residual: float  # root mean square distance from the line of waits over nodes
    largest_wait: float
    mean_wait: float
    calls: int  # of Bottom-Left, as the paper counts them; of a thrifty algorithm, those whose answer was unknown
    needed: int  # of these, those whose answer was unknown
    moved: float  # share of jobs whose promise moved
    moves: float  # mean number of moves of a promise, over all jobs
    step: float  # mean distance of one move
    sooner: float  # mean time from a job's start to its first promise
    soonest: float  # largest such time


def measure(histories: Sequence[JobHistory], rack: Rack, calls: int, needed: int) -> RackMeasures:
    fit = fairness(histories)
    waits = [history.wait for history in histories]
    gains = [history.plans[0][1].start - history.plan.start for history in histories]
    moves = sum(len(history.plans) - 1 for history in histories)
    return RackMeasures(
        utilisation=utilisation(histories, rack, *window(histories)),
        correlation=fit.correlation,
        residual=fit.residual,
        largest_wait=float(max(waits)),
        mean_wait=fmean(waits),
        calls=calls,
        needed=needed,
        moved=fmean(len(history.plans) > 1 for history in histories),
        moves=moves / len(histories),
        step=sum(gains) / moves if moves else 0.0,
        sooner=fmean(gains),
        soonest=float(max(gains)),
    )


def fairness(histories: Sequence[JobHistory]) -> RegressionLine:
    """Fit the line of waits over nodes."""
    return line([history.job.nodes for history in histories], [history.wait for history in histories])


def window(histories: Sequence[JobHistory]) -> tuple[float, float]:
    """Return the time between filling and emptying the rack; the whole run if all jobs arrive at once."""
    first, last = min(history.job.arrival for history in histories), max(history.job.arrival for history in histories)
    return (
        (first + _SETTLED * (last - first), last)
        if last > first
        else (first, max(history.end for history in histories))
    )


def utilisation(histories: Sequence[JobHistory], rack: Rack, start: float, end: float) -> float:
    """Return the share of nodes in use from ``start`` to ``end``."""
    used = sum(
        history.job.nodes * max(0.0, min(end, history.end) - max(start, history.plan.start)) for history in histories
    )
    return used / (rack.nodes * (end - start))
