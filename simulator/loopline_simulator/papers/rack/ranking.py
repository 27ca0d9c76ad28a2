"""Algorithms compared on the same seeds: their order beside that of Table 1, and differences from one of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import combinations, pairwise
from statistics import fmean

from loopline_simulator.papers.rack.rack_trial import RackAnswer
from loopline_simulator.statistics import Estimate, difference

MORE_IS_BETTER = {"utilisation": True, "correlation": True, "residual": False, "largest_wait": False, "calls": False}
"""Measures that decide the order."""
PAPERS = ("naive", "current", "bold")

SCENARIOS = {1.0: 1, 0.5: 2}
"""Scenarios of the paper, by the share of limits used."""
TABLE_1: dict[float, dict[str, str]] = {  # by the share of limits used: per algorithm
    1.0: {"utilisation": "◎○△", "fairness": "△◎×", "speed": "×○◎"},
    0.5: {"utilisation": "△○◎", "fairness": "◎◎×", "speed": "×○◎"},
}
ROW_OF = {
    "utilisation": "utilisation",
    "correlation": "fairness",
    "residual": "fairness",
    "largest_wait": "fairness",
    "calls": "speed",
}
_GRADES = "×△○◎"


class Verdict(StrEnum):
    """Position of a paired interval: on the better side of zero, on the worse side, or around it."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"


Loads = Sequence[float | None]
"""Loads to average over; None: as logged."""


class Results:
    """Answers by scenario (the share of limits used; None: as logged), load, algorithm and seed."""

    def __init__(self, answers: Sequence[RackAnswer]) -> None:
        self.algorithms = list(dict.fromkeys(answer.case.algorithm for answer in answers))
        self.scenarios = list(dict.fromkeys(answer.case.used for answer in answers))
        self.loads = list(dict.fromkeys(answer.case.workload.load for answer in answers))
        self.seeds = list(dict.fromkeys(answer.case.seed for answer in answers))
        self._by_case = {_key(answer): answer for answer in answers}

    def of(self, used: float | None, algorithm: str, loads: Loads) -> list[RackAnswer]:
        return [self._by_case[seed, used, load, algorithm] for seed in self.seeds for load in loads]

    def values(self, measure: str, used: float | None, algorithm: str, loads: Loads) -> list[float]:
        """Return one value per seed."""
        return [
            fmean(getattr(self._by_case[seed, used, load, algorithm].measures, measure) for load in loads)
            for seed in self.seeds
        ]

    def against(self, measure: str, used: float | None, one: str, other: str, loads: Loads) -> Estimate:
        """Return the excess of ``one`` over ``other``, over the seeds."""
        return difference(self.values(measure, used, one, loads), self.values(measure, used, other, loads))

    def order(self, measure: str, used: float | None, loads: Loads, names: Sequence[str]) -> str:
        """Return the initials, best first: ``n=c>b``; ``=`` where a paired interval cannot separate neighbours."""
        sign = -1 if MORE_IS_BETTER[measure] else 1
        best = sorted(names, key=lambda name: sign * fmean(self.values(measure, used, name, loads)))
        text = best[0][0]
        for better, worse in pairwise(best):
            found = outcome(measure, self.against(measure, used, better, worse, loads))
            text += (">" if found is Verdict.BETTER else "=") + worse[0]
        return text

    def agreement(self, measure: str, used: float, loads: Loads) -> Verdict:
        """Compare with Table 1: better if every pair that it ranks comes out so, worse if one is reversed."""
        outcomes = [
            outcome(measure, self.against(measure, used, better, worse, loads))
            for better, worse in ranked_pairs(used, ROW_OF[measure])
        ]
        if Verdict.WORSE in outcomes:
            return Verdict.WORSE
        return Verdict.SAME if Verdict.SAME in outcomes else Verdict.BETTER


def outcome(measure: str, found: Estimate) -> Verdict:
    if math.isnan(found.half_width) or 0.0 in found:
        return Verdict.SAME
    return Verdict.BETTER if (found.mean > 0) is MORE_IS_BETTER[measure] else Verdict.WORSE


def ranked_pairs(used: float, row: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of the paper's algorithms that Table 1 grades differently, the better one first."""
    for one, other in combinations(zip(TABLE_1[used][row], PAPERS, strict=True), 2):
        if one[0] != other[0]:
            better, worse = sorted((one, other), key=lambda pair: -_GRADES.index(pair[0]))
            yield better[1], worse[1]


def _key(answer: RackAnswer) -> tuple[int, float | None, float | None, str]:
    return answer.case.seed, answer.case.used, answer.case.workload.load, answer.case.algorithm
