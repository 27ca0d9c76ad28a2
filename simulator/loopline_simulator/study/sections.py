"""The sections of the study. Each is a function that returns its cases and a text that describes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from loopline_shared.model import Order
from loopline_simulator.fast.churn import CONDOR, STUDENT_LAB, Churn, WeibullLaw
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.saving_world import Saving
from loopline_simulator.fast.straggling import Straggling
from loopline_simulator.fast.trial import Case
from loopline_simulator.fast.workload import Arrivals, Sizes, Workload
from loopline_simulator.study.bounds import Bound, BoundCase
from loopline_simulator.study.section import Place, Section, Shown, StudyCase
from loopline_simulator.traces.resampled import ResampledLog
from loopline_simulator.traces.window import LogWindow

HOLD, DELIVER, NONE = Order.HOLD, Order.DELIVER, Order.NONE
FIELD = ("wqr", "fcfs-share", "rr-nrf", "long-idle")
THRESHOLD = 2
"""Attempts of a task at once under the field's policies, as in their studies."""
LOAD = 0.8
AWAY = WeibullLaw(1.0, 3600.0)
"""Absences: exponential with a mean of an hour. The fits that we use are of stays alone: this is our assumption."""
LOG_UNIT = 0.05
"""Factor on the times of a supercomputer's log, so that tasks take minutes, as on PCs."""

BY_POLICY = (
    ("fair", HOLD), ("fair", NONE), ("round-robin", HOLD), ("first-come", HOLD), ("first-come", NONE),
    ("space-partition", NONE), *((policy, order) for policy in FIELD for order in (NONE, HOLD)),
)  # fmt: skip
TOTAL = Shown("total", "mean total time, s")
SLOWDOWN = Shown("slowdown", "mean slowdown")
LOST = Shown("lost", "work lost to replicas", as_share=True)
ENERGY = Shown("kwh", "energy of all attempts, kWh")
PASSED = Shown("passed", "order violations, pairs over all seeds", is_sum=True)
FEW = (("fair", HOLD), ("round-robin", HOLD), ("first-come", NONE), ("wqr", NONE))


def sections(logs: Sequence[Path], *, resample: bool = False) -> list[Section]:
    """Return all sections, one of them for each recorded log. ``resample``: by its users."""
    drawn = [literature(), replicas(), bounds(), churn(), checkpoints(), stragglers(), wrong_sizes(), covered()]
    drawn += [robustness(), mixes(), grids(), energy()]
    keys = (f"log-{number}" if number > 1 else "log" for number in itertools.count(1))
    of_logs = [recorded(key, log, resample=resample) for log, key in zip(logs, keys, strict=False)]
    return [drawn[0], *of_logs, *drawn[1:]]


def case_of(policy: str, order: Order, workload: Workload, park: Park, **more: object) -> Case:
    """Return the case for seed 0, with the threshold of replicas that the policy was published with."""
    threshold = THRESHOLD if policy in FIELD else None
    return Case(0, policy, order, workload, park, max_replicas=threshold, **more)  # type: ignore[arg-type]


def unequal(park: Park, there: float = 1.0) -> Workload:
    """Return jobs over two decades of size, as a Poisson process at load 0.8 of the machines that are there."""
    interval = Workload().interval_for(LOAD, park.capacity * there)
    return Workload(50, sizes=Sizes.LOG_UNIFORM, arrivals=Arrivals.POISSON, interval=interval)


def literature() -> Section:
    """Return ours and the field's policies on the no-passing paper's workloads."""
    park = Park()
    workloads = {f"every {interval:g} s": Workload(interval=interval) for interval in (50.0, 100.0, 200.0)}
    workloads["unequal"] = unequal(park)
    cases: dict[Place, StudyCase] = {
        (f"{policy}, {order}", column): case_of(policy, order, workload, park)
        for policy, order in BY_POLICY
        for column, workload in workloads.items()
    }
    return Section(
        "literature",
        "Policies of the literature",
        "32 jobs of 128 tasks on 128 PCs of speeds 1:2:4 that fluctuate, the no-passing paper's experiment; "
        "unequal: 50 jobs over two decades of size, Poisson arrivals, load 0.8. Each policy under the hold, "
        "and without any promise, as those of the field were published; these may have two attempts of a task "
        "at once, as in their studies, ours any number.",
        cases,
        base="first-come, none",
        shown=(TOTAL, SLOWDOWN, LOST, PASSED),
    )


