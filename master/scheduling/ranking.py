"""Subjects in the order of a key that changes."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from sortedcontainers import SortedList

from master.scheduling.naming import ProgramKey

Rank = TypeVar("Rank", bound=tuple[Any, ...])
Subject = TypeVar("Subject", int, str, ProgramKey)


class Ranking(Generic[Subject, Rank]):
    """Each subject stands under one key, or not at all."""

    __slots__ = ("changes", "keys", "order")

    def __init__(self) -> None:
        self.changes = 0  # so many so far: whoever goes through the order sees that it is another one now
        self.order: SortedList[Rank] = SortedList()
        self.keys: dict[Subject, Rank] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranking) and self.keys == other.keys and list(self.order) == list(other.order)

    __hash__ = None  # type: ignore[assignment]

    def next_after(self, key: Rank | None) -> Rank | None:
        """The first in the order; after this key."""
        if key is None:
            return self.order[0] if self.keys else None
        return next(self.order.irange(key, inclusive=(False, True)), None)

    def place(self, subject: Subject, key: Rank | None) -> None:
        old = self.keys.get(subject)
        if old == key:
            return
        self.changes += 1
        if old is not None:
            self.order.remove(old)
            del self.keys[subject]
        if key is not None:
            self.keys[subject] = key
            self.order.add(key)
