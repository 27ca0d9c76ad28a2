"""A section of the study: a table of cases, and the figures of their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from loopline_simulator.fast.trial import Case, run
from loopline_simulator.statistics import Estimate, estimate, ratio
from loopline_simulator.study.bounds import BoundCase, mean_total
from loopline_simulator.traces.window import LogWindow

StudyCase = Case | BoundCase
Figures = dict[str, float]
"""Figures of a run by name, such as ``total``: its mean total time in seconds."""
Place = tuple[str, str]
"""Row and column."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A table of a section: one figure of every case; ``as_share``: in per cent; ``is_sum``: added up over seeds."""

    figure: str
    title: str
    _: KW_ONLY
    as_share: bool = False
    is_sum: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Cases by row and column, for seed 0; ``base`` is the row that the others are compared with, seed by seed."""

    key: str
    title: str
    text: str
    cases: Mapping[Place, StudyCase]
    _: KW_ONLY
    base: str
    base_column: str = ""  # where columns are to be compared too, with this one
    shown: Sequence[Shown] = (Shown("total", "mean total time, s"),)
    compared: Sequence[Shown] = (Shown("total", "mean total time"),)  # over the base's
    against: Shown | None = None  # draws total times against this figure, in place of bars
    seeds: list[int] = field(default_factory=list)  # those of the answers
    answers: dict[Place, list[Figures]] = field(default_factory=dict)  # by seed

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for row, _ in self.cases))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for _, column in self.cases))

    def items(self, seeds: Sequence[int]) -> list[tuple[Place, StudyCase]]:
        """Return every case of the section with each of the seeds, seed by seed."""
        return [(place, replace(case, seed=seed)) for seed in seeds for place, case in self.cases.items()]

    def different(self, seeds: range) -> range:
        """Return the seeds that give different runs: a log has a limited number of windows."""
        logs = [case.log for case in self.cases.values() if isinstance(case, Case)]
        return seeds[: min((log.windows for log in logs if isinstance(log, LogWindow)), default=len(seeds))]

    def values(self, place: Place, figure: str) -> list[float]:
        """Return the figure of each seed; an empty list if the section has no such case."""
        return [answer[figure] for answer in self.answers.get(place, []) if figure in answer]

    def estimate(self, place: Place, figure: str) -> Estimate | None:
        values = self.values(place, figure)
        return estimate(values) if values else None

    def over_base(self, place: Place, figure: str = "total") -> Estimate | None:
        """Return the figure over the base row's, paired by seed; None where that is 0."""
        ours, base = self.values(place, figure), self.values((self.base, place[1]), figure)
        is_known = ours and len(ours) == len(base) and any(base)
        return ratio(ours, base) if is_known and place[0] != self.base else None

    def over_column(self, place: Place) -> Estimate | None:
        """Return the mean total time over the base column's in the same row, paired by seed."""
        ours, base = self.values(place, "total"), self.values((place[0], self.base_column), "total")
        return ratio(ours, base) if ours and len(ours) == len(base) else None


def measured(case: StudyCase) -> Figures:
    """Run a case and return its figures."""
    if isinstance(case, BoundCase):
        return {"total": mean_total(case)}
    measures = run(case).measures
    quarters = {f"slowdown {place}": value for place, value in enumerate(measures.slowdown_by_size, 1)}
    return {
        "total": measures.total.mean,
        "waiting": measures.waiting.mean,
        "slowdown": measures.mean_slowdown,
        "worst": measures.worst_slowdown,
        "lost": measures.lost_work,
        "spent": measures.spent,
        "passed": float(measures.passed),
        "passable": float(measures.passable),
        "overtaken": float(measures.overtaken),
        **quarters,
        **({} if measures.kwh is None else {"kwh": measures.kwh}),
    }
