"""Algorithms that choose the times a scan tries: the paper's three, and ours, which choose among these.

The command line calls them ``naive``, ``current``, ``bold``, ...; ``powers:FIRST,BASE,COUNT`` for another series;
``thrifty-`` before any of them for the same plans with fewer calls.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from loopline_master.core.wings.gangs.planning.scans.lattice import Lattice
from loopline_shared.errors import LooplineError

THRIFTY = "thrifty-"
_POWERS = re.compile(r"powers:([1-9]\d{0,4}),([1-9]\d{0,2}),([1-9]\d{0,3})")


@dataclass(frozen=True, slots=True)
class ScanContext:
    """Quantities known when the planner scans for a job."""

    backlog: float  # work of the waiting jobs by their limits, in steps of time of the whole rack
    used: float  # by the jobs that ended, of their limits; 1 before any did
    waited: float  # by this job, as a multiple of the mean limit of all jobs that arrived


@dataclass(frozen=True, slots=True)
class Pick:
    """Choice that depends on one known quantity: ``below`` up to ``limit``, ``above`` beyond it."""

    by: Literal["backlog", "used", "waited"]
    limit: float
    below: Choice
    above: Choice


Choice: TypeAlias = Lattice | Pick


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Tries the times of its choice; a thrifty one skips times whose answer is known."""

    choice: Choice
    thrifty: bool = False

    def lattice(self, outlook: ScanContext) -> Lattice:
        choice = self.choice
        while isinstance(choice, Pick):
            choice = choice.above if getattr(outlook, choice.by) > choice.limit else choice.below
        return choice


NAIVE, CURRENT, BOLD = Lattice(1), Lattice(2, 2, 8), Lattice(32)
BOLD_FOR_THE_YOUNG = Pick("waited", 2.0, BOLD, NAIVE)
PAPERS = {"naive": Algorithm(NAIVE), "current": Algorithm(CURRENT), "bold": Algorithm(BOLD)}
OURS = {
    "by-load": Algorithm(Pick("backlog", 20.0, CURRENT, BOLD)),
    "by-limits": Algorithm(Pick("used", 0.75, BOLD, CURRENT)),
    "by-age": Algorithm(BOLD_FOR_THE_YOUNG),
    "blend": Algorithm(Pick("used", 0.75, BOLD_FOR_THE_YOUNG, CURRENT)),
}
"""Combinations of the paper's algorithms: by load, by the quality of limits, by a job's wait, and by the last two."""
_NAMED = PAPERS | OURS


def algorithm(name: str) -> Algorithm:
    """Return the algorithm of that name. Raises LooplineError with the nearest name if it is unknown."""
    if name.startswith(THRIFTY):
        return replace(algorithm(name.removeprefix(THRIFTY)), thrifty=True)
    if powers := _POWERS.fullmatch(name):
        return Algorithm(Lattice(*map(int, powers.groups())))
    if name not in _NAMED:
        close = difflib.get_close_matches(name, _NAMED, n=1)
        others = f"there are {', '.join(_NAMED)}, powers:FIRST,BASE,COUNT, and {THRIFTY} before any of them"
        raise LooplineError(
            "usage", f"there is no algorithm {name!r}", f"did you mean {close[0]}?" if close else others
        )
    return _NAMED[name]
