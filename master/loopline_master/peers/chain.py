"""A simple rule for who takes a file from whom, until the planner (core/transfers/) is wired in, which replaces it.

All workers that have a file or fetch it stand in one line, in the order of their addresses: neighbours in address are
mostly neighbours on the wire. Each receiver takes the file from the one before it in the line; those before the first
worker that has the whole file take it from the one behind them, towards that worker. So every worker is sent the file
once and sends it once, and no two wait for each other. Where nobody has all of the file, the head of the line takes
it from the master.
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
    head, at = _head(line, size_bytes), line.index(receiver)
    if receiver == head:
        return []
    before, behind = line[:at][::-1], line[at + 1 :]

    def is_goal(stand: Stand) -> bool:
        return math.isinf(stand.have_bytes) or stand == head

    way = before if any(map(is_goal, before)) else behind
    candidates = list(takewhile(lambda stand: not is_goal(stand), way))
    found = [stand for stand in candidates if stand.have_bytes >= receiver.have_bytes - _lag(size_bytes)]
    return found + list(way[len(candidates) : len(candidates) + 1])


def _head(line: Sequence[Stand], size_bytes: int) -> Stand | None:
    """Return the one that takes the file from the master, for all others; None if a worker has all of it.

    It is the first of the line, unless that one came late and another is far ahead of it.
    """
    ahead = max(line, key=lambda stand: stand.have_bytes)
    if math.isinf(ahead.have_bytes):
        return None
    return line[0] if line[0].have_bytes >= ahead.have_bytes - _lag(size_bytes) else ahead


def _lag(size_bytes: int) -> float:
    return max(_LAG_BYTES, size_bytes * _LAG_SHARE)
