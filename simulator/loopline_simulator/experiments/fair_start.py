"""``loopline simulate fair-start``: how many jobs later arrivals delay, and by how much."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from rich.console import Console
from rich.text import Text

from loopline_shared.model import Order
from loopline_simulator.experiments.answers import effort, publish
from loopline_simulator.experiments.options import (
    JOBS,
    MACHINES,
    RUNS,
    Count,
    JobOptions,
    MachineOptions,
    Several,
    SweepOptions,
    known_policy,
    usage,
)
from loopline_simulator.experiments.tables import bare_table, half_width, number
from loopline_simulator.fast.fair_start import FairAnswer, run
from loopline_simulator.fast.trial import Case
from loopline_simulator.statistics import estimate

_POLICIES = ("fair", "round-robin", "first-come", "space-partition")
_FIGURES = ("jobs", "delayed_starts", "start_delay_s", "delayed_ends", "end_delay_s", "passed", "events")


def fair_start(
    *,
    policies: Annotated[tuple[str, ...], Several] = _POLICIES,
    order: Annotated[tuple[Order, ...], Several] = (Order.HOLD, Order.NONE),
    replicas: Count | None = None,
    jobs: JobOptions = JOBS,
    machines: MachineOptions = MACHINES,
    runs: SweepOptions = RUNS,
) -> int:
    """Measure fairness by fair start times (Sabin, Kochhar and Sadayappan 2004), under each policy and order.

    A job's fair start is its start if no job came after it: each job is run once without those behind it, so a
    setting takes as many runs as it has jobs. The same is measured of the jobs' ends.

    Parameters
    ----------
    policies
        Policies to compare.
    order
        Order guarantees to compare.
    replicas
        Attempts of a task at once; default as in the no-passing paper: any number.
    """
    if machines.watts:
        raise usage("fair-start shows no energy", "leave --watts out, or run no-passing")
    park = machines.park()
    cases = [
        Case(seed, policy, promise, workload, park, max_replicas=replicas)
        for workload in jobs.workloads(park)
        for policy in dict.fromkeys(map(known_policy, policies))
        for promise in dict.fromkeys(order)
        for seed in runs.seed_numbers
    ]
    began = time.monotonic()
    answers = runs.sweep(run, cases, lambda answer: answer.events)
    show = partial(_show, answers, time.monotonic() - began)
    publish(runs, {"experiment": "fair-start", "runs": [_row(answer) for answer in answers]}, show)
    return 0


def _row(answer: FairAnswer) -> dict[str, Any]:
    case, figures = answer.case, asdict(answer)
    head = {"seed": case.seed, "interval": case.workload.interval, "policy": case.policy, "order": str(case.order)}
    return head | {name: figures[name] for name in _FIGURES}


def _show(answers: Sequence[FairAnswer], took_s: float, console: Console) -> None:
    groups: dict[float, dict[tuple[str, Order], list[FairAnswer]]] = {}
    for answer in answers:
        case = answer.case
        groups.setdefault(case.workload.interval, {}).setdefault((case.policy, case.order), []).append(answer)
    for interval, settings in groups.items():
        made = bare_table(f"[bold]A job every {interval:.4g} s: jobs that later arrivals delay[/]")
        made.add_column("")
        made.add_column("order")
        for title in ("starts", "by s", "±", "ends", "by s", "±", "passed"):
            made.add_column(title, justify="right")
        for (policy, order), group in settings.items():
            made.add_row(Text(policy, "bold cyan"), str(order), *_cells(group))
        console.print(made)
    console.print(
        Text("starts, ends: share of the jobs that start (end) later; by s: mean delay of all jobs.", "dim")
    )
    console.print(effort(len(answers), sum(answer.events for answer in answers), took_s), soft_wrap=True)


def _cells(group: Sequence[FairAnswer]) -> list[str]:
    starts, ends = (estimate([getattr(one, name) for one in group]) for name in ("start_delay_s", "end_delay_s"))
    shares = (estimate([getattr(one, name) for one in group]).mean for name in ("delayed_starts", "delayed_ends"))
    started, ended = (f"{share:.0%}" for share in shares)
    delays = (number(starts.mean), half_width(starts)), (number(ends.mean), half_width(ends))
    return [started, *delays[0], ended, *delays[1], f"{sum(one.passed for one in group):,}"]
