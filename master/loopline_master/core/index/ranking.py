"""Rankings: subjects in the order of a key that changes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any, Generic, TypeVar

from sortedcontainers import SortedList

from loopline_master.core.estimates.program_key import ProgramKey

Rank = TypeVar("Rank", bound=tuple[Any, ...])
Subject = TypeVar("Subject", int, str, ProgramKey)


class Ranking(Generic[Subject, Rank]):
    """Each subject stands under one key, or not at all.

    The order is a plain list: a change moves a pointer for each subject behind it, which of ten thousand takes a
    microsecond, and less than any tree in Python of a thousand.
    """

    __slots__ = ("changes", "keys", "order")

    def __init__(self) -> None:
        self.changes = 0  # so many so far: whoever goes through the order sees that it is another one now
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
            del order[0 if order[0] is old else bisect_left(order, old)]  # the first is taken most often
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
