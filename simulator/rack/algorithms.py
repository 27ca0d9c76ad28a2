"""Which times a scan tries: the paper's three algorithms, and ours that choose by load or by how good limits are.

An algorithm is named in words that a command line takes: ``naive``, ``current``, ``bold``; ``powers:FIRST,BASE,COUNT``
for another series; ``thrifty-`` before any of them for the same plans with fewer calls.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace

from shared.errors import LooplineError
from simulator.rack.lattice import Lattice

THRIFTY = "thrifty-"
_POWERS = re.compile(r"powers:([1-9]\d{0,4}),([1-9]\d{0,2}),([1-9]\d{0,3})")


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known when a scan begins."""

    backlog: float  # work of the waiting jobs by their limits, in steps of time of the whole rack
    used: float  # of their limits by the jobs that ended; 1 before any did
    waited: float  # by the job, in steps


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Tries the times of ``usual``; of ``busy`` once the backlog exceeds ``backlog``; of ``loose`` while jobs use
    less than ``used`` of their limits. A thrifty one calls Bottom-Left only where the answer is not known.
    """

    usual: Lattice
    busy: Lattice | None = None
    backlog: float = 0.0
    loose: Lattice | None = None
    used: float = 0.0
    old: Lattice | None = None
    age: float = 0.0
    thrifty: bool = False

    def lattice(self, outlook: Outlook) -> Lattice:
        if self.old is not None and outlook.waited > self.age:
            return self.old
        if self.loose is not None and outlook.used < self.used:
            return self.loose
        if self.busy is not None and outlook.backlog > self.backlog:
            return self.busy
        return self.usual


NAIVE, CURRENT, BOLD = Lattice(1), Lattice(2, 2, 8), Lattice(32)
PAPERS = {"naive": Algorithm(NAIVE), "current": Algorithm(CURRENT), "bold": Algorithm(BOLD)}
OURS = {
    "by-load": Algorithm(CURRENT, busy=BOLD, backlog=20.0),
    "by-load-fine": Algorithm(CURRENT, busy=NAIVE, backlog=20.0),
    "by-limits": Algorithm(CURRENT, loose=BOLD, used=0.75),
    "by-limits-fine": Algorithm(CURRENT, loose=NAIVE, used=0.75),
}
OURS |= {f"bold-old{a}": Algorithm(BOLD, old=NAIVE, age=a) for a in (10,20,40,60,80)}
OURS |= {f"lim-old{a}": Algorithm(CURRENT, loose=BOLD,used=.75, old=NAIVE, age=a) for a in (10,20,40,60,80)}
OURS |= {f"bold{g}": Algorithm(Lattice(g)) for g in (4,8,16,64)}
OURS |= {f"lim{g}": Algorithm(CURRENT, loose=Lattice(g),used=.75) for g in (4,8,16)}
_NAMED = PAPERS | OURS


def algorithm(name: str) -> Algorithm:
    """LooplineError with the nearest name where there is none of that name."""
    if name.startswith(THRIFTY):
        return replace(algorithm(name.removeprefix(THRIFTY)), thrifty=True)
    if powers := _POWERS.fullmatch(name):
        return Algorithm(Lattice(*map(int, powers.groups())))
    if name not in _NAMED:
        close = difflib.get_close_matches(name, _NAMED, n=1)
        others = f"there are {', '.join(_NAMED)}, powers:FIRST,BASE,COUNT, and {THRIFTY} before any of them"
        raise LooplineError("usage", f"there is no algorithm {name!r}", f"did you mean {close[0]}?" if close else others)
    return _NAMED[name]
