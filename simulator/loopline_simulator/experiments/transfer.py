"""``loopline simulate transfer``: Takahashi et al.'s planned transfers beside ways that do not know the network."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from rich.console import Console, RenderableType

from loopline_simulator.experiments.answers import effort, publish
from loopline_simulator.experiments.options import RUNS, Count, Positive, Several, SweepOptions, usage
from loopline_simulator.papers.data_transfer import rounds_trial, unknown_trial
from loopline_simulator.papers.data_transfer.assignment_trial import (
    SEARCHES,
    SEARCHING,
    AssignmentAnswer,
    AssignmentCase,
    assign,
)
from loopline_simulator.papers.data_transfer.strategies import STRATEGIES
from loopline_simulator.papers.data_transfer.transfer_scenario import TransferScenario
from loopline_simulator.papers.data_transfer.transfer_trial import TransferAnswer, TransferCase, run
from loopline_simulator.papers.data_transfer.unknown_trial import KNOWN, UnknownCase

_UNKNOWN = ("last_s", "ratio", "copies", "plans")
"""What a run with --unknown tells."""

Seconds = Annotated[float, Parameter(validator=Number(gte=0, lte=1e6))]


@Parameter(name="*", group=Group("Network and files", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class TransferOptions:
    """The network, the files, and the hosts that need them.

    Parameters
    ----------
    hosts
        Hosts that want files; a third of them at 100 Mbit/s, the others at 1 Gbit/s.
    switches
        Switches, in a random tree; a third of their uplinks at 100 Mbit/s, the others at 1 Gbit/s.
    files
        Number of files. The master, at the root switch, has all of them.
    copies
        Hosts that have each file at the beginning, beside the master.
    wants
        Files that each host wants (with --assign: that each task needs).
    size_mb
        Mean size of a file in MB; sizes are uniform from half of it to one and a half.
    spread
        Demands come within this many seconds, at random.
    change_every
        Mean seconds between two changes of a switch's uplink, each to 20 to 100 % of its capacity; 0: none.
    """

    hosts: Count = 32
    switches: Count = 6
    files: Count = 8
    copies: Count = 2
    wants: Count = 2
    size_mb: Positive = 500.0
    spread: Seconds = 0.0
    change_every: Seconds = 0.0

    def scenario(self) -> TransferScenario:
        return TransferScenario(
            hosts=self.hosts,
            switches=self.switches,
            files=self.files,
            copies=self.copies,
            wants=self.wants,
            size_mb=self.size_mb,
            spread_s=self.spread,
            change_every_s=self.change_every,
        )


@Parameter(name="*", group=Group("A network that nobody wrote down", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class LabOptions:
    """A lab with narrow cables between its switches.

    Parameters
    ----------
    unknown
        Compare instead how long one file takes to all hosts of such a lab, where its cables are written down, where
        the master learns of them on the way, and where it never does.
    edge
        With --unknown: Mbit/s of each host's link.
    between
        With --unknown: Mbit/s between the switches.
    """

    unknown: bool = False
    edge: Positive = 1000.0
    between: Positive = 100.0


@Parameter(name="*", group=Group("Tasks with computing time", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class RoundsOptions:
    """Tasks that need files and computing time.

    Parameters
    ----------
    rounds
        Compare instead when such tasks are completed: given out in rounds, by each way of --assign but the live one,
        and by a live master as each worker becomes idle.
    ratios
        With --rounds: transfer time of a task's files over its computer's link alone, divided by its computing time.
    tasks
        With --rounds: tasks for each host.
    """

    rounds: bool = False
    ratios: Annotated[tuple[Positive, ...], Several] = (0.1, 1.0, 10.0)
    tasks: Count = 4


def transfer(
    *,
    strategies: Annotated[tuple[str, ...], Several] = tuple(STRATEGIES),
    assign: bool = False,
    plans: Annotated[tuple[Count, ...], Several] = (30, 100),
    more: Annotated[float, Parameter(validator=Number(gte=0, lte=10))] = 0.25,
    pictures: Path | None = None,
    network: TransferOptions = TransferOptions(),
    lab: LabOptions = LabOptions(),
    work: RoundsOptions = RoundsOptions(),
    runs: SweepOptions = RUNS,
) -> int:
    """Compare ways to bring files to hosts: the master's planner, lines and peers chosen blindly, the master alone.

    Files flow as fluids through a tree of full-duplex links. Bounds that no way can beat stand beside the results.

    Parameters
    ----------
    strategies
        Ways to compare: planned (sources, lines and rates by the planner), planned-fair (the same without a solver),
        planned-once (without re-planning), blind (the same kind of lines, from any source in any order), random-peers
        (each host fetches for itself, from any that has the file), master-only.
    assign
        Compare instead how tasks are given to hosts: at random, where their files are, improved from there by
        annealing and by a genetic algorithm, and as a live master does it.
    plans
        With --assign: plans that a search may make. With --rounds: the first of them, in each round.
    more
        With --assign: tasks beyond one for each host, as a share of the hosts. They wait for the next round.
    pictures
        Draw the first seed's network with the first plan, and each link's use over time, into this folder.
    """
    for name in strategies:
        if name not in STRATEGIES:
            raise usage(f"there is no strategy {name!r}", f"there are {', '.join(STRATEGIES)}")
    if lab.unknown:
        return _learn(network, lab, runs)
    if work.rounds:
        return _compare_rounds(network.scenario(), plans[0], work, runs)
    if assign:
        return _compare_searches(network.scenario(), plans, more, runs)
    cases = _cases(strategies, network.scenario(), runs)
    began = time.monotonic()
    answers = runs.sweep(run, cases, lambda answer: answer.events)
    show, drawn = partial(_show, answers, time.monotonic() - began), [c for c in cases if c.seed == runs.first_seed]
    publish(runs, _document(answers), show, draw=partial(_draw, drawn), pictures=pictures)
    return 0


def _cases(strategies: Sequence[str], scenario: TransferScenario, runs: SweepOptions) -> list[TransferCase]:
    if not scenario.draw(runs.first_seed).arrivals:
        raise usage("every host has every file that it wants", "more --hosts, more --files, or fewer --copies")
    return [TransferCase(seed, name, scenario) for seed in runs.seed_numbers for name in dict.fromkeys(strategies)]


def _learn(network: TransferOptions, lab: LabOptions, runs: SweepOptions) -> int:
    cases = [
        UnknownCase(
            seed=seed,
            known=known,
            hosts=network.hosts,
            switches=network.switches,
            size_mb=network.size_mb,
            edge=lab.edge,
            between=lab.between,
        )
        for seed in runs.seed_numbers
        for known in KNOWN
    ]
    answers = runs.sweep(unknown_trial.run, cases, lambda answer: answer.plans)
    each = [asdict(one.case) | {name: getattr(one, name) for name in _UNKNOWN} for one in answers]
    document = {"experiment": "transfer", "unknown": each}
    publish(runs, document, partial(_print, unknown_trial.picture(answers)), rows="unknown")
    return 0


def _show(answers: Sequence[TransferAnswer], took_s: float, console: Console) -> None:
    from loopline_simulator.papers.data_transfer import transfer_tables

    console.print(transfer_tables.picture(answers))
    console.print(effort(len(answers), sum(answer.events for answer in answers), took_s), soft_wrap=True)


def _document(answers: Sequence[TransferAnswer]) -> dict[str, Any]:
    """Return each run's own figures, without computing times, which differ from run to run."""
    each = [
        {
            "seed": answer.case.seed,
            "strategy": answer.case.strategy,
            "asked": answer.events,
            **asdict(answer.measures),
        }
        for answer in answers
    ]
    return {"experiment": "transfer", "scenario": asdict(answers[0].case.scenario), "runs": each}


