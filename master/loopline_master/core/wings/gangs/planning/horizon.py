"""The horizon of a worker: when its slots become free, given the work that runs there.

Times are whole seconds. Work with a limit is over by then. For work without one the forecast is used: its p90 for the
plan, its p50 for the first half of an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MARGIN_S = 2
"""Seconds that the end of an attempt may take beyond its limit."""
PREPARE_S = 3
"""Seconds that a gang may take to be ready everywhere."""
START_S = 1
"""Seconds that any other task may take to begin."""
_ROUNDS_TO = 16
"""Ends are rounded up by at most 1 / _ROUNDS_TO of the duration, so that a profile has few pieces."""

Steps = list[tuple[int, int]]
"""Free slots from a time on, in the order of time; the last entry is for ever."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Slots in use, with an end by limit, or by the forecast's p90 and p50 (``half``)."""

    slots: int
    end: int
    half: int
    is_limited: bool
    name: str = ""  # of the work, for reasons


@dataclass(frozen=True, slots=True)
class Horizon:
    """Slots on offer at a worker and the work there; ``why``: the reason if it offers less than it has."""

    slots: int  # on offer, including those in use; 0: it is away
    is_open: bool = True  # new plans may use it
    busy: tuple[Busy, ...] = ()
    why: str = ""

    def steps(self) -> Steps:
        """Return the free slots over time."""
        used = sum(one.slots for one in self.busy)
        found = [(0, max(0, self.slots - used))]
        for one in sorted(self.busy, key=lambda one: one.end):
            used -= one.slots
            free = max(0, self.slots - used)
            if found[-1][0] == one.end:
                found[-1] = (one.end, free)
            elif found[-1][1] != free:
                found.append((one.end, free))
        return found

    def expected(self, at: int) -> int:
        """Return the slots that are free at a time, if work without a limit is over by its forecast."""
        return self.slots - sum(one.slots for one in self.busy if one.end > at)

    def certain(self, at: int) -> int:
        """Return the slots that are certain to be free at a time, though work without a limit may run for ever."""
        return self.slots - sum(one.slots for one in self.busy if one.end > at or not one.is_limited)


AWAY = Horizon(0, is_open=False)


def differences(old: Steps, new: Steps, now: int) -> Iterable[tuple[int, int | None, int]]:
    """Yield start, end (None: for ever) and change of the free slots, from ``now`` on."""
    times = sorted({max(now, time) for time, _ in (*old, *new)})
    for place, start in enumerate(times):
        change = _at(new, start) - _at(old, start)
        if change:
            yield start, times[place + 1] if place + 1 < len(times) else None, change


def rounded(began: float, lasts_s: float) -> int:
    """Return the end of work begun at ``began``, rounded up to a power of two of seconds."""
    step = 1 << max(0, int(lasts_s // _ROUNDS_TO).bit_length() - 1)
    return -(-math.ceil(began + lasts_s) // step) * step


def end_by_limit(began: float, limit_s: float) -> int:
    """Return the latest end of an ordinary task dispatched at ``began``, by its limit."""
    return rounded(int(began) + START_S, math.ceil(limit_s)) + MARGIN_S


def _at(steps: Steps, time: int) -> int:
    free = 0
    for start, slots in steps:
        if start > time:
            break
        free = slots
    return free