def replicas() -> Section:
    """Return what the live default of two attempts of a task at once changes."""
    park, cases = Park(), {}
    for interval in (50.0, 100.0, 200.0):
        for policy in ("fair", "round-robin"):
            for most, said in ((None, "any number"), (2, "two at once, as live")):
                case = Case(0, policy, HOLD, Workload(interval=interval), park, max_replicas=most)
                cases[f"{policy}, {said}", f"every {interval:g} s"] = case
    return Section(
        "replicas",
        "Replicas: as in the paper, and as live",
        "The no-passing paper allows any number of attempts of a task at once, and so do the other tables here "
        "under our policies. A live master allows two (`max_replicas`).",
        cases,
        base="round-robin, any number",
        shown=(TOTAL, LOST),
    )


def recorded(key: str, swf: Path, *, resample: bool = False) -> Section:
    """Return our policies, first come and WQR on a recorded log, under each promise."""
    park = Park(64)
    log = (ResampledLog if resample else LogWindow)(swf, LOAD * park.capacity, unit=LOG_UNIT)
    kind = (
        "has other users of the log, drawn with replacement, and 500 of their"
        if resample
        else "is another window of 500"
    )
    cases: dict[Place, StudyCase] = {}
    for policy in ("fair", "round-robin", "first-come", "wqr"):
        for order in (NONE, DELIVER, HOLD):
            cases[policy, f"order {order}"] = case_of(policy, order, Workload(), park, log=log)
        usual = case_of(policy, HOLD, Workload(), park, log=log, single_task_order="deliver")
        cases[policy, "hold, one task delivered (default)"] = usual
    return Section(
        key,
        f"A recorded log, {swf.name.partition('.')[0]}",
        f"{swf.name}: each seed {kind} consecutive jobs, its arrivals stretched to load 0.8 "
        f"on 64 PCs, all times x {LOG_UNIT:g}; a task for each processor. By default a live master delivers jobs of "
        "one task in order; in the other columns they are treated like all others.",
        cases,
        base="first-come",
        base_column="order none",
        shown=(
            TOTAL,
            SLOWDOWN,
            Shown("slowdown 1", "mean slowdown of the smallest quarter of the jobs"),
            Shown("slowdown 4", "mean slowdown of the largest quarter"),
            PASSED,
        ),
    )


def bounds() -> Section:
    """Return `fair` beside the least that is possible."""
    cases: dict[Place, StudyCase] = {}
    for interval in (50.0, 100.0, 200.0):
        workload, park, column = Workload(interval=interval), Park(), f"every {interval:g} s"
        cases["bound (fluid)", column] = BoundCase(0, Bound.FLUID, workload, park)
        cases["schedule that knows the future", column] = BoundCase(0, Bound.CLAIRVOYANT, workload, park)
        cases["fair, none", column] = case_of("fair", NONE, workload, park)
        cases["fair, hold", column] = case_of("fair", HOLD, workload, park)
    return Section(
        "bound",
        "How much better could it be?",
        "Bound: all machines as one, which no schedule beats. The schedule below it keeps the hold and knows "
        "every machine's future: the least possible mean lies between these two rows, so their distance is "
        "what the bound may be too low by. From `fair, none` to `fair, hold` is the price of the hold; what "
        "lies between the schedule and `fair, hold` is, for the rest, not knowing.",
        cases,
        base="bound (fluid)",
    )


def churn() -> Section:
    """Return how policies stand owners who come and go."""
    park, cases = Park(), {}
    laws = {"always there": None, "student lab": Churn(STUDENT_LAB, AWAY), "Condor pool": Churn(CONDOR, AWAY)}
    for column, law in laws.items():
        workload = unequal(park, law.share_there if law else 1.0)
        for policy, order in FEW:
            cases[f"{policy}, {order}", column] = case_of(policy, order, workload, park, churn=law)
    return Section(
        "churn",
        "Owners who come and go",
        "The unequal jobs of the first section, at load 0.8 of the machines that are there. Stays follow the "
        "Weibull laws that Nurmi, Brevik and Wolski (Euro-Par 2005) fitted to a student lab (shape 0.545, "
        "scale 275,599 s: 5.5 days in the mean) and to a Condor pool (0.49, 2403 s: 83 minutes); absences "
        "last an hour in the mean, exponentially, which is our assumption. A task on a machine that goes is "
        "lost, and begins again elsewhere once its lease of 30 s is over.",
        cases,
        base="first-come, none",
        shown=(TOTAL, SLOWDOWN, Shown("lost", "work lost to replicas and to owners", as_share=True)),
    )


