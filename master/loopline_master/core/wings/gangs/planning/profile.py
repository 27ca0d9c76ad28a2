"""The profile of occupation over time: pieces of constant occupation, the last without end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Generic

from loopline_master.core.wings.gangs.planning.ground import CellsT, Occupation, PieceT


class Profile(Generic[PieceT, CellsT]):
    """Cells taken from a start to an end, or (None) for ever; times are whole steps."""

    __slots__ = ("_occupation", "_pieces", "_starts")

    def __init__(self, occupation: Occupation[PieceT, CellsT], start: int = 0) -> None:
        self._occupation = occupation
        self._starts = [start]  # of the pieces
        self._pieces = [occupation.empty]

    def occupy(self, start: int, end: int | None, cells: CellsT) -> None:
        self._change(start, end, cells, self._occupation.occupy)

    def free(self, start: int, end: int | None, cells: CellsT) -> None:
        self._change(start, end, cells, self._occupation.free)

    def free_all(self, cells: Iterable[tuple[int, CellsT]]) -> None:
        """Free cells, each from a time on for ever, in the order of these times; none is before ``last``."""
        piece = self._pieces[-1]
        for start, freed in cells:
            piece = self._occupation.free(piece, freed)
            if start == self._starts[-1]:
                self._pieces[-1] = piece
            else:
                self._starts.append(start)
                self._pieces.append(piece)

    def over(self, start: int, end: int | None) -> list[PieceT]:
        """Return the pieces between ``start`` and ``end``."""
        first = bisect_right(self._starts, start) - 1
        last = None if end is None else max(first + 1, bisect_left(self._starts, end, first))
        return self._pieces[first:last]

    def next_release(self, after: int) -> int:
        """Return the first time after ``after``, which is before ``last``, when a cell becomes free.

        Until then, nothing new fits.
        """
        pieces, releases = self._pieces, self._occupation.releases
        piece = bisect_right(self._starts, after)
        while not releases(pieces[piece - 1], pieces[piece]):
            piece += 1
        return self._starts[piece]

    @property
    def last(self) -> int:
        """The time of the last change: from then on all cells are free except those taken for ever."""
        return self._starts[-1]

    def saved(self) -> tuple[list[int], list[PieceT]]:
        """Return a copy of the profile, for ``restore``."""
        return self._starts.copy(), self._pieces.copy()

    def restore(self, saved: tuple[list[int], list[PieceT]]) -> None:
        self._starts, self._pieces = saved

    def forget(self, before: int) -> None:
        """Forget the pieces that ended before this time."""
        past = bisect_right(self._starts, before) - 1
        if past > 0:
            del self._starts[:past], self._pieces[:past]

    def _change(self, start: int, end: int | None, cells: CellsT, change: Callable[[PieceT, CellsT], PieceT]) -> None:
        first = self._cut(start)
        last = len(self._starts) if end is None else self._cut(end)
        for piece in range(first, last):
            self._pieces[piece] = change(self._pieces[piece], cells)
        if end is not None:
            self._join(last)
        self._join(first)

    def _cut(self, time: int) -> int:
        """Return the piece that starts at ``time``; one is cut there if necessary."""
        piece = bisect_left(self._starts, time)
        if piece == len(self._starts) or self._starts[piece] != time:
            self._starts.insert(piece, time)
            self._pieces.insert(piece, self._pieces[piece - 1])
        return piece

    def _join(self, piece: int) -> None:
        """Join a piece with the previous one if they are equal."""
        if piece and self._pieces[piece] == self._pieces[piece - 1]:
            del self._starts[piece], self._pieces[piece]
