"""``loopline simulate global-computing``: Tables 1 to 4 of Takefusa et al., and scenarios of your own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from loopline_simulator.experiments.answers import effort, publish
from loopline_simulator.experiments.options import MANY_RUNS, ManyRuns, Several, SweepOptions, usage
from loopline_simulator.papers.global_computing.comparison import compare, traffic_of
from loopline_simulator.papers.global_computing.files import READINGS, TABLES, paper_scenarios, read_scenarios, trace
from loopline_simulator.papers.global_computing.queueing_trial import QueueingAnswer, QueueingCase, run
from loopline_simulator.papers.global_computing.scenario import QueueingScenario, known_scheduler
from loopline_simulator.papers.global_computing.traffic import OnOff, Poisson, Traffic

_OF_ONE_SERVER = ("GRR",)
"""The scheduler that stands for all others where a scenario has a single server."""
_TRAFFIC: dict[str, Traffic | None] = {"poisson": Poisson(), "self-similar": OnOff()}


def global_computing(
    *,
    tables: Annotated[tuple[Literal[1, 2, 3, 4], ...], Several] = (),
    readings: Annotated[tuple[Literal["text", "fitted"], ...], Several] = ("text", "fitted"),
    scenario: Path | None = None,
    schedulers: Annotated[tuple[str, ...], Several] = (),
    traffic: Annotated[tuple[Literal["poisson", "self-similar"], ...], Several] = (),
    trace_file: Annotated[Path | None, Parameter(name="--trace")] = None,
    runs: ManyRuns = MANY_RUNS,
) -> int:
    """Show Tables 1 to 4 of the global computing paper beside the paper's own figures, or run a scenario of yours.

    Clients, networks and servers are queues, which foreign packets and jobs fill too. Assumptions that the paper
    leaves to its readers are printed below each table.

    Parameters
    ----------
    tables
        Tables of the paper (default: all).
    readings
        Assumptions: from the paper's text, or fitted to its published figures.
    scenario
        A TOML file, in place of the paper's tables; docs/global-computing.md says how to write one.
    schedulers
        Schedulers to compare: LRR, GRR, LOAD (the paper's), DWR (least expected turnaround, networks included),
        DWR-seen (the same, with measured transfer times); default: those of the scenario.
    traffic
        Traffic on the networks in place of the scenario's: poisson packets (the paper), self-similar ones
        (Pareto on/off sources); with both, one after the other.
    trace_file
        Measured traffic in place of the scenario's: a CSV of time,bytes or time,rate, scaled to the same mean.
    """
    chosen = tuple(map(_known, dict.fromkeys(schedulers)))
    if scenario is not None and tables:
        raise usage("either --tables of the paper or a --scenario of yours")
    settings = [(None, "", each) for each in read_scenarios(scenario)] if scenario else list(_paper(tables, readings))
    others = _traffics(traffic, trace_file)
    cases = [
        QueueingCase(seed, scheduler, each.with_traffic(other), table, reading)
        for other in others
        for table, reading, each in settings
        for scheduler in (chosen or _schedulers(each))
        for seed in runs.seed_numbers
    ]
    began = time.monotonic()
    answers = runs.sweep(run, cases, lambda answer: answer.events)
    _publish(answers, runs, time.monotonic() - began)
    return 0


def _traffics(names: Sequence[str], trace_file: Path | None) -> list[Traffic | None]:
    """Return the kinds of traffic to run one after the other; None stands for the scenario's own."""
    chosen = [_TRAFFIC[name] for name in dict.fromkeys(names)]
    return [*chosen, *([trace(trace_file)] if trace_file else [])] or [None]


def _known(scheduler: str) -> str:
    try:
        return known_scheduler(scheduler)
    except ValueError as error:
        raise usage(str(error)) from None


def _paper(tables: Sequence[int], readings: Sequence[str]) -> Iterator[tuple[int, str, QueueingScenario]]:
    for table in sorted(set(tables)) or TABLES:
        for reading in (reading for reading in READINGS if reading in readings):
            for each in paper_scenarios(table, reading):
                yield table, reading, each


def _schedulers(scenario: QueueingScenario) -> Sequence[str]:
    return scenario.schedulers if len(scenario.servers) > 1 else _OF_ONE_SERVER


def _publish(answers: Sequence[QueueingAnswer], runs: SweepOptions, took_s: float) -> None:
    from loopline_simulator.papers.global_computing import tables

    settings, events = compare(answers), sum(answer.events for answer in answers)

    def show(console: Console) -> None:
        console.print(tables.picture(settings))
        console.print(effort(len(answers), events, took_s), soft_wrap=True)

    document = {
        "experiment": "global-computing",
        "events": events,
        "settings": [asdict(setting) for setting in settings],
        "runs": [_run(answer) for answer in answers],
    }
    publish(runs, document, show)


def _run(answer: QueueingAnswer) -> dict[str, Any]:
    case = answer.case
    paper = {"table": case.table, "reading": case.reading}
    head = {**paper, "title": case.scenario.title, "traffic": traffic_of(case), "scheduler": case.scheduler}
    return {**head, "seed": case.seed, "events": answer.events, **asdict(answer.measures)}
