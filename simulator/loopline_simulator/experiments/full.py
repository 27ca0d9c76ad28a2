"""``loopline simulate full``: the full world, seed after seed, in search of a seed that breaks a guarantee."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich import box
from rich.console import Console
from rich.table import Table

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.policies import REGISTRY
from loopline_shared.model import Order
from loopline_simulator.experiments.answers import publish
from loopline_simulator.experiments.options import RUNS, Several, SweepOptions, known_policy
from loopline_simulator.full import NIGHT, Scenario, Summary, run

_COUNTED = (
    "jobs", "tasks", "attempts", "events", "crashes", "reboots", "kills", "stops", "breaks", "partitions", "saves",
    "resumptions", "sleeps", "woken",
)  # fmt: skip
_FRAMES = ("frames", "lost", "duplicated")
_LABELS = {"lost": "frames lost", "duplicated": "frames repeated"}
_SHOWN = 10  # broken runs


@dataclasses.dataclass(frozen=True, slots=True)
class WorldRun:
    """Everything that a run of the full world depends on."""

    seed: int
    policy: str
    order: Order
    scenario: Scenario


def run_world(world: WorldRun) -> Summary:
    return run(world.seed, SchedulerSettings(policy=world.policy, order=world.order), world.scenario)


def full(
    *,
    policies: Annotated[tuple[str, ...], Several] = tuple(REGISTRY),
    order: Order = Order.HOLD,
    machines: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 5,
    jobs: Annotated[int, Parameter(validator=Number(gte=1, lte=100_000))] = 12,
    checkpoints: Annotated[float, Parameter(validator=Number(gte=0, lte=1))] = 0.0,
    sleep: Annotated[bool, Parameter(negative=())] = False,
    runs: SweepOptions = RUNS,
) -> int:
    """Run the live scheduler, sessions and worker cores among crashes, reboots and a network that loses frames.

    All invariants are checked after each step. The exit code is 1 if a seed breaks a guarantee; the output
    names the seed.

    Parameters
    ----------
    policies
        Policies to run with every seed.
    order
        Order guarantee of the jobs.
    machines
        Number of machines.
    jobs
        Number of jobs submitted.
    checkpoints
        Share of the jobs whose tasks save their state at random times, and continue from it.
    sleep
        Let machines fall asleep for a night: some are woken for work, some are not woken by any packet.
    """
    scenario = Scenario(machines=machines, jobs=jobs, checkpoints=checkpoints, sleep=NIGHT if sleep else None)
    chosen = tuple(dict.fromkeys(map(known_policy, policies)))
    worlds = [WorldRun(seed, policy, order, scenario) for seed in runs.seed_numbers for policy in chosen]
    summaries = runs.sweep(run_world, worlds, lambda summary: summary.events, what="worlds")
    each = [dataclasses.asdict(summary) for summary in summaries]
    publish(runs, {"experiment": "full", "runs": each}, partial(_show, summaries))
    return int(any(_is_broken(summary) for summary in summaries))


def _is_broken(summary: Summary) -> bool:
    return bool(summary.broken) or (summary.passings > 0 and summary.order != Order.NONE)


def _show(summaries: Sequence[Summary], console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column("")
    policies = tuple(dict.fromkeys(summary.policy for summary in summaries))
    for policy in policies:
        table.add_column(policy, justify="right")
    totals = [_totals([summary for summary in summaries if summary.policy == policy]) for policy in policies]
    for name in ("worlds", *_COUNTED, *_FRAMES, "passings", "broken"):
        table.add_row(_LABELS.get(name, name), *_numbers(totals, name))
    console.print(table)
    broken = [summary for summary in summaries if _is_broken(summary)]
    for summary in broken[:_SHOWN]:
        what = summary.broken or f"{summary.passings} passings"
        console.print(f"seed {summary.seed}, {summary.policy}: {what}", style="red", markup=False)


def _totals(summaries: Sequence[Summary]) -> Counter[str]:
    totals: Counter[str] = Counter(worlds=len(summaries), broken=sum(map(_is_broken, summaries)))
    for summary in summaries:
        for name in (*_COUNTED, *_FRAMES, "passings"):
            totals[name] += getattr(summary, name)
    return totals


def _numbers(totals: Sequence[Counter[str]], name: str) -> list[str]:
    return [f"{total[name]:,}" for total in totals]
