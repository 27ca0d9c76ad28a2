"""A simple rule for who takes a file from whom, until the planner (core/transfers/) is wired in, which replaces it.

All workers that have a file or fetch it stand in one line, in the order of their addresses: neighbours in address are
mostly neighbours on the wire. Each receiver takes the file from the one before it in the line; those before the first
worker that has the whole file take it from the one behind them, towards that worker. So every worker is sent the file
once and sends it once, and no two wait for each other. The first of a line in which nobody has the file takes it from
the master.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

_LAG_BYTES = 16 * 2**20
_LAG_SHARE = 1 / 8


@dataclass(frozen=True, slots=True)
class Stand:
    """A worker's place in the line of a file, by its address, and how much it has of the file."""

    worker: str
    place: tuple[int, ...]
    have_bytes: float = math.inf
    """Infinite: all of it, and it fetches nothing."""


def sources_for(receiver: Stand, line: Sequence[Stand], size_bytes: int) -> list[Stand]:
    """Return those from which a receiver takes a file, best first; empty: only the master.

    ``line`` is in order and has the receiver. One that lags far behind it is left out, for it would have to wait.
    """
    at = line.index(receiver)
    before, behind = line[:at][::-1], line[at + 1 :]
    has_all_before = any(math.isinf(stand.have_bytes) for stand in before)
    has_all_behind = any(math.isinf(stand.have_bytes) for stand in behind)
    way = behind if has_all_behind and not has_all_before else before
    candidates = list(takewhile(lambda stand: not math.isinf(stand.have_bytes), way))
    found = [stand for stand in candidates if stand.have_bytes >= receiver.have_bytes - _lag(size_bytes)]
    return found + list(way[len(candidates) : len(candidates) + 1])


def _lag(size_bytes: int) -> float:
    return max(_LAG_BYTES, size_bytes * _LAG_SHARE)
