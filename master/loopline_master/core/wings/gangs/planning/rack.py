"""The rack: a grid of nodes as one integer, and Bottom-Left on it.

A set of cells is an integer with one bit for each cell, row after row from the bottom, and one more bit at the end of
each row that is never free: it collides with any rectangle that would extend beyond the right edge. Rectangles of w x
h that fit are found for the whole rack at once, by shifting and masking in about log w + log h steps. The lowest
remaining bit has the least y, and within it the least x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Protocol

from loopline_master.core.wings.gangs.planning.ground import Planned

Cells = int
"""A set of cells, one bit each."""
Place = tuple[int, int]
"""x and y of a rectangle's lower left cell."""


class Rectangle(Planned, Protocol):
    """A job that takes up a rectangle of ``width`` x ``height`` nodes."""

    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Rack:
    """A rack of ``width`` x ``height`` nodes: the ground of the rack paper."""

    width: int = 16
    height: int = 16

    @property
    def nodes(self) -> int:
        return self.width * self.height

    @property
    def empty(self) -> Cells:
        return 0

    def occupy(self, piece: Cells, cells: Cells) -> Cells:
        return piece | cells

    def free(self, piece: Cells, cells: Cells) -> Cells:
        return piece & ~cells

    def releases(self, before: Cells, after: Cells) -> bool:
        return before & ~after != 0

    def place(self, pieces: Sequence[Cells], job: Rectangle, start: int) -> Place | None:
        """Return the Bottom-Left place where the job fits throughout the pieces; None if there is none."""
        return self.bottom_left(reduce(or_, pieces), job.width, job.height)

    def cells(self, job: Rectangle, place: Place) -> Cells:
        return self.rectangle(place, job.width, job.height)

    def bottom_left(self, taken: Cells, width: int, height: int) -> Place | None:
        """Return the place of least y, then least x, where the rectangle avoids ``taken``; None if there is none."""
        free = _all(self.width, self.height) & ~taken
        if free.bit_count() < width * height:
            return None
        for shift in _shifts(self.width + 1, width, height):
            free &= free >> shift
            if not free:
                return None
        y, x = divmod((free & -free).bit_length() - 1, self.width + 1)
        return x, y

    def rectangle(self, place: Place, width: int, height: int) -> Cells:
        """Return the cells of a rectangle at ``place``."""
        return _rectangle(self.width + 1, width, height) << (place[1] * (self.width + 1) + place[0])


@cache
def _all(width: int, height: int) -> Cells:
    return _rectangle(width + 1, width, height)


@cache
def _rectangle(row: int, width: int, height: int) -> Cells:
    """Return the cells of a rectangle at the origin, in rows of ``row`` bits."""
    return sum(((1 << width) - 1) << (row * y) for y in range(height))


@cache
def _shifts(row: int, width: int, height: int) -> tuple[int, ...]:
    """Return the shifts to mask with, one after the other, that keep the cells where width x height fits."""
    return (*doublings(width), *(row * step for step in doublings(height)))


@cache
def doublings(length: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... and a remainder, whose sum is ``length`` - 1."""
    steps, reach = [], 1
    while reach < length:
        step = min(reach, length - reach)
        steps.append(step)
        reach += step
    return tuple(steps)
