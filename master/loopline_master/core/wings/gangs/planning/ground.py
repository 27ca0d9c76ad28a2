"""Grounds: places for a planner's jobs, such as a rack of nodes or the computers of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Planned(Protocol):
    """A job in the planner's view: its number, and how many time steps its place is kept."""

    @property
    def number(self) -> int: ...
    @property
    def limit(self) -> int: ...


JobT = TypeVar("JobT", bound=Planned)
JobT_contra = TypeVar("JobT_contra", bound=Planned, contravariant=True)
PlaceT = TypeVar("PlaceT")
"""Place of a job."""
CellsT = TypeVar("CellsT")
"""Cells that a job occupies there."""
CellsT_contra = TypeVar("CellsT_contra", contravariant=True)
PieceT = TypeVar("PieceT")
"""Occupation during a piece of time."""


class Occupation(Protocol[PieceT, CellsT_contra]):
    """Arithmetic of occupation. The caller takes only free cells, and frees only taken ones."""

    @property
    def empty(self) -> PieceT:
        """The empty piece of time."""

    def occupy(self, piece: PieceT, cells: CellsT_contra) -> PieceT:
        """Return the piece with these cells taken, too."""

    def free(self, piece: PieceT, cells: CellsT_contra) -> PieceT:
        """Return the piece without these cells."""

    def releases(self, before: PieceT, after: PieceT) -> bool:
        """True if some cell that is taken in ``before`` is free in ``after``."""


class Ground(Occupation[PieceT, CellsT], Protocol[JobT_contra, PlaceT, PieceT, CellsT]):
    """Ground where a job is placed for the duration of certain pieces of time."""

    def place(self, pieces: Sequence[PieceT], job: JobT_contra, start: int) -> PlaceT | None:
        """Return the place where the job fits throughout the pieces, from ``start`` on; None if there is none."""

    def cells(self, job: JobT_contra, place: PlaceT) -> CellsT:
        """Return the cells that the job occupies at ``place``."""
