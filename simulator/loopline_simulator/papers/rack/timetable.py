"""The timetable of taken cells: pieces of time with constant occupation; the last piece is endless and empty."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from loopline_simulator.papers.rack.rack import Cells


class Timetable:
    """Cells taken from a start to an end, in whole steps of time. The caller ensures that cells it takes are free."""

    __slots__ = ("_cells", "_starts")

    def __init__(self, start: int = 0) -> None:
        self._starts = [start]  # of the pieces
        self._cells: list[Cells] = [0]  # that are taken in each

    def take(self, start: int, end: int, cells: Cells) -> None:
        first, last = self._cut(start), self._cut(end)
        for piece in range(first, last):
            self._cells[piece] |= cells
        self._join(last)
        self._join(first)

    def free(self, start: int, end: int, cells: Cells) -> None:
        first, last = self._cut(start), self._cut(end)
        for piece in range(first, last):
            self._cells[piece] &= ~cells
        self._join(last)
        self._join(first)

    def taken(self, start: int, end: int) -> Cells:
        """Return the cells taken at any time between ``start`` and ``end``."""
        pieces, starts = self._cells, self._starts
        piece = bisect_right(starts, start)
        cells, count = pieces[piece - 1], len(starts)
        while piece < count and starts[piece] < end:
            cells |= pieces[piece]
            piece += 1
        return cells

    def next_release(self, after: int) -> int:
        """Return the first time after ``after`` at which a cell becomes free: until then, nothing new fits."""
        pieces = self._cells
        piece = bisect_right(self._starts, after)
        while not pieces[piece - 1] & ~pieces[piece]:
            piece += 1
        return self._starts[piece]

    @property
    def last(self) -> int:
        """The time from which all cells are free."""
        return self._starts[-1]

    def forget(self, before: int) -> None:
        """Forget the pieces that ended before this time."""
        past = bisect_right(self._starts, before) - 1
        if past > 0:
            del self._starts[:past], self._cells[:past]

    def _cut(self, time: int) -> int:
        """Return the piece that starts at ``time``; one is cut there if necessary."""
        piece = bisect_left(self._starts, time)
        if piece == len(self._starts) or self._starts[piece] != time:
            self._starts.insert(piece, time)
            self._cells.insert(piece, self._cells[piece - 1])
        return piece

    def _join(self, piece: int) -> None:
        """Join a piece with the one before it if they are equal."""
        if piece and self._cells[piece] == self._cells[piece - 1]:
            del self._starts[piece], self._cells[piece]
