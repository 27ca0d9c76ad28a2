"""What a run is judged by: the paper's utilisation, fairness and computing cost, and how promises moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from loopline_simulator.papers.rack.rack import Rack
from loopline_simulator.papers.rack.world import Life
from loopline_simulator.statistics import Line, line

_SETTLED = 0.2
"""Utilisation is measured from this share of the arrivals' span on, until the last arrival."""


@dataclass(frozen=True, slots=True)
class Measures:
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


def measure(lives: Sequence[Life], rack: Rack, calls: int, needed: int) -> Measures:
    fit = fairness(lives)
    waits = [life.wait for life in lives]
    gains = [life.told[0][1].start - life.plan.start for life in lives]
    moves = sum(len(life.told) - 1 for life in lives)
    return Measures(
        utilisation=utilisation(lives, rack, *window(lives)),
        correlation=fit.correlation,
        residual=fit.residual,
        largest_wait=max(waits),
        mean_wait=fmean(waits),
        calls=calls,
        needed=needed,
        moved=fmean(len(life.told) > 1 for life in lives),
        moves=moves / len(lives),
        step=sum(gains) / moves if moves else 0.0,
        sooner=fmean(gains),
        soonest=max(gains),
    )


def fairness(lives: Sequence[Life]) -> Line:
    """The line of waits over nodes."""
    return line([life.job.nodes for life in lives], [life.wait for life in lives])


def window(lives: Sequence[Life]) -> tuple[float, float]:
    """When the rack is neither filling nor running empty; all the time where all jobs come at once."""
    first, last = min(life.job.arrival for life in lives), max(life.job.arrival for life in lives)
    return (first + _SETTLED * (last - first), last) if last > first else (first, max(life.end for life in lives))


def utilisation(lives: Sequence[Life], rack: Rack, start: float, end: float) -> float:
    """The share of nodes in use from ``start`` to ``end``."""
    used = sum(life.job.nodes * max(0.0, min(end, life.end) - max(start, life.plan.start)) for life in lives)
    return used / (rack.nodes * (end - start))
