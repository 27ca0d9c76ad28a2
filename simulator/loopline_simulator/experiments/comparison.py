"""Rows of a table from the answers of many runs: policies beside one another, and beside the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from loopline_simulator.experiments import paper
from loopline_simulator.fast.metrics import Measures
from loopline_simulator.fast.trial import Answer
from loopline_simulator.statistics import Estimate, Moments, estimate, ratio

BASE = "first-come"
"""The policy whose mean total the others are compared with, on the same seeds."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure over the seeds; the paper's figure, and ours as a share of it."""

    ours: Estimate
    paper: float | None = None
    ratio: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """Results of a policy under one workload. Passings are summed over all runs; shares are between 0 and 1."""

    policy: str
    order: str
    means: dict[str, Cell]  # by waiting, execution, total
    variances: dict[str, Cell]
    passed: int
    passable: int
    total_to_base: Estimate | None  # its mean total over first come's
    lost_time: Estimate
    lost_work: Estimate
    held: Estimate
    kwh: Estimate | None  # None: no power is declared
    mean_slowdown: Estimate
    worst_slowdown: float
    slowest_machines: float


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """Results of all policies under one workload."""

    table: int | None  # of the paper
    interval: float
    load: float
    rows: list[PolicyRow]


def compare(answers: Sequence[Answer], *, as_in_paper: bool) -> list[PolicyComparison]:
    """Return a comparison for each workload.

    ``as_in_paper`` is True if only fit and interval differ from the paper's Table 2, so that its figures apply.
    """
    by_workload = groupby(sorted(answers, key=_interval), key=_interval)
    return [_comparison(list(group), as_in_paper) for _, group in by_workload]


def _interval(answer: Answer) -> float:
    return answer.case.workload.interval


def _comparison(answers: Sequence[Answer], as_in_paper: bool) -> PolicyComparison:
    case = answers[0].case
    interval = case.workload.interval
    groups: dict[tuple[str, str], list[Measures]] = {}
    for answer in answers:
        groups.setdefault((answer.case.policy, answer.case.order), []).append(answer.measures)
    base = next((runs for (policy, _), runs in groups.items() if policy == BASE), None)
    table = paper.TABLE_OF_INTERVAL.get(interval) if as_in_paper else None
    rows = []
    for (policy, order), runs in groups.items():
        known = paper.MEASURED.get((interval, policy)) if table and order == paper.order_of(policy) else None
        rows.append(_row(policy, order, runs, known or {}, None if policy == BASE else base))
    return PolicyComparison(table, interval, case.workload.load_on(case.park.capacity), rows)


def _row(
    policy: str, order: str, runs: Sequence[Measures], known: Mapping[str, Moments], base: Sequence[Measures] | None
) -> PolicyRow:
    def over_seeds(value: Callable[[Measures], float]) -> Estimate:
        return estimate([value(run) for run in runs])

    def cells(part: str) -> dict[str, Cell]:
        return {
            time: cell([getattr(getattr(r, time), part) for r in runs], getattr(known.get(time), part, None))
            for time in times
        }

    times = paper.TIMES
    return PolicyRow(
        policy=policy,
        order=str(order),
        means=cells("mean"),
        variances=cells("variance"),
        passed=sum(run.passed for run in runs),
        passable=sum(run.passable for run in runs),
        total_to_base=ratio([run.total.mean for run in runs], [run.total.mean for run in base]) if base else None,
        lost_time=over_seeds(lambda run: run.lost_time),
        lost_work=over_seeds(lambda run: run.lost_work),
        held=over_seeds(lambda run: run.held.mean),
        kwh=estimate([run.kwh for run in runs if run.kwh is not None]) if runs[0].kwh is not None else None,
        mean_slowdown=over_seeds(lambda run: run.mean_slowdown),
        worst_slowdown=max(run.worst_slowdown for run in runs),
        slowest_machines=min(run.slowest_machines for run in runs),
    )


def cell(values: Sequence[float], reference: float | None = None) -> Cell:
    """Return the estimate from one value per seed, beside the paper's figure if there is one."""
    ours = estimate(values)
    return Cell(ours) if reference is None else Cell(ours, reference, ours.over(reference))
