"""Section 4 of the no-passing paper, as an experiment of ``loopline simulate``."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from loopline_master.core.policies import REGISTRY
from loopline_shared.model import Order
from loopline_simulator.experiments import paper
from loopline_simulator.experiments.answers import effort, publish
from loopline_simulator.experiments.comparison import PolicyComparison, compare
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
)
from loopline_simulator.fast.machines import FITTED
from loopline_simulator.fast.trial import Answer, Case, run
from loopline_simulator.fast.workload import Workload


def default_policies() -> tuple[str, ...]:
    return (*paper.POLICIES, *(policy for policy in ("fair",) if policy in REGISTRY))


def no_passing(
    *,
    policies: Annotated[tuple[str, ...], Several] = default_policies(),
    order: Order | None = None,
    replicas: Count | None = None,
    pictures: Path | None = None,
    jobs: JobOptions = JOBS,
    machines: MachineOptions = MACHINES,
    runs: SweepOptions = RUNS,
) -> int:
    """Show Tables 3, 4 and 5 of the no-passing paper beside the paper's own figures.

    The master's own scheduler and policies run in virtual time, on PCs whose speed fluctuates as their owners use
    them. Every parameter of the paper's Table 2 is an option, and its defaults are the paper's.

    Parameters
    ----------
    policies
        Policies to compare.
    order
        Order guarantee of all policies; default as in the paper: the hold, and no guarantee for first-come and
        space-partition.
    replicas
        Attempts of a task at once; default as in the paper: any number.
    pictures
        Draw one run of each policy (Figures 2 to 4) into this folder.
    """
    chosen = tuple(dict.fromkeys(map(known_policy, policies)))
    park = machines.park()
    workloads = jobs.workloads(park)
    cases = [
        Case(seed, policy, order or paper.order_of(policy), workload, park, max_replicas=replicas)
        for seed in runs.seed_numbers
        for workload in workloads
        for policy in chosen
    ]
    began = time.monotonic()
    answers = runs.sweep(run, cases, lambda answer: answer.events)
    took_s, comparisons = time.monotonic() - began, compare(answers, as_in_paper=is_as_in_paper(cases[0]))
    shown = [case for case in cases if (case.seed, case.workload) == (runs.first_seed, _middle(workloads))]
    document, show = _document(answers, comparisons), partial(_show, answers, comparisons, took_s)
    publish(runs, document, show, draw=partial(_draw, shown), pictures=pictures)
    return 0


def _middle(workloads: list[Workload]) -> Workload:
    return workloads[len(workloads) // 2]


def _show(answers: list[Answer], comparisons: list[PolicyComparison], took_s: float, console: Console) -> None:
    from loopline_simulator.experiments import tables

    case = answers[0].case
    console.print(
        f"{case.workload.jobs} jobs of {case.workload.tasks} tasks on {case.park.count} PCs; {_fit(case)}\n"
    )
    console.print(tables.picture(comparisons))
    console.print(effort(len(answers), sum(answer.events for answer in answers), took_s), soft_wrap=True)


def is_as_in_paper(case: Case) -> bool:
    """True if only the interval, the seed, the policy and the fit differ from the paper's."""
    same_jobs = dataclasses.replace(case.workload, interval=100.0) == dataclasses.replace(Workload(), interval=100.0)
    same_machines = dataclasses.replace(case.park, fit=FITTED, watts=()) == type(case.park)()
    return same_jobs and same_machines and case.max_replicas is None


def _fit(case: Case) -> str:
    fit = case.park.fit
    if fit == 1:
        return "speeds as the paper gives them (no fit)"
    kind = "fitted to the paper's means; --fit 1: as given" if fit == FITTED else "a factor of yours"
    return f"speeds x {fit:g} ({kind})"


def _document(answers: list[Answer], comparisons: list[PolicyComparison]) -> dict[str, Any]:
    """Return all figures, and those of each run."""
    case = answers[0].case
    return {
        "experiment": "no-passing",
        "workload": {name: value for name, value in dataclasses.asdict(case.workload).items() if name != "interval"},
        "machines": dataclasses.asdict(case.park),
        "events": sum(answer.events for answer in answers),
        "comparisons": [dataclasses.asdict(comparison) for comparison in comparisons],
        "runs": [_run(answer) for answer in answers],
    }


def _run(answer: Answer) -> dict[str, Any]:
    case = answer.case
    head = {"seed": case.seed, "interval": case.workload.interval, "policy": case.policy, "order": case.order}
    return {**head, "events": answer.events, **dataclasses.asdict(answer.measures)}


def _draw(cases: list[Case], folder: Path) -> list[Path]:
    from loopline_simulator import gantt

    return [file for case in cases for file in gantt.draw_case(case, folder)]
