"""Sorted collections for indexes: sets of numbers as ranges, and rankings."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from sortedcontainers import SortedList

from loopline_master.core.kernel.runs import ProgramKey
from loopline_shared.model import AttemptId, TaskId

Rank = TypeVar("Rank", bound=tuple[Any, ...])
Subject = TypeVar("Subject", int, str, ProgramKey, TaskId, AttemptId)


class IntervalSet:
    """Sorted, disjoint, half-open ranges. Every change costs one binary search and a short move.

    ``starts`` and ``count`` are public for reading: testing them for emptiness is cheaper than testing the set.
    """

    __slots__ = ("count", "starts", "stops")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        if not pairs:  # the usual case
            self.starts, self.stops, self.count = [], [], 0
            return
        ordered = sorted((start, stop) for start, stop in pairs if start < stop)
        self.starts = [start for start, _ in ordered]
        self.stops = [stop for _, stop in ordered]
        self.count = sum(stop - start for start, stop in ordered)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> IntervalSet:
        ranges = cls()
        for number in numbers:
            ranges.add(number)
        return ranges

    @classmethod
    def up_to(cls, last: int) -> IntervalSet:
        """Return the numbers 1 to ``last``."""
        ranges = cls()
        if last > 0:
            ranges.starts, ranges.stops, ranges.count = [1], [last + 1], last
        return ranges

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.starts, self.stops, strict=True))

    def others(self, last: int) -> IntervalSet:
        """Return the numbers from 1 to ``last`` that are not members."""
        if not self.starts:
            return IntervalSet.up_to(last)
        edges = [1, *(edge for pair in self.pairs() for edge in pair), last + 1]
        return IntervalSet(zip(edges[::2], edges[1::2], strict=True))

    def add(self, number: int) -> None:
        starts, stops = self.starts, self.stops
        last = stops[-1] if stops else -1
        if number >= last:  # after all members, the usual case
            self.count += 1
            if number > last:
                starts.append(number)
                stops.append(number + 1)
            else:
                stops[-1] = number + 1
            return
        at = bisect_right(starts, number)
        before = stops[at - 1] if at else -1
        if number < before:
            return
        self.count += 1
        joins_right = at < len(starts) and starts[at] == number + 1
        if before == number:
            if joins_right:
                stops[at - 1] = stops.pop(at)
                del starts[at]
            else:
                stops[at - 1] = number + 1
        elif joins_right:
            starts[at] = number
        else:
            starts.insert(at, number)
            stops.insert(at, number + 1)

    def discard(self, number: int) -> None:
        starts, stops = self.starts, self.stops
        if starts and starts[0] == number:  # the usual case
            self.count -= 1
            if stops[0] == number + 1:
                del starts[0], stops[0]
            else:
                starts[0] = number + 1
            return
        at = bisect_right(starts, number) - 1
        if at < 0 or number >= stops[at]:
            return
        self.count -= 1
        if stops[at] == number + 1:
            if starts[at] == number:
                del starts[at], stops[at]
            else:
                stops[at] = number
        elif starts[at] == number:
            starts[at] = number + 1
        else:
            starts.insert(at + 1, number + 1)
            stops.insert(at, number)

    def toggle(self, number: int, present: bool | int) -> None:
        if present:
            self.add(number)
        else:
            self.discard(number)

    def first_after(self, number: int) -> int | None:
        """Return the smallest member greater than ``number``."""
        starts = self.starts
        at = bisect_right(starts, number)
        if at and number + 1 < self.stops[at - 1]:
            return number + 1
        return starts[at] if at < len(starts) else None

    def after(self, number: int) -> Iterator[int]:
        """Yield the members greater than ``number``, in order."""
        starts, stops = self.starts, self.stops
        at = bisect_right(starts, number)
        if at:
            yield from range(number + 1, stops[at - 1])
        while at < len(starts):
            yield from range(starts[at], stops[at])
            at += 1

    def last_up_to(self, number: int) -> int | None:
        """Return the largest member that is at most ``number``."""
        at = bisect_right(self.starts, number)
        return min(number, self.stops[at - 1] - 1) if at else None

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.starts, number) - 1
        return at >= 0 and number < self.stops[at]

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[int]:
        for start, stop in zip(self.starts, self.stops, strict=True):
            yield from range(start, stop)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and self.pairs() == other.pairs()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"IntervalSet({self.pairs()})"


def first_after(members: Iterable[IntervalSet], number: int) -> int | None:
    """Return the smallest member of any set that is greater than ``number``."""
    first = None
    for each in members:
        if each.stops and each.stops[-1] > number + 1:
            found = each.starts[0] if each.starts[0] > number else each.first_after(number)
            if first is None or (found is not None and found < first):
                first = found
    return first


class Ranking(Generic[Subject, Rank]):
    """Order of subjects, each under one key or absent.

    The order is a plain list: a change moves a pointer for each later subject. This takes a microsecond for ten
    thousand subjects, less than any tree in Python takes for a thousand.
    """

    __slots__ = ("changes", "keys", "order")

    def __init__(self) -> None:
        self.changes = 0  # number of changes, so that an iteration can detect them
        self.keys: dict[Subject, Rank] = {}
        self.order: list[Rank] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranking) and (self.keys, self.order) == (other.keys, other.order)

    __hash__ = None  # type: ignore[assignment]

    def next_after(self, key: Rank | None) -> Rank | None:
        """Return the first key of the order, or the first after ``key``; None if there is none."""
        at = 0 if key is None else bisect_right(self.order, key)
        return self.order[at] if at < len(self.order) else None

    def place(self, subject: Subject, key: Rank | None) -> None:
        old = self.keys.get(subject)
        if old == key:
            return
        self.changes += 1
        order = self.order
        if old is not None:
            del order[0 if order[0] is old else bisect_left(order, old)]  # the first is removed most often
        if key is None:
            del self.keys[subject]
        else:
            self.keys[subject] = key
            insort(order, key)


class LongRanking(Generic[Subject, Rank]):
    """A Ranking for very many subjects, such as a job's tasks."""

    __slots__ = ("keys", "order")

    def __init__(self) -> None:
        self.keys: dict[Subject, Rank] = {}
        self.order: SortedList[Rank] = SortedList()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LongRanking) and self.keys == other.keys

    __hash__ = None  # type: ignore[assignment]

    def place(self, subject: Subject, key: Rank | None) -> None:
        old = self.keys.get(subject)
        if old == key:
            return
        if old is not None:
            self.order.remove(old)
            del self.keys[subject]
        if key is not None:
            self.keys[subject] = key
            self.order.add(key)