def _compare_searches(scenario: TransferScenario, plans: Sequence[int], more: float, runs: SweepOptions) -> int:
    cases = [
        AssignmentCase(seed, search, scenario, most, more)
        for seed in runs.seed_numbers
        for search in SEARCHES
        for most in (dict.fromkeys(plans) if search in SEARCHING else plans[:1])
    ]
    answers = runs.sweep(assign, cases, lambda answer: answer.plans, what="searches")
    from loopline_simulator.papers.data_transfer import transfer_tables

    show = partial(_print, transfer_tables.searches(answers))
    publish(runs, _searches(answers), show, rows="searches")
    return 0


def _compare_rounds(scenario: TransferScenario, plans: int, work: RoundsOptions, runs: SweepOptions) -> int:
    cases = rounds_trial.cases(scenario, work.ratios, work.tasks, plans, runs.seed_numbers)
    answers = runs.sweep(rounds_trial.run, cases, lambda answer: answer.plans)
    each = [asdict(one.case) | asdict(one) for one in answers]
    for one in each:
        del one["case"], one["scenario"]
    from loopline_simulator.papers.data_transfer import transfer_tables

    document = {"experiment": "transfer", "scenario": asdict(scenario), "rounds": each}
    publish(runs, document, partial(_print, transfer_tables.rounds(answers)), rows="rounds")
    return 0


def _print(table: RenderableType, console: Console) -> None:
    console.print(table)


def _searches(answers: Sequence[AssignmentAnswer]) -> dict[str, Any]:
    each = [
        {"seed": one.case.seed, "search": one.case.search, "most_plans": one.case.plans}
        | {"plans": one.plans, "value_mbs": one.value / 1e6, "last_s": one.last_s, "mean_s": one.mean_s}
        for one in answers
    ]
    return {"experiment": "transfer", "scenario": asdict(answers[0].case.scenario), "searches": each}


def _draw(cases: Sequence[TransferCase], folder: Path) -> list[Path]:
    from loopline_simulator.papers.data_transfer import transfer_pictures

    return transfer_pictures.draw(cases, folder)
