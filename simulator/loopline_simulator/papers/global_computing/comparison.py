"""Rows from the answers of many runs: schedulers beside one another, and beside the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import groupby
from typing import TypeVar

from loopline_simulator.experiments.comparison import Cell, cell
from loopline_simulator.papers.global_computing.published import RATES, TIMES, TIMES_OF
from loopline_simulator.papers.global_computing.queueing_trial import (
    QueueingAnswer,
    QueueingCase,
    QueueingMeasures,
    Rates,
)
from loopline_simulator.statistics import Estimate, estimate, ratio

Figures = TypeVar("Figures")

BASES = ("GRR", "LOAD")
"""Schedulers whose mean total the others are compared with, on the same seeds."""


@dataclass(frozen=True, slots=True)
class ClientRow:
    """Results of one client."""

    client: str
    throughput: Cell  # KB/s
    performance: Cell  # Mflops


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRow:
    """Results of one scheduler in one setting."""

    scheduler: str
    times: dict[str, Cell]  # seconds, by TIMES
    use: list[Cell]  # of each server, % of the time
    chosen: list[Estimate]  # each server's share of the requests
    total_over: dict[str, Estimate]  # its mean total over that of each of BASES
    clients: list[ClientRow]


@dataclass(frozen=True, slots=True)
class QueueingSetting:
    """Results of all schedulers in one setting."""

    table: int | None  # of the paper
    reading: str
    title: str
    _: KW_ONLY
    traffic: str
    assumptions: list[str]
    servers: list[str]
    rows: list[SchedulerRow]


def compare(answers: Sequence[QueueingAnswer]) -> list[QueueingSetting]:
    """Return a setting for each that occurs in the answers, in their order."""
    return [_setting(list(group)) for _, group in groupby(answers, key=lambda answer: _key(answer.case))]


def _key(case: QueueingCase) -> tuple[int | None, str, str, str]:
    return case.table, case.reading, case.scenario.title, traffic_of(case)


def traffic_of(case: QueueingCase) -> str:
    """Return the kinds of traffic on the case's networks."""
    return ", ".join(sorted({network.traffic.kind for network in case.scenario.networks}))


def _setting(answers: Sequence[QueueingAnswer]) -> QueueingSetting:
    case = answers[0].case
    runs: dict[str, list[QueueingMeasures]] = {}
    for answer in answers:
        runs.setdefault(answer.case.scheduler, []).append(answer.measures)
    table, reading, title, traffic = _key(case)
    servers = [server.name for server in case.scenario.servers]
    rows = [_row(case, scheduler, runs) for scheduler in runs]
    return QueueingSetting(
        table, reading, title, traffic=traffic, assumptions=case.scenario.assumptions, servers=servers, rows=rows
    )


def _row(case: QueueingCase, scheduler: str, runs: dict[str, list[QueueingMeasures]]) -> SchedulerRow:
    own, title = runs[scheduler], case.scenario.title
    known = _known(case, TIMES_OF, (title, scheduler)) or (None,) * 5
    servers = range(len(case.scenario.servers))
    return SchedulerRow(
        scheduler=scheduler,
        times={
            time: cell([getattr(run, f"{time}_s") for run in own], figure)
            for time, figure in zip(TIMES, known, strict=False)
        },
        use=[_use(own, server, known[3 + server] if server < 2 else None) for server in servers],
        chosen=[estimate([run.chosen[server] for run in own]) for server in servers],
        total_over={base: _over(own, runs[base]) for base in BASES if base in runs and base != scheduler},
        clients=[_client_row(case, number, client.name, own) for number, client in enumerate(case.scenario.clients)],
    )


def _use(runs: Sequence[QueueingMeasures], server: int, known: float | None) -> Cell:
    return cell([100 * run.utilisation[server] for run in runs], known)


def _over(ours: Sequence[QueueingMeasures], theirs: Sequence[QueueingMeasures]) -> Estimate:
    return ratio([run.total_s for run in ours], [run.total_s for run in theirs])


def _client_row(case: QueueingCase, number: int, name: str, runs: Sequence[QueueingMeasures]) -> ClientRow:
    throughput, performance = _known(case, RATES, (case.scenario.title, name)) or (None, None)
    rates = [rates for run in runs if (rates := run.clients[number]) is not None]

    def of(value: Callable[[Rates], float], known: float | None) -> Cell:
        return cell([value(rate) for rate in rates] or [float("nan")], known)

    return ClientRow(
        name,
        of(lambda rate: rate.throughput_kb_s, throughput),
        of(lambda rate: rate.performance_mflops, performance),
    )


def _known(
    case: QueueingCase, tables: dict[int, dict[tuple[str, str], Figures]], key: tuple[str, str]
) -> Figures | None:
    """Return the paper's figures if everything in the case is the paper's."""
    return tables.get(case.table, {}).get(key) if case.table and traffic_of(case) == "poisson" else None
