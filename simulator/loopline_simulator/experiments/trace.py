"""``loopline simulate trace``: a recorded workload under several policies."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from loopline_master.core.policies import REGISTRY
from loopline_shared.model import Order
from loopline_simulator.experiments.answers import publish
from loopline_simulator.experiments.options import (
    Count,
    MachineOptions,
    Positive,
    Several,
    SweepOptions,
    known_policy,
    usage,
)
from loopline_simulator.experiments.tables import number
from loopline_simulator.fast.availability import Absence
from loopline_simulator.fast.saving_world import Saving
from loopline_simulator.statistics import Estimate, estimate
from loopline_simulator.traces.files import finite
from loopline_simulator.traces.run import TraceAnswer, TraceCase, load_jobs, load_machines, run
from loopline_simulator.traces.swf import Selection, SizeFrom, TasksFrom

_PAPERS_PCS = MachineOptions()
NO_CHECKPOINTS = "none"
_LONGEST_INTERVAL_S = 1e6  # of a job's spec


@Parameter(name="*", group=Group("Trace", sort_key=0))
@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """Jobs of the file, and how they become tasks.

    Parameters
    ----------
    first
        Use only this many jobs.
    since
        Use only jobs submitted from this time on, in the file's seconds.
    until
        Use only jobs submitted before this time.
    stretch
        Factor on the times between arrivals: 0.5 doubles the load.
    unit
        Factor on all times, of arrivals and of work: 0.1 makes the tasks of a supercomputer as short as PCs need.
    tasks_from
        Number of tasks of a job: processors that it got or asked for, or one.
    size_from
        Field with the working time of each processor.
    """

    first: Count | None = None
    since: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0
    until: Positive | None = None
    stretch: Positive = 1.0
    unit: Positive = 1.0
    tasks_from: TasksFrom = TasksFrom.ALLOCATED
    size_from: SizeFrom = SizeFrom.RUN_TIME

    def selection(self) -> Selection:
        until = math.inf if self.until is None else self.until
        return Selection(
            self.first,
            self.since,
            until,
            stretch=self.stretch,
            unit=self.unit,
            tasks_from=self.tasks_from,
            size_from=self.size_from,
        )


@Parameter(name="*", group=Group("Coming and going", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class OwnerOptions:
    """Times when machines are connected, and when their owners use them.

    Parameters
    ----------
    availability
        Connected intervals of machines: a CSV of host,start,end[,speed], in seconds or ISO times; or the
        event_trace.tab of a data set of the Failure Trace Archive.
    absence
        Fate of running attempts when a machine goes away.
    lease
        Seconds until a machine that went away counts as lost.
    stay
        Mean seconds that PCs stay connected, at random, without --availability (default: always).
    away
        Mean seconds that PCs are away.
    presence
        Intervals in which owners used their machines: a CSV like that of --availability.
    share
        Share of its speed that a machine has left while its owner uses it.
    """

    availability: Path | None = None
    absence: Absence = Absence.LOSES
    lease: Positive = 300.0
    stay: Positive | None = None
    away: Positive = 3600.0
    presence: Path | None = None
    share: Annotated[float, Parameter(validator=Number(gte=0, lte=1))] = 0.0

    def of(self, case: TraceCase) -> TraceCase:
        """Return the same run with these machines and owners."""
        return replace(
            case,
            availability=self.availability,
            absence=self.absence,
            lease_s=self.lease,
            stay_s=self.stay,
            away_s=self.away,
            presence=self.presence,
            share=self.share,
        )


@Parameter(name="*", group=Group("Checkpoints", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """Checkpoints that all tasks take.

    Parameters
    ----------
    checkpoints
        Intervals to compare: none, auto (a live worker's rule), or seconds.
    checkpoint_bytes
        Size of a checkpoint.
    checkpoint_cost
        Pause of a task for each checkpoint, in seconds.
    upload_rate
        Rate of uploads to the master, in bytes per second. The task computes during an upload.
    """

    checkpoints: Annotated[tuple[str, ...], Several] = ("none",)
    checkpoint_bytes: Positive = 1e8
    checkpoint_cost: Annotated[float, Parameter(validator=Number(gte=0, lte=600))] = 1.0
    upload_rate: Positive = 1.25e7

    def savings(self) -> list[Saving | None]:
        """Return the settings to compare: [None] if no task takes checkpoints."""
        if set(self.checkpoints) == {NO_CHECKPOINTS}:
            return [None]
        return [
            Saving(self._every_s(text), self.checkpoint_cost, self.checkpoint_bytes, self.upload_rate)
            for text in dict.fromkeys(self.checkpoints)
        ]

    def _every_s(self, text: str) -> float | None:
        if text in (NO_CHECKPOINTS, "auto"):
            return None if text == "auto" else 0.0
        every_s = finite(text)
        if every_s is None or not 1 <= every_s <= _LONGEST_INTERVAL_S:
            raise usage(f"{text!r} is no interval of checkpoints", "give none, auto, or seconds from 1 to 1000000")
        if every_s <= self.checkpoint_cost:
            raise usage(
                f"a checkpoint every {text} s that stops its task for {self.checkpoint_cost:g} s leaves no time"
            )
        return every_s


@Parameter(name="*", group=Group("Runs", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class TraceSweepOptions(SweepOptions):
    """Number of runs, and where they run."""

    seeds: Count = 1


def trace(
    *,
    swf: Path,
    policies: Annotated[tuple[str, ...], Several] = tuple(REGISTRY),
    order: Annotated[tuple[Order, ...], Several] = (Order.HOLD,),
    jobs: TraceOptions = TraceOptions(),
    owners: OwnerOptions = OwnerOptions(),
    saving: CheckpointOptions = CheckpointOptions(),
    machines: MachineOptions = _PAPERS_PCS,
    runs: TraceSweepOptions = TraceSweepOptions(),
) -> int:
    """Run a workload in the Standard Workload Format under several policies.

    A job of the file becomes one task for each processor; its size is run time x processors. Machines are PCs as in
    `no-passing`, or those of a file of their connected intervals.

    Parameters
    ----------
    swf
        The workload: 18 numbers a line, `;` begins a comment; may be packed by gzip.
    policies
        Policies to compare.
    order
        Order guarantees to compare, of all policies.
    """
    chosen, park, selection = tuple(dict.fromkeys(map(known_policy, policies))), machines.park(), jobs.selection()
    load_jobs(swf, selection)  # report mistakes in the files once, before the sweep
    for file in (owners.availability, owners.presence):
        if file is not None:
            load_machines(file)
    cases = [
        owners.of(TraceCase(seed, policy, promise, swf=swf, selection=selection, park=park, saving=saved))
        for seed in runs.seed_numbers
        for policy in chosen
        for promise in order
        for saved in saving.savings()
    ]
    began = time.monotonic()
    answers = runs.sweep(run, cases, lambda answer: answer.events)
    publish(runs, _document(answers), partial(_show, answers, time.monotonic() - began))
    return 0


def _show(answers: Sequence[TraceAnswer], took_s: float, console: Console) -> None:
    first, events = answers[0], sum(answer.events for answer in answers)
    console.print(f"{first.case.swf.name}: {first.jobs:,} jobs on {first.hosts:,} machines")
    console.print(_table(answers))
    console.print(
        f"{len(answers)} runs, {events:,} events in {took_s:.1f} s: {events / took_s:,.0f} events per second"
    )


def _table(answers: Sequence[TraceAnswer]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    table.add_column("order")
    has_checkpoints = any(answer.case.saving for answer in answers)
    if has_checkpoints:
        table.add_column("check-\npoints", justify="right")
    titles = (
        "waiting",
        "execution",
        "total",
        "slow-\ndown",
        "worst",
        "passed",
        "passable",
        *(("kWh",) if answers[0].measures.kwh is not None else ()),
        "lost",
        "end",
        "un-\nended",
    )
    for title in titles:
        table.add_column(title, justify="right")
    for (policy, order, checkpoints), group in _by_setting(answers):
        every = (checkpoints,) if has_checkpoints else ()
        table.add_row(Text(policy, "bold cyan"), order, *every, *_cells(group))
    return table


def _cells(answers: Sequence[TraceAnswer]) -> Iterator[str]:
    measures = [answer.measures for answer in answers]
    yield number(fmean(each.waiting.mean for each in measures))
    yield number(fmean(each.execution.mean for each in measures))
    yield _estimate(estimate([each.total.mean for each in measures]))
    yield number(fmean(each.mean_slowdown for each in measures))
    yield number(max(each.worst_slowdown for each in measures))
    yield f"{sum(each.passed for each in measures):,}"
    yield f"{sum(each.passable for each in measures):,}"
    if kwh := [each.kwh for each in measures if each.kwh is not None]:
        yield number(fmean(kwh))
    yield f"{fmean(each.lost_time for each in measures):.1%}"
    yield number(fmean(each.makespan for each in measures))
    yield f"{sum(each.unfinished for each in measures):,}"


def _estimate(value: Estimate) -> str:
    half = "" if math.isnan(value.half_width) else f" ±{number(value.half_width)}"
    return f"{number(value.mean)}{half}"


def _by_setting(answers: Sequence[TraceAnswer]) -> list[tuple[tuple[str, str, str], list[TraceAnswer]]]:
    """Return the answers by policy, order and checkpoints, in the order of the request."""
    groups: dict[tuple[str, str, str], list[TraceAnswer]] = {}
    for answer in answers:
        case = answer.case
        groups.setdefault((case.policy, case.order, _interval(case.saving)), []).append(answer)
    return list(groups.items())


def _interval(saving: Saving | None) -> str:
    if saving is None or saving.every_s == 0:
        return NO_CHECKPOINTS
    return "auto" if saving.every_s is None else f"{saving.every_s:g} s"


def _document(answers: Sequence[TraceAnswer]) -> dict[str, Any]:
    first = answers[0]
    runs = [
        {
            "seed": each.case.seed,
            "policy": each.case.policy,
            "order": each.case.order,
            "checkpoints": _interval(each.case.saving),
            "events": each.events,
            **asdict(each.measures),
        }
        for each in answers
    ]
    return {
        "experiment": "trace",
        "swf": first.case.swf.name,
        "order": first.case.order,
        "jobs": first.jobs,
        "machines": first.hosts,
        "runs": runs,
    }
