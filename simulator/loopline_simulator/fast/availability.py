"""Hosts that come and go, and owners who use them.

*Availability*: intervals when a host's agent is connected. *Presence*: intervals when its owner uses it, which leave
tasks a share of its speed, or nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from loopline_simulator.fast.hosts import Floats, Speed
from loopline_simulator.streams import Generator


class Absence(StrEnum):
    """Fate of the attempts on a host that goes away."""

    LOSES = "loses"  # switched off: it comes back with nothing
    SLEEPS = "sleeps"  # suspended: it comes back and continues
    WORKS = "works"  # only its link is down: it computes on, and reports the results when it comes back


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Times from ``start`` up to ``end``, which is excluded."""

    start: float
    end: float


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge overlapping and adjacent intervals, in order of time; empty ones are left out."""
    whole: list[Interval] = []
    for interval in sorted(interval for interval in intervals if interval.start < interval.end):
        if whole and interval.start <= whole[-1].end:
            whole[-1] = Interval(whole[-1].start, max(whole[-1].end, interval.end))
        else:
            whole.append(interval)
    return whole


def alternating(random: Generator, mean_there_s: float, mean_away_s: float) -> Iterator[Interval]:
    """Yield stays of random (exponential) length with absences between them, without end, in the long-run state at
    time 0.
    """
    is_there = random.random() < mean_there_s / (mean_there_s + mean_away_s)
    now = 0.0 if is_there else random.exponential(mean_away_s)
    while True:
        end = now + random.exponential(mean_there_s)
        yield Interval(now, end)
        now = end + random.exponential(mean_away_s)


class Piecewise:
    """A speed that changes: ``speeds[i]`` holds from ``times[i]`` on; before the first time, the first speed
    holds.
    """

    def __init__(self, times: Sequence[float], speeds: Sequence[float]) -> None:
        """Take ascending ``times`` and as many ``speeds`` (at least one, none of them negative)."""
        self._times: Floats = np.asarray(times, dtype=np.float64)
        self._speeds: Floats = np.asarray(speeds, dtype=np.float64)
        self._done: Floats = np.concatenate(([0.0], np.cumsum(np.diff(self._times) * self._speeds[:-1])))

    @property
    def is_steady(self) -> bool:
        return len(self._times) == 1

    @property
    def last(self) -> float:
        """The speed from the last change on."""
        return float(self._speeds[-1])

    @property
    def highest(self) -> float:
        return float(self._speeds.max())

    def end_of(self, start: float, work: float) -> float:
        """Return the time when the work is done; infinity if never."""
        piece = self._piece(start)
        speed = float(self._speeds[piece])
        is_last = piece == len(self._times) - 1
        if speed > 0 and (is_last or start + work / speed <= self._times[piece + 1]):
            return start + work / speed  # one piece: as exact as a steady host
        target = self._at(start) + work
        piece = max(piece, int(self._done.searchsorted(target)) - 1)
        speed = float(self._speeds[piece])
        left = target - float(self._done[piece])
        if speed == 0:
            return max(start, float(self._times[piece])) if left <= 0 else math.inf
        return max(start, float(self._times[piece]) + left / speed)

    def work_between(self, start: float, end: float) -> float:
        piece = self._piece(start)
        if piece == self._piece(end):
            return (end - start) * float(self._speeds[piece])
        return self._at(end) - self._at(start)

    def of_blocks(self, starts: Sequence[float], each_s: float, length_s: float) -> Piecewise:
        """Return a time put together of blocks of this one, which is ``length_s`` long.

        With starts that are drawn at random that is the block bootstrap (H. Künsch, Annals of Statistics 17, 1989):
        blocks keep how long a speed lasts, and the mean varies as that of another time would. A block may run on
        from the end to the beginning.
        """
        times, speeds = [], []
        for number, start in enumerate(starts):
            for at, speed in self._cut(start % length_s, min(each_s, length_s), length_s):
                times.append(number * each_s + at)
                speeds.append(speed)
        return Piecewise(times, speeds)

    def _cut(self, start: float, lasts: float, length_s: float) -> Iterator[tuple[float, float]]:
        """Yield (time since ``start``, speed) of a part that may run on from the end to the beginning."""
        end = min(start + lasts, length_s)
        yield 0.0, float(self._speeds[self._piece(start)])
        for piece in range(self._piece(start) + 1, self._piece(end) + 1):
            if self._times[piece] < end:
                yield float(self._times[piece]) - start, float(self._speeds[piece])
        left = lasts - (length_s - start)
        if left > 0:
            yield from ((length_s - start + at, speed) for at, speed in self._cut(0.0, left, length_s))

    def _piece(self, time: float) -> int:
        return max(0, int(self._times.searchsorted(time, side="right")) - 1)

    def _at(self, time: float) -> float:
        piece = self._piece(time)
        return float(self._done[piece]) + (time - float(self._times[piece])) * float(self._speeds[piece])


class Interrupted:
    """A host's speed, reduced to a ``share`` during some intervals, which are sorted and disjoint."""

    def __init__(self, speed: Speed, intervals: Sequence[Interval], share: float = 0.0) -> None:
        self._speed, self._share = speed, share
        self._edges = [edge for interval in intervals for edge in (interval.start, interval.end)]

    def end_of(self, start: float, work: float) -> float:
        for begin, end, share in self._pieces(start):
            done = share * self._speed.work_between(begin, end) if end < math.inf else math.inf
            if share > 0 and done >= work:
                return min(self._speed.end_of(begin, work / share), end)
            work -= done if share else 0.0
        return math.inf

    def work_between(self, start: float, end: float) -> float:
        total = 0.0
        for begin, until, share in self._pieces(start):
            total += share * self._speed.work_between(begin, min(until, end)) if share else 0.0
            if until >= end:
                break
        return total

    def _pieces(self, start: float) -> Iterator[tuple[float, float, float]]:
        """Yield (start, end, share of the speed) from ``start`` on."""
        place = bisect_right(self._edges, start)
        while True:
            end = self._edges[place] if place < len(self._edges) else math.inf
            yield start, end, self._share if place % 2 else 1.0
            if end == math.inf:
                return
            start, place = end, place + 1


def absences(intervals: Sequence[Interval]) -> list[Interval]:
    """Return the gaps before, between and after stays, which are sorted and disjoint."""
    edges = [-math.inf, *(edge for stay in intervals for edge in (stay.start, stay.end)), math.inf]
    return [Interval(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]


class Recurring:
    """A recorded speed repeated for ever: at time 0 it is at ``begin``, at ``end`` the record starts again."""

    def __init__(self, past: Piecewise, begin: float, end: float) -> None:
        """Take a record and its bounds: 0 <= begin < end."""
        self._past, self._begin, self._period = past, begin, end
        self._round = past.work_between(0.0, end)

    def end_of(self, start: float, work: float) -> float:
        if work <= 0:
            return start
        if self._round <= 0:
            return math.inf
        target = self._done(start) + work
        rounds = math.ceil(target / self._round) - 1
        return max(start, rounds * self._period + self._past.end_of(0.0, target - rounds * self._round) - self._begin)

    def work_between(self, start: float, end: float) -> float:
        return self._done(end) - self._done(start)

    def _done(self, time: float) -> float:
        """Return the work done since the record's own time 0."""
        rounds, rest = divmod(time + self._begin, self._period)
        return rounds * self._round + self._past.work_between(0.0, rest)