def checkpoints() -> Section:
    """Return how often long tasks should be saved where owners come and go."""
    park, cases = Park(16, (0.7, 1.0, 1.3), (), fit=1.0), {}
    rows: dict[str, float | None] = {f"every {minutes} min": 60.0 * minutes for minutes in (1, 3, 10, 30, 60)}
    rows = {"none": 0.0, **rows, "auto": None}
    for policy in ("fair", "round-robin"):
        for pool, law in (("Condor pool", CONDOR), ("student lab", STUDENT_LAB)):
            owners = Churn(law, AWAY)
            for size, saving in (("100 MB", Saving()), ("1 GB", Saving(cost_s=10.0, size_bytes=1e9))):
                workload = Workload(8, 16, 1800.0, largest=28_800.0, arrivals=Arrivals.POISSON)
                interval = workload.interval_for(0.5, park.capacity * owners.share_there)
                workload = replace(workload, interval=interval)
                for row, every_s in rows.items():
                    saved = replace(saving, every_s=every_s)
                    cases[row, f"{policy}, {pool}, {size}"] = Case(
                        0, policy, HOLD, workload, park, max_replicas=2, churn=owners, saving=saved
                    )
    return Section(
        "checkpoints",
        "Checkpoints of long tasks",
        "8 jobs of 16 tasks of 0.5 to 8 hours on 16 PCs of speeds 0.7, 1 and 1.3, as a Poisson process at load 0.5 "
        "of the machines that are there; two attempts of a task at once, as live. Owners come and go as in the "
        "section before. A checkpoint stops its task for 1 s (100 MB) or 10 s (1 GB), and is uploaded at 100 "
        "Mbit/s while the task computes. A machine that was switched off has lost its own copies: the task "
        "continues from the newest checkpoint that the master has. `auto` is the rule of a live worker; how often "
        "each machine's tasks are interrupted is learned during the run. Lost is all work that no result "
        "contains: of lost attempts, of replicas, and what a machine could have done during checkpoints.",
        cases,
        base="auto",
        shown=(TOTAL, Shown("lost", "work lost", as_share=True), PASSED),
        compared=(Shown("total", "mean total time"), Shown("lost", "work lost")),
    )


def stragglers() -> Section:
    """Return what relaunching and copying stragglers costs and gains where run times have heavy tails."""
    park, cases = Park(64, (1.0,), (), fit=1.0), {}
    workload = Workload(40, 16, 100.0, largest=100.0, arrivals=Arrivals.POISSON)
    workload = replace(workload, interval=workload.interval_for(0.4, park.capacity))
    rows = {"first-come": ("first-come", math.inf)}
    rows |= {f"relaunch after {after:g}": ("first-come", after) for after in (1.0, 1.5, 2.0, 3.0, 5.0)}
    rows |= {policy: (policy, math.inf) for policy in ("wqr", "round-robin", "fair")}
    for shape in (1.5, 2.0, 3.0):
        for row, (policy, after) in rows.items():
            straggling = Straggling(shape, relaunch_after=after)
            cases[row, f"shape {shape:g}"] = Case(
                0, policy, NONE, workload, park, max_replicas=THRESHOLD, straggling=straggling
            )
    return Section(
        "stragglers",
        "Stragglers with heavy tails",
        "40 jobs of 16 tasks of 100 s on 64 equal PCs, as a Poisson process at load 0.4, without a promise. The time "
        "of each attempt is 100 s times a factor, independently drawn from a Pareto law of mean 1 and the shape "
        "named: the smaller, the heavier the tail. *Relaunch after 2*: a task that still runs after twice its "
        "declared time is started again, once (Aktas, Peng and Soljanin 2017). `wqr` copies running tasks as soon as "
        "no task waits, `round-robin` when the round comes back, `fair` if that gains much; two attempts at once. "
        "Work spent is that of all attempts, over the declared work.",
        cases,
        base="first-come",
        shown=(TOTAL, Shown("spent", "work spent")),
        against=Shown("spent", "work spent"),
    )


def wrong_sizes() -> Section:
    """Return what wrong sizes cost."""
    park, cases = Park(), {}
    for by in (1.0, 2.0, 4.0, 8.0):
        for policy, order in (("fair", HOLD), ("fair", NONE), ("round-robin", HOLD), ("first-come", HOLD)):
            column = "exact" if by == 1 else f"wrong by up to {by:g}"
            cases[f"{policy}, {order}", column] = case_of(policy, order, unequal(park), park, wrong_by=by)
    return Section(
        "sizes",
        "Sizes that are wrong",
        "The unequal jobs; users declare the size of each too large or too small, by a factor whose logarithm "
        "is uniform up to the one named. The hold goes by what was declared.",
        cases,
        base="first-come, hold",
        base_column="exact",
    )


