"""``loopline simulate dynamic-load``: choose machines of different speeds for jobs of unknown size."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from loopline_shared.model import Order
from loopline_simulator.dynamic_load.dynamic_trial import DynamicAnswer, DynamicCase, DynamicMeasures, run
from loopline_simulator.dynamic_load.scenario import Information, Machines, Programs, SizeKnowledge
from loopline_simulator.experiments.answers import effort, publish
from loopline_simulator.experiments.options import RUNS, Count, Positives, Several, SweepOptions, known_policy
from loopline_simulator.statistics import Estimate, estimate, ratio

BASE = "turnaround"
POLICIES = (BASE, "cyclic", "random", "shortest-queue", "most-throughput", "first-come")
_INFORMED = (
    (Information.ORACLE, SizeKnowledge.GIVEN),
    (Information.ORACLE, SizeKnowledge.PREDICTED),
    (Information.PERIODIC, SizeKnowledge.PREDICTED),
    (Information.PIGGYBACK, SizeKnowledge.PREDICTED),
)
"""Levels of the master's knowledge, from full knowledge down to the paper's."""

Loads = Annotated[tuple[Annotated[float, Parameter(validator=Number(gt=0, lt=1))], ...], Several]


@Parameter(name="*", group=Group("Jobs and machines", sort_key=1))
@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicSetting:
    """Jobs and machines of the experiment.

    Parameters
    ----------
    jobs
        Number of jobs, each of one task.
    loads
        Arriving work, as a share of the capacity of all machines; a table for each.
    pcs
        Number of machines, in equal shares of each speed.
    speeds
        Benchmark speeds of the machines, in reference CPU-seconds per second.
    order
        Order guarantee that all policies give.
    """

    jobs: Count = 1000
    loads: Loads = (0.5, 0.7, 0.9)
    pcs: Count = 20
    speeds: Positives = (1.0, 2.0, 4.0)
    order: Order = Order.NONE

    def case(
        self, seed: int, policy: str, load: float, information: Information, sizes: SizeKnowledge
    ) -> DynamicCase:
        machines, programs = Machines(self.pcs, self.speeds), Programs(self.jobs, load=load)
        return DynamicCase(
            seed, policy, self.order, sizes=sizes, information=information, machines=machines, programs=programs
        )


def dynamic_load(
    *,
    policies: Annotated[tuple[str, ...], Several] = POLICIES,
    setting: DynamicSetting = DynamicSetting(),
    runs: SweepOptions = RUNS,
) -> int:
    """Compare the least expected turnaround with the paper's other ways to choose a machine (Shirotani et al.).

    Users submit runs of their programs to machines of different speeds, which their owners use too. The master
    predicts the size of a job from earlier runs of the same program. Two tables for each load: the policies, with the
    knowledge of the paper's master; and policy turnaround with more and less knowledge.

    Parameters
    ----------
    policies
        Policies to compare.
    """
    chosen = tuple(dict.fromkeys(map(known_policy, policies)))
    cases = list(dict.fromkeys(_cases(chosen, setting, runs)))
    began = time.monotonic()
    answers = runs.sweep(run, cases, lambda answer: answer.events)
    took_s = time.monotonic() - began

    def show(console: Console) -> None:
        for load in setting.loads:
            of_load = [answer for answer in answers if answer.case.programs.load == load]
            console.print(_of_policies(chosen, of_load, load))
            console.print(_of_knowledge(of_load, load))
        console.print(effort(len(answers), sum(answer.events for answer in answers), took_s))

    publish(runs, {"experiment": "dynamic-load", "runs": list(map(_run, answers))}, show)
    return 0


def _cases(chosen: Sequence[str], setting: DynamicSetting, runs: SweepOptions) -> list[DynamicCase]:
    as_in_paper = (Information.PIGGYBACK, SizeKnowledge.PREDICTED)
    return [
        setting.case(seed, policy, load, information, sizes)
        for load in setting.loads
        for policy, knowledge in [*((policy, [as_in_paper]) for policy in chosen), (BASE, _INFORMED)]
        for information, sizes in knowledge
        for seed in runs.seed_numbers
    ]


def _of_policies(chosen: Sequence[str], answers: Sequence[DynamicAnswer], load: float) -> Table:
    columns = ("policy", "mean turnaround", f"over {BASE}", "95 % within", "slowdown", "passings")
    made = _table(f"policies at load {load:g}; seconds", columns)
    groups = {policy: _measures(answers, policy, Information.PIGGYBACK, SizeKnowledge.PREDICTED) for policy in chosen}
    for policy, measured in groups.items():
        base = groups.get(BASE)
        over = "" if base is None or policy == BASE else _sure(_ratio(measured, base), 2)
        passings = sum(one.passings for one in measured)
        made.add_row(
            policy, _sure(_mean(measured, lambda m: m.turnaround)), over, _sure(_mean(measured, lambda m: m.p95)),
            _sure(_mean(measured, lambda m: m.slowdown), 2), f"{passings:,}",
        )  # fmt: skip
    return made


def _of_knowledge(answers: Sequence[DynamicAnswer], load: float) -> Table:
    made = _table(
        f"{BASE} at load {load:g}, by what the master knows", ("load", "sizes", "mean turnaround", "over all")
    )
    groups = {knowledge: _measures(answers, BASE, *knowledge) for knowledge in _INFORMED}
    for (information, sizes), measured in groups.items():
        best = groups[_INFORMED[0]]
        over = "" if measured is best else _sure(_ratio(measured, best), 3)
        made.add_row(information.value, sizes.value, _sure(_mean(measured, lambda m: m.turnaround)), over)
    return made


def _measures(
    answers: Sequence[DynamicAnswer], policy: str, information: Information, sizes: SizeKnowledge
) -> list[DynamicMeasures]:
    return [
        answer.measures
        for answer in answers
        if (answer.case.policy, answer.case.information, answer.case.sizes) == (policy, information, sizes)
    ]


def _mean(measured: Sequence[DynamicMeasures], value: Callable[[DynamicMeasures], float]) -> Estimate:
    return estimate([value(one) for one in measured])


def _ratio(ours: Sequence[DynamicMeasures], theirs: Sequence[DynamicMeasures]) -> Estimate:
    return ratio([one.turnaround for one in ours], [one.turnaround for one in theirs])


def _sure(figure: Estimate, digits: int = 1) -> str:
    return f"{figure.mean:.{digits}f} ± {figure.half_width:.{digits}f}"


def _table(title: str, columns: Sequence[str]) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        made.add_column(name, justify="left" if place == 0 else "right")
    return made


def _run(answer: DynamicAnswer) -> dict[str, Any]:
    case = answer.case
    return {
        "seed": case.seed, "load": case.programs.load, "policy": case.policy, "order": case.order.value,
        "information": case.information.value, "sizes": case.sizes.value, "events": answer.events,
        **dataclasses.asdict(answer.measures),
    }  # fmt: skip
