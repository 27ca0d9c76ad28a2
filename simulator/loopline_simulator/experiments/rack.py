"""``loopline simulate rack``: Table 1 of the supercomputer paper, and the extensions that its authors propose."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from rich.console import Console

from loopline_master.core.wings.gangs.planning.rack import Rack
from loopline_master.core.wings.gangs.planning.scans.scan_algorithms import PAPERS, algorithm
from loopline_simulator.experiments.answers import effort, publish
from loopline_simulator.experiments.options import RUNS, Count, Positive, Several, SweepOptions, usage
from loopline_simulator.papers.rack.rack_trial import RackAnswer, RackCase, run
from loopline_simulator.papers.rack.ranking import SCENARIOS
from loopline_simulator.papers.rack.workload import Drawn, Logged, Sides

Side = Annotated[int, Parameter(validator=Number(gte=1, lte=512))]
Share = Annotated[float, Parameter(validator=Number(gt=0, lte=1))]
Load = Annotated[float, Parameter(validator=Number(gt=0, lte=100))]
_LOADS = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2)


@Parameter(name="*", group=Group("Rack and jobs", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class RackOptions:
    """The rack and the jobs that arrive.

    Parameters
    ----------
    width
        Nodes of the rack from left to right.
    height
        Nodes from bottom to top.
    jobs
        Number of rectangles that arrive (a Poisson process).
    largest_side
        Largest side of a rectangle (default: half the rack's smaller side).
    sides
        Distribution of sides: uniform from 1 on, or powers of two.
    longest
        Longest time limit, in steps; limits are uniform from 1 on.
    scenarios
        1: jobs run for as long as their limit; 2: for about half of it on average.
    used
        Mean share of its limit that a job runs for, in place of scenarios.
    loads
        Arriving work, as a share of the rack's capacity (default: from 0.7 to 1.2; a log's own load).
    """

    width: Side = 16
    height: Side = 16
    jobs: Count = 600
    largest_side: Side | None = None
    sides: Sides = Sides.UNIFORM
    longest: Count = 20
    scenarios: Annotated[tuple[Literal[1, 2], ...], Several] = (1, 2)
    used: Annotated[tuple[Share, ...], Several] = ()
    loads: Annotated[tuple[Load, ...], Several] = ()

    def rack(self) -> Rack:
        return Rack(self.width, self.height)

    def drawn(self) -> list[Drawn]:
        side = self.largest_side or max(1, min(self.width, self.height) // 2)
        if side > min(self.width, self.height):
            raise usage(f"a rectangle of side {side} does not fit in a rack of {self.width} x {self.height}")
        one = Drawn(self.jobs, side, self.longest, sides=self.sides)
        shares = self.used or tuple(used for used, number in SCENARIOS.items() if number in self.scenarios)
        return [replace(one, used=used, load=load) for used in _once(shares) for load in _once(self.loads or _LOADS)]


@Parameter(name="*", group=Group("Jobs of a log", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Jobs of a log, in place of drawn ones.

    Parameters
    ----------
    swf
        A file in the Standard Workload Format; may be packed by gzip. --loads stretches the times between arrivals.
    first
        Use only this many jobs.
    step
        Seconds of one step of time.
    """

    swf: Path | None = None
    first: Count | None = None
    step: Positive = 60.0

    def logged(self, file: Path, options: RackOptions) -> list[Logged]:
        loads = _once(options.loads) or (None,)
        workloads = [Logged(file, self.step, self.first, load) for load in loads]
        workloads[0].of(0, options.rack())  # report mistakes in the file once, before the sweep
        return workloads


def rack(
    *,
    algorithms: Annotated[tuple[str, ...], Several] = tuple(PAPERS),
    pictures: Path | None = None,
    jobs: RackOptions = RackOptions(),
    log: LogOptions = LogOptions(),
    runs: SweepOptions = RUNS,
) -> int:
    """Compare algorithms for a supercomputer's rack: utilisation, fairness and cost beside the paper's Table 1.

    Each job is promised its start when it arrives; whenever a job ends, waiting jobs may move forward. An algorithm
    chooses the times to try, with Bottom-Left at each.

    Parameters
    ----------
    algorithms
        Algorithms to compare: naive, current, bold; by-load, by-limits, ...; powers:FIRST,BASE,COUNT; thrifty- before
        any of them for the same plans with fewer calls.
    pictures
        Draw the first seed's run at the highest load, for each scenario, into this folder: the rack over time, waits
        over nodes, utilisation over time.
    """
    chosen = _once(algorithms)
    for name in chosen:
        algorithm(name)
    workloads: Sequence[Drawn | Logged] = jobs.drawn() if log.swf is None else log.logged(log.swf, jobs)
    seeds = runs.seed_numbers if log.swf is None else runs.seed_numbers[:1]  # a log is the same for every seed
    cases = [RackCase(seed, name, jobs.rack(), each) for seed in seeds for each in workloads for name in chosen]
    began = time.monotonic()
    answers = runs.sweep(run, cases, lambda answer: answer.events)
    show, drawn = partial(_show, answers, time.monotonic() - began), [case for case in cases if case.seed == seeds[0]]
    publish(runs, _document(answers), show, draw=partial(_draw, drawn), pictures=pictures)
    return 0


def _once(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def _show(answers: Sequence[RackAnswer], took_s: float, console: Console) -> None:
    from loopline_simulator.papers.rack import tables
    from loopline_simulator.papers.rack.ranking import Results

    first = answers[0]
    console.print(f"{first.jobs:,} jobs on {first.case.rack.width} x {first.case.rack.height} nodes\n")
    console.print(tables.picture(Results(answers)))
    console.print(effort(len(answers), sum(answer.events for answer in answers), took_s), soft_wrap=True)


def _document(answers: Sequence[RackAnswer]) -> dict[str, Any]:
    """Return each run's own figures, without computing times, which differ from run to run."""
    case = answers[0].case
    workload = {name: value for name, value in asdict(case.workload).items() if name not in ("used", "load", "file")}
    return {"experiment": "rack", "rack": asdict(case.rack), "workload": workload, "runs": list(map(_run, answers))}


def _run(answer: RackAnswer) -> dict[str, Any]:
    case = answer.case
    head = {"seed": case.seed, "used": case.used, "load": case.workload.load, "algorithm": case.algorithm}
    return {**head, "jobs": answer.jobs, "events": answer.events, **asdict(answer.measures)}


def _draw(cases: Sequence[RackCase], folder: Path) -> list[Path]:
    from loopline_simulator.papers.rack import pictures

    return pictures.draw(cases, folder)
