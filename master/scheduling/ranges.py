"""A set of whole numbers kept as ranges: a million tasks that nobody has started yet cost two numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class Ranges:
    """Sorted, disjoint, half-open ranges. Every change costs one binary search and a short move."""

    __slots__ = ("_count", "_starts", "_stops")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        ordered = sorted((start, stop) for start, stop in pairs if start < stop)
        self._starts = [start for start, _ in ordered]
        self._stops = [stop for _, stop in ordered]
        self._count = sum(stop - start for start, stop in ordered)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Ranges:
        ranges = cls()
        for number in numbers:
            ranges.add(number)
        return ranges

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._stops, strict=True))

    def add(self, number: int) -> None:
        at = bisect_right(self._starts, number)
        if at and number < self._stops[at - 1]:
            return
        self._count += 1
        joins_left = at > 0 and self._stops[at - 1] == number
        joins_right = at < len(self._starts) and self._starts[at] == number + 1
        if joins_left and joins_right:
            self._stops[at - 1] = self._stops.pop(at)
            del self._starts[at]
        elif joins_left:
            self._stops[at - 1] = number + 1
        elif joins_right:
            self._starts[at] = number
        else:
            self._starts.insert(at, number)
            self._stops.insert(at, number + 1)

    def discard(self, number: int) -> None:
        starts, stops = self._starts, self._stops
        at = bisect_right(starts, number) - 1
        if at < 0 or number >= stops[at]:
            return
        self._count -= 1
        is_first, is_last = starts[at] == number, stops[at] == number + 1
        if is_first and is_last:
            del starts[at], stops[at]
        elif is_first:
            starts[at] = number + 1
        elif is_last:
            stops[at] = number
        else:
            starts.insert(at + 1, number + 1)
            stops.insert(at, number)

    def first_after(self, number: int) -> int | None:
        """The smallest member greater than ``number``."""
        starts = self._starts
        at = bisect_right(starts, number)
        if at and number + 1 < self._stops[at - 1]:
            return number + 1
        return starts[at] if at < len(starts) else None

    def last_up_to(self, number: int) -> int | None:
        """The largest member that is not greater than ``number``."""
        at = bisect_right(self._starts, number)
        return min(number, self._stops[at - 1] - 1) if at else None

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._stops[at]

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __iter__(self) -> Iterator[int]:
        for start, stop in zip(self._starts, self._stops, strict=True):
            yield from range(start, stop)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.pairs() == other.pairs()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranges({self.pairs()})"