def robustness() -> Section:
    """Return `fair` as an algorithm with predictions: with good ones, and with the worst."""
    park = Park()
    workload = unequal(park)
    cases: dict[Place, StudyCase] = {}
    columns = {"exact": 1.0, "wrong by up to 4": 4.0, "by up to 64": 64.0, "opposite order": math.inf}
    for column, by in columns.items():
        cases["bound (fluid)", column] = BoundCase(0, Bound.FLUID, workload, park)
        for policy, order in (("fair", NONE), ("fair", HOLD), ("first-come", NONE), ("wqr", NONE)):
            cases[f"{policy}, {order}", column] = case_of(policy, order, workload, park, wrong_by=by)
    return Section(
        "robustness",
        "Consistency and robustness",
        "An algorithm with predictions is *consistent* if it is close to the best with exact ones, and *robust* if "
        "the worst ones make it little worse than an algorithm without any (Purohit, Svitkina and Kumar 2018; "
        "Lindermayr and Megow 2022; Benomar and Perchet 2024). The predictions of `fair` are the declared sizes; "
        "first come and `wqr` use none. The unequal jobs, with errors as in *Sizes that are wrong*, larger ones, "
        "and declared sizes in the opposite order of the true ones.",
        cases,
        base="first-come, none",
        base_column="exact",
    )


def covered() -> Section:
    """Return the price of the rule that only jobs with a size have a claim."""
    park, cases = Park(), {}
    kinds = {
        "all have sizes": {},
        "half have none": {"without_size": 0.5},
        "none has one": {"without_size": 1.0},
        "half are sessions": {"in_sessions": 0.5},
    }
    for column, kind in kinds.items():
        for policy in ("fair", "round-robin", "first-come"):
            cases[f"{policy}, {HOLD}", column] = case_of(policy, HOLD, unequal(park), park, **kind)
        cases[f"fair, {NONE}", column] = case_of("fair", NONE, unequal(park), park, **kind)
    return Section(
        "covered",
        "Jobs that the promise does not cover",
        "The unequal jobs. Those without a size wait for sized jobs until their tasks show that they are smaller, "
        "and hold none; sessions neither wait nor hold. The scheduler knows the work of each task; `fair` ranks a "
        "job without a size by one of its tasks. A pair is out of order if the later job has at least as much work "
        "and completes first.",
        cases,
        base="fair, none",
        base_column="all have sizes",
        shown=(TOTAL, PASSED, Shown("overtaken", "pairs out of order, covered or not, over all seeds", is_sum=True)),
    )


def mixes() -> Section:
    """Return the policies on other mixes of machines."""
    mixed = {"1:1:1": (1.0,), "1:2:4": (1.0, 2.0, 4.0), "1:4:16": (1.0, 4.0, 16.0), "1:1:1:10": (1.0, 1.0, 1.0, 10.0)}
    cases = {}
    for column, peaks in mixed.items():
        mean = sum(peaks) / len(peaks)
        park = Park(peaks=tuple(7 / 3 * peak / mean for peak in peaks))  # as much in all as 1:2:4
        for policy, order in FEW:
            cases[f"{policy}, {order}", column] = case_of(policy, order, unequal(park), park)
    return Section(
        "mixes",
        "Other mixes of machines",
        "The unequal jobs on 128 PCs of other speeds, which together are as fast as those of 1:2:4.",
        cases,
        base="first-come, none",
    )


def grids() -> Section:
    """Return the policies on smaller and larger grids."""
    cases = {}
    for count in (32, 128, 512, 1024):
        park = Park(count)
        for policy, order in (("fair", HOLD), ("first-come", NONE)):
            workload = Workload(tasks=count, interval=100.0)
            cases[f"{policy}, {order}", f"{count:,} PCs"] = case_of(policy, order, workload, park)
    return Section(
        "grids",
        "Smaller and larger grids",
        "32 equal jobs, one every 100 s, of as many tasks as there are PCs.",
        cases,
        base="first-come, none",
    )


def energy() -> Section:
    """Return what the policies' replicas, and their choice of machines, cost in electricity."""
    park, cases = Park(watts=(90.0, 60.0, 40.0)), {}
    for column, workload in (("every 100 s", Workload(interval=100.0)), ("unequal", unequal(park))):
        for policy, order in (*FEW, ("fcfs-share", NONE), ("rr-nrf", NONE)):
            cases[f"{policy}, {order}", column] = case_of(policy, order, workload, park)
    return Section(
        "energy",
        "Electricity",
        "The no-passing paper's jobs, and the unequal ones, on 128 PCs of speeds 1:2:4, which draw 90, 60 and 40 W "
        "above idle while they are busy: our assumption, old PCs draw more. A task is charged its share of the "
        "processor, as on a live grid. The PCs are on anyway.",
        cases,
        base="first-come, none",
        shown=(TOTAL, ENERGY, LOST),
        compared=(Shown("total", "mean total time"), Shown("kwh", "energy")),
    )
